"""WriteTurns of processes that write to one file: given on at once, and never waited for long."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate.queues.sqlite.write_turns import WriteTurns

PATIENCE = 30.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "q.db-wal").touch()
    return tmp_path / "q.db"


@pytest.fixture
def rivals(path: Path) -> Iterator[tuple[WriteTurns, WriteTurns]]:
    """Our turns and those of another process: locks of two descriptors exclude each other as those of two processes."""
    ours, theirs = WriteTurns(path), WriteTurns(path)
    yield ours, theirs
    ours.close()
    theirs.close()


def is_free(path: Path) -> bool:
    descriptor = os.open(f"{path}-wal", os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        os.sched_yield()


def test_a_turn_keeps_others_from_theirs_and_ends(
    path: Path, rivals: tuple[WriteTurns, WriteTurns]
) -> None:
    ours, _ = rivals
    for _ in range(2):
        with ours:
            assert not is_free(path)
        assert is_free(path)


def test_a_turn_begins_when_that_of_another_process_ends(
    path: Path, rivals: tuple[WriteTurns, WriteTurns], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = rivals
    monkeypatch.setattr("headgate.queues.sqlite.write_turns._LONGEST_WAIT_S", PATIENCE)
    order: list[str] = []
    is_asking = threading.Event()

    def take_ours() -> None:
        is_asking.set()
        with ours:
            order.append("ours")
            assert not is_free(path)

    thread = threading.Thread(target=take_ours)
    with theirs:
        thread.start()
        is_asking.wait(PATIENCE)
        wait_until(lambda: ours._is_waiting)
        order.append("theirs")
    thread.join(PATIENCE)
    assert order == ["theirs", "ours"]
    assert is_free(path)


def test_a_turn_that_does_not_end_is_not_waited_for_and_not_taken_afterwards(
    path: Path, rivals: tuple[WriteTurns, WriteTurns]
) -> None:
    ours, theirs = rivals
    with theirs:
        for _ in range(3):  # the first one waits briefly, the others do not
            with ours:
                assert not ours._has_turn
        assert ours._is_waiting
    wait_until(lambda: not ours._is_waiting)  # its thread gets the lock, and gives it back
    assert is_free(path)
    with ours:
        assert not is_free(path)


def test_an_interrupted_wait_leaves_no_turn_behind(
    path: Path, rivals: tuple[WriteTurns, WriteTurns], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = rivals

    def interrupt(*given: object) -> None:
        raise KeyboardInterrupt

    with theirs:
        ours._run = lambda: None  # type: ignore[method-assign]
        monkeypatch.setattr(ours._changed, "wait_for", interrupt)
        with pytest.raises(KeyboardInterrupt), ours:
            pass
    assert is_free(path)


def test_there_are_no_turns_without_a_log(tmp_path: Path) -> None:
    turns = WriteTurns(tmp_path / "q.db")
    with turns:
        assert not turns._has_turn
    (tmp_path / "q.db-wal").touch()
    with turns:
        assert not is_free(tmp_path / "q.db")
    turns.close()


def test_a_log_that_was_removed_is_opened_anew(path: Path) -> None:
    turns = WriteTurns(path)
    with turns:
        pass
    turns.let_go()
    Path(f"{path}-wal").unlink()
    Path(f"{path}-wal").touch()
    with turns:
        assert not is_free(path)
    turns.close()


def test_the_log_is_closed_and_no_turn_taken_any_more(
    path: Path,
) -> None:
    turns = WriteTurns(path)
    with turns:
        descriptor = turns._descriptor
    turns.close()
    turns.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    with turns:
        assert is_free(path)


def test_a_thread_that_waits_in_vain_closes_the_log_when_it_is_done(
    path: Path, rivals: tuple[WriteTurns, WriteTurns]
) -> None:
    _, theirs = rivals
    turns = WriteTurns(path)
    with theirs, turns:
        thread = turns._thread
        assert thread is not None
    turns.close()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(turns._descriptor)
    assert is_free(path)


def test_a_child_does_not_keep_the_turn_of_its_parent(
    path: Path, rivals: tuple[WriteTurns, WriteTurns]
) -> None:
    ours, _ = rivals
    may_end_r, may_end_w = os.pipe()
    is_done_r, is_done_w = os.pipe()
    ours.__enter__()
    if (child := os.fork()) == 0:
        os.close(may_end_w)
        ours.leave_to_parent()
        os.write(is_done_w, b"x")
        os.read(may_end_r, 1)  # until the parent closes its end
        os._exit(0)
    try:
        os.read(is_done_r, 1)
        assert not is_free(path)
        os.close(ours._descriptor)  # as if the parent were killed: it gives nothing back
        ours._begin()
        assert is_free(path)
    finally:
        for descriptor in (may_end_r, may_end_w, is_done_r, is_done_w):
            os.close(descriptor)
        os.waitpid(child, 0)
