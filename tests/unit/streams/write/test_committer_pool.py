"""The threads behind all writers: few, whoever waits for a slow disk holds up nobody else, and they end with the last job."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from headgate.message import Message
from headgate.streams.stream import Stream
from headgate.streams.write import committer_pool
from headgate.streams.write.committer_pool import MOST_THREADS, CommitterPool
from tests.forked import in_child

PATIENCE = 30


class Work:
    """A run that says so, and waits while `gate` is closed."""

    def __init__(self) -> None:
        self.runs, self.gate = threading.Semaphore(0), threading.Event()
        self.gate.set()
        self.due: float | None = None
        self.at_once = self.most_at_once = 0

    def __call__(self) -> float | None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.runs.release()
        assert self.gate.wait(PATIENCE)
        self.at_once -= 1
        return self.due

    def wait_for_run(self) -> None:
        assert self.runs.acquire(timeout=PATIENCE)


@pytest.fixture
def pool() -> Iterator[CommitterPool]:
    made = CommitterPool()
    yield made
    assert made._threads == 0, "every test closes its jobs"


def test_a_job_runs_at_once_when_it_is_called_and_when_it_is_due(pool: CommitterPool) -> None:
    work = Work()
    job = pool.add(work)
    work.wait_for_run()
    work.due = time.monotonic() + 0.005
    job.call()
    work.wait_for_run()
    work.wait_for_run()  # what was due in the past is due now
    work.due = None
    job.close()


def test_a_job_that_is_called_while_it_runs_runs_once_more_and_never_twice_at_a_time(
    pool: CommitterPool,
) -> None:
    work, other = Work(), Work()
    work.gate.clear()
    job, second = pool.add(work), pool.add(other)
    work.wait_for_run()
    for _ in range(3):
        job.call()
        second.call()
        other.wait_for_run()
    work.gate.set()
    work.wait_for_run()
    job.close()
    second.close()
    assert work.most_at_once == 1


def test_closing_waits_for_the_run_under_way_and_there_is_none_after_it(
    pool: CommitterPool,
) -> None:
    work = Work()
    work.gate.clear()
    job = pool.add(work)
    work.wait_for_run()
    job.call()
    threading.Timer(0.01, work.gate.set).start()
    job.close()
    assert work.at_once == 0
    job.call()
    job.close()
    assert not work.runs.acquire(blocking=False)


def test_quick_jobs_share_two_threads(pool: CommitterPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer_pool, "OVERDUE_S", 1000.0)
    works = [Work() for _ in range(100)]
    jobs = [pool.add(work) for work in works]
    for _ in range(5):
        for work, job in zip(works, jobs, strict=True):
            job.call()
            work.wait_for_run()
        assert pool._threads <= 2
    for job in jobs:
        job.close()


def test_jobs_that_are_blocked_hold_up_no_others_as_long_as_they_are_fewer_than_the_threads(
    pool: CommitterPool,
) -> None:
    blocked = [Work() for _ in range(MOST_THREADS - 1)]
    for work in blocked:
        work.gate.clear()
    jobs = [pool.add(work) for work in blocked]
    for work in blocked:
        work.wait_for_run()
    quick = [Work() for _ in range(20)]
    for work in quick:
        jobs.append(pool.add(work))
        work.wait_for_run()
    assert pool._threads <= MOST_THREADS
    for work in blocked:
        work.gate.set()
    for job in jobs:
        job.close()


def test_there_are_never_more_threads_than_the_most_and_all_jobs_run_in_the_end(
    pool: CommitterPool,
) -> None:
    works = [Work() for _ in range(3 * MOST_THREADS)]
    for work in works:
        work.gate.clear()
    jobs = [pool.add(work) for work in works]
    for work in works[:MOST_THREADS]:
        work.wait_for_run()
    assert pool._threads == MOST_THREADS
    for work in works:
        work.gate.set()
    for work in works[MOST_THREADS:]:
        work.wait_for_run()
    for job in jobs:
        job.close()


def test_a_job_that_raises_ends_no_thread(
    pool: CommitterPool, caplog: pytest.LogCaptureFixture
) -> None:
    failed = threading.Event()

    def fail() -> None:
        failed.set()
        raise SystemExit

    bad = pool.add(fail)
    assert failed.wait(PATIENCE)
    failed.clear()
    bad.call()
    assert failed.wait(PATIENCE)
    bad.close()
    assert "is run again when it is called" in caplog.text


def test_jobs_come_and_go_from_many_threads(pool: CommitterPool) -> None:
    def come_and_go() -> None:
        for _ in range(100):
            work = Work()
            job = pool.add(work)
            work.wait_for_run()
            job.close()

    threads = [threading.Thread(target=come_and_go) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_has_a_pool_of_its_own() -> None:
    work = Work()
    job = committer_pool.start_job(work)
    work.wait_for_run()

    def work_in_child() -> int:
        own = Work()
        second = committer_pool.start_job(own)
        own.wait_for_run()
        second.close()
        return committer_pool._pool._threads

    assert in_child(work_in_child) == "0"
    job.call()
    work.wait_for_run()
    job.close()


# ---- many streams ------------------------------------------------------------------------------------


def create_streams(stack: ExitStack, path: Path, number: int) -> list[Stream]:
    """Create streams that sync very often."""
    soon = timedelta(milliseconds=1)
    return [
        stack.enter_context(Stream.create(path / str(i), linger=soon, fsync_interval=soon))
        for i in range(number)
    ]


def wait_for_message(stream: Stream, payload: bytes) -> None:
    with stream.consume(follow=True, timeout=timedelta(seconds=PATIENCE)) as consumer:
        assert any(message.payload == payload for message in consumer)


@pytest.mark.parametrize("number", [1, 3])
def test_streams_whose_sync_hangs_hold_up_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    hanging, hung, sync = threading.Event(), threading.Semaphore(0), os.fdatasync
    slow: set[str] = set()

    def hang(fd: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{fd}")).parent.name in slow:
            hung.release()
            assert hanging.wait(PATIENCE)
        sync(fd)

    with ExitStack() as stack:
        streams = create_streams(stack, tmp_path, 10)
        producers = [stream.producer() for stream in streams]
        slow.update(str(i) for i in range(number))
        monkeypatch.setattr(os, "fdatasync", hang)
        stack.callback(hanging.set)
        for producer in producers[:number]:
            producer.publish(Message(b"slow"))
            assert hung.acquire(timeout=PATIENCE)
        for stream, producer in list(zip(streams, producers, strict=True))[number:]:
            producer.publish(Message(b"quick"))
            wait_for_message(stream, b"quick")
        hanging.set()


def test_a_stream_whose_work_fails_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failed, sync = threading.Semaphore(0), os.fdatasync

    def fail(fd: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{fd}")).parent.name == "0":
            failed.release()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(fd)

    with ExitStack() as stack:
        streams = create_streams(stack, tmp_path, 5)
        producers = [stream.producer() for stream in streams]
        monkeypatch.setattr(os, "fdatasync", fail)
        producers[0].publish(Message(b"lost"))
        assert failed.acquire(timeout=PATIENCE)
        for stream, producer in list(zip(streams, producers, strict=True))[1:]:
            producer.publish(Message(b"stored"))
            wait_for_message(stream, b"stored")
        with pytest.raises(Exception, match="Input/output error"):
            streams[0].close()


def test_a_hundred_streams_with_consumers_take_two_threads_and_one_inotify_instance(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        streams = create_streams(stack, tmp_path, 100)
        producers = [stream.producer() for stream in streams]
        consumers = [stack.enter_context(stream.consume(follow=True)) for stream in streams]
        for number, (producer, consumer) in enumerate(zip(producers, consumers, strict=True)):
            producer.publish(Message(b"%d" % number))
            assert next(consumer).payload == b"%d" % number
        deadline = time.monotonic() + PATIENCE
        while committer_pool._pool._threads > 2:  # threads that waited for the disk end
            assert time.monotonic() < deadline
            time.sleep(0.001)
        files = [file.readlink() for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
        assert sum("inotify" in str(file) for file in files) == 1
