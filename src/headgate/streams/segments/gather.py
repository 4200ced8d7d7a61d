"""Gather rows of many chunks in any order, copying each once from the memory map.

The columns of all chunks of a segment are somewhere in one mapped file. A row is found by arithmetic on the addresses,
so that no chunk is ever concatenated with another, and only the requested rows are copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.filters import Flags

RowIndices: TypeAlias = npt.NDArray[np.signedinteger[Any]]
Positions: TypeAlias = npt.NDArray[np.int64]

_INT32_MAX: Final = 2**31 - 1
_BOOL: Final = pa.bool_().id
_BINARY: Final = frozenset({pa.string().id, pa.binary().id})


class ColumnOfChunks(Protocol):
    """One column of many chunks."""

    def take(self, chunks: RowIndices, rows: RowIndices) -> pa.Array:
        """Return the values at `rows[i]` of chunk `chunks[i]`."""
        ...


def column_of_chunks(arrays: Sequence[pa.Array]) -> ColumnOfChunks:
    """Return the column whose part in chunk i is `arrays[i]`; all of one type, and with one dictionary if any."""
    kind = arrays[0].type
    if pa.types.is_dictionary(kind):
        return _Coded(arrays)
    if kind.id in _BINARY:
        return BytesOfChunks(arrays)
    return _Bits(arrays) if kind.id == _BOOL else _Fixed(arrays)


class _Fixed:
    def __init__(self, arrays: Sequence[pa.Array]) -> None:
        self.type = arrays[0].type
        self._dtype = np.dtype(self.type.to_pandas_dtype())
        self._values = _Numbers(arrays, 1, self._dtype)
        self._valid = _Validity(arrays)
        self._same = _one_byte_of_all(arrays)

    def take(self, chunks: RowIndices, rows: RowIndices) -> pa.Array:
        if self._same is not None:
            return _array(self.type, len(rows), None, np.full(len(rows), self._same, self._dtype))
        values = self._values.take(chunks, rows)
        return _array(self.type, len(rows), self._valid.take(chunks, rows), values)


def _one_byte_of_all(arrays: Sequence[pa.Array]) -> int | None:
    """Return the value of a one-byte column that has only one: the code of a topic, or a priority."""
    if arrays[0].type.bit_width != 8 or any(array.null_count for array in arrays):
        return None
    found: set[int] = set()
    for array in arrays:
        values = array.to_numpy()
        found |= {int(values.min()), int(values.max())} if len(values) else set()
        if len(found) > 1:
            return None
    return next(iter(found), None)


class _Bits:
    def __init__(self, arrays: Sequence[pa.Array]) -> None:
        self._values = _Bitmaps(arrays, 1)
        self._valid = _Validity(arrays)

    def take(self, chunks: RowIndices, rows: RowIndices) -> pa.Array:
        values = np.packbits(self._values.take(chunks, rows), bitorder="little")
        return _array(pa.bool_(), len(rows), self._valid.take(chunks, rows), values)


class _Coded:
    def __init__(self, arrays: Sequence[pa.Array]) -> None:
        self._codes = _Fixed([array.indices for array in arrays])
        self._dictionary = arrays[0].dictionary

    def take(self, chunks: RowIndices, rows: RowIndices) -> pa.Array:
        codes = self._codes.take(chunks, rows)
        return pa.DictionaryArray.from_arrays(codes, self._dictionary, safe=False)


class BytesOfChunks:
    """Text or bytes: each value is a range of the one memory that holds the data of all chunks."""

    def __init__(self, arrays: Sequence[pa.Array]) -> None:
        self.type = arrays[0].type
        self._ends = _Numbers(arrays, 1, np.dtype(np.int32))
        self._valid = _Validity(arrays)
        self.memory, self._bases = _enclosing(arrays, 2)

    def ranges(self, chunks: RowIndices, rows: RowIndices) -> tuple[Positions, Positions]:
        """Return where each value begins and ends in `memory`."""
        begins, ends = self._ends.take_pairs(chunks, rows)
        bases = self._bases.take(chunks)
        return begins + bases, ends + bases

    def valid(self, chunks: RowIndices, rows: RowIndices) -> Flags | None:
        """Return which of the values are not null; None when all are."""
        return self._valid.take(chunks, rows)

    def take(self, chunks: RowIndices, rows: RowIndices) -> pa.Array:
        begins, ends = self.ranges(chunks, rows)
        found = copy_ranges(self.memory, begins, ends, self.type)
        return with_validity(found, self.valid(chunks, rows))


def copy_ranges(
    memory: pa.Buffer, begins: Positions, ends: Positions, kind: pa.DataType
) -> pa.Array:
    """Copy each range of the memory into one value of a new array, in this order."""
    count, total = len(begins), int((ends - begins).sum())
    if not count:
        return pa.array([], kind)
    # The elements at even positions of this array are the ranges, the others are never read. The last offset
    # sets the mean length, from which Arrow estimates how much to allocate.
    offsets = np.empty(2 * count + 1, np.int64)
    offsets[0:-1:2], offsets[1:-1:2] = begins, ends
    offsets[-1] = min(int(offsets[0]) + 2 * total, memory.size)
    narrow = int(offsets.max()) <= _INT32_MAX
    wide = pa.large_binary() if pa.types.is_binary(kind) else pa.large_string()
    scattered = pa.Array.from_buffers(
        kind if narrow else wide,
        2 * count,
        [None, pa.py_buffer(offsets.astype(np.int32) if narrow else offsets), memory],
    )
    taken = scattered.take(pa.array(np.arange(0, 2 * count, 2)))
    return taken if narrow else taken.cast(kind)


def with_validity(array: pa.Array, valid: Flags | None) -> pa.Array:
    """Return the array with nulls where `valid` is false."""
    if valid is None or valid.all():
        return array
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(array.type, len(array), [bitmap, *array.buffers()[1:]])


# ---- the addresses of the buffers ---------------------------------------------------------------


class _Numbers:
    """Buffer `at` of every chunk, as numbers of one width."""

    def __init__(self, arrays: Sequence[pa.Array], at: int, dtype: np.dtype[Any]) -> None:
        memory, bases = _enclosing(arrays, at)
        assert not (bases % dtype.itemsize).any(), "Arrow's buffers are aligned"
        self._flat = np.frombuffer(memory, dtype, memory.size // dtype.itemsize)
        starts = np.array([array.offset for array in arrays], np.int64)
        self._starts = bases // dtype.itemsize + starts

    def take(self, chunks: RowIndices, rows: RowIndices) -> npt.NDArray[Any]:
        return self._flat.take(self._starts.take(chunks) + rows)

    def take_pairs(
        self, chunks: RowIndices, rows: RowIndices
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return each number and the one behind it."""
        at = self._starts.take(chunks) + rows
        return self._flat.take(at), self._flat.take(at + 1)


class _Bitmaps:
    def __init__(self, arrays: Sequence[pa.Array], at: int) -> None:
        memory, bases = _enclosing(arrays, at)
        self._flat = np.frombuffer(memory, np.uint8)
        self._starts = bases * 8 + np.array([array.offset for array in arrays], np.int64)

    def take(self, chunks: RowIndices, rows: RowIndices) -> Flags:
        bits = self._starts.take(chunks) + rows
        set_ = self._flat.take(bits >> 3) >> (bits & 7).astype(np.uint8)
        return (set_ & 1).view(np.bool_)


class _Validity:
    """The validity of a column; chunks without nulls have no bitmap."""

    def __init__(self, arrays: Sequence[pa.Array]) -> None:
        with_nulls = [i for i, array in enumerate(arrays) if array.null_count]
        self._bitmaps = _Bitmaps([arrays[i] for i in with_nulls], 0) if with_nulls else None
        self._at = np.full(len(arrays), -1)
        self._at[with_nulls] = np.arange(len(with_nulls))

    def take(self, chunks: RowIndices, rows: RowIndices) -> Flags | None:
        """Return which rows are valid; None when all are."""
        if self._bitmaps is None:
            return None
        at = self._at[chunks]
        asked = np.flatnonzero(at >= 0)
        if not len(asked):
            return None
        valid = np.ones(len(rows), np.bool_)
        valid[asked] = self._bitmaps.take(at[asked], rows[asked])
        return valid


def _enclosing(arrays: Sequence[pa.Array], at: int) -> tuple[pa.Buffer, Positions]:
    """Return one memory that encloses buffer `at` of every array, and where each begins in it.

    The bytes between the buffers may belong to other objects, and are never read.
    """
    buffers = [array.buffers()[at] for array in arrays]
    filled = [buffer for buffer in buffers if buffer is not None and buffer.size]
    if not filled:
        return pa.py_buffer(b""), np.zeros(len(arrays), np.int64)
    low = min(buffer.address for buffer in filled) & ~7
    high = max(buffer.address + buffer.size for buffer in filled)
    bases = [b.address - low if b is not None and b.size else 0 for b in buffers]
    memory = pa.foreign_buffer(low, high - low, base=filled)
    return memory, np.array(bases, np.int64)


def _array(
    kind: pa.DataType, count: int, valid: Flags | None, values: npt.NDArray[Any]
) -> pa.Array:
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, count, [bitmap, pa.py_buffer(values)])
