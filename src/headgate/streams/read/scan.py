"""Scan a stream: verdict, mask, gather; exactly the messages the filter selects, in the order of their offsets.

A chunk with the verdict NONE is not opened, one with ALL is passed on as it is, and of one with SOME only the
columns the filter asks about are looked at before the matching rows are copied. At most one segment's matches
are in the works at any time, and their payloads stay in the memory map until they are handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.clock import now_us
from headgate.errors import StreamCorrupt
from headgate.filters.compile.arrow import Mask, compile_mask
from headgate.streams.cold.segment import ColdSegment, united
from headgate.streams.read.catalog import SegmentCatalog
from headgate.streams.read.missing import OnCorrupt, pass_over, unreadable_chunk
from headgate.streams.read.plan import ScanStats, Survivor, survivors
from headgate.streams.read.query import StreamQuery
from headgate.streams.segments.gather import Rows
from headgate.streams.segments.sealed import Gathered, SealedChunk, SealedSegment
from headgate.streams.segments.segment import Chunk, Segment

BATCH_ROWS: Final = 1 << 15  # of a batch gathered from many chunks
BATCH_BYTES: Final = 8 << 20
# Called with the position and the oldest offset there is; gives the position to go on at, or raises.
OnDropped: TypeAlias = Callable[[int, int], int]
Taken = TypeVar("Taken")

_ROW_BITS: Final = 32
_ROW_MASK: Final = (1 << _ROW_BITS) - 1


class Scan(Iterator[pa.RecordBatch]):
    """Record batches with an `offset` column, in offset order. To be walked through once."""

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
        """`on_dropped` is told what retention was faster with, and gives the position to go on at."""
        self.stats = stats or ScanStats()
        self.position = start  # every matching message before it was handed out
        self._catalog, self._query, self._end = catalog, query.at(clock()), end
        self._on_corrupt, self._on_dropped = on_corrupt, on_dropped or self._count_dropped
        self._batches = self._walk()

    def __iter__(self) -> Scan:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            return next(self._batches)
        except StopIteration:
            raise
        except BaseException:
            self._batches = self._walk()  # the next call begins where this one could not go on
            raise

    def to_table(self) -> pa.Table:
        """All that is left, as one table: dictionaries decoded, columns that a batch lacks null."""
        tables = [pa.Table.from_batches([_decoded(batch)]) for batch in self]
        if not tables:
            return pa.table({"offset": pa.array([], pa.int64())})
        return pa.concat_tables(tables, promote_options="default")

    def _walk(self) -> Iterator[pa.RecordBatch]:
        while self.position < self._end:
            try:
                segment = self._catalog.covering(self.position)
            except StreamCorrupt as damage:
                self._pass_segment(damage)
                continue
            if segment is None:
                return
            if segment.first_offset > self.position:
                self.position = self._on_dropped(self.position, segment.first_offset)
                continue
            yield from self._scan(segment, min(segment.next_offset, self._end))

    def _scan(self, segment: Segment, high: int) -> Iterator[pa.RecordBatch]:
        low = self.position
        for batch in scan_segment(segment, self._query, low, high, self.stats, self._on_corrupt):
            self.position = batch.column("offset")[-1].as_py() + 1
            self.stats.rows_matched += batch.num_rows
            yield batch
        self.position = max(self.position, high)

    def _pass_segment(self, damage: StreamCorrupt) -> None:
        """Go on behind a segment that is missing or cannot be opened."""
        if not damage.offsets:  # it is the last one, and nobody knows where it ends
            raise damage
        pass_over(damage, self._on_corrupt)
        behind = min(damage.offsets[-1][1] + 1, self._end)
        self.stats.messages_lost += behind - self.position
        self.position = behind

    def _count_dropped(self, position: int, first_offset: int) -> int:
        behind = min(first_offset, self._end)
        self.stats.messages_dropped += behind - position
        return behind


def _decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    arrays = [
        array.cast(array.type.value_type) if pa.types.is_dictionary(array.type) else array
        for array in batch.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, batch.schema.names)


def scan_segment(
    segment: Segment,
    query: StreamQuery,
    low: int,
    high: int,
    stats: ScanStats,
    on_corrupt: OnCorrupt = "error",
) -> Iterator[pa.RecordBatch]:
    """The matches of one segment with offsets in [low, high), in order.

    What cannot be read is passed over, or everything before it is handed out and then it is raised.
    """
    asked = _Asked(segment, query, low, high, stats, on_corrupt)
    if isinstance(segment, SealedSegment) and not segment.note.in_order:
        return _gathered(segment, asked)
    if isinstance(segment, ColdSegment) and not segment.note.in_order:
        return _collected(segment, asked)
    return asked.take_each()


def sweep_segment(
    segment: Segment, query: StreamQuery, low: int, high: int, stats: ScanStats
) -> Iterator[pa.RecordBatch]:
    """The same matches as they lie in the segment: cheaper than in order."""
    return _Asked(segment, query, low, high, stats, "error").take_each()


class _Asked:
    """What is asked of one segment."""

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
        self._chosen = survivors(segment, query.filter, query.entry_filters, low, high, stats)
        self._mask = compile_mask(query.filter)

    def take_each(self) -> Iterator[pa.RecordBatch]:
        """Chunk by chunk, as they lie."""
        for survivor in self._chosen:
            try:
                found = self.take(survivor)
            except StreamCorrupt as damage:
                self.pass_over(self.unreadable(survivor.at, damage))
                continue
            if found is not None:
                yield found

    def each(
        self, take: Callable[[Survivor], Taken | None]
    ) -> tuple[list[Taken], list[StreamCorrupt]]:
        """What is taken of every chunk that holds a match, and what cannot be read."""
        taken, unreadable = [], []
        for survivor in self._chosen:
            try:
                found = take(survivor)
            except StreamCorrupt as damage:
                unreadable.append(self.unreadable(survivor.at, damage))
                continue
            if found is not None:
                taken.append(found)
        return taken, unreadable

    def take(self, survivor: Survivor) -> pa.RecordBatch | None:
        """The matches of one chunk."""
        chunk = self.segment.chunk(survivor.at)
        rows = self.matches(chunk, survivor)
        return chunk.take(rows, self.columns) if rows is None or len(rows) else None

    def matches(self, chunk: Chunk, survivor: Survivor) -> Rows | None:
        """The rows of a chunk that belong to the answer; None for all of them."""
        return _matches(chunk, survivor, self._mask, self.low, self.high, self.stats)

    def unreadable(self, at: int, damage: StreamCorrupt) -> StreamCorrupt:
        return unreadable_chunk(self.segment, at, self.low, self.high, damage)

    def pass_over(self, damage: StreamCorrupt) -> None:
        pass_over(damage, self._on_corrupt)
        self.stats.messages_lost += damage.messages

    def readable(self, unreadable: Sequence[StreamCorrupt]) -> int:
        """The offset up to which matches may be handed out before the damage is raised."""
        if self._on_corrupt == "error" and unreadable:
            return min(damage.offsets[0][0] for damage in unreadable)
        return self.high


def _matches(
    chunk: Chunk, survivor: Survivor, mask: Mask, low: int, high: int, stats: ScanStats
) -> Rows | None:
    """The rows of a chunk that belong to the answer; None for all of them."""
    stats.bytes_read += chunk.nbytes
    if survivor.all:
        stats.chunks_all += 1
        return None if survivor.within else np.flatnonzero(_within(chunk, low, high))
    stats.chunks_some += 1
    stats.rows_examined += chunk.num_rows
    found = mask(chunk)
    if not survivor.within:
        found &= _within(chunk, low, high)
    return None if np.count_nonzero(found) == len(found) else np.flatnonzero(found)


def _within(chunk: Chunk, low: int, high: int) -> npt.NDArray[np.bool_]:
    offsets = chunk.offsets()
    return (offsets >= low) & (offsets < high)


# ---- clustered segments ------------------------------------------------------------------------------


def _gathered(segment: SealedSegment, asked: _Asked) -> Iterator[pa.RecordBatch]:
    """Matches from all over the segment, brought back into the order of offsets."""

    def take(survivor: Survivor) -> tuple[SealedChunk, npt.NDArray[np.int64], Rows] | None:
        chunk = segment.chunk(survivor.at)
        rows = asked.matches(chunk, survivor)
        if rows is not None and not len(rows):
            return None
        chunk.check(asked.columns)
        found = np.arange(chunk.num_rows) if rows is None else rows
        return chunk, chunk.offsets()[found], found

    taken, unreadable = asked.each(take)
    chunks = [chunk for chunk, _, _ in taken]
    offsets = [some for _, some, _ in taken]
    places = [rows + (i << _ROW_BITS) for i, (_, _, rows) in enumerate(taken)]
    gathered = segment.gather(chunks, asked.columns)
    return _in_order(asked, gathered, chunks, offsets, places, unreadable)


def _collected(segment: ColdSegment, asked: _Asked) -> Iterator[pa.RecordBatch]:
    """The same of a cold segment. Its row groups are not mapped: only their matches stay in memory."""
    parts, unreadable = asked.each(asked.take)
    offsets = [part.column("offset").to_numpy() for part in parts]
    places = [np.arange(part.num_rows) + (i << _ROW_BITS) for i, part in enumerate(parts)]
    gathered = Gathered(united(parts), parts[0].schema.names) if parts else None
    return _in_order(asked, gathered, parts, offsets, places, unreadable)


def _in_order(
    asked: _Asked,
    gathered: Gathered | None,
    parts: Sequence[Chunk | pa.RecordBatch],
    offsets: Sequence[npt.NDArray[np.int64]],
    places: Sequence[npt.NDArray[np.int64]],
    unreadable: Sequence[StreamCorrupt],
) -> Iterator[pa.RecordBatch]:
    """The matches in the order of offsets, up to the first that cannot be read unless they are passed over."""
    readable, segment = asked.readable(unreadable), asked.segment
    if readable < asked.high:
        kept = [some < readable for some in offsets]
        offsets = [some[keep] for some, keep in zip(offsets, kept, strict=True)]
        places = [some[keep] for some, keep in zip(places, kept, strict=True)]
    if gathered is not None and any(len(some) for some in offsets):
        ordered = in_offset_order(offsets, places, segment.first_offset, segment.next_offset)
        yield from _handed_out(gathered, ordered, _batch_rows(parts))
    for damage in sorted(unreadable, key=lambda damage: damage.offsets):
        asked.pass_over(damage)


def _handed_out(
    gathered: Gathered, places: npt.NDArray[np.int64], size: int
) -> Iterator[pa.RecordBatch]:
    """The rows at these places, so many in a batch."""
    for start in range(0, len(places), size):
        wanted = places[start : start + size]
        yield gathered.take(wanted >> _ROW_BITS, wanted & _ROW_MASK)


def in_offset_order(
    offsets: Sequence[npt.NDArray[np.int64]],
    places: Sequence[npt.NDArray[np.int64]],
    first: int,
    end: int,
) -> npt.NDArray[np.int64]:
    """The places, each by its own offset between `first` and `end`, from the lowest offset to the highest."""
    if sum(map(len, offsets)) * 16 < end - first:
        sorted_: npt.NDArray[np.int64] = np.concatenate(places)[np.argsort(np.concatenate(offsets))]
        return sorted_
    # Offsets are dense: a slot for each is filled faster than they are sorted.
    slots = np.full(end - first, -1, np.int64)
    for some_offsets, some_places in zip(offsets, places, strict=True):
        slots[some_offsets - first] = some_places
    return slots[slots >= 0]


def _batch_rows(chunks: Sequence[Chunk | pa.RecordBatch]) -> int:
    """So many rows that a batch is neither too long nor too heavy."""
    row_bytes = sum(chunk.nbytes for chunk in chunks) / sum(chunk.num_rows for chunk in chunks)
    return max(1, min(BATCH_ROWS, int(BATCH_BYTES / max(row_bytes, 1))))
