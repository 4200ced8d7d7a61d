"""Scan a stream: verdict, mask, gather; exactly the messages the filter selects, in offset order.

A chunk with the verdict NONE is not opened, and one with ALL is passed on whole. Of one with SOME, only the columns that the
filter reads are examined, in the pages that may match, before the matching rows are copied. At most one segment's matches
are in memory at a time, and their payloads stay in the memory map until they are returned.

`on_corrupt` decides about messages that cannot be read: "error" raises a StreamCorrupt that names their offsets; "skip"
goes on behind them, with a warning in the log and a count in `stats.messages_lost`; a function is called with each
StreamCorrupt, and the scan goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.clock import now_us
from headgate.columns import PlainSchema
from headgate.errors import StreamCorrupt, StreamOptionsError
from headgate.filters.compile.arrow import compile_mask
from headgate.streams.cold.segment import ColdSegment, unify_dictionaries
from headgate.streams.read.catalog import SegmentCatalog
from headgate.streams.read.exclusion import Excluded
from headgate.streams.read.plain_reader import plain_reader, stored_names
from headgate.streams.read.plan import ScanStats, Survivor, survivors
from headgate.streams.read.query import StreamQuery
from headgate.streams.read.totals import SCAN_TOTALS
from headgate.streams.segments.gather import RowIndices
from headgate.streams.segments.pages import PAGE_ROWS
from headgate.streams.segments.sealed import GatheredChunks, SealedChunk, SealedSegment
from headgate.streams.segments.segment import Chunk, Segment

if TYPE_CHECKING:
    pass

BATCH_ROWS: Final = 1 << 15  # of a batch gathered from many chunks
BATCH_BYTES: Final = 8 << 20
OnCorrupt: TypeAlias = Literal["error", "skip"] | Callable[[StreamCorrupt], object]
# Called with the position and the oldest offset of the stream; returns the position to go on at, or raises.
OnDropped: TypeAlias = Callable[[int, int], int]
Taken = TypeVar("Taken")

_ROW_BITS: Final = 32
_ROW_MASK: Final = (1 << _ROW_BITS) - 1
_log: Final = logging.getLogger(__name__)


class Scan(Iterator[pa.RecordBatch]):
    """Record batches with an `offset` column, in offset order. Can be iterated once.

    with Stream.open("data/orders") as orders:
        scan = orders.scan("region = 'EU'", columns=["offset", "payload"])
        assert scan.to_table().num_rows == 1
        assert scan.stats.rows_matched == 1
    """

    def __init__(
        self,
        catalog: SegmentCatalog,
        query: StreamQuery,
        start: int,
        end: int,
        *,
        clock: Callable[[], int] = now_us,
        stats: ScanStats | None = None,
        on_corrupt: OnCorrupt = "error",
        on_dropped: OnDropped | None = None,
    ) -> None:
        """`on_dropped` is called when retention has dropped the position, and returns the one to go on at."""
        self.stats = stats or ScanStats()
        self._start, self._clock = start, clock
        self.position = start  # every matching message before it was returned
        self._catalog, self._query, self._end = catalog, query.at(clock()), end
        self._on_corrupt, self._on_dropped = on_corrupt, on_dropped or self._count_dropped
        self._batches = self._scan_segments()

    def __iter__(self) -> Scan:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            return next(self._batches)
        except StopIteration:
            raise
        except BaseException:
            self._batches = self._scan_segments()  # the next call resumes at the failed position
            raise

    def to_table(self) -> pa.Table:
        """Return all remaining batches as one table: dictionaries decoded, columns that a batch lacks null."""
        tables = [pa.Table.from_batches([_decode_dictionaries(batch)]) for batch in self]
        if not tables:
            return pa.table({"offset": pa.array([], pa.int64())})
        return pa.concat_tables(tables, promote_options="default")

    def to_reader(self, schema: PlainSchema | None = None) -> pa.RecordBatchReader:
        """Return a reader of the whole scan, from its start, whose batches all have one schema (`columns.plain`).

        `schema` names the columns and their types, `{"offset": pa.int64(), "region": pa.string()}`; by default, those
        given to `scan` as `columns`, or every field, header and property that the scanned messages have. Headers past the
        128th of a chunk are only found by their names.
        """
        return plain_reader(self, schema)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export `to_reader()` to any library that takes Arrow's C stream."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The columns that are read; None: all."""
        return self._query.columns

    def again(self, columns: Sequence[str]) -> Scan:
        """Return another scan of the same messages, with these columns; both count into the same `stats`."""
        return Scan(
            self._catalog.fresh(),
            replace(self._query, columns=tuple(columns)),
            self._start,
            self._end,
            clock=self._clock,
            stats=self.stats,
            on_corrupt=self._on_corrupt,
        )

    @cached_property
    def stored_names(self) -> frozenset[str]:
        """The names of all columns that the scanned segments have, whatever the filter selects."""
        return stored_names(self._catalog.fresh(), self._start, self._end)

    def _scan_segments(self) -> Iterator[pa.RecordBatch]:
        excluded = self._catalog.exclude(self._query.filter, self.position, self._end)
        while self.position < self._end:
            known = excluded.get(self.position)
            if known is not None and known.next_offset <= self._end:
                self._skip_excluded(known)
                continue
            try:
                segment = self._catalog.covering(self.position)
            except StreamCorrupt as damage:
                self._skip_segment(damage)
                continue
            if segment is None:
                return
            if segment.first_offset > self.position:
                self.position = self._on_dropped(self.position, segment.first_offset)
                continue
            yield from self._scan_segment(segment, min(segment.next_offset, self._end))

    def _scan_segment(self, segment: Segment, high: int) -> Iterator[pa.RecordBatch]:
        low, before = self.position, replace(self.stats)
        try:
            for batch in scan_segment(
                segment, self._query, low, high, self.stats, self._on_corrupt
            ):
                self.position = batch.column("offset")[-1].as_py() + 1
                self.stats.rows_matched += batch.num_rows
                yield batch
        finally:
            SCAN_TOTALS.add(before, self.stats)
        self.position = max(self.position, high)

    def _skip_excluded(self, segment: Excluded) -> None:
        before = replace(self.stats)
        self.stats.chunks_none += segment.chunks
        self.stats.bytes_total += segment.nbytes
        SCAN_TOTALS.add(before, self.stats)
        self.position = segment.next_offset

    def _skip_segment(self, damage: StreamCorrupt) -> None:
        """Go on behind a segment that is missing or cannot be opened."""
        if not damage.offsets:  # it is the last segment, and its end is unknown
            raise damage
        skip_damage(damage, self._on_corrupt)
        behind = min(damage.offsets[-1][1] + 1, self._end)
        self.stats.messages_lost += behind - self.position
        self.position = behind

    def _count_dropped(self, position: int, first_offset: int) -> int:
        behind = min(first_offset, self._end)
        self.stats.messages_dropped += behind - position
        return behind


def _decode_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    arrays = [
        array.cast(array.type.value_type) if pa.types.is_dictionary(array.type) else array
        for array in batch.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, batch.schema.names)


# ---- one segment -------------------------------------------------------------------------------------


def scan_segment(
    segment: Segment,
    query: StreamQuery,
    low: int,
    high: int,
    stats: ScanStats,
    on_corrupt: OnCorrupt = "error",
) -> Iterator[pa.RecordBatch]:
    """Yield the matches of one segment with offsets in [low, high), in offset order.

    Unreadable messages are skipped, or every match before the first of them is yielded and then the damage is raised.
    """
    scan = SegmentScan(segment, query, low, high, stats, on_corrupt)
    if isinstance(segment, SealedSegment) and not segment.note.in_order:
        return _gather_sealed(segment, scan)
    if isinstance(segment, ColdSegment) and not segment.note.in_order:
        return _gather_cold(scan)
    return scan.take_chunks()


def sweep_segment(
    segment: Segment, query: StreamQuery, low: int, high: int, stats: ScanStats
) -> Iterator[pa.RecordBatch]:
    """Yield the matches of one segment in the order of its chunks, which is cheaper than offset order."""
    return SegmentScan(segment, query, low, high, stats, "error").take_chunks()


class SegmentScan:
    """A query over one segment, limited to the offsets in [low, high)."""

    def __init__(
        self,
        segment: Segment,
        query: StreamQuery,
        low: int,
        high: int,
        stats: ScanStats,
        on_corrupt: OnCorrupt,
    ) -> None:
        self.segment, self.low, self.high, self.stats = segment, low, high, stats
        self.columns, self._on_corrupt = query.columns, on_corrupt
        self.survivors = survivors(
            segment, query.filter, query.entry_filters, low, high, stats, query.chunk_filter
        )
        self._mask = compile_mask(query.filter)
        self._counted = -1  # the chunk that was counted last: its parts follow one another

    def take_chunks(self) -> Iterator[pa.RecordBatch]:
        """Yield the matches of each chunk, in the order of the chunks."""
        for survivor in self.survivors:
            try:
                batch = self.take(survivor)
            except StreamCorrupt as damage:
                for located in self._locate(survivor, damage):
                    self.skip(located)
                continue
            if batch is not None:
                yield batch

    def collect(
        self, take: Callable[[Survivor], Taken | None]
    ) -> tuple[list[Taken], list[StreamCorrupt]]:
        """Return what `take` gives for every chunk that holds a match, and the damage found on the way."""
        taken: list[Taken] = []
        unreadable: list[StreamCorrupt] = []
        for survivor in self.survivors:
            try:
                part = take(survivor)
            except StreamCorrupt as damage:
                unreadable += self._locate(survivor, damage)
                continue
            if part is not None:
                taken.append(part)
        return taken, unreadable

    def take(self, survivor: Survivor) -> pa.RecordBatch | None:
        """Return the matches of one chunk; None when it has none."""
        chunk = open_chunk(self.segment, survivor.at, survivor.pages)
        rows = self.match_rows(chunk, survivor)
        return chunk.take(rows, self.columns) if rows is None or len(rows) else None

    def match_rows(self, chunk: Chunk, survivor: Survivor) -> RowIndices | None:
        """Return the matching rows of a chunk; None for all of them."""
        stats = self.stats
        stats.bytes_read += chunk.nbytes
        if survivor.at != self._counted:
            self._counted, whole = survivor.at, survivor.all and survivor.pages is None
            stats.chunks_all += whole
            stats.chunks_some += not whole
        if survivor.all:
            return None if survivor.within else np.flatnonzero(self._is_within(chunk))
        stats.rows_examined += chunk.num_rows
        matches = self._mask(chunk)
        if not survivor.within:
            matches &= self._is_within(chunk)
        found = np.count_nonzero(matches)
        stats.chunks_missed += not found and survivor.pages is None
        return None if found == len(matches) else np.flatnonzero(matches)

    def _is_within(self, chunk: Chunk) -> npt.NDArray[np.bool_]:
        offsets = chunk.offsets()
        return (offsets >= self.low) & (offsets < self.high)

    def _locate(self, survivor: Survivor, damage: StreamCorrupt) -> list[StreamCorrupt]:
        """Return the damage with its offsets; nothing if the scan asks for none of them."""
        at, pages = survivor.at, survivor.pages
        located = locate_damage(self.segment, at, self.low, self.high, damage, pages)
        return [located] if located.offsets else []

    def skip(self, damage: StreamCorrupt) -> None:
        """Count unreadable messages as lost, or raise the damage."""
        skip_damage(damage, self._on_corrupt)
        self.stats.messages_lost += damage.messages

    def readable_end(self, unreadable: Sequence[StreamCorrupt]) -> int:
        """Return the offset up to which matches are returned before the damage is raised."""
        if self._on_corrupt == "error" and unreadable:
            return min(damage.offsets[0][0] for damage in unreadable)
        return self.high


# ---- clustered segments ------------------------------------------------------------------------------


def _gather_sealed(segment: SealedSegment, scan: SegmentScan) -> Iterator[pa.RecordBatch]:
    """Bring the matches of a clustered sealed segment back into offset order."""

    def take(survivor: Survivor) -> tuple[SealedChunk, npt.NDArray[np.int64], RowIndices] | None:
        at, pages = survivor.at, survivor.pages
        chunk = segment.chunk(at) if pages is None else segment.part(at, pages)
        matches = scan.match_rows(chunk, survivor)
        if matches is not None and not len(matches):
            return None
        chunk.check(scan.columns)
        rows = np.arange(chunk.num_rows) if matches is None else matches
        return chunk, chunk.offsets()[rows], rows

    taken, unreadable = scan.collect(take)
    chunks = [chunk for chunk, _, _ in taken]
    offsets = [part for _, part, _ in taken]
    places = [rows + (i << _ROW_BITS) for i, (_, _, rows) in enumerate(taken)]
    gathered = segment.gather(chunks, scan.columns)
    return _take_in_order(scan, gathered, chunks, offsets, places, unreadable)


def _gather_cold(scan: SegmentScan) -> Iterator[pa.RecordBatch]:
    """Bring the matches of a clustered cold segment back into offset order.

    Row groups of Parquet are not mapped, so only their matches stay in memory.
    """
    parts, unreadable = scan.collect(scan.take)
    offsets = [part.column("offset").to_numpy() for part in parts]
    places = [np.arange(part.num_rows) + (i << _ROW_BITS) for i, part in enumerate(parts)]
    gathered = GatheredChunks(unify_dictionaries(parts), parts[0].schema.names) if parts else None
    return _take_in_order(scan, gathered, parts, offsets, places, unreadable)


def _take_in_order(
    scan: SegmentScan,
    gathered: GatheredChunks | None,
    parts: Sequence[Chunk | pa.RecordBatch],
    offsets: Sequence[npt.NDArray[np.int64]],
    places: Sequence[npt.NDArray[np.int64]],
    unreadable: Sequence[StreamCorrupt],
) -> Iterator[pa.RecordBatch]:
    """Yield the matches in offset order, up to the first unreadable one unless those are skipped."""
    end, segment = scan.readable_end(unreadable), scan.segment
    if end < scan.high:
        readable = [part < end for part in offsets]
        offsets = [part[keep] for part, keep in zip(offsets, readable, strict=True)]
        places = [part[keep] for part, keep in zip(places, readable, strict=True)]
    if gathered is not None and any(len(part) for part in offsets):
        ordered = sort_by_offset(offsets, places, segment.first_offset, segment.next_offset)
        size = _batch_rows(parts)
        for start in range(0, len(ordered), size):
            batch = ordered[start : start + size]
            yield gathered.take(batch >> _ROW_BITS, batch & _ROW_MASK)
    for damage in sorted(unreadable, key=lambda damage: damage.offsets):
        scan.skip(damage)


def sort_by_offset(
    offsets: Sequence[npt.NDArray[np.int64]],
    places: Sequence[npt.NDArray[np.int64]],
    first: int,
    end: int,
) -> npt.NDArray[np.int64]:
    """Sort places by their offsets, which lie in [first, end)."""
    if sum(map(len, offsets)) * 16 < end - first:
        by_offset: npt.NDArray[np.int64] = np.concatenate(places)[
            np.argsort(np.concatenate(offsets))
        ]
        return by_offset
    # Offsets are dense: filling a slot for each is faster than sorting.
    slots = np.full(end - first, -1, np.int64)
    for part_offsets, part_places in zip(offsets, places, strict=True):
        slots[part_offsets - first] = part_places
    return slots[slots >= 0]


def _batch_rows(chunks: Sequence[Chunk | pa.RecordBatch]) -> int:
    """Return a number of rows that makes a batch neither too long nor too heavy."""
    row_bytes = sum(chunk.nbytes for chunk in chunks) / sum(chunk.num_rows for chunk in chunks)
    return max(1, min(BATCH_ROWS, int(BATCH_BYTES / max(row_bytes, 1))))


def open_chunk(segment: Segment, at: int, pages: range | None) -> Chunk:
    """Open some pages of a chunk; None for all of it."""
    if pages is None:
        return segment.chunk(at)
    assert isinstance(segment, SealedSegment)
    return segment.part(at, pages)


# ---- damage ------------------------------------------------------------------------------------------


def check_on_corrupt(on_corrupt: object) -> None:
    """Refuse an unknown `on_corrupt`."""
    if on_corrupt not in ("error", "skip") and not callable(on_corrupt):
        raise StreamOptionsError(
            f'on_corrupt: {on_corrupt!r} is not "error", "skip" or a function that is called with each damage'
        )


def skip_damage(damage: StreamCorrupt, on_corrupt: OnCorrupt) -> None:
    """Report damage so that reading can go on behind it; raise it with "error"."""
    if on_corrupt == "error":
        raise damage
    if callable(on_corrupt):
        on_corrupt(damage)
    else:
        _log.warning("skipped: %s", damage)


def locate_damage(
    segment: Segment,
    at: int,
    low: int,
    high: int,
    damage: StreamCorrupt,
    pages: range | None = None,
) -> StreamCorrupt:
    """Return the damage with the offsets in [low, high) of these pages: all that they have, or bounds if those are damaged."""
    try:
        offsets = np.sort(open_chunk(segment, at, pages).offsets())
    except StreamCorrupt:
        first, last = (int(bound[at]) for bound in segment.offset_bounds())
        span = (max(first, low), min(last, high - 1))
        rows = segment.metadata(at).count or last - first + 1
        count = min(rows, span[1] - span[0] + 1)
        if pages is not None:
            count = min(count, len(pages) * PAGE_ROWS)
        return StreamCorrupt(damage.file, damage.position, damage.problem, [span], count)
    within = offsets[(offsets >= low) & (offsets < high)]
    return StreamCorrupt(damage.file, damage.position, damage.problem, runs_of(within))


def runs_of(offsets: npt.NDArray[Any]) -> list[tuple[int, int]]:
    """Return the first and the last offset of each run of consecutive offsets, which are ascending."""
    if not len(offsets):
        return []
    ends = np.flatnonzero(np.diff(offsets) != 1)
    firsts, lasts = offsets[np.r_[0, ends + 1]], offsets[np.r_[ends, len(offsets) - 1]]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))
