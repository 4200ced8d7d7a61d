"""All messages of one segment as whole columns in the order of offsets, whatever order the segment stores them in."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.columns import (
    OVERFLOW,
    column_name,
    join_views,
    parse_column_name,
    read_overflow,
    shred_headers,
)
from headgate.filters import SYS_KINDS, VIEWS, Field
from headgate.streams.segments import (
    Chunk,
    Numbers,
    RangesColumn,
    Segment,
    SegmentColumn,
    Words,
    join_column,
)

Part: TypeAlias = dict[str, pa.Array]  # the columns of one chunk


@dataclass(frozen=True, slots=True)
class SegmentTable:
    """The messages of a segment as columns by name; a column that is null in every row is left out."""

    first_offset: int
    columns: dict[str, SegmentColumn]
    sizes: npt.NDArray[np.int64]  # bytes of each payload
    groups: npt.NDArray[np.int64]  # equal for rows with equal restricted values
    chunk_rows: tuple[int, ...]  # of the chunks as they are stored

    def __len__(self) -> int:
        return len(self.sizes)


def read_all_columns(segment: Segment) -> SegmentTable:
    """Read every column but the payload."""
    return _read(segment, _all_columns)


def read_fields(segment: Segment, fields: Collection[Field]) -> SegmentTable:
    """Read the columns of these fields."""
    return _read(segment, lambda chunk: _views(chunk, fields))


def _read(segment: Segment, read_table: Callable[[Chunk], Part]) -> SegmentTable:
    chunks = [chunk for i in range(len(segment)) if (chunk := segment.chunk(i)).num_rows]
    parts = [read_table(chunk) for chunk in chunks]
    lengths = [chunk.num_rows for chunk in chunks]
    in_file = SegmentTable(
        segment.first_offset,
        {name: _whole(name, parts, lengths) for name in _filled_names(parts)},
        _concat(map(_payload_sizes, chunks)),
        _groups(chunks, lengths),
        tuple(lengths),
    )
    return _sort_by_offset(in_file, _concat(chunk.offsets() for chunk in chunks))


def _concat(arrays: Iterator[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.zeros(0, np.int64), *arrays])


def _filled_names(parts: Sequence[Part]) -> list[str]:
    names = dict.fromkeys(chain.from_iterable(parts))
    return [
        name
        for name in names
        if any(name in p and p[name].null_count < len(p[name]) for p in parts)
    ]


def _whole(name: str, parts: Sequence[Part], lengths: Sequence[int]) -> SegmentColumn:
    return join_column([part.get(name) for part in parts], lengths)


def _payload_sizes(chunk: Chunk) -> npt.NDArray[np.int64]:
    payload = chunk.take(None, ["payload"]).column("payload")
    sizes: npt.NDArray[np.int64] = pc.binary_length(payload).to_numpy(zero_copy_only=False)
    return sizes.astype(np.int64)


def _groups(chunks: Sequence[Chunk], lengths: Sequence[int]) -> npt.NDArray[np.int64]:
    seen: dict[str, int] = {}
    codes = [seen.setdefault(repr(dict(c.metadata().properties)), len(seen)) for c in chunks]
    return np.repeat(np.array(codes, np.int64), lengths)


# ---- the columns of a chunk --------------------------------------------------------------------------


def _views(chunk: Chunk, fields: Collection[Field]) -> Part:
    return {
        column_name(field, view): array
        for field in fields
        for view in ((SYS_KINDS[field.name],) if field.scope == "sys" else VIEWS)
        if (array := chunk.view(field, view)) is not None
    }


def _all_columns(chunk: Chunk) -> Part:
    batch = chunk.take(None)
    found: Part = dict(zip(batch.schema.names, batch.columns, strict=True))
    del found["payload"], found["offset"]
    rest = found.pop(OVERFLOW, None)
    if rest is not None:
        for name, array in shred_headers(read_overflow(rest)).items():
            found[name] = join_views(found.get(name), array, parse_column_name(name)[1] or "string")
    return found


# ---- order -------------------------------------------------------------------------------------------


def _sort_by_offset(rows: SegmentTable, offsets: npt.NDArray[np.int64]) -> SegmentTable:
    if (np.diff(offsets) > 0).all():
        return rows
    order = np.argsort(offsets)
    return replace(
        rows,
        columns={name: _reorder(column, order) for name, column in rows.columns.items()},
        sizes=rows.sizes[order],
        groups=rows.groups[order],
    )


def _reorder(column: SegmentColumn, order: npt.NDArray[np.intp]) -> SegmentColumn:
    valid = None if column.valid is None else column.valid[order]
    match column:
        case Numbers(values=values):
            return replace(column, values=values[order], valid=valid)
        case Words(codes=codes):
            return replace(column, codes=codes[order], valid=valid)
        case RangesColumn(begins=begins, ends=ends):
            return replace(column, begins=begins[order], ends=ends[order], valid=valid)
