from __future__ import annotations

import json
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from headgate.columns.decode import decode_records
from headgate.errors import StreamCorrupt
from headgate.filters.compile.verdict import judge
from headgate.filters.nodes import Field
from headgate.filters.parser import parse
from headgate.message import OPAQUE, Message
from headgate.streams.format import log_path
from headgate.streams.options import StreamOptions
from headgate.streams.segments import clustering, seal, segment_rows
from headgate.streams.segments.hot_segment import HotSegment
from headgate.streams.segments.sealed import SealedSegment
from headgate.streams.segments.summary import LAST, MAX_BOUND
from tests import generate
from tests.unit.streams.written_segments import (
    CLOCK,
    offsets_of,
    scan_all,
    seal_at,
    stamped,
    write_hot,
)


def orders(count: int, seed: int = 0) -> list[Message]:
    rng = Random(seed)
    regions = ["EU", "US", "APAC"]
    return [
        Message(
            f"order {i}".encode(),
            topic="orders.new",
            headers={
                "region": rng.choice(regions),
                "amount": i,
                "weight": i / 2,
                "paid": i % 2 == 0,
            },
            timestamp=1_000_000 + i,
            id=f"id-{i:05}",
        )
        for i in range(count)
    ]


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustering, "CHUNK_ROWS", 16)


def sealed(
    directory: Path, messages: list[Message], *indexed: str, chunk: int = 25
) -> SealedSegment:
    cuts = [messages[i : i + chunk] for i in range(0, len(messages), chunk)]
    write_hot(directory, 0, cuts, StreamOptions(indexed=indexed))
    return SealedSegment(seal_at(directory, 0, indexed))


def messages_of(segment: SealedSegment) -> list[Message]:
    found = [r for i in range(len(segment)) for r in decode_records(segment.chunk(i).take(None))]
    return [record.message for record in sorted(found, key=lambda record: record.offset)]


@pytest.mark.usefixtures("small_chunks")
def test_sealing_keeps_every_message(tmp_path: Path) -> None:
    messages = orders(200)
    segment = sealed(tmp_path, messages, "region")
    assert messages_of(segment) == list(map(stamped, messages))
    assert (segment.first_offset, segment.next_offset, len(segment) > 5) == (0, 200, True)


@pytest.mark.usefixtures("small_chunks")
def test_rows_are_clustered_by_the_indexed_header_and_ascend_within_it(tmp_path: Path) -> None:
    segment = sealed(tmp_path, orders(200), "region")
    rows = [
        (record.message.headers["region"], record.offset)
        for i in range(len(segment))
        for record in decode_records(segment.chunk(i).take(None))
    ]
    assert rows == sorted(rows)


def test_the_file_is_plain_arrow(tmp_path: Path) -> None:
    segment = sealed(tmp_path, orders(50), "region")
    table = pa.ipc.open_file(pa.memory_map(str(segment.path))).read_all()
    table.validate(full=True)
    assert sorted(offsets_of(table)) == list(range(50))
    metadata = pa.ipc.open_file(str(segment.path)).metadata
    assert json.loads(metadata[b"headgate.segment"])["next_offset"] == 50
    for value in metadata.values():
        value.decode()  # other languages read the footer's values as text


@pytest.mark.usefixtures("small_chunks")
def test_the_summary_prunes_by_set_range_count_and_bloom(tmp_path: Path) -> None:
    messages = orders(200)
    segment = sealed(tmp_path, messages, "region", "amount")

    def passed(text: str) -> float:
        return judge(parse(text), segment.facts()).some.mean()

    assert 0 < passed("region = 'EU'") < 0.6
    assert passed("region = 'MARS'") == 0
    assert passed("amount > 500") == 0
    assert 0 < passed("amount = 77") < 0.3
    assert passed("missing = 1") == 0
    assert passed("missing IS NOT NULL") == 0
    assert passed("sys.timestamp > 9000000") == 0
    assert passed("sys.id = 'id-00042'") < 0.6
    assert judge(parse("paid IS NOT NULL AND amount >= 0"), segment.facts()).all.all()


def test_an_indexed_header_with_many_values_is_pruned_by_a_bloom_filter(tmp_path: Path) -> None:
    rng = Random(3)
    messages = [
        Message(b"x", headers={"kind": f"k{i % 3}", "user": f"u{rng.randrange(2000):05}"})
        for i in range(40_000)
    ]
    segment = sealed(tmp_path, messages, "kind", "user", chunk=5000)
    chunks = np.arange(len(segment))
    user = Field("header", "user")
    for message in messages[:50]:
        assert segment.facts().probe(user, message.headers["user"], chunks).any()  # type: ignore[arg-type]
    absent = [segment.facts().probe(user, f"absent{i}", chunks).mean() for i in range(300)]
    assert np.mean(absent) < 0.03


def test_the_bound_of_a_long_text_is_cut_upwards(tmp_path: Path) -> None:
    long = "b" * 500
    wide = "b" * MAX_BOUND + LAST + "tail"
    messages = [Message(b"", headers={"a": text}) for text in (long, "abc", wide)]
    segment = sealed(tmp_path, messages)
    for text in (f"a = '{long}'", f"a >= '{long}'", f"a > '{'b' * 64}'", f"a = '{wide}'"):
        assert judge(parse(text), segment.facts()).some.all(), text
    assert not judge(parse("a > 'c'"), segment.facts()).some.any()


def test_int_and_float_of_one_header_are_known_together(tmp_path: Path) -> None:
    messages = [Message(b"", headers={"n": n}) for n in (1, 2.5, True, "x", OPAQUE, None)]
    segment = sealed(tmp_path, messages, "n")
    facts = segment.facts()
    for text in ("n = 1.0", "n = 2.5", "n > 2", "n = TRUE", "n = 'x'", "n IS NULL", "EXISTS(n)"):
        assert judge(parse(text), facts).some.all(), text
    assert facts.fields[Field("header", "n")].opaque.tolist() == [1]
    assert messages_of(segment) == list(map(stamped, messages))


def test_more_headers_than_columns_go_to_the_overflow_and_come_back(tmp_path: Path) -> None:
    rng = Random(5)
    messages = [
        Message(
            b"",
            headers={f"h{rng.randrange(400)}": rng.choice((1, 1.5, "s", True)) for _ in range(20)},
        )
        for _ in range(120)
    ]
    segment = sealed(tmp_path, messages, "h3", chunk=7)
    assert segment.note.overflowed
    assert sum(name.startswith("h.") for name in segment.names) == 128
    assert messages_of(segment) == list(map(stamped, messages))
    for name in ("h3", segment.note.overflowed[0]):
        found, _ = scan_all(tmp_path, f"{name} IS NOT NULL")
        assert offsets_of(found) == [i for i, m in enumerate(messages) if name in m.headers]


def test_the_metadata_of_a_chunk_is_known_without_opening_it(tmp_path: Path) -> None:
    segment = sealed(tmp_path, orders(30))
    known = segment.metadata(0)
    assert (known.first_offset, known.last_offset, known.count) == (0, 29, 30)
    assert (known.min_timestamp, known.max_timestamp) == (1_000_000, 1_000_029)
    assert known.nbytes == segment.chunk(0).nbytes > 1000


def test_a_flipped_byte_is_refused_only_where_it_is_read(tmp_path: Path) -> None:
    segment = sealed(tmp_path, orders(100), "region")
    raw = bytearray(segment.path.read_bytes())
    at = raw.index(b"order 42")
    raw[at] ^= 1
    segment.path.write_bytes(raw)
    table, _ = scan_all(tmp_path, "region = 'EU'", columns=["h.s.region"])
    assert len(table) > 10
    with pytest.raises(StreamCorrupt, match=r"column 'payload'.*fails its CRC"):
        scan_all(tmp_path)


@pytest.mark.parametrize("cut", [10, 1000, -1, -20, -500])
def test_a_sealed_file_that_was_cut_off_is_refused(tmp_path: Path, cut: int) -> None:
    segment = sealed(tmp_path, orders(100))
    segment.path.write_bytes(segment.path.read_bytes()[:cut])
    with pytest.raises(StreamCorrupt, match=segment.path.name):
        SealedSegment(segment.path)


@pytest.mark.parametrize("seed", range(30))
def test_every_flipped_bit_of_a_sealed_file_is_detected(tmp_path: Path, seed: int) -> None:
    """Whatever bit is wrong: the messages are right, or there is an error."""
    rng = Random(seed)
    messages = orders(60, seed)
    segment = sealed(tmp_path, messages, "region")
    raw = bytearray(segment.path.read_bytes())
    raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    segment.path.write_bytes(raw)
    try:
        found = messages_of(SealedSegment(segment.path))
    except StreamCorrupt:
        return
    assert found == list(map(stamped, messages))


def test_sealing_an_unreadable_chunk_leaves_no_file(tmp_path: Path) -> None:
    write_hot(tmp_path, 0, [orders(50)])
    path = log_path(tmp_path, 0)
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"order 42")] ^= 1
    path.write_bytes(raw)
    with pytest.raises(StreamCorrupt):
        seal_at(tmp_path, 0)
    assert [p.suffix for p in sorted(tmp_path.iterdir())] == [".idx", ".log"]


def test_publishing_ids_survive_sealing(tmp_path: Path) -> None:
    write_hot(tmp_path, 0, [orders(5)], producers={"pos-1": 41})
    assert HotSegment(log_path(tmp_path, 0)).producers() == {"pos-1": 41}
    assert SealedSegment(seal_at(tmp_path, 0)).producers() == {"pos-1": 41}


def test_an_empty_segment_can_be_sealed(tmp_path: Path) -> None:
    write_hot(tmp_path, 5, [])
    segment = SealedSegment(seal_at(tmp_path, 5, ["region"]))
    assert (len(segment), segment.first_offset, segment.next_offset) == (0, 5, 5)
    assert len(scan_all(tmp_path, "region = 'EU'")[0]) == 0


def test_tiny_chunks_are_joined_before_they_are_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_rows, "MAX_TINY", 4)
    monkeypatch.setattr(segment_rows, "TINY_ROWS", 3)
    rng, messages = Random(2), generate.messages(Random(1), 120)
    cuts, at = [], 0
    while at < len(messages):
        size = rng.choice((1, 1, 2, 2, 9))
        cuts.append(messages[at : at + size])
        at += size
    write_hot(tmp_path, 0, cuts)
    segment = SealedSegment(seal_at(tmp_path, 0, ["a"]))
    assert messages_of(segment) == list(map(stamped, messages))


def test_a_header_named_like_what_reserves_space_in_the_footer_is_sealed(tmp_path: Path) -> None:
    name = ("headgate.checks " * 16)[:255]
    messages = [Message(b"a", headers={name: "x"}, timestamp=CLOCK)]
    assert messages_of(sealed(tmp_path, messages)) == messages


def test_a_sealed_file_that_cannot_be_read_does_not_replace_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_hot(tmp_path, 0, [orders(10)])
    monkeypatch.setattr(seal, "_fill_in", lambda *arguments: None)
    with pytest.raises(StreamCorrupt, match="footer"):
        seal_at(tmp_path, 0)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".idx", ".log"]


def test_sets_hold_the_largest_integers(tmp_path: Path) -> None:
    largest = 2**63 - 1
    messages = [Message(b"", headers={"x": x}) for x in (largest - 1, largest)]
    sealed(tmp_path, messages)
    for filter, expected in {
        f"x < {largest}": [0],
        f"x = {largest - 1}": [0],
        f"x = {largest}": [1],
        f"x >= {largest - 1}": [0, 1],
    }.items():
        assert offsets_of(scan_all(tmp_path, filter)[0]) == expected, filter
