from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random

import numpy as np
import pytest

from headgate.errors import StreamCorrupt
from headgate.message import Message
from headgate.streams.format import SegmentFile, index_path, log_path, sealed_path
from headgate.streams.options import StreamOptions
from headgate.streams.read import scan as reader
from headgate.streams.read.catalog import SealedSegments, SegmentCatalog
from headgate.streams.read.query import make_query
from headgate.streams.read.scan import Scan, runs_of, sort_by_offset
from headgate.streams.segments import clustering
from headgate.streams.segments.sealed import SealedSegment
from tests.unit.streams.written_segments import CLOCK, offsets_of, scan_all, seal_at, write_hot

REGIONS = ["EU", "US", "APAC", "MARS"]


def message(i: int) -> Message:
    return Message(
        b"%d" % i,
        headers={"region": REGIONS[i * 7 % 4], "n": i},
        timestamp=CLOCK + i,
        priority=i % 3,
    )


@pytest.fixture
def three_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Offsets 0-299 in three segments of ten chunks; the middle one is sealed."""
    monkeypatch.setattr(clustering, "CHUNK_ROWS", 8)
    monkeypatch.setattr(reader, "BATCH_ROWS", 16)
    for first in (0, 100, 200):
        chunks = [[message(first + c * 10 + i) for i in range(10)] for c in range(10)]
        write_hot(tmp_path, first, chunks, StreamOptions(indexed=("region",)))
    seal_at(tmp_path, 100, ["region"])
    return tmp_path


def test_a_scan_returns_what_matches_in_offset_order_whatever_the_segments_are(
    three_segments: Path,
) -> None:
    table, stats = scan_all(three_segments, "region = 'EU' AND n > 50")
    assert offsets_of(table) == [i for i in range(51, 300) if REGIONS[i * 7 % 4] == "EU"]
    assert stats.rows_matched == len(table)


def test_a_scan_without_a_filter_passes_every_chunk_whole(three_segments: Path) -> None:
    table, stats = scan_all(three_segments)
    assert offsets_of(table) == list(range(300))
    assert (stats.chunks_none, stats.chunks_some, stats.rows_examined) == (0, 0, 0)
    assert stats.chunks_all > 20
    assert stats.bytes_read == stats.bytes_total


def test_a_filter_that_matches_nothing_opens_nothing(three_segments: Path) -> None:
    for text in ("sys.timestamp < 5", "sys.priority > 2", "FALSE"):
        table, stats = scan_all(three_segments, text)
        assert (len(table), stats.bytes_read, stats.chunks_some) == (0, 0, 0)
        assert stats.bytes_total > 0


def test_the_position_advances_although_everything_is_filtered_out(three_segments: Path) -> None:
    scan = Scan(SegmentCatalog(three_segments), make_query("region = 'VENUS'"), 0, 300)
    assert list(scan) == []
    assert scan.position == 300


def test_a_sealed_segment_has_chunks_with_verdict_all_and_some(three_segments: Path) -> None:
    _, stats = scan_all(three_segments, "region = 'EU'", start=100, end=200)
    assert stats.chunks_all + stats.chunks_some < stats.chunks_none
    table, stats = scan_all(three_segments, "n >= 100", start=100, end=200)
    assert (len(table), stats.chunks_some, stats.rows_examined) == (100, 0, 0)


@pytest.mark.parametrize(
    ("start", "end"), [(0, 1), (5, 6), (95, 105), (99, 201), (137, 138), (299, 400)]
)
def test_a_scan_stays_within_its_offsets(three_segments: Path, start: int, end: int) -> None:
    for text in (None, "n >= 0", "region <> 'EU'"):
        table, _ = scan_all(three_segments, text, start=start, end=end)
        wanted = range(start, min(end, 300))
        if text and "region" in text:
            wanted = [i for i in wanted if REGIONS[i * 7 % 4] != "EU"]
        assert offsets_of(table) == list(wanted)


def test_a_scan_returns_only_the_requested_columns(three_segments: Path) -> None:
    table, _ = scan_all(three_segments, "region = 'EU'", columns=["h.i.n", "h.s.nothing.like.it"])
    assert table.schema.names == ["offset", "h.i.n"]


def test_a_scan_lists_the_directory_again_when_a_segment_has_disappeared(
    three_segments: Path,
) -> None:
    """Sealing and retention in the middle of a scan: no row is lost, doubled or wrong."""
    catalog = SegmentCatalog(three_segments)
    scan = Scan(catalog, make_query("n >= 0"), 0, 300)
    seen = offsets_of_batches([next(scan)])
    seal_at(three_segments, 200, ["region"])
    seal_at(three_segments, 0, ["region"])
    assert seen + offsets_of_batches(list(scan)) == list(range(300))


def test_messages_deleted_by_retention_are_skipped_and_counted(three_segments: Path) -> None:
    scan = Scan(SegmentCatalog(three_segments), make_query(None), 0, 300)
    first = offsets_of_batches([next(scan)])
    log_path(three_segments, 0).unlink()
    sealed_path(three_segments, 100).unlink()
    rest = offsets_of_batches(list(scan))
    assert first + rest == [*range(100), *range(200, 300)]
    assert scan.stats.messages_dropped == 100


def test_a_missing_segment_in_the_middle_is_an_error_that_names_its_offsets(
    three_segments: Path,
) -> None:
    sealed_path(three_segments, 100).unlink()
    scan = Scan(SegmentCatalog(three_segments), make_query(None), 0, 300)
    assert offsets_of_batches([next(scan) for _ in range(10)]) == list(range(100))
    for _ in range(2):  # however often it is asked
        with pytest.raises(StreamCorrupt, match="offsets 100 to 199 cannot be read") as caught:
            next(scan)
        assert caught.value.offsets == ((100, 199),)
    behind = Scan(SegmentCatalog(three_segments), make_query(None), 200, 300)
    assert offsets_of_batches(list(behind)) == list(range(200, 300))


def test_a_scan_skips_a_missing_segment_with_on_corrupt_skip(three_segments: Path) -> None:
    sealed_path(three_segments, 100).unlink()
    reported: list[StreamCorrupt] = []
    scan = Scan(
        SegmentCatalog(three_segments), make_query(None), 50, 300, on_corrupt=reported.append
    )
    assert offsets_of_batches(list(scan)) == [*range(50, 100), *range(200, 300)]
    assert [damage.offsets for damage in reported] == [((100, 199),)]
    assert scan.stats.messages_lost == 100


def offsets_of_batches(batches: list) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_the_sealed_file_is_read_when_a_crash_left_both(three_segments: Path) -> None:
    kept = {
        path: path.read_bytes()
        for path in (log_path(three_segments, 0), index_path(three_segments, 0))
    }
    seal_at(three_segments, 0, ["region"])
    for path, content in kept.items():
        path.write_bytes(content)
    table, stats = scan_all(three_segments, None, end=100)
    assert offsets_of(table) == list(range(100))
    assert stats.chunks_all == len(SealedSegment(sealed_path(three_segments, 0)))


def test_a_gap_in_one_listing_is_checked_by_another(
    three_segments: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory that is read while a segment is sealed may show neither of its forms."""
    from headgate.streams import listing as module

    real, misses = module.segment_files, iter([True, False, False, True, False])

    def racing(directory: Path, known: Mapping[str, SegmentFile]) -> list[SegmentFile]:
        found = real(directory)
        return found[1:] if next(misses, False) else found

    monkeypatch.setattr(module, "segment_files", racing)
    assert SegmentCatalog(three_segments).first_offset() == 0


def test_sealed_segments_are_opened_once(three_segments: Path) -> None:
    shared = SealedSegments()
    assert shared.open(sealed_path(three_segments, 100)) is shared.open(
        sealed_path(three_segments, 100)
    )


@pytest.mark.parametrize("count", [3, 60, 100])
def test_places_are_sorted_by_offset(count: int) -> None:
    offsets = np.array(Random(count).sample(range(500, 600), count))
    parts = [offsets[: count // 2], offsets[count // 2 :]]
    assert sort_by_offset(parts, parts, 500, 600).tolist() == sorted(offsets.tolist())


def test_a_table_of_a_scan_has_null_where_a_batch_lacks_a_column(tmp_path: Path) -> None:
    write_hot(tmp_path, 0, [[Message(headers={"a": "x"})], [Message(headers={"b": 1})]])
    table, _ = scan_all(tmp_path)
    assert table.column("h.s.a").to_pylist() == ["x", None]
    assert table.column("h.i.b").to_pylist() == [None, 1]


def test_runs_of_offsets_are_given_by_their_ends() -> None:
    assert runs_of(np.array([3, 4, 5, 9, 11, 12])) == [(3, 5), (9, 9), (11, 12)]
    assert runs_of(np.array([], np.int64)) == []
