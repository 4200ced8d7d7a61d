"""The thread behind a writer: whatever goes wrong once, it is still there afterwards."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate import file_watch as wake
from headgate.errors import StreamWriteError
from headgate.message import Message
from headgate.streams import stream as stream_module
from headgate.streams.format import SEALED_SUFFIX
from headgate.streams.stream import Stream
from headgate.streams.write import committer as committer_module
from headgate.streams.write.inbox import write_deposit
from headgate.streams.write.writer import Writer

PATIENCE = 30
SOON = timedelta(milliseconds=1)
LATER = timedelta(hours=1)


class Failing:
    """Stands for a function that fails while `problem` is set, and says how often it was called."""

    def __init__(self, real: Callable[..., Any], problem: OSError) -> None:
        self.real, self.problem = real, problem
        self.calls = threading.Semaphore(0)
        self.mended = threading.Event()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self.mended.is_set():
            return self.real(*arguments, **named)
        self.calls.release()
        raise self.problem

    def wait_for_calls(self, number: int) -> None:
        for _ in range(number):
            assert self.calls.acquire(timeout=PATIENCE)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer_module, "_PAUSES_S", (0.001,))


@pytest.fixture
def quick_stream(tmp_path: Path) -> Iterator[Stream]:
    with Stream.create(tmp_path / "s", linger=SOON) as made:
        yield made


def wait_until_stored(stream: Stream, number: int) -> None:
    consumer = stream.consume(follow=True, timeout=timedelta(seconds=PATIENCE))
    for _ in range(number):
        next(consumer)
    consumer.close()


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EMFILE])
def test_the_committer_survives_an_inbox_that_cannot_be_listed_for_a_while(
    quick_stream: Stream, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(wake, "_add_watch", lambda inotify, directory: None)
    producer = quick_stream.producer()
    looking = Failing(os.scandir, OSError(number, os.strerror(number)))
    monkeypatch.setattr(os, "scandir", looking)
    looking.wait_for_calls(3)
    looking.mended.set()
    producer.publish(Message(b"a"))
    wait_until_stored(quick_stream, 1)


def test_background_work_that_fails_is_retried_and_logged(
    quick_stream: Stream, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    problem = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    adopting = Failing(committer_module.adopt, problem)
    monkeypatch.setattr(committer_module, "adopt", adopting)
    monkeypatch.setattr(committer_module, "_REPORT_AFTER", 1 << 30)
    with caplog.at_level(logging.WARNING):
        producer = quick_stream.producer()
        adopting.wait_for_calls(3)
    assert "background work failed, retrying in" in caplog.text
    assert "Too many open files" in caplog.text
    adopting.mended.set()
    producer.publish(Message(b"a"))
    wait_until_stored(quick_stream, 1)


@pytest.mark.parametrize("call", ["publish", "flush"])
def test_background_work_that_keeps_failing_is_raised_to_producers(
    quick_stream: Stream, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    reported, report = threading.Event(), Writer.report

    def report_and_say(writer: Writer, problem: StreamWriteError | None) -> None:
        report(writer, problem)
        if problem is not None:
            reported.set()

    adopting = Failing(committer_module.adopt, OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
    monkeypatch.setattr(committer_module, "adopt", adopting)
    monkeypatch.setattr(Writer, "report", report_and_say)
    producer = quick_stream.producer()
    assert reported.wait(PATIENCE)
    with pytest.raises(StreamWriteError, match=r"failed 5 times in a row.*Too many open files"):
        producer.publish(Message(b"refused")) if call == "publish" else producer.flush()
    producer.publish(Message(b"accepted"))  # the error was raised once
    producer.flush()
    assert [message.payload for message in quick_stream.consume()] == [b"accepted"]


def test_a_stream_whose_committer_cannot_start_releases_the_lock(
    quick_stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(stream_module, "Committer", refuse)
        with pytest.raises(StreamWriteError, match="Too many open files"):
            quick_stream.producer()
    with quick_stream.producer() as producer:
        producer.publish(Message(b"a"))
    assert quick_stream.next_offset == 1


# ---- dropped segments --------------------------------------------------------------------------------


def mapped_though_deleted(stream: Stream) -> list[str]:
    """The files of a stream that take space although they were dropped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if str(stream.path) in line and line.endswith("(deleted)")]


def write_sealed(stream: Stream, segments: int) -> None:
    for i in range(segments):
        with stream.producer() as producer:
            producer.publish(Message(b"%d" % i))
        stream.seal(all=True)


def test_segments_that_were_read_and_dropped_are_unmapped(quick_stream: Stream) -> None:
    write_sealed(quick_stream, 3)
    assert len(list(quick_stream.consume())) == 3
    assert str(quick_stream.path) in Path("/proc/self/maps").read_text()
    assert len(quick_stream.trim(before_offset=2)) == 2
    assert mapped_though_deleted(quick_stream) == []


def test_segments_that_retention_drops_while_writing_are_unmapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten, forget = threading.Event(), Stream._release_deleted

    def forget_and_say(stream: Stream) -> None:
        forget(stream)
        if not list(stream.path.glob(f"*{SEALED_SUFFIX}")):
            forgotten.set()

    monkeypatch.setattr(Stream, "_release_deleted", forget_and_say)
    with Stream.create(tmp_path / "s", linger=SOON, segment_bytes=4096, max_bytes=1) as stream:
        write_sealed(stream, 1)
        list(stream.consume())
        with stream.producer() as producer:
            for _ in range(3):
                producer.publish(Message(b"x" * 5000))
                producer.flush()
            assert forgotten.wait(PATIENCE)
    assert mapped_though_deleted(stream) == []


def test_a_following_consumer_unmaps_segments_that_another_process_dropped(
    quick_stream: Stream,
) -> None:
    write_sealed(quick_stream, 3)
    with Stream.open(quick_stream.path) as other, other.consume(follow=True) as follower:
        while follower.poll() is not None:
            pass
        quick_stream.trim(before_offset=2)
        assert follower.poll() is None
        assert mapped_though_deleted(quick_stream) == []


def test_work_that_begins_before_the_committer_is_complete_fails_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = committer_module.start_job

    def start_at_once(run: Callable[[], float | None]) -> object:
        run()
        return real(run)

    monkeypatch.setattr(committer_module, "start_job", start_at_once)
    with Stream.create(tmp_path / "s") as stream:
        write_deposit(stream.path, "other", 1, [pa.record_batch({"payload": [b"deposited"]})])
        with stream.producer():
            wait_until_stored(stream, 1)
    assert "background work failed" not in caplog.text
