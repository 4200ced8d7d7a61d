"""Scan a stream: verdict, mask, gather; exactly the messages the filter selects, in the order of their offsets.

A chunk with the verdict NONE is not opened, one with ALL is passed on as it is, and of one with SOME only the
columns the filter asks about are looked at before the matching rows are copied. At most one segment's matches
are in the works at any time, and their payloads stay in the memory map until they are handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.filters.targets.arrow import Mask, compile_mask
from headgate.filters.targets.python import now_us
from headgate.streams.catalog import Catalog
from headgate.streams.cold.segment import ColdSegment, united
from headgate.streams.gather import Rows
from headgate.streams.plan import ScanStats, Surviving, survivors
from headgate.streams.query import Query
from headgate.streams.sealed import Gathered, SealedChunk, SealedSegment
from headgate.streams.segment import Chunk, Segment

BATCH_ROWS: Final = 1 << 15  # of a batch gathered from many chunks
BATCH_BYTES: Final = 8 << 20
_ROW_BITS: Final = 32
_ROW_MASK: Final = (1 << _ROW_BITS) - 1


class Scan(Iterator[pa.RecordBatch]):
    """Record batches with an `offset` column, in offset order. To be walked through once."""

    def __init__(
        self,
        catalog: Catalog,
        query: Query,
        start: int,
        end: int,
        *,
        clock: Callable[[], int] = now_us,
        stats: ScanStats | None = None,
    ) -> None:
        self.stats = stats or ScanStats()
        self.position = start  # every matching message before it was handed out
        self._batches = self._walk(catalog, query.at(clock()), end)

    def __iter__(self) -> Scan:
        return self

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def to_table(self) -> pa.Table:
        """All that is left, as one table: dictionaries decoded, columns that a batch lacks null."""
        tables = [pa.Table.from_batches([_decoded(batch)]) for batch in self]
        if not tables:
            return pa.table({"offset": pa.array([], pa.int64())})
        return pa.concat_tables(tables, promote_options="default")

    def _walk(self, catalog: Catalog, query: Query, end: int) -> Iterator[pa.RecordBatch]:
        while self.position < end and (segment := catalog.covering(self.position)) is not None:
            low, high = max(self.position, segment.first_offset), min(segment.next_offset, end)
            for batch in scan_segment(segment, query, low, high, self.stats):
                self.position = batch.column("offset")[-1].as_py() + 1
                self.stats.rows_matched += batch.num_rows
                yield batch
            self.position = max(self.position, high)


def _decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    arrays = [
        array.cast(array.type.value_type) if pa.types.is_dictionary(array.type) else array
        for array in batch.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, batch.schema.names)


def scan_segment(
    segment: Segment, query: Query, low: int, high: int, stats: ScanStats
) -> Iterator[pa.RecordBatch]:
    """The matches of one segment with offsets in [low, high), in order."""
    chosen = survivors(segment, query.filter, query.entry_filters, low, high, stats)
    mask = compile_mask(query.filter)
    if isinstance(segment, SealedSegment) and not segment.note.in_order:
        return _gathered(segment, chosen, mask, query.columns, low, high, stats)
    if isinstance(segment, ColdSegment) and not segment.note.in_order:
        return _collected(segment, chosen, mask, query.columns, low, high, stats)
    return _in_order(segment, chosen, mask, query.columns, low, high, stats)


def sweep_segment(
    segment: Segment, query: Query, low: int, high: int, stats: ScanStats
) -> Iterator[pa.RecordBatch]:
    """The same matches as they lie in the segment: cheaper than in order."""
    chosen = survivors(segment, query.filter, query.entry_filters, low, high, stats)
    mask = compile_mask(query.filter)
    return _in_order(segment, chosen, mask, query.columns, low, high, stats)


def _in_order(
    segment: Segment,
    chosen: Iterator[Surviving],
    mask: Mask,
    columns: Sequence[str] | None,
    low: int,
    high: int,
    stats: ScanStats,
) -> Iterator[pa.RecordBatch]:
    """Chunk by chunk: they lie in the order of their offsets."""
    for survivor in chosen:
        chunk = segment.chunk(survivor.at)
        rows = _matches(chunk, survivor, mask, low, high, stats)
        if rows is None or len(rows):
            yield chunk.take(rows, columns)


def _matches(
    chunk: Chunk, survivor: Surviving, mask: Mask, low: int, high: int, stats: ScanStats
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


def _gathered(
    segment: SealedSegment,
    chosen: Iterator[Surviving],
    mask: Mask,
    columns: Sequence[str] | None,
    low: int,
    high: int,
    stats: ScanStats,
) -> Iterator[pa.RecordBatch]:
    """Matches from all over the segment, brought back into the order of offsets."""
    chunks: list[SealedChunk] = []
    offsets: list[npt.NDArray[np.int64]] = []
    places: list[npt.NDArray[np.int64]] = []  # chunk and row of each match, in one number
    for survivor in chosen:
        chunk = segment.chunk(survivor.at)
        rows = _matches(chunk, survivor, mask, low, high, stats)
        if rows is None or len(rows):
            found = np.arange(chunk.num_rows) if rows is None else rows
            offsets.append(chunk.offsets() if rows is None else chunk.offsets()[rows])
            places.append(found + (len(chunks) << _ROW_BITS))
            chunks.append(chunk)
    if not chunks:
        return
    ordered = in_offset_order(offsets, places, segment.first_offset, segment.next_offset)
    yield from _handed_out(segment.gather(chunks, columns), ordered, _batch_rows(chunks))


def _collected(
    segment: ColdSegment,
    chosen: Iterator[Surviving],
    mask: Mask,
    columns: Sequence[str] | None,
    low: int,
    high: int,
    stats: ScanStats,
) -> Iterator[pa.RecordBatch]:
    """The same of a cold segment. Its row groups are not mapped: only their matches stay in memory."""
    parts: list[pa.RecordBatch] = []
    places: list[npt.NDArray[np.int64]] = []
    for survivor in chosen:
        chunk = segment.chunk(survivor.at)
        rows = _matches(chunk, survivor, mask, low, high, stats)
        if rows is None or len(rows):
            part = chunk.take(rows, columns)
            places.append(np.arange(part.num_rows) + (len(parts) << _ROW_BITS))
            parts.append(part)
    if not parts:
        return
    offsets = [part.column("offset").to_numpy() for part in parts]
    ordered = in_offset_order(offsets, places, segment.first_offset, segment.next_offset)
    gathered = Gathered(united(parts), parts[0].schema.names)
    yield from _handed_out(gathered, ordered, _batch_rows(parts))


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
