"""Segments that are judged all at once: the same messages and the same counts, with less work."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.message import Message
from headgate.streams.options import StreamOptions
from headgate.streams.read import catalog as catalog_module
from headgate.streams.read import scan as scan_module
from headgate.streams.read.catalog import SealedSegments, SegmentCatalog
from headgate.streams.read.plan import ScanStats
from headgate.streams.read.query import make_query
from headgate.streams.read.scan import Scan
from headgate.streams.segments import clustering
from tests.unit.streams.written_segments import CLOCK, seal_at, write_hot

SEGMENTS, ROWS = 20, 30
FILTERS = [
    "region = 'r3'", "region = 'absent'", "region <> 'r3'", "region IN ('r1', 'r19')", "region LIKE 'r1%'",
    "NOT region = 'r3'", "n = 100", "n >= 550", "n < 10 OR n > 590", "n = 100.0", "n * 2 = 200", "n = flag",
    "ratio > 4.5", "ratio = 3", "flag = TRUE", "flag = FALSE AND n > 500", "mixed = 5", "mixed = 'm5'", "mixed > 3",
    "mixed IS NULL", "mixed IS NOT NULL", "nowhere = 1", "nowhere IS NULL", "EXISTS(rare)", "rare = 'x'",
    "user = 'u77'", "user = 'absent'", "sys.timestamp >= 0", "sys.priority = 2", "sys.topic = 'a.7'",
]  # fmt: skip


def message(segment: int, row: int) -> Message:
    n = segment * ROWS + row
    headers: dict[str, object] = {
        "region": f"r{segment}",
        "n": n,
        "ratio": n / 100,
        "user": f"u{n}",
    }
    if segment % 3 == 0:
        headers["flag"] = row % 2 == 0
    if segment % 2 == 0:
        headers["mixed"] = f"m{segment}" if row % 2 else segment
    if n == 222:
        headers["rare"] = "x"
    return Message(
        b"%d" % n,
        headers=headers,  # type: ignore[arg-type]
        timestamp=CLOCK + n,
        priority=segment % 3,
        topic=f"a.{segment}",
    )


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty sealed segments and a hot one."""
    made = tmp_path_factory.mktemp("many")
    options = StreamOptions(indexed=("region", "user"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clustering, "CHUNK_ROWS", 8)
        for segment in range(SEGMENTS + 1):
            rows = [message(segment, row) for row in range(ROWS)]
            write_hot(made, segment * ROWS, [rows], options)
            if segment < SEGMENTS:
                seal_at(made, segment * ROWS, options.indexed)
    return made


@pytest.fixture(scope="module")
def opened(directory: Path) -> SealedSegments:
    """All sealed segments, opened by an earlier scan."""
    sealed = SealedSegments()
    scan(directory, sealed, None)
    return sealed


def scan(
    directory: Path, sealed: SealedSegments, filter: str | None, start: int = 0, end: int = 10**6
) -> tuple[list[int], ScanStats]:
    found = Scan(SegmentCatalog(directory, sealed), make_query(filter), start, end)
    offsets = [n for batch in found for n in batch.column("offset").to_pylist()]
    return offsets, found.stats


@pytest.mark.parametrize(("start", "end"), [(0, 10**6), (45, 333), (30, 601)])
@pytest.mark.parametrize("filter", FILTERS)
def test_messages_and_counts_are_those_of_every_segment_by_itself(
    directory: Path,
    opened: SealedSegments,
    monkeypatch: pytest.MonkeyPatch,
    filter: str,
    start: int,
    end: int,
) -> None:
    monkeypatch.setattr(catalog_module, "MANY", 1)
    together = scan(directory, opened, filter, start, end)
    monkeypatch.setattr(catalog_module, "MANY", 10**6)
    assert scan(directory, opened, filter, start, end) == together


def test_an_absent_value_looks_at_no_sealed_segment(
    directory: Path, opened: SealedSegments, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    real = scan_module.scan_segment

    def counted(segment: object, *arguments: object) -> object:
        looked.append(segment.first_offset)  # type: ignore[attr-defined]
        return real(segment, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(scan_module, "scan_segment", counted)
    assert scan(directory, opened, "region = 'absent'")[0] == []
    assert looked == [SEGMENTS * ROWS]  # the hot one
    looked.clear()
    assert len(scan(directory, opened, "region = 'r7'")[0]) == ROWS
    assert looked == [7 * ROWS, SEGMENTS * ROWS]


def test_a_tail_judges_no_history(
    directory: Path, opened: SealedSegments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(SealedSegments, "exclude")
    assert scan(directory, opened, "region = 'r20'", start=SEGMENTS * ROWS)[0]
