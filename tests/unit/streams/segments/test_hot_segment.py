"""Readers see what is committed and nothing else: what a writer may take back was never there."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.columns.tables import read_table
from headgate.errors import StreamLocked, StreamWriteError
from headgate.message import Message
from headgate.streams.format import index_path, log_path
from headgate.streams.segments import hot_log as log_module
from headgate.streams.segments.hot_framing import Buffer
from headgate.streams.segments.hot_index import encode_settled, settled_at
from headgate.streams.segments.hot_segment import HotSegment
from headgate.streams.stream import Stream
from headgate.streams.upkeep.verification import verify
from headgate.streams.write.lock import WriterLock, exclude_writers


def payloads(path: Path) -> list[bytes]:
    with Stream.open(path) as reader:
        return [message.payload for message in reader.consume()]


class FullDisk:
    """Takes half of the n-th write from now on, shows that to a reader, and refuses the rest."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int, look: Callable[[], object]) -> None:
        self._real, self._left, self._look = os.pwritev, at, look
        self.seen: list[object] = []
        patch.setattr(log_module.os, "pwritev", self._write)

    def _write(self, fd: int, parts: list[memoryview], position: int) -> int:
        self._left -= 1
        if self._left != 0:
            return self._real(fd, parts, position)
        content = b"".join(parts)
        self._real(fd, [content[: len(content) // 2]], position)
        self.seen.append(self._look())
        raise OSError(errno.ENOSPC, "no space left on device")


def numbered(count: int) -> pa.RecordBatch:
    return pa.record_batch({"payload": [b"%d" % i for i in range(count)]})


@pytest.mark.parametrize("whole", [False, True], ids=["any append", "one that must be whole"])
@pytest.mark.parametrize("at", range(1, 10))
def test_no_reader_sees_an_append_that_is_rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, whole: bool
) -> None:
    """Seven chunks in one append: a write for each, and then two for the index."""
    path = tmp_path / "s"
    with Stream.create(path, chunk_bytes=1) as stream:
        stream.append(pa.table({"payload": [b"before"]}))
        append = stream._open_writer("a test").append_columns
        mark = ("a producer", 1) if whole else None
        with stream.consume(start="next", follow=True) as follower:
            disk = FullDisk(monkeypatch, at, lambda: (payloads(path), follower.poll()))
            with pytest.raises(StreamWriteError):
                append([read_table(numbered(7), 0)], mark)
            monkeypatch.undo()
            assert disk.seen == [([b"before"], None)]
            assert payloads(path) == [b"before"]
            append([read_table(numbered(7), 0)], mark)
            found = follower.poll()
            assert found is not None
            assert (found.offset, found.message.payload) == (1, b"0")


def test_chunks_of_a_dead_writer_are_read_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, copy = tmp_path / "s", tmp_path / "copy"
    with Stream.create(path, chunk_bytes=1, fsync="never") as stream:
        stream.append(pa.table({"payload": [b"before"]}))
        FullDisk(monkeypatch, 9, lambda: shutil.copytree(path, copy))
        with pytest.raises(StreamWriteError):
            stream.append(numbered(8))
        monkeypatch.undo()
    expected = [b"before", *(b"%d" % i for i in range(8))]
    reader = HotSegment(log_path(copy, 0))
    assert reader.next_offset == 9
    with WriterLock(copy, "recovery that has just begun"):
        assert HotSegment(log_path(copy, 0)).next_offset == 1
        assert not reader.refresh()
        assert reader.next_offset == 9
    assert payloads(copy) == expected
    with Stream.open(copy) as stream, stream.producer() as producer:
        assert payloads(copy) == expected
        producer.publish(Message(b"after"))
    assert payloads(copy) == [*expected, b"after"]
    assert reader.refresh()
    assert reader.next_offset == 10


def test_a_damaged_entry_hides_nothing_that_is_committed_and_shows_nothing_that_is_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s"
    with Stream.create(path, fsync="always") as stream:
        with stream.producer() as producer:
            for i in range(12):
                producer.publish(Message(b"%d" % i))
                producer.flush()
            segment = HotSegment(log_path(path, 0))
            width = segment.shape.dtype.itemsize
            with index_path(path, 0).open("r+b") as index:
                index.seek(-3 * width, os.SEEK_END)
                index.write(b"\xff")
            log = log_path(path, 0).read_bytes()
            last = int(segment.entries["position"][-1])
            with log_path(path, 0).open("ab") as file:
                file.write(log[last:])  # an append that is under way
            assert payloads(path) == [b"%d" % i for i in range(12)]
            os.truncate(log_path(path, 0), len(log))


def test_only_the_settled_part_of_a_log_is_mapped(tmp_path: Path) -> None:
    with Stream.create(tmp_path / "s", fsync="never") as stream:
        producer = stream.producer()
        for i in range(3):
            producer.publish(Message(b"%d" % i))
            producer.flush()
        segment = HotSegment(log_path(stream.path, 0))
        assert segment._data.size <= segment.head.length
        assert [bytes(segment.chunk(i).take(None)["payload"][0].as_py()) for i in range(3)] == [
            b"0",
            b"1",
            b"2",
        ]
    assert segment.refresh() is False
    assert HotSegment(log_path(stream.path, 0))._data.size == segment.nbytes


# ---- the lock ----------------------------------------------------------------------------------------


def test_a_writer_waits_for_a_reader_and_not_for_another_writer(tmp_path: Path) -> None:
    with WriterLock(tmp_path, "a writer"):
        with exclude_writers(tmp_path) as alone:
            assert not alone
        with pytest.raises(StreamLocked, match="a writer"):
            WriterLock(tmp_path, "another")
    with exclude_writers(tmp_path) as alone, exclude_writers(tmp_path) as both:
        assert alone
        assert both
    WriterLock(tmp_path, "the next").release()


def test_a_full_segment_is_read_and_sealed_whole_whatever_a_power_failure_left_of_its_index(
    tmp_path: Path,
) -> None:
    """Only the last segment may have something taken back; the writer of today is not at work in the others."""
    path = tmp_path / "s"
    with Stream.create(path, segment_bytes=4096, fsync="never") as stream:
        with stream.producer() as producer:
            for i in range(20):
                producer.publish(Message(b"%0200d" % i))
                producer.flush()
        expected = payloads(path)
    segment = HotSegment(log_path(path, 0))
    assert len(segment) > 3
    with index_path(path, 0).open("r+b") as index:
        header = index.seek(0, os.SEEK_END) - segment.entries.nbytes
        index.truncate(header + segment.shape.dtype.itemsize)
        index.seek(settled_at(header))
        index.write(encode_settled(0))
    with Stream.open(path) as stream, stream.producer() as producer:
        assert payloads(path) == expected
        assert [problem.what for problem in verify(path).problems] == [
            f"the index lacks the last {len(segment) - 1} chunks of the log"
        ]
        producer.publish(Message(b"more"))
        stream.seal(all=True)
    assert payloads(path) == [*expected, b"more"]
    assert verify(path).fine


def test_verify_does_not_report_a_half_committed_append_as_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that is stopped while it publishes several chunks has left a gap for the first entry."""
    real, reports = log_module._write_parts, []

    def write_and_look(fd: int, parts: list[Buffer], position: int) -> None:
        real(fd, parts, position)
        reports.append(verify(path))

    path = tmp_path / "s"
    with Stream.create(path, chunk_bytes=1) as stream:
        stream.append(pa.table({"payload": [b"before"]}))
        monkeypatch.setattr(log_module, "_write_parts", write_and_look)
        stream.append(pa.Table.from_batches([numbered(7)]))
    assert len(reports) == 9
    assert [str(problem) for report in reports for problem in report.problems] == []
    assert [report.messages for report in reports] == [1] * 8 + [8]
