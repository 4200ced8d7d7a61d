"""Copies of streams that are being written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headgate.streams import Stream, upkeep
from headgate.streams.format import LOG_SUFFIX, SegmentFile, index_path
from headgate.streams.upkeep import copying
from headgate.streams.write.inbox import write_deposit


@pytest.mark.parametrize("half", ["its first entry is missing", "its only entry is half there"])
def test_a_copy_made_during_a_commit_is_fine_and_has_what_was_committed(
    tmp_path: Path, half: str
) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    with Stream.create(source) as stream, stream.producer() as producer:
        index = index_path(source, 0)
        sizes = []
        for number in range(3):
            producer.publish(b"%d" % number)
            producer.flush()
            sizes.append(index.stat().st_size)
        entry = index.read_bytes()[sizes[1] : sizes[2]]
        torn = bytes(len(entry)) + entry if half.startswith("its first") else entry[:-9]
        with index.open("ab") as file:
            file.write(torn)
        upkeep.copy_stream(source, copy)
        with index.open("r+b") as file:
            file.truncate(sizes[2])
    assert upkeep.verify(copy).problems == ()
    with Stream.open(copy) as copied:
        assert [row["payload"] for batch in copied.scan() for row in batch.to_pylist()] == [
            b"0",
            b"1",
            b"2",
        ]


def publish(stream: Stream, *payloads: bytes) -> None:
    with stream.producer() as producer:
        for payload in payloads:
            producer.publish(payload)
            producer.flush()


def test_no_cursor_of_a_copy_is_behind_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    real = copying._copy_segments
    with Stream.create(source) as stream:
        publish(stream, b"0")
        stream.cursors().commit("c", 1)

        def commit_meanwhile(*arguments: Path) -> int:
            size = real(*arguments)
            publish(stream, b"1")
            stream.cursors().commit("c", 2)
            return size

        monkeypatch.setattr(copying, "_copy_segments", commit_meanwhile)
        upkeep.copy_stream(source, copy)
    with Stream.open(copy) as copied, copied.consume(cursor="c") as consumer:
        assert consumer.position == copied.next_offset == 1


def test_a_deposit_that_is_adopted_before_it_is_copied_does_not_end_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    real = copying._copy
    with Stream.create(source) as stream:
        publish(stream, b"0")
        deposit = write_deposit(source, "p", 1, [pa.record_batch({"n": [1]})])

        def adopt_before(path: Path, target: Path) -> int:
            if path == deposit:
                assert stream._adopt()
            return real(path, target)

        monkeypatch.setattr(copying, "_copy", adopt_before)
        upkeep.copy_stream(source, copy)
    with Stream.open(copy) as copied:
        assert copied.next_offset == 2


def test_a_log_that_is_sealed_while_the_next_one_is_copied_is_not_in_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    real, copied = copying._copy_segment, []
    with Stream.create(source, segment_bytes=4096) as stream:
        publish(stream, *[bytes(5000)] * 3)

        def seal_behind(file: SegmentFile, *arguments: object) -> int:
            size = real(file, *arguments)  # type: ignore[arg-type]
            copied.append(file.path.suffix)
            if len(copied) == 1:
                stream.seal(all=True)
            return size

        monkeypatch.setattr(copying, "_copy_segment", seal_behind)
        upkeep.copy_stream(source, copy)
    assert copied[0] == LOG_SUFFIX
    assert upkeep.verify(copy).problems == ()
