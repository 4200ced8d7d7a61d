"""Rolls: a new segment is begun while others seal and trim; a failed roll leaves nothing behind."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from headgate.errors import StreamWriteError
from headgate.message import Message
from headgate.streams.format import log_path, segment_files
from headgate.streams.options import StreamOptions
from headgate.streams.segments.hot_log import HotLog, create_hot_log
from headgate.streams.stream import Stream
from headgate.streams.upkeep.retention import delete_expired, seal_segments
from headgate.streams.upkeep.verification import verify
from headgate.streams.write import writer as writer_module
from headgate.streams.write.writer import Writer

LATER = timedelta(hours=1)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    Stream.create(tmp_path / "s").close()
    options = StreamOptions(linger=LATER, fsync="never")
    made = Writer(tmp_path / "s", options, "test")
    yield made
    made.close()


def write(writer: Writer, *payloads: bytes) -> None:
    for payload in payloads:
        writer.accept([Message(payload)])
        writer.commit()


def stored(writer: Writer) -> list[bytes]:
    return [message.payload for message in Stream.open(writer.directory).consume()]


@pytest.mark.parametrize(
    "maintain",
    [
        lambda writer: seal_segments(writer, all=False, created_us=0),
        lambda writer: delete_expired(writer, now_us=0, max_age=None, max_bytes=1),
    ],
    ids=["seal", "trim"],
)
def test_sealing_and_trimming_during_a_roll_leave_both_segments_to_the_writer(
    writer: Writer, monkeypatch: pytest.MonkeyPatch, maintain: Callable[[Writer], object]
) -> None:
    def create_and_maintain(directory: Path, first_offset: int, *more: object) -> HotLog:
        made = create_hot_log(directory, first_offset, *more)  # type: ignore[arg-type]
        before = segment_files(directory)
        maintain(writer)
        assert segment_files(directory) == before
        return made

    write(writer, b"first")
    monkeypatch.setattr(writer_module, "create_hot_log", create_and_maintain)
    writer.roll()
    write(writer, b"second")
    assert stored(writer) == [b"first", b"second"]


def test_a_roll_that_fails_after_creating_its_log_removes_the_log(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create_and_fail(*arguments: object) -> HotLog:
        create_hot_log(*arguments).close()  # type: ignore[arg-type]
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    write(writer, b"first")
    with monkeypatch.context() as patch:
        patch.setattr(writer_module, "create_hot_log", create_and_fail)
        with pytest.raises(StreamWriteError, match="Too many open files"):
            writer.roll()
    assert [file.first_offset for file in segment_files(writer.directory)] == [0]
    write(writer, b"second")
    assert stored(writer) == [b"first", b"second"]
    assert verify(writer.directory).fine


def test_a_roll_that_can_neither_succeed_nor_be_undone_ends_the_writer(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    write(writer, b"first")
    with monkeypatch.context() as patch:
        patch.setattr(writer_module, "create_hot_log", refuse)
        patch.setattr(writer_module, "remove_files", refuse)
        with pytest.raises(StreamWriteError):
            writer.roll()
    with pytest.raises(StreamWriteError, match="Input/output error"):
        writer.accept([Message(b"second")])
    assert log_path(writer.directory, 0).exists()
