"""A routing pipeline that is killed at random moments and started again: every sink has every message once.

Two deaths by default, the driver's and a Python worker's; more than ten with HEADGATE_FULL=1, executors and a worker of
a standalone cluster among them.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headgate.spark.java import java_home
from tests.integration.spark.pipeline_process import (
    Pipelines,
    after_some_batches,
    descendants,
    finish,
    kill_one,
    kill_session,
    wanted,
)

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

# The fork server, Spark's daemons and their workers, which are all forks of it; or one of a cluster's executors.
WORKER, EXECUTOR = "headgate.spark.fork_server", "CoarseGrainedExecutorBackend"
# Only the lines that `said` waits for: the pipe is not read further, and a full pipe blocks its writer.
LOGGING = """
rootLogger.level = error
rootLogger.appenderRef.out.ref = out
logger.deploy.name = org.apache.spark.deploy
logger.deploy.level = info
logger.runner.name = org.apache.spark.deploy.worker.ExecutorRunner
logger.runner.level = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %m%n
"""
LOCAL = "local[2]"


@pytest.fixture
def pipelines(tmp_path, postgres_url) -> Pipelines:
    return Pipelines.make(tmp_path, postgres_url)


def check(pipelines: Pipelines) -> None:
    """Each sink has exactly its messages, and no staged file is left behind."""
    for queue in ("urgent", "orders", "large"):
        assert pipelines.stored(queue) == wanted(queue, pipelines.sent), queue
    assert pipelines.staged() == []


def complete(pipelines: Pipelines, master: str) -> None:
    with pipelines.running(master) as process:
        assert finish(process) == 0, pipelines.log()


def kill_driver(pipelines: Pipelines, random: Random) -> bool | None:
    """False: there is more to do; None: it was done before it could be killed."""
    pipelines.publish()
    with pipelines.running(LOCAL) as process:
        killed = after_some_batches(process, random)
        kill_session(process)
    return False if killed else None


def kill_part(pipelines: Pipelines, random: Random, word: str, master: str) -> bool | None:
    """The same for a part of it. True when the query got over it; otherwise it is to be started again."""
    pipelines.publish()
    with pipelines.running(master) as process:
        killed = after_some_batches(process, random) and kill_one(process, word, random)
        done = finish(process) == 0
    return done if killed else None


def repeated(times: int, kill: Callable[..., bool | None], *arguments: Any) -> bool | None:
    """Until so many have died at work; how the last of them ended."""
    ended = None
    for _ in range(times):
        while (ended := kill(*arguments)) is None:
            pass
    return ended


def test_a_killed_pipeline_delivers_every_message_once(pipelines, seed, full):
    random = Random(seed)
    repeated(8 if full else 1, kill_driver, pipelines, random)
    if not repeated(4 if full else 1, kill_part, pipelines, random, WORKER, LOCAL):
        complete(pipelines, LOCAL)
    check(pipelines)
    if full:
        shutil.rmtree(pipelines.folder / "checkpoint")
        complete(pipelines, LOCAL)
        assert pipelines.stored("urgent") == sorted(wanted("urgent", pipelines.sent) * 2)


@pytest.mark.slow
def test_no_message_is_lost_when_an_executor_is_killed(pipelines, seed, full):
    if not full:
        pytest.skip("a cluster of processes takes its time: HEADGATE_FULL=1")
    random, master = Random(seed), "local-cluster[2,1,1024]"
    if not repeated(2, kill_part, pipelines, random, EXECUTOR, master):
        complete(pipelines, master)
    check(pipelines)


@pytest.mark.slow
def test_no_message_is_lost_when_a_worker_of_a_cluster_is_killed(pipelines, seed, full):
    if not full:
        pytest.skip("a cluster of processes takes its time: HEADGATE_FULL=1")
    random = Random(seed)
    pipelines.publish()
    with standalone_cluster(pipelines.folder / "spark", workers=2) as (master, workers):
        with pipelines.running(master) as process:
            assert after_some_batches(process, random), pipelines.log()
            victim = random.choice(workers)
            for pid in [*descendants(victim.pid), victim.pid]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            done = finish(process) == 0
        if not done:
            complete(pipelines, master)
    check(pipelines)


@contextmanager
def standalone_cluster(
    folder: Path, workers: int
) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A master and its workers, from the Spark that pip installed."""
    folder.mkdir()
    started = [spawned(folder, "master.Master", "--port", "0", "--webui-port", "0")]
    try:
        master = said(started[0], r"Starting Spark master at (spark://\S+)")
        for _ in range(workers):
            options = ["--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir"]
            started.append(spawned(folder, "worker.Worker", *options, str(folder), master))
            said(started[-1], r"(Successfully registered) with master")
        yield master, started[1:]
    finally:
        for process in started:
            kill_session(process)


def spawned(folder: Path, role: str, *options: str) -> subprocess.Popen[bytes]:
    import pyspark

    logging = folder / "log4j2.properties"
    logging.write_text(LOGGING)
    environ = {
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": f"-Dlog4j2.configurationFile={logging.as_uri()}",
    }
    program = str(Path(pyspark.__file__).parent / "bin/spark-class")
    return subprocess.Popen(
        [program, f"org.apache.spark.deploy.{role}", "--host", "127.0.0.1", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environ,
        start_new_session=True,
    )


def said(process: subprocess.Popen[bytes], pattern: str) -> str:
    """What it prints when it is ready."""
    assert process.stdout is not None
    for line in process.stdout:
        if hit := re.search(pattern, line.decode()):
            return hit[1]
    raise AssertionError(f"it ended without saying {pattern}")
