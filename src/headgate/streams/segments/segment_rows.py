"""All rows of a segment in memory, column by column, while it is sealed or compacted.

A column is joined from its parts in all chunks, and is one of:

    Numbers        integers, floats, booleans
    Words          strings as positions in one sorted dictionary
    RangesColumn   text and bytes that stay in the memory of their chunks until they are copied to their place
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.columns import (
    MAX_HEADER_COLUMNS,
    OVERFLOW,
    SYSTEM_COLUMNS,
    header_of,
    is_header_column,
    move_to_overflow,
    overflow_names,
    read_overflow,
)
from headgate.filters import Flags
from headgate.message import Scalar
from headgate.streams.segments.gather import (
    BytesOfChunks,
    Positions,
    RowIndices,
    copy_ranges,
    with_validity,
)
from headgate.streams.segments.segment import Chunks

_Codes: TypeAlias = npt.NDArray[np.signedinteger[Any]]
Ranks: TypeAlias = npt.NDArray[np.int64]
_Part: TypeAlias = dict[str, pa.Array]  # the columns of a chunk

TINY_ROWS: Final = 256  # a chunk with fewer rows is joined with its neighbours first
MAX_TINY: Final = 1024  # chunks joined at a time
# The columns of a segment without messages. Only types: making an array imports pandas, where it is installed.
_ALWAYS: Final = {
    "offset": pa.int64(),
    "timestamp": pa.int64(),
    "topic": pa.string(),
    "priority": pa.uint8(),
    "payload": pa.binary(),
}


@dataclass(frozen=True, slots=True)
class Numbers:
    type: pa.DataType
    values: npt.NDArray[Any]
    valid: Flags | None

    def take(self, rows: RowIndices) -> pa.Array:
        values = self.values[rows]
        if values.dtype == np.bool_:
            values = np.packbits(values, bitorder="little")
        found = pa.Array.from_buffers(self.type, len(rows), [None, pa.py_buffer(values)])
        return with_validity(found, None if self.valid is None else self.valid[rows])


@dataclass(frozen=True, slots=True)
class Words:
    codes: _Codes  # as narrow as they can be; 0 where a row has no word
    words: pa.StringArray  # sorted, so that the order of codes is the order of words
    valid: Flags | None

    @property
    def type(self) -> pa.DataType:
        return pa.dictionary(pa.from_numpy_dtype(self.codes.dtype), pa.string())

    def take(self, rows: RowIndices) -> pa.Array:
        codes = Numbers(self.type.index_type, self.codes, self.valid).take(rows)
        return pa.DictionaryArray.from_arrays(codes, self.words, safe=False)


@dataclass(frozen=True, slots=True)
class RangesColumn:
    """Text or bytes as ranges of the memory of all chunks: the value of row i is `memory[begins[i] : ends[i]]`."""

    type: pa.DataType
    memory: pa.Buffer
    begins: Positions
    ends: Positions
    valid: Flags | None

    def take(self, rows: RowIndices) -> pa.Array:
        found = copy_ranges(self.memory, self.begins[rows], self.ends[rows], self.type)
        return with_validity(found, None if self.valid is None else self.valid[rows])


SegmentColumn: TypeAlias = Numbers | Words | RangesColumn


def count_of(column: SegmentColumn) -> int:
    """Return the number of rows."""
    match column:
        case Numbers(values=values):
            return len(values)
        case Words(codes=codes):
            return len(codes)
        case RangesColumn(begins=begins):
            return len(begins)


def _narrowest(size: int) -> np.dtype[Any]:
    """Return the smallest type for codes below `size`."""
    return np.dtype(np.int8 if size <= 1 << 7 else np.int16 if size <= 1 << 15 else np.int32)


def join_column(parts: Sequence[pa.Array | None], lengths: Sequence[int]) -> SegmentColumn:
    """Join the parts of a column, one for each chunk; None where the chunk does not have it."""
    kinds = {part.type for part in parts if part is not None}
    some = next(iter(kinds))
    if pa.types.is_binary(some):
        return _make_ranges(_fill_missing(parts, lengths, some))
    if len(kinds) == 1 and not (pa.types.is_dictionary(some) or pa.types.is_string(some)):
        return _numbers(pa.concat_arrays(_fill_missing(parts, lengths, some)))
    return _text(parts, lengths, kinds)


def _fill_missing(
    parts: Sequence[pa.Array | None], lengths: Sequence[int], kind: pa.DataType
) -> list[pa.Array]:
    return [
        pa.nulls(n, kind) if part is None else part for part, n in zip(parts, lengths, strict=True)
    ]


def _numbers(array: pa.Array) -> Numbers:
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    if array.null_count:
        array = array.fill_null(False if pa.types.is_boolean(array.type) else 0)
    return Numbers(array.type, array.to_numpy(zero_copy_only=False), valid)


def _make_ranges(arrays: Sequence[pa.Array]) -> RangesColumn:
    lengths = [len(array) for array in arrays]
    chunks = np.repeat(np.arange(len(arrays)), lengths)
    starts = np.cumsum([0, *lengths[:-1]])
    rows = np.arange(len(chunks)) - starts[chunks]
    column = BytesOfChunks(arrays)
    begins, ends = column.ranges(chunks, rows)
    return RangesColumn(column.type, column.memory, begins, ends, column.valid(chunks, rows))


# ---- text --------------------------------------------------------------------------------------------


def _text(
    parts: Sequence[pa.Array | None], lengths: Sequence[int], kinds: set[pa.DataType]
) -> Words | RangesColumn:
    if all(map(pa.types.is_dictionary, kinds)):
        coded = _unify(parts, lengths)
    else:
        plain = [None if part is None else part.cast(pa.string()) for part in parts]
        coded = pa.concat_arrays(_fill_missing(plain, lengths, pa.string())).dictionary_encode()
    if 2 * len(coded.dictionary) > len(coded) - coded.null_count:
        return _make_ranges([coded.cast(pa.string())])
    return _sorted_words(coded)


def _unify(parts: Sequence[pa.Array | None], lengths: Sequence[int]) -> pa.DictionaryArray:
    """Unify the dictionaries of all chunks, reading every row only once."""
    kind = pa.dictionary(pa.int32(), pa.string())
    widened = [
        pa.nulls(n, kind)
        if part is None
        else pa.DictionaryArray.from_arrays(part.indices.cast(pa.int32()), part.dictionary)
        for part, n in zip(parts, lengths, strict=True)
    ]
    return pa.chunked_array(widened).unify_dictionaries().combine_chunks()


def _sorted_words(coded: pa.DictionaryArray) -> Words:
    dictionary, indices = coded.dictionary, coded.indices
    order = pc.sort_indices(dictionary).to_numpy()
    code_of = np.zeros(len(dictionary) + 1, _narrowest(len(dictionary)))
    code_of[order] = np.arange(len(order))
    valid = indices.is_valid().to_numpy(zero_copy_only=False) if indices.null_count else None
    if indices.null_count:
        indices = indices.fill_null(len(dictionary))
    return Words(code_of[indices.to_numpy()], dictionary.take(pa.array(order)), valid)


# ---- ranks: values as numbers in the order of the values ---------------------------------------------


def ranks(column: SegmentColumn) -> tuple[Ranks, Flags | None, int]:
    """Return the rank of each row's value (meaningless where it is null), which are valid, and the number of ranks."""
    match column:
        case Words(codes=codes, words=words, valid=valid):
            return codes.astype(np.int64), valid, len(words)
        case Numbers(values=values, valid=valid):
            found, count = _number_ranks(values)
            return found, valid, count
        case RangesColumn(valid=valid):
            text = column.take(np.arange(len(column.begins)))
            dense = pc.rank(text, tiebreaker="dense").to_numpy()
            return dense.astype(np.int64) - 1, valid, int(dense.max())


def _number_ranks(values: npt.NDArray[Any]) -> tuple[Ranks, int]:
    if values.dtype != np.float64:
        low, high = int(values.min()), int(values.max())
        if high - low < 4 * len(values):  # close together: the distance from the lowest is a rank
            return values.astype(np.int64) - low, high - low + 1
    distinct, found = np.unique(values, return_inverse=True)
    return found.astype(np.int64), len(distinct)


# ---- reading the rows of segments --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SegmentRows:
    """All messages of some segments, column by column, in the order of their chunks."""

    columns: dict[str, SegmentColumn]
    # For each row, the position of its properties in `tuples`.
    groups: np.ndarray[Any, np.dtype[np.int64]]
    tuples: Sequence[dict[str, Scalar]]


def read_rows(segments: Sequence[Chunks], indexed: Collection[str]) -> SegmentRows:
    """Read all messages of the segments, with no more header columns than a segment may have."""
    lengths: list[int] = []
    groups: list[int] = []
    tuples: dict[str, tuple[int, dict[str, Scalar]]] = {}

    def read() -> Iterator[_Part]:
        for chunk in (segment.chunk(i) for segment in segments for i in range(len(segment))):
            if not chunk.num_rows:
                continue
            properties = dict(chunk.metadata().properties)
            groups.append(tuples.setdefault(repr(properties), (len(tuples), properties))[0])
            lengths.append(chunk.num_rows)
            batch = chunk.take(None)
            yield dict(zip(batch.schema.names, batch.columns, strict=True))

    parts = _cap_headers(list(_join_tiny(read())) or [_empty_part()], indexed)
    columns = {
        name: join_column([part.get(name) for part in parts], list(map(_rows_of, parts)))
        for name in _names(parts)
    }
    found = [properties for _, properties in tuples.values()]
    return SegmentRows(columns, np.repeat(np.array(groups, np.int64), lengths), found)


def _empty_part() -> _Part:
    return {name: pa.array([], type) for name, type in _ALWAYS.items()}


def _join_tiny(parts: Iterator[_Part]) -> Iterator[_Part]:
    """Join runs of tiny parts to one part each: every array has a cost of its own."""
    tiny: list[_Part] = []
    for part in parts:
        if _rows_of(part) < TINY_ROWS:
            tiny.append(part)
            if len(tiny) < MAX_TINY:
                continue
            part = _join_parts(tiny)
        elif tiny:
            yield _join_parts(tiny)
        tiny.clear()
        yield part
    if tiny:
        yield _join_parts(tiny)


def _join_parts(parts: list[_Part]) -> _Part:
    lengths = list(map(_rows_of, parts))
    rows = np.arange(sum(lengths))
    return {
        name: join_column([part.get(name) for part in parts], lengths).take(rows)
        for name in _names(parts)
    }


def _rows_of(part: _Part) -> int:
    return len(part["offset"])


def _names(parts: Sequence[_Part]) -> list[str]:
    """List the columns that are not empty: system fields, properties, headers, overflow."""
    found = {
        name
        for part in parts
        for name, array in part.items()
        if name in _ALWAYS or array.null_count < len(array)
    }
    first = [name for name in SYSTEM_COLUMNS if name in found]
    typed = sorted(found - {*first, OVERFLOW}, key=lambda name: (is_header_column(name), name))
    return [*first, *typed, *(found & {OVERFLOW})]


def _cap_headers(parts: list[_Part], indexed: Collection[str]) -> list[_Part]:
    """Move the rarest header columns to the overflow, until a chunk may hold the others."""
    filled: dict[str, int] = {}
    for part in parts:
        for name, array in part.items():
            if is_header_column(name):
                filled[name] = filled.get(name, 0) + len(array) - array.null_count
    if len(filled) <= MAX_HEADER_COLUMNS:
        return parts
    ranking = sorted(filled, key=lambda n: (header_of(n) not in indexed, -filled[n], n))
    moved = frozenset(ranking[MAX_HEADER_COLUMNS:])
    return [move_to_overflow(part, moved & part.keys()) for part in parts]


def overflowed_headers(columns: dict[str, SegmentColumn]) -> tuple[str, ...]:
    """List every header name that occurs in the overflow."""
    column = columns.get(OVERFLOW)
    if column is None:
        return ()
    assert isinstance(column, RangesColumn)
    rows = read_overflow(column.take(np.arange(count_of(column))))
    return tuple(overflow_names(rows))


def offsets_of(rows: SegmentRows) -> np.ndarray[Any, np.dtype[np.int64]]:
    offsets = rows.columns["offset"]
    assert isinstance(offsets, Numbers)
    return offsets.values


def payload_lengths(rows: SegmentRows) -> Positions:
    """Return the length of every payload."""
    payload = rows.columns["payload"]
    assert isinstance(payload, RangesColumn)
    return payload.ends - payload.begins
