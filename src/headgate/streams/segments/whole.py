"""One column of a whole segment, while it is being sealed: its parts, chunk by chunk, made one.

Numbers     integers, floats, booleans      Words   strings as positions in one sorted dictionary
Scattered   text and bytes, left where they lie until they are copied to their place
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.streams.segments.gather import (
    Bools,
    BytesGathering,
    Positions,
    Rows,
    copy_ranges,
    with_validity,
)

Codes: TypeAlias = npt.NDArray[np.signedinteger[Any]]
Ranks: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Numbers:
    type: pa.DataType
    values: npt.NDArray[Any]
    valid: Bools | None

    def take(self, rows: Rows) -> pa.Array:
        values = self.values[rows]
        if values.dtype == np.bool_:
            values = np.packbits(values, bitorder="little")
        found = pa.Array.from_buffers(self.type, len(rows), [None, pa.py_buffer(values)])
        return with_validity(found, None if self.valid is None else self.valid[rows])


@dataclass(frozen=True, slots=True)
class Words:
    codes: Codes  # as narrow as they can be; 0 where a row has no word
    words: pa.StringArray  # sorted, so that the order of codes is the order of words
    valid: Bools | None

    @property
    def type(self) -> pa.DataType:
        return pa.dictionary(pa.from_numpy_dtype(self.codes.dtype), pa.string())

    def take(self, rows: Rows) -> pa.Array:
        codes = Numbers(self.type.index_type, self.codes, self.valid).take(rows)
        return pa.DictionaryArray.from_arrays(codes, self.words, safe=False)


@dataclass(frozen=True, slots=True)
class Scattered:
    type: pa.DataType
    memory: pa.Buffer
    begins: Positions
    ends: Positions
    valid: Bools | None

    def take(self, rows: Rows) -> pa.Array:
        found = copy_ranges(self.memory, self.begins[rows], self.ends[rows], self.type)
        return with_validity(found, None if self.valid is None else self.valid[rows])


Whole: TypeAlias = Numbers | Words | Scattered


def count_of(column: Whole) -> int:
    """How many rows."""
    match column:
        case Numbers(values=values):
            return len(values)
        case Words(codes=codes):
            return len(codes)
        case Scattered(begins=begins):
            return len(begins)


def _narrowest(size: int) -> np.dtype[Any]:
    """The type that counts so far in the fewest bytes."""
    return np.dtype(np.int8 if size <= 1 << 7 else np.int16 if size <= 1 << 15 else np.int32)


def whole_column(parts: Sequence[pa.Array | None], lengths: Sequence[int]) -> Whole:
    """The column whose part in chunk i is `parts[i]`; None where the chunk has no such column."""
    kinds = {part.type for part in parts if part is not None}
    some = next(iter(kinds))
    if pa.types.is_binary(some):
        return _scattered(_filled(parts, lengths, some))
    if len(kinds) == 1 and not (pa.types.is_dictionary(some) or pa.types.is_string(some)):
        return _numbers(pa.concat_arrays(_filled(parts, lengths, some)))
    return _text(parts, lengths, kinds)


def _filled(
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


def _scattered(arrays: Sequence[pa.Array]) -> Scattered:
    lengths = [len(array) for array in arrays]
    chunks = np.repeat(np.arange(len(arrays)), lengths)
    starts = np.cumsum([0, *lengths[:-1]])
    rows = np.arange(len(chunks)) - starts[chunks]
    lying = BytesGathering(arrays)
    begins, ends = lying.ranges(chunks, rows)
    return Scattered(lying.type, lying.memory, begins, ends, lying.valid(chunks, rows))


# ---- text --------------------------------------------------------------------------------------------


def _text(
    parts: Sequence[pa.Array | None], lengths: Sequence[int], kinds: set[pa.DataType]
) -> Words | Scattered:
    if all(map(pa.types.is_dictionary, kinds)):
        coded = _united(parts, lengths)
    else:
        plain = [None if part is None else part.cast(pa.string()) for part in parts]
        coded = pa.concat_arrays(_filled(plain, lengths, pa.string())).dictionary_encode()
    if 2 * len(coded.dictionary) > len(coded) - coded.null_count:
        return _scattered([coded.cast(pa.string())])
    return _sorted_words(coded)


def _united(parts: Sequence[pa.Array | None], lengths: Sequence[int]) -> pa.DictionaryArray:
    """Dictionaries of chunks made one, without looking at the rows more than once."""
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


# ---- ranks: every value as a number, in the order of the values --------------------------------------


def ranks(column: Whole) -> tuple[Ranks, Bools | None, int]:
    """Each row's rank among the values (meaningless where it is not valid), and how many ranks there are."""
    match column:
        case Words(codes=codes, words=words, valid=valid):
            return codes.astype(np.int64), valid, len(words)
        case Numbers(values=values, valid=valid):
            found, count = _number_ranks(values)
            return found, valid, count
        case Scattered(valid=valid):
            text = column.take(np.arange(len(column.begins)))
            dense = pc.rank(text, tiebreaker="dense").to_numpy()
            return dense.astype(np.int64) - 1, valid, int(dense.max())


def _number_ranks(values: npt.NDArray[Any]) -> tuple[Ranks, int]:
    if values.dtype != np.float64:
        low, high = int(values.min()), int(values.max())
        if high - low < 4 * len(values):  # close together: the distance from the lowest will do
            return values.astype(np.int64) - low, high - low + 1
    distinct, found = np.unique(values, return_inverse=True)
    return found.astype(np.int64), len(distinct)
