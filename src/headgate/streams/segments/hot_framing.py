"""Arrow arrays <-> the buffers of a chunk's column, without Arrow's own envelope.

An array is stored as its type, its null count and its bare buffers from the first row on. It is rebuilt over slices of
the memory map: nothing is copied, and only the columns a filter reads are touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.streams.format import ALIGNMENT

Buffer: TypeAlias = pa.Buffer | memoryview | bytes

INT64, UINT8, DOUBLE, BOOL, UTF8, BINARY, DICTIONARY = range(1, 8)

_FIXED: Final[dict[int, tuple[pa.DataType, Any]]] = {
    INT64: (pa.int64(), np.int64),
    UINT8: (pa.uint8(), np.uint8),
    DOUBLE: (pa.float64(), np.float64),
}
_INDEX: Final[dict[int, tuple[pa.DataType, Any]]] = {
    1: (pa.int8(), np.int8),
    2: (pa.int16(), np.int16),
    4: (pa.int32(), np.int32),
}
_CODE_OF: Final = {
    pa.int64(): INT64,
    pa.uint8(): UINT8,
    pa.float64(): DOUBLE,
    pa.bool_(): BOOL,
    pa.string(): UTF8,
    pa.binary(): BINARY,
}
BUFFERS_OF: Final = {INT64: 2, UINT8: 2, DOUBLE: 2, BOOL: 2, UTF8: 3, BINARY: 3, DICTIONARY: 4}

# Built once: a stream may have very many small chunks.
_TYPE_OF: Final = {code: kind for kind, code in _CODE_OF.items()}
_CODED: Final = {width: pa.dictionary(kind, pa.string()) for width, (kind, _) in _INDEX.items()}
_EMPTY: Final = pa.py_buffer(b"")


class StoredColumn(NamedTuple):
    """A column as it is stored. Buffers: validity, then those of its type; an absent one is empty."""

    type: int
    width: int  # bytes of a dictionary's index
    nulls: int
    dictionary: int  # values in the dictionary
    buffers: tuple[Buffer, ...]


# ---- arrays to buffers -------------------------------------------------------------------------------


def frame(array: pa.Array) -> StoredColumn:
    """Return the buffers of an array of a storable type."""
    nulls = array.null_count
    if isinstance(array, pa.DictionaryArray):
        return _frame_dictionary(array, nulls)
    code = _CODE_OF[array.type]
    if code in (UTF8, BINARY):
        return StoredColumn(code, 0, nulls, 0, (_validity(array, nulls), *_text_buffers(array)))
    if code == BOOL:
        return StoredColumn(code, 0, nulls, 0, (_validity(array, nulls), _bits(array)))
    values = _values(array, _FIXED[code][1], nulls)
    return StoredColumn(code, 0, nulls, 0, (_validity(array, nulls), _raw(values)))


def _frame_dictionary(array: pa.DictionaryArray, nulls: int) -> StoredColumn:
    codes, dictionary = _compact(array, nulls)
    width = next(
        w for w, most in ((1, 1 << 7), (2, 1 << 15), (4, 1 << 31)) if len(dictionary) <= most
    )
    narrow = codes.astype(_INDEX[width][1], copy=False)
    buffers = (_validity(array, nulls), _raw(narrow), *_text_buffers(dictionary))
    return StoredColumn(DICTIONARY, width, nulls, len(dictionary), buffers)


def _compact(array: pa.DictionaryArray, nulls: int) -> tuple[npt.NDArray[Any], pa.Array]:
    """Return the codes, 0 where null, and a dictionary with at most as many values as there are rows."""
    indices, dictionary = array.indices, array.dictionary
    codes = _values(indices, indices.type.to_pandas_dtype(), nulls)
    if len(dictionary) <= max(len(codes), 16):
        return codes, dictionary
    used, codes = np.unique(codes, return_inverse=True)
    return codes, dictionary.take(pa.array(used))


def _validity(array: pa.Array, nulls: int) -> Buffer:
    if not nulls:
        return b""
    if isinstance(array, pa.DictionaryArray):
        array = array.indices
    bitmap = array.buffers()[0] if not array.offset else pc.is_valid(array).buffers()[1]
    return bitmap.slice(0, -(-len(array) // 8))


def _values(array: pa.Array, dtype: Any, nulls: int) -> npt.NDArray[Any]:
    """Return the values for numpy, 0 where null: the bytes behind a null are neither stored nor used as an index."""
    values = np.frombuffer(array.buffers()[1], dtype, len(array) + array.offset)[array.offset :]
    if not nulls:
        return values
    valid = pc.is_valid(array).to_numpy(zero_copy_only=False)
    return np.where(valid, values, dtype(0))


def _raw(values: npt.NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(values).data.cast("B")


def _bits(array: pa.Array) -> Buffer:
    if not array.offset and not array.null_count:
        return array.buffers()[1].slice(0, -(-len(array) // 8))
    flags = pc.fill_null(array, False).to_numpy(zero_copy_only=False)
    return np.packbits(flags, bitorder="little").tobytes()


def _text_buffers(array: pa.Array) -> tuple[Buffer, Buffer]:
    _, offsets, content = array.buffers()
    if not len(array):
        return b"\0\0\0\0", b""
    ends = np.frombuffer(offsets, np.int32, len(array) + array.offset + 1)[array.offset :]
    first, last = int(ends[0]), int(ends[-1])
    if first:
        ends = ends - ends[0]
    return _raw(ends), b"" if first == last else content.slice(first, last - first)


# ---- buffers to arrays -------------------------------------------------------------------------------


def rebuild(framed: StoredColumn, rows: int) -> pa.Array:
    """Build the array over these buffers."""
    kind, width, nulls, distinct, (validity, *rest) = framed
    valid = validity if nulls else None
    if kind == DICTIONARY:
        codes, offsets, content = rest
        values = pa.Array.from_buffers(pa.string(), distinct, [None, offsets, content], 0)
        return pa.DictionaryArray.from_buffers(_CODED[width], rows, [valid, codes], values, nulls)
    return pa.Array.from_buffers(_TYPE_OF[kind], rows, [valid, *rest], nulls)


def slice_buffers(
    body: pa.Buffer, kind: int, start: int, lengths: Sequence[int]
) -> tuple[pa.Buffer, ...]:
    """Cut the buffers of a column of this kind out of the body, one behind the other from `start` on."""
    found = []
    for length in lengths[: BUFFERS_OF[kind]]:
        found.append(body.slice(start, length) if length else _EMPTY)
        start += length + -length % ALIGNMENT
    return tuple(found)
