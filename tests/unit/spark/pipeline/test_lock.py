"""One driver at a time holds a checkpoint, and its lock ends with it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from pyspark.errors import PySparkException

from headgate.errors import CheckpointLocked
from headgate.pipelines import has_driver, process_of
from headgate.spark.pipeline.lock import (
    CheckpointLock,
    hold_lock,
    refuse_locked,
    release_ended,
    release_lock,
)

HOLDER = """
import sys
from pathlib import Path
from headgate.spark.pipeline.lock import CheckpointLock
lock = CheckpointLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def another_driver(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the checkpoint."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_driver_is_refused_with_who_the_first_one_is(
    tmp_path: Path, another_driver: subprocess.Popen[str]
) -> None:
    with pytest.raises(CheckpointLocked) as refused:
        CheckpointLock(tmp_path)
    assert refused.value.holder["pid"] == another_driver.pid
    said = f"is in use by another driver (pid {another_driver.pid}, host {socket.gethostname()}"
    assert said in str(refused.value)
    assert "stop that driver first" in str(refused.value)


def test_refuse_locked_names_the_holder_and_changes_nothing(
    tmp_path: Path, another_driver: subprocess.Popen[str]
) -> None:
    with pytest.raises(CheckpointLocked) as refused:
        refuse_locked(tmp_path)
    assert refused.value.holder["pid"] == another_driver.pid
    refuse_locked(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    another_driver.kill()
    another_driver.wait()
    refuse_locked(tmp_path)
    CheckpointLock(tmp_path).release()


def test_a_checkpoint_has_a_driver_as_long_as_its_holder_lives(
    tmp_path: Path, another_driver: subprocess.Popen[str]
) -> None:
    assert has_driver(tmp_path)
    another_driver.kill()
    another_driver.wait()
    assert not has_driver(tmp_path)
    assert not has_driver(tmp_path / "new")
    lock = CheckpointLock(tmp_path)
    assert has_driver(tmp_path)
    lock.release()
    assert not has_driver(tmp_path)


def test_the_lock_of_a_killed_driver_is_released(
    tmp_path: Path, another_driver: subprocess.Popen[str]
) -> None:
    another_driver.kill()
    another_driver.wait()
    CheckpointLock(tmp_path).release()


def test_one_of_many_concurrent_drivers_gets_the_checkpoint(tmp_path: Path, full: bool) -> None:
    contenders = 8
    for number in range(300 if full else 20):
        barrier = Barrier(contenders)

        def contend(
            place: Path = tmp_path / str(number), together: Barrier = barrier
        ) -> CheckpointLock | None:
            together.wait(10)
            try:
                return CheckpointLock(place)
            except CheckpointLocked:
                return None

        with ThreadPoolExecutor(contenders) as pool:
            running = [pool.submit(contend) for _ in range(contenders)]
            won = [lock for each in running if (lock := each.result()) is not None]
        assert len(won) == 1
        won[0].release()


def test_a_lock_that_was_released_is_free_also_while_a_forked_child_lives(tmp_path: Path) -> None:
    lock = CheckpointLock(tmp_path)
    inherited = os.dup(lock._fd)  # as a child of a fork has it
    lock.release()
    lock.release()
    CheckpointLock(tmp_path).release()
    os.close(inherited)


class Query:
    """A query that is asked through Spark Connect."""

    def __init__(self, condition: str) -> None:
        self.runId, self.condition = condition, condition

    @property
    def isActive(self) -> bool:
        raise PySparkException("cannot be asked", errorClass=self.condition, messageParameters={})


def test_a_query_whose_session_has_ended_holds_no_lock(tmp_path: Path) -> None:
    hold_lock(CheckpointLock(tmp_path), Query("NO_ACTIVE_SESSION"))  # type: ignore[arg-type]
    release_ended()
    CheckpointLock(tmp_path).release()


def test_a_query_with_another_error_keeps_its_lock(tmp_path: Path) -> None:
    query = Query("UNAVAILABLE")
    hold_lock(CheckpointLock(tmp_path), query)  # type: ignore[arg-type]
    try:
        with pytest.raises(PySparkException):
            release_ended()
        with pytest.raises(CheckpointLocked):
            CheckpointLock(tmp_path)
    finally:
        release_lock(query)  # type: ignore[arg-type]


def test_the_driver_after_a_killed_one_waits_for_its_java_process(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as java:
        left = {"pid": 1, "host": socket.gethostname(), "java": process_of(java.pid)}
        (tmp_path / "headgate").mkdir()
        (tmp_path / "headgate" / "lock").write_text(json.dumps(left))
        with pytest.raises(CheckpointLocked, match=f"pid {java.pid}"):
            CheckpointLock(tmp_path, timeout_s=0.1)
        java.kill()
        java.wait()
        CheckpointLock(tmp_path, timeout_s=10).release()


def test_a_new_process_with_the_number_of_an_ended_java_is_not_waited_for(
    tmp_path: Path,
) -> None:
    left = {"pid": 1, "host": socket.gethostname(), "java": [os.getpid(), "0"]}
    (tmp_path / "headgate").mkdir()
    (tmp_path / "headgate" / "lock").write_text(json.dumps(left))
    CheckpointLock(tmp_path, timeout_s=0).release()


@pytest.mark.parametrize("left", ["", "no json", "[1]", '{"java": null}'])
def test_the_content_of_a_released_lock_file_does_not_matter(tmp_path: Path, left: str) -> None:
    (tmp_path / "headgate").mkdir()
    (tmp_path / "headgate" / "lock").write_text(left)
    CheckpointLock(tmp_path).release()
