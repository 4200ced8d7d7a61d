"""Damage in sealed and cold segments: it costs the chunk it is in, is named, can be passed over, and is repaired."""

from __future__ import annotations

import logging
import os
import shutil
import struct
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from headgate.clock import now_us
from headgate.columns.decode import Record
from headgate.errors import StreamCorrupt
from headgate.message import Message
from headgate.streams.cold import write
from headgate.streams.cold.compaction import compact
from headgate.streams.format import sealed_path
from headgate.streams.segments import clustering as cluster
from headgate.streams.segments.sealed import SUMMARY_KEY, SealedSegment, checks_dtype
from headgate.streams.stream import Stream
from headgate.streams.upkeep.verification import repair, verify
from tests.conftest import FULL

FLIPS = 400 if FULL else 30
ROWS = 10  # of a chunk, or up to twice as many
HOUR = 3_600_000_000
REGIONS = ["EU", "US", "APAC", "MARS"]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "CHUNK_ROWS", ROWS)
    monkeypatch.setattr(write, "ROW_GROUP_ROWS", ROWS)


def message(i: int, stamp: int) -> Message:
    return Message(
        b"payload %d" % i, headers={"region": REGIONS[i * 7 % 4], "n": i}, timestamp=stamp
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Offsets 0 to 99 of three hours ago and 100 to 199 of two, both sealed and clustered; 200 to 209 of now."""
    path, now = tmp_path / "s", now_us()
    with Stream.create(path, indexed=["region"]) as stream:
        for first, count, ago in ((0, 100, 3 * HOUR), (100, 100, 2 * HOUR), (200, 10, 0)):
            with stream.producer("p") as producer:
                for i in range(first, first + count):
                    producer.publish(message(i, now - ago))
                producer.flush()
            if count == 100:
                stream.seal(all=True)
    return path


def flip(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 0x10
    file.write_bytes(content)


def footer_of(file: Path) -> int:
    """Where the footer begins."""
    content = file.read_bytes()
    return len(content) - 10 - int.from_bytes(content[-10:-6], "little")


def damaged_payload(file: Path, at: int) -> tuple[int, set[int]]:
    """A byte of a chunk's payloads, and the offsets of that chunk."""
    chunk = SealedSegment(file).chunk(at)
    offsets = chunk.offsets()
    position = file.read_bytes().index(b"payload %d" % offsets[0])
    return position, set(offsets.tolist())


def read_until_error(path: Path) -> tuple[list[int], StreamCorrupt | None]:
    found: list[int] = []
    with Stream.open(path) as stream, stream.consume() as consumer:
        try:
            for record in consumer.records():
                found.append(record.offset)
        except StreamCorrupt as damage:
            with pytest.raises(StreamCorrupt):  # it does not end quietly
                next(consumer)
            return found, damage
    return found, None


def read_past(path: Path) -> tuple[list[Record], int]:
    with Stream.open(path) as stream, stream.consume(on_corrupt=lambda damage: None) as consumer:
        return list(consumer.records()), consumer.stats.messages_lost


def test_a_flipped_byte_costs_one_chunk_whose_offsets_are_named(path: Path) -> None:
    file = sealed_path(path, 100)
    position, lost = damaged_payload(file, 3)
    flip(file, position)
    found, damage = read_until_error(path)
    assert found == list(range(min(lost)))
    assert damage is not None
    named = {o for first, last in damage.offsets for o in range(first, last + 1)}
    assert named == lost
    assert damage.messages == len(lost)
    assert f"offsets {min(lost)}" in str(damage)


def test_a_reader_skips_damage_with_on_corrupt_skip(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    position, lost = damaged_payload(sealed_path(path, 100), 3)
    flip(sealed_path(path, 100), position)
    wanted = [i for i in range(210) if i not in lost]
    records, count = read_past(path)
    assert [r.offset for r in records] == wanted
    assert count == len(lost)
    with Stream.open(path) as stream:
        scan = stream.scan(on_corrupt="skip")
        assert [o for batch in scan for o in batch.column("offset").to_pylist()] == wanted
        assert scan.stats.messages_lost == len(lost)
        assert "skipped: " in caplog.text
        # A filter that does not look there is not disturbed.
        assert [m.headers["n"] for m in stream.consume("n < 90")] == list(range(90))


def test_verify_names_what_is_damaged_and_repair_saves_the_rest(path: Path) -> None:
    file = sealed_path(path, 100)
    with Stream.open(path) as stream, stream.producer("p") as producer:
        last_id = producer.last_publishing_id
    position, lost = damaged_payload(file, 3)
    flip(file, position)
    damaged = file.read_bytes()
    (problem,) = verify(path).problems
    assert problem.healable
    assert f"offsets {min(lost)}" in problem.what
    report = repair(path)
    assert report.fine, report.problems
    assert report.messages == 210 - len(lost)
    assert file.with_name(file.name + ".damaged").read_bytes() == damaged
    records, count = read_past(path)
    assert [r.offset for r in records] == [i for i in range(210) if i not in lost]
    assert [r.message.headers["n"] for r in records] == [r.offset for r in records]
    assert count == 0
    with Stream.open(path) as stream:
        assert stream.next_offset == 210
        found = [m.headers["n"] for m in stream.consume("region = 'EU'")]
        assert found == [i for i in range(210) if REGIONS[i * 7 % 4] == "EU" and i not in lost]
        with stream.producer("p") as producer:
            assert producer.last_publishing_id == last_id


@pytest.mark.parametrize("where", ["chunks", "footer"])
def test_a_flipped_byte_anywhere_is_never_read_and_costs_at_most_a_chunk_after_repair(
    path: Path, tmp_path: Path, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    file, rng = sealed_path(path, 0), Random(11)
    segment = SealedSegment(file)
    first = int(segment.checks["position"][0])  # behind the dictionaries
    begin, end = (
        (first, footer_of(file)) if where == "chunks" else (footer_of(file), file.stat().st_size)
    )
    for at in rng.sample(range(begin, end), FLIPS):
        copy = tmp_path / "copy"
        shutil.copytree(path, copy)
        flip(sealed_path(copy, 0), at)
        found, damage = read_until_error(copy)
        assert found == list(range(len(found)))
        assert damage is not None or len(found) == 210
        records, lost = read_past(copy)
        assert len(records) + lost == 210
        assert all(r.message.payload == b"payload %d" % r.offset for r in records)
        report = repair(copy)
        assert report.fine, (at, report.problems)
        assert report.messages >= 210 - 2 * ROWS, at
        records, lost = read_past(copy)
        assert len(records) == report.messages
        assert lost == 0
        assert all(r.message.headers["n"] == r.offset for r in records)
        shutil.rmtree(copy)


def test_a_damaged_dictionary_is_named_and_does_not_keep_repair_from_the_rest(path: Path) -> None:
    file = sealed_path(path, 100)
    flip(file, file.read_bytes().index(b"APAC"))
    found, damage = read_until_error(path)
    assert found == list(range(100))
    assert damage is not None
    assert repair(path).fine
    assert [r.offset for r in read_past(path)[0]] == [*range(100), *range(200, 210)]


# ---- a footer that cannot be read --------------------------------------------------------------------


@pytest.fixture
def without_footer(path: Path) -> Path:
    """The first segment cannot be opened."""
    file = sealed_path(path, 0)
    flip(file, footer_of(file) + 200)
    with pytest.raises(StreamCorrupt, match="the footer"):
        SealedSegment(file)
    return path


def test_a_segment_that_cannot_be_opened_is_named_by_its_offsets(without_footer: Path) -> None:
    found, damage = read_until_error(without_footer)
    assert found == []
    assert damage is not None
    assert damage.offsets == ((0, 99),)
    records, lost = read_past(without_footer)
    assert [r.offset for r in records] == list(range(100, 210))
    assert lost == 100


def test_a_header_named_like_a_table_of_checksums_does_not_keep_repair_from_the_messages(
    tmp_path: Path,
) -> None:
    path, name = tmp_path / "s", "A" * 120  # h.i.AAA… is as long as the table of one chunk
    with Stream.create(path) as stream:
        with stream.producer() as producer:
            for n in range(ROWS):
                producer.publish(b"", headers={name: n})
        [file] = stream.seal(all=True)
    segment = SealedSegment(file)
    checks = (len(segment) + 1) * checks_dtype(len(segment.names)).itemsize + 4
    assert len(f"h.i.{name}") == -(-checks // 3) * 4
    flip(file, file.read_bytes().rindex(SUMMARY_KEY) + 60)
    with pytest.raises(StreamCorrupt, match="the footer"):
        SealedSegment(file)
    assert repair(path).fine
    assert [record.offset for record in read_past(path)[0]] == list(range(ROWS))


def test_a_damaged_footer_does_not_keep_a_reader_from_starting_later(without_footer: Path) -> None:
    with Stream.open(without_footer) as stream:
        for start, first in (("1h", 200), (timedelta(hours=2, minutes=30), 100), (150, 150)):
            with stream.consume(start=start) as consumer:  # type: ignore[arg-type]
                assert consumer.next_record().offset == first


@pytest.mark.parametrize(
    "limit", [{"before_offset": 100}, {"max_age": timedelta(hours=1)}, {"max_bytes": 1}]
)
def test_a_damaged_footer_does_not_keep_retention_from_deleting(
    without_footer: Path, limit: dict[str, object]
) -> None:
    old = (now_us() - 3 * HOUR) * 1000
    os.utime(sealed_path(without_footer, 0), ns=(old, old))
    with Stream.open(without_footer) as stream:
        dropped = stream.trim(**limit)  # type: ignore[arg-type]
        assert (dropped[0].first_offset, dropped[0].next_offset) == (0, 100)
        assert stream.first_offset >= 100


def test_repair_fills_a_gap_between_segments_with_holes(path: Path) -> None:
    sealed_path(path, 100).unlink()
    (problem,) = verify(path).problems
    assert "offsets 100 to 199 cannot be read" in problem.what
    assert repair(path).fine
    records, lost = read_past(path)
    assert [r.offset for r in records] == [*range(100), *range(200, 210)]
    assert lost == 0
    with Stream.open(path) as stream:
        stream.seal(all=True)
        assert len(list(stream.consume())) == 110
    assert verify(path).fine


# ---- cold segments -----------------------------------------------------------------------------------


def test_a_damaged_page_of_a_cold_segment_costs_its_row_group(path: Path, tmp_path: Path) -> None:
    compact(path, created_us=0)
    (data,) = (path / "cold").iterdir()
    rng, content = Random(5), data.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    for at in rng.sample(range(100, footer), 8):
        copy = tmp_path / "copy"
        shutil.copytree(path, copy)
        flip(copy / "cold" / data.name, at)
        records, lost = read_past(copy)
        assert len(records) + lost == 210
        assert all(r.message.headers["n"] == r.offset for r in records)
        assert not verify(copy).fine
        report = repair(copy)
        assert report.fine, report.problems
        assert report.messages == 210 - lost
        assert [r.offset for r in read_past(copy)[0]] == [r.offset for r in records]
        assert (copy / f"{data.name}.damaged").exists()
        compact(copy, created_us=0)
        assert (copy / f"{data.name}.damaged").exists()
        assert verify(copy).fine
        shutil.rmtree(copy)


def test_an_unreadable_cold_segment_is_left_alone(path: Path) -> None:
    compact(path, created_us=0)
    (data,) = (path / "cold").iterdir()
    flip(data, data.stat().st_size - 100)
    content = data.read_bytes()
    report = repair(path)
    assert {problem.healable for problem in report.problems} == {False}
    assert data.read_bytes() == content
    records, lost = read_past(path)
    assert [r.offset for r in records] == list(range(200, 210))
    assert lost == 200


def test_damage_beside_the_offsets_of_a_scan_is_not_noticed(tmp_path: Path) -> None:
    values = [i * 37 % 200 * 1_000_003 for i in range(200)]
    with Stream.create(tmp_path / "s", indexed=["region"]) as stream:
        with stream.producer() as producer:
            for i, value in enumerate(values):
                headers = {"region": ["EU", "US"][i % 2], "amount": value}
                producer.publish(b"", headers=headers)
        [file] = stream.seal(all=True)
        segment = SealedSegment(file)
        damaged = segment.chunk(len(segment) - 1).offsets().tolist()
        wanted = damaged[0] + 1  # is in another chunk
        assert wanted < damaged[1]
        amounts = struct.pack("<3q", *(values[offset] for offset in damaged[:3]))
        flip(file, file.read_bytes().index(amounts))
        filter = f"amount >= {values[wanted]}"
        with pytest.raises(StreamCorrupt):
            stream.scan(filter).to_table()
        for on_corrupt in ("error", "skip"):
            scan = stream.scan(filter, start=wanted, end=wanted + 1, on_corrupt=on_corrupt)
            assert scan.to_table().column("offset").to_pylist() == [wanted]
            assert scan.stats.messages_lost == 0


def test_an_open_stream_reads_what_repair_has_replaced(path: Path) -> None:
    file = sealed_path(path, 100)
    position, lost = damaged_payload(file, 3)
    flip(file, position)
    with Stream.open(path) as stream:
        with pytest.raises(StreamCorrupt):
            list(stream.consume())
        repair(path)
        with stream.consume() as consumer:
            found = [record.offset for record in consumer.records()]
    assert found == [i for i in range(210) if i not in lost]
