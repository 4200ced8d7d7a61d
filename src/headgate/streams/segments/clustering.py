"""Clustering: the order of a segment's rows when it is sealed, equal values side by side, so that chunks differ.

Rows are sorted by the properties a chunk must not mix, then by the indexed headers, the one with the fewest
values first; rows with equal keys stay in the order of their offsets. A chunk ends where a key changes, if one
changes near its full size.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from headgate.columns import parse_column_name
from headgate.filters import Field
from headgate.streams.segments.gather import Positions, RowIndices
from headgate.streams.segments.segment import FILTER_VALUE
from headgate.streams.segments.segment_rows import (
    Ranks,
    SegmentColumn,
    SegmentRows,
    count_of,
    offsets_of,
    payload_lengths,
    ranks,
)

CHUNK_ROWS: Final = 8192
CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SortKey:
    """A key to sort by: a number below `size` for every row, of which `distinct` occur."""

    ranks: Ranks
    size: int
    distinct: int


@dataclass(frozen=True, slots=True)
class Clustering:
    """The order of the rows, and the positions in it where chunks begin."""

    order: RowIndices
    starts: npt.NDArray[np.intp]

    @property
    def ends(self) -> npt.NDArray[np.intp]:
        return np.append(self.starts, len(self.order))[1:]

    def chunk_of_row(self) -> npt.NDArray[np.intp]:
        """Return the chunk of every row of `order`."""
        return np.repeat(np.arange(len(self.starts)), self.ends - self.starts)


def sort_key(views: Sequence[SegmentColumn], rows: int) -> SortKey:
    """Build the key of a field from its columns: rows without a value first, then its kinds one after the other."""
    found, size = np.zeros(rows, np.int64), 1
    for view in views:
        codes, valid, count = ranks(view)
        codes = codes + size
        found = codes if valid is None else np.where(valid, codes, found)
        size += count
    return SortKey(found, size, _distinct(found, size))


def _distinct(found: Ranks, size: int) -> int:
    if size > 4 * len(found):
        return len(np.unique(found))
    seen = np.zeros(size, np.bool_)
    seen[found] = True
    return int(np.count_nonzero(seen))


@dataclass(frozen=True, slots=True)
class ChunkSize:
    """Rows of a full chunk, up to twice as many to end where a key changes; fewer when they reach `nbytes`."""

    rows: int
    nbytes: int


def cluster(
    groups: Ranks, keys: Sequence[SortKey], row_bytes: Positions, size: ChunkSize | None = None
) -> Clustering:
    """Sort rows by group and keys, with a stable sort; no chunk holds rows of two groups."""
    size = size or ChunkSize(CHUNK_ROWS, CHUNK_BYTES)
    count = len(groups)
    if not count:
        return Clustering(np.zeros(0, np.intp), np.zeros(0, np.intp))
    ascending = sorted((key for key in keys if key.distinct > 1), key=lambda key: key.distinct)
    levels = [SortKey(groups, int(groups.max()) + 1, 2), *ascending]
    order = _sorted_rows(levels, count)
    depth = _depth_of_change(levels, order)
    return Clustering(order, _starts(depth, np.cumsum(row_bytes[order]), size))


def _sorted_rows(levels: Sequence[SortKey], count: int) -> RowIndices:
    """Return the rows sorted by all levels, by one number for each row where 64 bits are enough. The sort is stable."""
    total = 1
    for level in levels:
        total *= level.size
    if total * count >= 2**63:
        return np.lexsort([level.ranks for level in reversed(levels)])
    combined = np.zeros(count, np.int64)
    for level in levels:
        combined *= level.size
        combined += level.ranks
    if (np.diff(combined) >= 0).all():
        return np.arange(count)
    combined *= count
    combined += np.arange(count)
    combined.sort()  # sorting numbers is far faster than sorting positions
    return combined % count


def _depth_of_change(levels: Sequence[SortKey], order: RowIndices) -> npt.NDArray[np.int8]:
    """Return for each row the first level at which it differs from the row before; `len(levels)` if at none."""
    depth = np.full(len(order), len(levels), np.int8)
    for at, level in reversed(list(enumerate(levels))):
        found = level.ranks[order]
        depth[1:][found[1:] != found[:-1]] = at
    return depth


def _starts(
    depth: npt.NDArray[np.int8], bytes_through: Positions, size: ChunkSize
) -> npt.NDArray[np.intp]:
    """Return where chunks begin: at the coarsest change between one and two sizes, or at a change of group."""
    count, starts = len(depth), [0]
    group_starts = np.append(np.flatnonzero(depth[1:] == 0) + 1, count)
    group = 0
    while True:
        start = starts[-1]
        while group_starts[group] <= start:
            group += 1
        limit = int(group_starts[group])
        end = _end(start, limit, depth, bytes_through, size)
        if end >= count:
            return np.array(starts, np.intp)
        starts.append(end)


def _end(
    start: int,
    limit: int,
    depth: npt.NDArray[np.int8],
    bytes_through: Positions,
    size: ChunkSize,
) -> int:
    full_of_bytes = np.searchsorted(bytes_through, _bytes_at(start, bytes_through) + size.nbytes)
    rows = max(1, min(size.rows, int(full_of_bytes) - start))
    if limit - start <= rows + rows // 2:
        return limit
    window = depth[start + rows : min(start + 2 * rows, limit)]
    return start + rows + int(window.argmin()) if len(window) else limit


def _bytes_at(start: int, bytes_through: Positions) -> int:
    return int(bytes_through[start - 1]) if start else 0


# ---- the rows of a segment --------------------------------------------------------------------------


def arrange(
    rows: SegmentRows, keys: Sequence[SortKey], size: ChunkSize | None = None
) -> Clustering:
    """Cluster the rows of segments; rows with equal keys get the order of their offsets, whatever order they had."""
    offsets = offsets_of(rows)
    if (np.diff(offsets) > 0).all():
        return cluster(rows.groups, keys, payload_lengths(rows), size)
    by_offset = np.argsort(offsets)
    found = cluster(
        rows.groups[by_offset],
        [SortKey(key.ranks[by_offset], key.size, key.distinct) for key in keys],
        payload_lengths(rows)[by_offset],
        size,
    )
    return Clustering(by_offset[found.order], found.starts)


def in_order(rows: SegmentRows, clustering: Clustering) -> bool:
    """Whether the clustered rows are in the order of their offsets."""
    return bool((np.diff(offsets_of(rows)[clustering.order]) > 0).all())


def key_fields(indexed: Collection[str]) -> list[Field]:
    """Return the fields by which a stream with these indexed headers is clustered."""
    return [FILTER_VALUE, *(Field("header", name) for name in indexed)]


def keys_of(rows: SegmentRows, fields: Sequence[Field]) -> list[SortKey]:
    """Build the sort keys of those fields that occur."""
    return [key for field in fields if (key := _key(rows.columns, field)) is not None]


def _key(columns: dict[str, SegmentColumn], field: Field) -> SortKey | None:
    views = [column for name, column in columns.items() if _compares(name, field)]
    return sort_key(views, count_of(columns["offset"])) if views else None


def _compares(name: str, field: Field) -> bool:
    found, view = parse_column_name(name)
    return found == field and view != "opaque"
