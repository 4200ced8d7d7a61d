from __future__ import annotations

from pathlib import Path

import pytest

from headgate.message import Message
from headgate.streams.format import log_path
from headgate.streams.options import StreamOptions
from headgate.streams.upkeep.dump import dump_lines, dump_segment
from tests.unit.streams.written_segments import seal_at, write_hot


@pytest.fixture(params=["hot", "sealed"])
def segment(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    messages = [
        Message(b"payload %d" % i, topic="orders", headers={"region": "EU", "n": i})
        for i in range(20)
    ]
    write_hot(tmp_path, 100, [messages[:15], messages[15:]], StreamOptions(indexed=("region",)))
    return (
        seal_at(tmp_path, 100, ["region"]) if request.param == "sealed" else log_path(tmp_path, 100)
    )


def test_a_dump_shows_heads_columns_crcs_and_messages(segment: Path) -> None:
    text = "\n".join(dump_lines(dump_segment(segment, sample=2)))
    for shown in (
        "offsets 100 to 119",
        "h.s.region",
        "crc ok",
        "payload 0",
        "indexed",
        "orders",
        "messages",
    ):
        assert shown in text
    assert "DAMAGED" not in text
    assert "payload 2" not in text


def test_a_dump_shows_damage_and_goes_on(segment: Path) -> None:
    raw = bytearray(segment.read_bytes())
    raw[raw.index(b"payload 3")] ^= 1
    segment.write_bytes(raw)
    dump = dump_segment(segment)
    damaged = [c.name for chunk in dump.chunks for c in chunk.columns if c.problem is not None]
    assert damaged == ["payload"]
    assert "DAMAGED: column 'payload'" in "\n".join(dump_lines(dump))


def test_a_dump_shows_no_more_chunks_than_requested(segment: Path) -> None:
    assert len(dump_segment(segment, most_chunks=1).chunks) == 1
