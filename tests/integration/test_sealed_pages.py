"""Pages inside sealed chunks: a filter on an indexed header reads those of them that may hold its values."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest

from headgate.errors import StreamCorrupt
from headgate.filters import normalize, parse
from headgate.filters.logic import matches_filter
from headgate.message import OPAQUE, Message
from headgate.streams import Stream
from headgate.streams.format import sealed_path
from headgate.streams.read import ScanStats, measure
from headgate.streams.read import plan as planning
from headgate.streams.read import scan as scanning
from headgate.streams.segments import pages as paging
from headgate.streams.segments import sealed as sealing
from headgate.streams.segments.pages import PAGE_ROWS, VERSION
from headgate.streams.segments.sealed import SealedSegment
from headgate.streams.upkeep.verification import repair, verify
from tests import generate
from tests.mixed_stream import mixed_stream, publish, very_wide

COUNT = 6000
OLD_FILE = Path(__file__).parents[1] / "data" / "sealed_without_pages.arrow"
FILTERS = (
    "region = 'v007'",
    "region = 'v007' AND type = 'b'",
    "region IN ('v003', 'v044') AND amount >= 2500",
    "region <> 'v007'",
    "region LIKE 'v00%'",
    "region > 'v057' OR region < 'v001'",
    "region IS NULL",
    "region IS NOT NULL AND amount < 40",
    "EXISTS(region) AND region IS NULL",
    "region = 17",
    "region >= 10 AND region < 30",
    "token = 'token-01234'",
    "token LIKE 'token-012%' AND type = 'a'",
    "type = 'b'",
    "amount = 77",
    "region = 'absent'",
    "NOT (region = 'v007') AND type = 'c' AND amount > 4990",
)


def order(i: int, rng: Random) -> Message:
    headers = {"amount": rng.randrange(5000), "type": rng.choice("abc"), "token": f"token-{i:05}"}
    kind = rng.random()
    if kind < 0.9:
        headers["region"] = f"v{rng.randrange(60):03}"
    elif kind < 0.95:
        headers["region"] = rng.randrange(40)  # another kind under the same name
    elif kind < 0.97:
        headers["region"] = OPAQUE
    return Message(b"payload %05d" % i, headers=headers)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Message]]:
    """A sealed stream, clustered by three headers, and its messages."""
    path, rng = tmp_path_factory.mktemp("pages") / "s", Random(3)
    messages = [order(i, rng) for i in range(COUNT)]
    with Stream.create(path, indexed=["type", "region", "token"]) as stream:
        publish(stream, messages)
        stream.seal(all=True)
    return path, messages


@pytest.fixture
def path(written: tuple[Path, list[Message]], tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    return Path(shutil.copytree(written[0], tmp_path / "s"))


@pytest.fixture
def tiny_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (paging, sealing, planning, scanning):
        monkeypatch.setattr(module, "PAGE_ROWS", 8)


def ask(path: Path, filter: str, columns: list[str] | None = None) -> tuple[list[int], ScanStats]:
    with Stream.open(path) as stream:
        scan = stream.scan(filter, columns=columns)
        return [o for batch in scan for o in batch.column("offset").to_pylist()], scan.stats


def expected(messages: list[Message], filter: str) -> list[int]:
    tree = normalize(parse(filter)).tree
    return [i for i, message in enumerate(messages) if matches_filter(tree, message)]


# ---- exactness ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("filter", FILTERS)
def test_a_filter_finds_exactly_its_messages_in_pages(
    written: tuple[Path, list[Message]], filter: str
) -> None:
    path, messages = written
    wanted = expected(messages, filter)
    assert ask(path, filter)[0] == wanted
    assert ask(path, filter, ["payload"])[0] == wanted
    with Stream.open(path) as stream:
        found = [m.payload for m in stream.consume(filter, start=COUNT // 2)]
    assert found == [messages[i].payload for i in wanted if i >= COUNT // 2]


@pytest.mark.usefixtures("tiny_pages")
def test_a_filter_finds_exactly_its_messages_in_pages_of_eight_rows(tmp_path: Path) -> None:
    rng = Random(4)
    messages = [order(i, rng) for i in range(900)]
    with Stream.create(tmp_path / "s", indexed=["type", "region", "token"]) as stream:
        publish(stream, messages)
        stream.seal(all=True)
    for filter in FILTERS:
        assert ask(tmp_path / "s", filter)[0] == expected(messages, filter), filter


@pytest.mark.usefixtures("tiny_pages")
@pytest.mark.parametrize("round", range(4))
def test_random_messages_and_filters_with_pages_of_eight_rows(
    round: int, seed: int, tmp_path: Path
) -> None:
    rng = Random(seed + round)
    records = mixed_stream(tmp_path / "s", rng, 200)
    with Stream.open(tmp_path / "s") as stream:
        for _ in range(12):
            filter = normalize(generate.filter(rng)).at(generate.NOW_US)
            scan = stream.scan(filter.tree)
            found = [o for batch in scan for o in batch.column("offset").to_pylist()]
            wanted = [o for o, message in records if matches_filter(filter.tree, message)]
            assert found == wanted, filter
            assert scan.stats.bytes_read <= scan.stats.bytes_total


@pytest.mark.usefixtures("tiny_pages")
def test_an_indexed_header_in_the_overflow_of_some_messages_is_found(tmp_path: Path) -> None:
    values = ("text", 7, 2.5, "other")
    messages = [Message(b"x", headers={"n130": values[i // 20]}) for i in range(80)]
    with Stream.create(tmp_path / "s", chunk_messages=16) as stream:
        publish(stream, messages)
        publish(stream, very_wide(90))
    with Stream.open(tmp_path / "s") as stream:
        stream.reconfigure(indexed=["n130"])  # too late for the chunks that are written
        stream.seal(all=True)
    segment = SealedSegment(sealed_path(tmp_path / "s", 0))
    assert "n130" in segment.note.overflowed
    assert segment.pages is not None
    messages += very_wide(90)
    for filter in ("n130 = 'text'", "n130 = 7", "n130 IS NULL", "EXISTS(n130)", "n130 > 1"):
        assert ask(tmp_path / "s", filter)[0] == expected(messages, filter), filter


# ---- what is read ------------------------------------------------------------------------------------


def test_one_value_reads_the_pages_that_hold_it(written: tuple[Path, list[Message]]) -> None:
    path, messages = written
    segment = SealedSegment(sealed_path(path, 0))
    assert len(segment) == 1
    found, stats = ask(path, "type = 'b' AND region = 'v030'")
    (survivor,) = planning.survivors(
        segment,
        normalize(parse("type = 'b' AND region = 'v030'")),
        (),
        0,
        COUNT,
        ScanStats(),
    )
    assert survivor.pages is not None
    assert len(survivor.pages) <= 2
    part = segment.part(0, survivor.pages)
    assert (stats.bytes_read, stats.rows_examined) == (part.nbytes, part.num_rows)
    assert stats.bytes_read < 0.2 * stats.bytes_total
    assert (stats.chunks_none, stats.chunks_all, stats.chunks_some) == (0, 0, 1)
    assert found == expected(messages, "type = 'b' AND region = 'v030'")


def test_several_parts_of_a_chunk_count_as_one_chunk(written: tuple[Path, list[Message]]) -> None:
    path, messages = written
    filter = "region = 'v030'"  # once for each type
    segment = SealedSegment(sealed_path(path, 0))
    parts = planning.survivors(segment, normalize(parse(filter)), (), 0, COUNT, ScanStats())
    assert len(list(parts)) == 3
    found, stats = ask(path, filter)
    assert (stats.chunks_none, stats.chunks_all, stats.chunks_some) == (0, 0, 1)
    with Stream.open(path) as stream:
        measured = measure(stream, filter)
    assert (measured.hits, measured.false_positives) == (1, 0)
    assert measured.stats.rows_matched == len(found) == len(expected(messages, filter))
    assert measured.stats.bytes_read == stats.bytes_read


def test_a_chunk_whose_pages_exclude_a_value_is_not_opened(tmp_path: Path) -> None:
    with Stream.create(tmp_path / "s", indexed=["n"]) as stream:
        publish(
            stream, [Message(b"x", headers={"n": 2 * i + 600 * (i // 512)}) for i in range(2048)]
        )
        stream.seal(all=True)
    found, stats = ask(tmp_path / "s", "n > 1022 AND n < 1624")  # between the first two pages
    assert (found, stats.bytes_read, stats.chunks_none, stats.chunks_some) == ([], 0, 1, 0)


def test_the_lengths_of_all_pages_are_the_length_of_their_chunk(
    written: tuple[Path, list[Message]],
) -> None:
    segment = SealedSegment(sealed_path(written[0], 0))
    every = range(-(-COUNT // PAGE_ROWS))
    assert segment.part(0, every).nbytes == pytest.approx(segment.chunk(0).nbytes, rel=0.01)
    whole, part = segment.chunk(0).take(None), segment.part(0, every).take(None)
    assert part.equals(whole)
    third = segment.part(0, range(3, 5)).take(None)
    assert third.equals(whole.slice(3 * PAGE_ROWS, 2 * PAGE_ROWS))


def test_pages_are_written_where_they_can_help(tmp_path: Path) -> None:
    for name, count, indexed in (("short", 500, ["n"]), ("plain", 1500, []), ("long", 1500, ["n"])):
        with Stream.create(tmp_path / name, indexed=indexed) as stream:
            publish(stream, [Message(b"x", headers={"n": i}) for i in range(count)])
            stream.seal(all=True)
        segment = SealedSegment(sealed_path(tmp_path / name, 0))
        assert (segment.pages is not None) == (name == "long")


# ---- damage ------------------------------------------------------------------------------------------


def flip(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 0x10
    file.write_bytes(content)


def damage_payload(path: Path, offset: int) -> None:
    file = sealed_path(path, 0)
    flip(file, file.read_bytes().index(b"payload %05d" % offset))


def named(damage: StreamCorrupt) -> set[int]:
    return {o for first, last in damage.offsets for o in range(first, last + 1)}


def test_a_flipped_byte_is_found_by_who_reads_its_page(
    path: Path, written: tuple[Path, list[Message]]
) -> None:
    filter, other = "type = 'b' AND region = 'v030'", "type = 'b' AND region = 'v050'"
    wanted, undisturbed = expected(written[1], filter), expected(written[1], other)
    damage_payload(path, wanted[2])
    with pytest.raises(StreamCorrupt, match=r"'payload' of a chunk") as raised:
        ask(path, filter)
    assert wanted[2] in named(raised.value)
    assert raised.value.messages <= 2 * PAGE_ROWS
    assert ask(path, filter, ["h.i.amount"])[0] == wanted
    assert ask(path, other)[0] == undisturbed
    with pytest.raises(StreamCorrupt):
        ask(path, "amount >= 0")
    with Stream.open(path) as stream:
        scan = stream.scan(filter, on_corrupt="skip")
        assert not [o for batch in scan for o in batch.column("offset").to_pylist()]
        assert scan.stats.messages_lost == raised.value.messages
    (problem,) = verify(path).problems
    assert problem.healable


def test_a_damaged_dictionary_is_never_planned_with(path: Path) -> None:
    file = sealed_path(path, 0)
    flip(file, file.read_bytes().index(b"v029v030v031") + 6)
    with pytest.raises(StreamCorrupt, match=r"'h\.s\.region'"):
        ask(path, "region = 'v030'")


def footer_values(file: Path) -> Iterator[tuple[int, int]]:
    segment = SealedSegment(file)
    assert segment.encoded_pages is not None
    at = file.read_bytes().index(segment.encoded_pages)
    yield at, len(segment.encoded_pages)


def test_damaged_pages_cost_no_message_and_are_repaired(
    path: Path, written: tuple[Path, list[Message]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    file, filter = sealed_path(path, 0), "region = 'v007'"
    ((at, length),) = footer_values(file)
    rng, sound = Random(5), file.read_bytes()
    for place in (at + 1, at + length - 1, *rng.sample(range(at + 1, at + length), 6)):
        file.write_bytes(sound)
        flip(file, place)
        found, stats = ask(path, filter)
        assert found == expected(written[1], filter)
        assert stats.bytes_read == stats.bytes_total
        (problem,) = verify(path).problems
        assert problem.healable
        assert "the pages in the footer" in problem.what
    assert "chunks are read whole" in caplog.text
    assert repair(path).fine
    found, stats = ask(path, filter)
    assert found == expected(written[1], filter)
    assert stats.bytes_read < 0.5 * stats.bytes_total


# ---- other versions ----------------------------------------------------------------------------------


def test_pages_of_an_unknown_version_are_ignored(
    path: Path, written: tuple[Path, list[Message]]
) -> None:
    file, filter = sealed_path(path, 0), "region = 'v007'"
    ((at, _),) = footer_values(file)
    content = bytearray(file.read_bytes())
    assert content[at : at + 1] == VERSION
    content[at : at + 1] = b"2"
    file.write_bytes(content)
    found, stats = ask(path, filter)
    assert found == expected(written[1], filter)
    assert stats.bytes_read == stats.bytes_total
    assert verify(path).fine


def test_a_file_from_before_there_were_pages_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "s"
    messages = [
        Message(b"%d" % i, headers={"region": f"r{i * 7 % 40:02}", "n": i}) for i in range(700)
    ]
    with Stream.create(path, indexed=["region"]) as stream:
        publish(stream, messages)
        stream.seal(all=True)
    by_pages = ask(path, "region = 'r07'")
    shutil.copy(OLD_FILE, sealed_path(path, 0))
    assert SealedSegment(sealed_path(path, 0)).pages is None
    assert verify(path).fine
    whole = ask(path, "region = 'r07'")
    assert whole[0] == by_pages[0] == expected(messages, "region = 'r07'")
    assert by_pages[1].bytes_read < whole[1].bytes_read == whole[1].bytes_total
    with Stream.open(path) as stream:
        assert [m.headers["n"] for m in stream.consume()] == list(range(700))
        assert np.array_equal(ask(path, "n >= 100")[0], np.arange(100, 700))
