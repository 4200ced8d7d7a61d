"""Copies of streams that are being written."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.streams import Stream, upkeep
from headgate.streams.format import index_path


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
