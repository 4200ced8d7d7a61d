"""The outlines of full segments: a filter opens fewer files with them, and finds the same without."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from headgate.filters import Field, normalize, parse
from headgate.filters.logic import matches_filter
from headgate.message import Message
from headgate.streams.cold.compaction import compact
from headgate.streams.format import (
    OUTLINES_FILE,
    OUTLINES_HEADER,
    OUTLINES_MAGIC,
    OUTLINES_VERSION,
)
from headgate.streams.listing import list_segments
from headgate.streams.outlines import Outlines, make_outline
from headgate.streams.read import catalog as catalog_module
from headgate.streams.read.plan import ScanStats
from headgate.streams.segments import sealed as sealed_module
from headgate.streams.segments.outline import Outline, decode_outlines, encode_outline
from headgate.streams.stream import Stream
from headgate.streams.upkeep.verification import repair, verify
from tests import generate
from tests.mixed_stream import mixed_stream, publish, very_wide

SEGMENTS = 24
REGION, USER = Field("header", "region"), Field("header", "user")


def fill(stream: Stream, first: int, segments: int) -> None:
    """Publish one segment of 40 messages after the other."""
    with stream.producer() as producer:
        for segment in range(first, first + segments):
            for row in range(40):
                headers = {
                    "region": f"r{segment % 7}",
                    "n": segment * 40 + row,
                    "user": f"u{segment}-{row}",
                }
                producer.publish(Message(bytes(100), headers=headers))
            producer.flush()


def create(path: Path, segments: int = SEGMENTS) -> Stream:
    options = {
        "indexed": ["region", "user"],
        "fsync": "never",
        "segment_bytes": 9000,
        "chunk_messages": 40,
    }
    stream = Stream.create(path, **options)  # type: ignore[arg-type]
    fill(stream, 0, segments)
    return stream


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream of sealed segments, the last one hot."""
    path = tmp_path_factory.mktemp("outlined") / "s"
    with create(path) as stream:
        stream.seal()
    return path


@pytest.fixture
def path(written: Path, tmp_path: Path) -> Path:
    """A copy with the times of the original."""
    return Path(shutil.copytree(written, tmp_path / "s"))


@pytest.fixture(autouse=True)
def judge_few_segments_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_module, "MANY", 1)


def ask(path: Path, filter: str) -> tuple[list[int], ScanStats]:
    with Stream.open(path) as stream:
        scan = stream.scan(filter)
        return [o for batch in scan for o in batch.column("offset").to_pylist()], scan.stats


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the sealed files that are opened, as they are."""
    names: list[str] = []
    real = sealed_module.SealedSegment.__init__

    def note(self: sealed_module.SealedSegment, path: Path) -> None:
        names.append(path.name)
        real(self, path)

    monkeypatch.setattr(sealed_module.SealedSegment, "__init__", note)
    return names


def outlines_of(path: Path) -> Outlines:
    found = Outlines(path)
    found.read_on()
    return found


# ---- what they save ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "filter",
    ["region = 'absent'", "user = 'absent'", "n > 100000", "nowhere = 1", "region LIKE 'x%'"],
)
def test_an_absent_value_opens_no_sealed_segment(
    path: Path, opened: list[str], filter: str
) -> None:
    (path / OUTLINES_FILE).rename(path / "kept")
    without = ask(path, filter)
    assert len(opened) > SEGMENTS // 2
    opened.clear()
    (path / "kept").rename(path / OUTLINES_FILE)
    assert ask(path, filter) == without
    assert opened == []


def test_a_value_opens_the_segments_that_may_hold_it(path: Path, opened: list[str]) -> None:
    found, stats = ask(path, "user = 'u5-7'")
    assert len(found) == 1
    assert len(opened) <= 3
    assert stats.chunks_none >= SEGMENTS - 5


def test_full_logs_have_outlines_after_a_roll(tmp_path: Path, opened: list[str]) -> None:
    path = tmp_path / "s"
    with create(path) as stream:
        full = [file.path.name for file in list_segments(path)[:-1]]
        assert [o.name for o in outlines_of(path).known] == full  # made when the producer closed
        scan = stream.scan("region = 'absent'")
        assert list(scan) == []
        assert scan.stats.bytes_read == 0
        assert scan.stats.chunks_none > sum(o.chunks for o in outlines_of(path).known)
    (outline,) = outlines_of(path).known[3:4]
    (region,) = outline.describe([REGION])
    assert region.bloom
    assert not region.covered  # nothing but the Bloom filter is known


def test_reading_on_reads_what_was_appended(path: Path) -> None:
    reader = outlines_of(path)
    before = list(reader.known)
    with Stream.open(path) as stream:
        fill(stream, SEGMENTS, 3)
        stream.seal()
    assert reader.read_on()
    assert reader.known[: len(before)] == before
    assert all(a is b for a, b in zip(reader.known, before, strict=False))
    assert {o.name for o in reader.known} >= {f.path.name for f in list_segments(path) if f.sealed}


# ---- never a false negative --------------------------------------------------------------------------


@pytest.mark.parametrize("round", range(4))
def test_random_streams_and_filters_find_the_same_with_and_without_outlines(
    round: int, seed: int, full: bool, tmp_path: Path
) -> None:
    rng = Random(seed * 31 + round)
    path = tmp_path / "s"
    records = mixed_stream(path, rng, 400 if full else 150)
    outlines_of(path).complete(list_segments(path)[:-1])
    assert len(outlines_of(path).known) >= len(list_segments(path)) - 1
    bare = Path(shutil.copytree(path, tmp_path / "bare"))
    (bare / OUTLINES_FILE).unlink(missing_ok=True)
    with Stream.open(path) as stream, Stream.open(bare) as other:
        for _ in range(60 if full else 10):
            filter = normalize(generate.filter(rng)).at(generate.NOW_US)
            scan, plain = stream.scan(filter.tree), other.scan(filter.tree)
            found = [o for batch in scan for o in batch.column("offset").to_pylist()]
            assert found == [o for o, m in records if matches_filter(filter.tree, m)], filter
            assert found == [o for batch in plain for o in batch.column("offset").to_pylist()]
            assert scan.stats.bytes_total == plain.stats.bytes_total


def test_headers_in_the_overflow_are_never_excluded(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with Stream.create(path, indexed=["n130"], segment_bytes=1 << 15, fsync="never") as stream:
        for _ in range(4):
            publish(stream, very_wide(30))
        stream.seal(all=True)
    messages = very_wide(30) * 4
    assert len(outlines_of(path).known) > 2
    for filter in (
        "n130 = 'text'",
        "n130 = 7",
        "n130 IS NULL",
        "n20 = 7",
        "EXISTS(n150)",
        "n1 = 0",
    ):
        tree = normalize(parse(filter)).tree
        wanted = [i for i, message in enumerate(messages) if matches_filter(tree, message)]
        assert ask(path, filter)[0] == wanted, filter


def test_more_values_than_a_bloom_filter_holds_exclude_nothing(tmp_path: Path) -> None:
    with Stream.create(tmp_path / "s", indexed=["id"], fsync="never") as stream:
        publish_ids = [Message(b"", headers={"id": f"{n * 7919 % 20011:05}"}) for n in range(6000)]
        with stream.producer() as producer:
            producer.publish_many(publish_ids)
        stream.seal(all=True)
    (outline,) = outlines_of(tmp_path / "s").known[-1:]
    (found,) = outline.describe([Field("header", "id")])
    assert (found.bloom, found.values, found.covered) == (None, None, True)
    assert found.ranges["string"][0] == 6000


# ---- damage and other files --------------------------------------------------------------------------


def damaged_copies(content: bytes, rng: Random, step: int) -> Iterator[bytes]:
    """The file with one byte changed, at every `step`-th place of its first outlines and some others, and cut off."""
    places = [*range(0, 700, step), *rng.sample(range(700, len(content)), 900 // step)]
    for at in places:
        yield content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]
    for at in (*range(0, 700, 3 * step), *rng.sample(range(700, len(content)), 50)):
        yield content[:at]
    yield content + b"more"
    yield bytes(len(content))


def test_a_damaged_file_of_outlines_changes_no_answer(path: Path, seed: int, full: bool) -> None:
    file, rng = path / OUTLINES_FILE, Random(seed)
    sound = file.read_bytes()
    filters = ("region = 'r3'", "region = 'absent'", "user = 'u5-7'", "n >= 900")
    answers = [ask(path, filter)[0] for filter in filters]
    for content in damaged_copies(sound, rng, 1 if full else 5):
        file.write_bytes(content)
        known = outlines_of(path).known
        assert set(known) <= set(decode_outlines(memoryview(sound)[OUTLINES_HEADER.size :])[0])
        at = rng.randrange(len(filters))
        if rng.random() < 0.1:
            assert ask(path, filters[at])[0] == answers[at]


def test_verify_reports_damage_and_repair_writes_the_file_anew(path: Path) -> None:
    assert verify(path).fine
    file = path / OUTLINES_FILE
    sound = file.read_bytes()
    file.write_bytes(sound[:900] + bytes([sound[900] ^ 1]) + sound[901:])
    (problem,) = verify(path).problems
    assert problem.healable
    assert "no message is lost" in problem.what
    assert repair(path).fine
    full = list_segments(path)[:-1]
    assert sorted(o.name for o in outlines_of(path).known) == [f.path.name for f in full]


def test_verify_reports_an_outline_that_does_not_agree_with_its_segment(path: Path) -> None:
    outlines = outlines_of(path).known
    wrong = with_text(outlines[-1], outlines[-1].text.replace(b"r", b"q"))
    (path / OUTLINES_FILE).write_bytes((path / OUTLINES_FILE).read_bytes() + encode_outline(wrong))
    (problem,) = verify(path).problems
    assert f"the outline of {wrong.name} does not agree with it" in problem.what
    assert repair(path).fine


def with_text(outline: Outline, text: bytes) -> Outline:
    fields = {name: getattr(outline, name) for name in Outline.__slots__}
    return Outline(**{**fields, "text": text})


def test_an_outline_of_another_file_is_not_used(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with Stream.create(
        other, indexed=["region", "user"], fsync="never", segment_bytes=9000
    ) as stream:
        with stream.producer() as producer:
            for segment in range(SEGMENTS):
                for row in range(40):
                    producer.publish(
                        bytes(100), headers={"region": "else", "n": segment, "user": f"{row}"}
                    )
                producer.flush()
        stream.seal()
    wanted = ask(path, "region = 'r3'")[0]
    assert wanted
    shutil.copy(other / OUTLINES_FILE, path / OUTLINES_FILE)
    assert ask(path, "region = 'r3'")[0] == wanted
    assert verify(path).fine


def test_a_replaced_segment_is_opened(path: Path, opened: list[str]) -> None:
    file = list_segments(path)[2].path
    os.utime(file, ns=(1, 1))
    ask(path, "region = 'absent'")
    assert opened == [file.name]
    with Stream.open(path) as stream:
        stream.seal()  # makes the missing outline
    opened.clear()
    ask(path, "region = 'absent'")
    assert opened == []


def test_a_file_of_a_later_version_is_neither_used_nor_changed(path: Path) -> None:
    file = path / OUTLINES_FILE
    later = OUTLINES_HEADER.pack(OUTLINES_MAGIC, OUTLINES_VERSION + 1) + b"something else"
    file.write_bytes(later)
    wanted = ask(path, "region = 'r3'")[0]
    assert outlines_of(path).known == []
    with Stream.open(path) as stream:
        fill(stream, SEGMENTS, 2)
        stream.seal()
    assert file.read_bytes() == later
    assert ask(path, "region = 'r3'")[0][: len(wanted)] == wanted


def test_a_stream_without_outlines_gets_them_with_the_next_seal(path: Path) -> None:
    (path / OUTLINES_FILE).unlink()
    wanted = ask(path, "user = 'u5-7'")
    with Stream.open(path) as stream:
        stream.seal()
    assert len(outlines_of(path).known) == len(list_segments(path)) - 1
    assert ask(path, "user = 'u5-7'") == wanted


def test_a_full_disk_costs_outlines_and_nothing_else(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(self: Outlines, outlines: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Outlines, "add", refuse)
    with Stream.open(path) as stream:
        fill(stream, SEGMENTS, 2)
        stream.seal()
        assert stream.next_offset == (SEGMENTS + 2) * 40
    assert "filters open more files" in caplog.text


# ---- crashes, retention, the cold tier ---------------------------------------------------------------


class Killed(BaseException):
    """Stands for the end of the process at this point."""


@pytest.mark.parametrize(
    "step", ["before the outline", "half of it", "before the logs are removed"]
)
def test_a_crash_while_sealing_leaves_answers_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "s"
    with create(path) as stream:
        wanted = [list(ask(path, f"region = 'r{i}'")[0]) for i in range(7)]
        count, real = 0, Outlines.add

        def crash(self: Outlines, outlines: list[Outline]) -> None:
            nonlocal count
            count += 1
            if count < 5:
                return real(self, outlines)
            if step == "half of it":
                with open(path / OUTLINES_FILE, "ab") as file:
                    file.write(encode_outline(outlines[0])[:-7])
            if step == "before the logs are removed":
                real(self, outlines)
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(Outlines, "add", crash)
            with pytest.raises(Killed):
                stream.seal()
        assert [ask(path, f"region = 'r{i}'")[0] for i in range(7)] == wanted
        assert ask(path, "region = 'absent'")[0] == []
    with Stream.open(path) as stream:
        stream.seal()
    full = list_segments(path)[:-1]
    assert {o.name for o in outlines_of(path).known} >= {file.path.name for file in full}
    assert [ask(path, f"region = 'r{i}'")[0] for i in range(7)] == wanted
    assert verify(path).fine


def test_outlines_of_dropped_segments_go_when_they_are_the_greater_part(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with create(path, 4) as stream:
        for at in range(4, 76, 8):
            fill(stream, at, 8)
            stream.seal()
            stream.trim(before_offset=(at + 4) * 40)
            names = {file.path.name for file in list_segments(path)}
            live = [o for o in outlines_of(path).known if o.name in names]
            assert len(outlines_of(path).known) <= 64 + 3 * len(names) + 16
            assert len(live) >= len([n for n in names if n.endswith(".arrow")])
        assert ask(path, "region = 'absent'")[0] == []
        first = stream.first_offset
        assert ask(path, "n >= 0")[0] == list(range(first, stream.next_offset))


def test_a_cold_segment_has_an_outline(path: Path, opened: list[str]) -> None:
    wanted = {filter: ask(path, filter)[0] for filter in ("region = 'r3'", "user = 'u5-7'")}
    compact(path, before_offset=12 * 40, created_us=0)
    files = list_segments(path)
    assert files[0].cold
    latest = {outline.name: outline for outline in outlines_of(path).known}
    assert make_outline(files[0]) == latest[files[0].path.name]
    (user,) = latest[files[0].path.name].describe([USER])
    assert user.bloom
    for filter, offsets in wanted.items():
        assert ask(path, filter)[0] == offsets
    opened.clear()
    assert ask(path, "user = 'absent'")[0] == []
    assert opened == []
    assert verify(path).fine


def test_bytes_are_read_back_as_they_were_written(path: Path) -> None:
    known = outlines_of(path).known
    content = b"".join(map(encode_outline, known))
    assert decode_outlines(memoryview(content)) == (known, len(content))
    for cut in range(1, 200, 7):
        found, length = decode_outlines(memoryview(content[:-cut]))
        assert found == known[: len(found)]
        assert length == sum(len(encode_outline(outline)) for outline in found)
