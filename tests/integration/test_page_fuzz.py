"""Pages inside sealed chunks, under random schemas, filters and damage: as if there were none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from headgate.columns.names import MAX_HEADER_COLUMNS
from headgate.errors import StreamCorrupt
from headgate.filters import And, Field, Filter, Or, normalize
from headgate.filters.logic import matches_filter
from headgate.filters.nodes import COMPARE_OPS, Compare, Exists, In, IsNull, Like, Literal, negation
from headgate.message import INT64_MAX, INT64_MIN, OPAQUE, Message
from headgate.streams import Stream
from headgate.streams.cold.compaction import compact
from headgate.streams.format import sealed_path
from headgate.streams.read import ScanStats
from headgate.streams.read import plan as planning
from headgate.streams.read import scan as scanning
from headgate.streams.read.query import make_query
from headgate.streams.segments import clustering
from headgate.streams.segments import pages as paging
from headgate.streams.segments import sealed as sealing
from headgate.streams.segments.sealed import SealedSegment
from headgate.streams.upkeep.verification import repair, verify
from tests import generate

NAMES = ("a", "region", "q'uo\"te", "é😀", "n7")
LAST = "\U0010ffff"
LONG = "x" * 63
# Bounds of text are cut at 64 code points.
TEXTS = [
    LONG,
    LONG + "y",
    LONG + "yz",
    LONG + LAST,
    LONG + LAST + "z",
    LONG + "y" + LAST,
    "",
    LAST,
    "😀",
    "EU",
    "US",
]
STYLES = ("one", "few", "many", "texts", "ints", "extremes", "floats", "bools", "mixed", "opaque")


class Schema:
    """What the headers of a stream hold."""

    def __init__(self, rng: Random) -> None:
        self.styles = {name: rng.choice(STYLES) for name in NAMES}
        self.present = {name: rng.choice((0.02, 0.5, 0.95, 1.0)) for name in NAMES}
        self.wide = rng.random() < 0.25  # some messages have more headers than there are columns

    def value(self, name: str, rng: Random) -> object:
        match self.styles[name]:
            case "one":
                return "EU"
            case "few":
                return rng.choice(("EU", "US", "DE", "FR"))
            case "many":
                return f"v{rng.randrange(500):04}"
            case "texts":
                return rng.choice(TEXTS)
            case "ints":
                return rng.randrange(-20, 400)
            case "extremes":
                return rng.choice(
                    (INT64_MIN, INT64_MIN + 1, -1, 0, 1, 2**53, 2**53 + 1, INT64_MAX - 1, INT64_MAX)
                )
            case "floats":
                return (
                    rng.choice(generate.FLOATS)
                    if rng.random() < 0.5
                    else rng.randrange(-50, 50) / 4
                )
            case "bools":
                return rng.random() < 0.5
            case "opaque":
                return OPAQUE if rng.random() < 0.3 else rng.choice(("EU", 5))
        return generate.scalar(rng) if rng.random() < 0.6 else rng.choice(TEXTS)

    def message(self, rng: Random) -> Message:
        headers = {n: self.value(n, rng) for n in NAMES if rng.random() < self.present[n]}
        if self.wide and rng.random() < 0.2:
            for i in range(MAX_HEADER_COLUMNS + 5):
                headers.setdefault(f"w{i:03}", i)
        return Message(
            b"%d" % rng.randrange(10**9),
            headers=headers,  # type: ignore[arg-type]
            topic=rng.choice(("", "a.b", "c")),
            filter_value=rng.choice((None, "EU", "US", "v0007")),
            priority=rng.choice((0, 4)),
            timestamp=generate.NOW_US + rng.randrange(1000),
        )


def make_filter(rng: Random, schema: Schema, depth: int = 2) -> Filter:
    shape = rng.random()
    if depth and shape < 0.45:
        joint = And if shape < 0.25 else Or
        return joint(tuple(make_filter(rng, schema, depth - 1) for _ in range(rng.randint(2, 3))))
    if depth and shape < 0.55:
        return negation(make_filter(rng, schema, depth - 1))
    if shape < 0.6:
        return generate.timeless(rng)
    name = rng.choice(NAMES)
    field = Field("header", name) if rng.random() < 0.85 else Field("sys", "filter_value")

    def literal() -> Literal:
        found = schema.value(name, rng) if rng.random() < 0.8 else rng.choice(TEXTS)
        return Literal("EU" if found is OPAQUE else found)  # type: ignore[arg-type]

    negated, kind = rng.random() < 0.3, rng.random()
    if kind < 0.55:
        return Compare(rng.choice(COMPARE_OPS), field, literal())
    if kind < 0.75:
        return In(field, tuple(literal() for _ in range(rng.randint(1, 4))), negated)
    if kind < 0.85:
        return Like(
            field,
            rng.choice((LONG + "%", LONG + "y%", "v00%", "E_", "%", "", LAST + "%")),
            None,
            negated,
        )
    return IsNull(field, negated) if kind < 0.93 else Exists(field, negated)


def write(path: Path, rng: Random, schema: Schema, count: int) -> list[Message]:
    options = {
        "indexed": rng.sample(NAMES, rng.randint(0, 3)),
        "chunk_messages": rng.choice((16, 100, 4096)),
        "restrict_same_values": rng.choice(
            ({}, {}, {"region": ["EU", "US"]}, {"a": ["EU"], "n7": [1, 5]})
        ),
    }
    messages = [schema.message(rng) for _ in range(count)]
    with Stream.create(path, fsync="never", **options) as stream:  # type: ignore[arg-type]
        half = rng.randrange(count)
        with stream.producer() as producer:
            producer.publish_many(messages[:half])
            producer.flush()
            if rng.random() < 0.3:
                stream.seal(all=True)
            producer.publish_many(messages[half:])
        stream.seal(all=True)
        if rng.random() < 0.3:
            stream.close()
            with Stream.open(path) as again:
                again.reconfigure(indexed=rng.sample(NAMES, 2))
    return messages


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of some hundred rows, pages of eight or sixteen."""
    monkeypatch.setattr(clustering, "CHUNK_ROWS", 96)
    for module in (paging, sealing, planning, scanning):
        monkeypatch.setattr(module, "PAGE_ROWS", 16)


def read(
    path: Path, filter: Filter, start: int = 0, columns: list[str] | None = None
) -> tuple[pa.Table, ScanStats]:
    with Stream.open(path) as stream:
        scan = stream.scan(filter, start=start, columns=columns)
        return scan.to_table(), scan.stats


def without_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_find_parts", lambda segment, filter, chunks: {})


def segments_of(path: Path) -> Iterator[SealedSegment]:
    return (SealedSegment(file) for file in sorted(path.glob("*.arrow")))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("round", range(6))
def test_random_schemas_are_read_as_if_there_were_no_pages(
    round: int, seed: int, full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for again in range(8 if full else 1):
        rng = Random(seed * 1009 + round * 31 + again)
        path, schema = tmp_path / f"s{again}", Schema(rng)
        messages = write(path, rng, schema, rng.choice((40, 300, 700)))
        for _ in range(40 if full else 15):
            filter = normalize(make_filter(rng, schema)).tree
            start = rng.choice((0, rng.randrange(len(messages))))
            columns = rng.choice((None, None, ["payload"], ["h.s.region", "topic"]))
            wanted = [i for i, m in enumerate(messages) if i >= start and matches_filter(filter, m)]
            found, stats = read(path, filter, start, columns)
            assert found.column("offset").to_pylist() == wanted, filter
            with monkeypatch.context() as patch:
                without_pages(patch)
                whole, all_stats = read(path, filter, start, columns)
            assert found.equals(whole), filter
            assert stats.bytes_read <= all_stats.bytes_read, filter
            assert stats.bytes_total == all_stats.bytes_total
            assert stats.rows_examined <= all_stats.rows_examined
            check_sweep(path, filter, wanted, start)


def check_sweep(path: Path, filter: Filter, wanted: list[int], start: int) -> None:
    """The way in which Spark reads: each segment by itself, in the order of its chunks."""
    query, found = make_query(filter, columns=("offset",)), []
    for segment in segments_of(path):
        for batch in scanning.sweep_segment(segment, query, start, 10**9, ScanStats()):
            found += batch.column("offset").to_pylist()
    assert sorted(found) == wanted


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("round", range(2))
def test_cold_segments_made_of_paged_ones_hold_the_same(
    round: int, seed: int, tmp_path: Path
) -> None:
    rng = Random(seed * 7 + round)
    path, schema = tmp_path / "s", Schema(rng)
    messages = write(path, rng, schema, 400)
    filters = [normalize(make_filter(rng, schema)).tree for _ in range(8)]
    compact(path, created_us=0)
    assert not list(path.glob("*.arrow"))
    for filter in filters:
        wanted = [i for i, m in enumerate(messages) if matches_filter(filter, m)]
        assert read(path, filter)[0].column("offset").to_pylist() == wanted


# ---- damage ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
def test_any_damaged_byte_of_the_pages_costs_no_message(
    seed: int, full: bool, tmp_path: Path
) -> None:
    rng = Random(seed + 5)
    path, schema = tmp_path / "s", Schema(rng)
    schema.wide, schema.styles["region"] = False, "many"
    messages = [schema.message(rng) for _ in range(300)]
    with Stream.create(path, fsync="never", indexed=["region"]) as stream:
        with stream.producer() as producer:
            producer.publish_many(messages)
        stream.seal(all=True)
    file = sealed_path(path, 0)
    sound, text = file.read_bytes(), SealedSegment(file).encoded_pages
    assert text is not None
    filter = normalize(Compare("=", Field("header", "region"), Literal("v0007"))).tree
    wanted = [i for i, m in enumerate(messages) if matches_filter(filter, m)]
    at = sound.index(text)
    for place in range(1, len(text), 1 if full else 9):
        for byte in {text[place] ^ 1 << rng.randrange(8), *(b"=A\0" if place % 5 == 0 else b"")} - {
            text[place]
        }:
            file.write_bytes(sound[: at + place] + bytes([byte]) + sound[at + place + 1 :])
            assert read(path, filter)[0].column("offset").to_pylist() == wanted
            assert SealedSegment(file).pages is None
    (problem,) = verify(path).problems
    assert problem.healable
    assert repair(path).fine
    assert read(path, filter)[0].column("offset").to_pylist() == wanted
    assert SealedSegment(file).pages is not None


def test_pages_that_are_sound_but_do_not_fit_the_file_are_not_used(tmp_path: Path) -> None:
    """The table of another file, with a right CRC: fewer pages, other columns."""
    for name, count in (("s", 3000), ("other", 1100)):
        with Stream.create(tmp_path / name, fsync="never", indexed=["n"]) as stream:
            with stream.producer() as producer:
                producer.publish_many([Message(b"x", headers={"n": i}) for i in range(count)])
            stream.seal(all=True)
    mine, other = (
        SealedSegment(sealed_path(tmp_path / n, 0)).encoded_pages for n in ("s", "other")
    )
    assert mine is not None
    assert other is not None
    segment = SealedSegment(sealed_path(tmp_path / "s", 0))
    segment.encoded_pages = other
    assert segment.pages is None
    with pytest.raises(StreamCorrupt):
        segment.read_pages()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "known",
    [None, 3004140543, 7, 29],
    ids=["any", "null words", "too many words", "words of another type"],
)
def test_a_flipped_byte_anywhere_is_never_a_wrong_answer(
    known: int | None, seed: int, full: bool, tmp_path: Path
) -> None:
    """Wherever the file is damaged, a filter finds its messages or says that some cannot be read."""
    rng = Random((seed if known is None else known) + 11)
    path, schema = tmp_path / "s", Schema(rng)
    schema.styles["region"] = "few"
    messages = [schema.message(rng) for _ in range(200)]
    with Stream.create(path, fsync="never", indexed=["region", "a"]) as stream:
        with stream.producer() as producer:
            producer.publish_many(messages)
        stream.seal(all=True)
    file = sealed_path(path, 0)
    sound = file.read_bytes()
    shutil.copy(file, tmp_path / "sound")
    filters = [normalize(make_filter(rng, schema, 1)).tree for _ in range(10)]
    answers = [[i for i, m in enumerate(messages) if matches_filter(f, m)] for f in filters]
    for _ in range(600 if full or known else 120):
        place, at = rng.randrange(len(sound)), rng.randrange(len(filters))
        file.write_bytes(
            sound[:place] + bytes([sound[place] ^ 1 << rng.randrange(8)]) + sound[place + 1 :]
        )
        try:
            found = read(path, filters[at])[0].column("offset").to_pylist()
        except StreamCorrupt:
            continue
        assert found == answers[at], (place, filters[at])
