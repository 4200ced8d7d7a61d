"""Python values -> Arrow arrays: typed by kind, strings as a dictionary where that is smaller."""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.columns.transposed import Column
from headgate.filters import KIND_OF, Kind

_SAMPLE: Final = 256
_INDEX_TYPES: Final = ((1 << 7, pa.int8()), (1 << 15, pa.int16()))


def text_array(column: Column) -> pa.Array:
    """Strings, as a dictionary when at most half as many are distinct."""
    texts = plain_text(column)
    if not _seems_to_repeat(column):
        return texts
    encoded = texts.dictionary_encode()
    return _narrowed(encoded) if len(encoded.dictionary) * 2 <= len(encoded) else texts


def plain_text(column: Column) -> pa.Array:
    if not all(issubclass(kind, str | NoneType) for kind in column.types):
        raise TypeError("a text column holds something else")  # Arrow would let bytes pass
    return pa.array(column.values, pa.string())


def encoded_text(column: Column) -> pa.DictionaryArray:
    """Strings as a dictionary, with codes as narrow as they can be."""
    return _narrowed(plain_text(column).dictionary_encode())


def _narrowed(encoded: pa.DictionaryArray) -> pa.DictionaryArray:
    for size, index_type in _INDEX_TYPES:
        if len(encoded.dictionary) <= size:
            codes = encoded.indices.cast(index_type)
            return pa.DictionaryArray.from_arrays(codes, encoded.dictionary, safe=False)
    return encoded


def int_array(column: Column) -> pa.Array:
    if column.types == {int}:  # numpy reads a list of ints twice as fast as Arrow
        return pa.array(np.fromiter(column.values, np.int64, len(column.values)))
    return pa.array(column.values, pa.int64())


def byte_array(values: list[int]) -> pa.Array:
    """Small unsigned integers, one byte each."""
    return pa.Array.from_buffers(pa.uint8(), len(values), [None, pa.py_buffer(bytes(values))])


def float_array(column: Column) -> pa.Array:
    return pa.array(column.values, pa.float64())


def bool_array(column: Column) -> pa.Array:
    return pa.array(column.values, pa.bool_())


ARRAY_OF: Final[dict[Kind, Callable[[Column], pa.Array]]] = {
    "string": text_array,
    "int": int_array,
    "float": float_array,
    "bool": bool_array,
}


def values_of_type(column: Column, wanted: type) -> Column:
    """The column with everything of another type left out."""
    if column.types <= {wanted, NoneType}:
        return column
    values: list[Any] = [v if type(v) is wanted else None for v in column.values]
    return Column(values, frozenset({wanted, NoneType}))


def marks(column: Column) -> pa.BooleanArray:
    """True where the value is none a filter can compare, and yet there."""
    comparable = {*KIND_OF, NoneType}
    return pa.array([type(value) not in comparable for value in column.values], pa.bool_())


def _seems_to_repeat(column: Column) -> bool:
    """False when more than half are distinct; if the first few repeat, the others are not counted."""
    values, absent = column.values, NoneType in column.types
    first = values[:_SAMPLE]
    if len(set(first)) * 2 <= len(first):
        return True
    return (len(set(values)) - absent) * 2 <= len(values)
