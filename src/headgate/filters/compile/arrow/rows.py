"""The rows of a batch as numpy arrays: a view of a field is decoded once, and only when a test reads it.

    Vector   numbers or booleans          Codes   a dictionary-encoded string column
    Strings     a plain string column

`valid` says where a row has a value; None when every row has one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.filters.nodes import Field, View

Bools: TypeAlias = npt.NDArray[np.bool_]
Array: TypeAlias = npt.NDArray[Any]
Indices: TypeAlias = npt.NDArray[np.intp]

_DTYPES: Final[dict[int, np.dtype[Any]]] = {
    type_.id: np.dtype(type_.to_pandas_dtype())
    for type_ in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float64()),
    )
}
# By the bits of a code. No valid code is negative, and none is beyond what a signed one of 64 bits holds.
CODE_DTYPES: Final[dict[int, np.dtype[Any]]] = {
    8: np.dtype(np.uint8),
    16: np.dtype(np.uint16),
    32: np.dtype(np.uint32),
    64: np.dtype(np.int64),
}
_BOOL: Final = pa.bool_().id
_KERNELS_READ: Final = frozenset({pa.string().id, pa.large_string().id})


class Columns(Protocol):
    """Rows of messages, read one view of one field at a time."""

    @property
    def num_rows(self) -> int: ...

    def view(self, field: Field, view: View) -> pa.Array | None:
        """Return the values of that kind, null elsewhere; None when no row holds one.

        A string view may be dictionary-encoded. The opaque view is a boolean array, true where the field
        holds something no filter can compare.
        """
        ...


class Vector(NamedTuple):
    """Numbers or booleans, one per row, or a single one (0-d) for all rows."""

    values: Array
    valid: Bools | None

    def take(self, at: Indices) -> Vector:
        return Vector(self.values.take(at, mode="clip"), _take_valid(self.valid, at))


class Codes(NamedTuple):
    """Strings as positions in a dictionary. A code that is not valid has no meaning."""

    codes: Array
    valid: Bools | None
    dictionary: pa.Array

    def take(self, at: Indices) -> Codes:
        codes = self.codes.take(at, mode="clip")
        return Codes(codes, _take_valid(self.valid, at), self.dictionary)

    def decode(self) -> pa.Array:
        """Return the strings, null where there is none."""
        missing = None if self.valid is None else ~self.valid
        return self.dictionary.take(pa.array(self.codes, mask=missing))


class Strings(NamedTuple):
    """Strings without a dictionary."""

    array: pa.Array
    valid: Bools | None

    def take(self, at: Indices) -> Strings:
        return Strings(self.array.take(pa.array(at)), _take_valid(self.valid, at))

    def decode(self) -> pa.Array:
        """Return the strings, null where there is none."""
        return self.array


Decoded = TypeVar("Decoded")


@dataclass(frozen=True, slots=True)
class FieldView(Generic[Decoded]):
    """One view of one field. `name` is the key under which `BatchRows` keeps the decoded array."""

    field: Field
    view: View
    name: str
    decode: Callable[[pa.Array], Decoded | None]


def text_view(field: Field) -> FieldView[Codes | Strings]:
    """Name the strings of a field."""
    return FieldView(field, "string", f"{field.scope}.string.{field.name}", decode_text)


def vector_view(field: Field, view: View) -> FieldView[Vector]:
    """Name the numbers or booleans of a field."""
    return FieldView(field, view, f"{field.scope}.{view}.{field.name}", decode_vector)


class BatchRows:
    """All rows of a batch, or a selection of them."""

    __slots__ = ("_at", "_columns", "_decoded", "_parent", "count", "now_us")

    def __init__(self, columns: Columns, now_us: int) -> None:
        self._columns, self.now_us, self.count = columns, now_us, columns.num_rows
        self._parent: BatchRows | None = None
        self._at: Indices | None = None
        self._decoded: dict[str, Any] = {}

    def select(self, at: Indices) -> BatchRows:
        """Return the rows at these positions."""
        some = BatchRows.__new__(BatchRows)
        some._columns, some.now_us, some.count = self._columns, self.now_us, len(at)
        some._parent, some._at, some._decoded = self, at, {}
        return some

    def read(self, source: FieldView[Decoded]) -> Decoded | None:
        """Return the values of a view; None when no row has one."""
        decoded, name = self._decoded, source.name
        if name in decoded:
            return decoded[name]  # type: ignore[no-any-return]
        found: Any
        if self._parent is None:
            array = self._columns.view(source.field, source.view)
            found = None if array is None else source.decode(array)
        else:
            whole: Any = self._parent.read(source)
            found = None if whole is None else whole.take(self._at)
        decoded[name] = found
        return found  # type: ignore[no-any-return]


# ---- Arrow's buffers as numpy arrays -----------------------------------------------------------------


def decode_vector(array: pa.Array) -> Vector | None:
    """Return the numbers or booleans of an array; None when it is all null."""
    count, nulls = len(array), array.null_count
    if nulls == count:
        return None
    valid = validity(array) if nulls else None
    type_id, buffer = array.type.id, array.buffers()[1]
    if type_id == _BOOL:
        return Vector(unpack_bits(buffer, array.offset, count), valid)
    dtype = _DTYPES[type_id]
    return Vector(np.frombuffer(buffer, dtype, count, array.offset * dtype.itemsize), valid)


def decode_text(array: pa.Array) -> Codes | Strings | None:
    """Return the strings of an array as they are encoded; None when it is all null."""
    count, nulls = len(array), array.null_count
    if nulls == count:
        return None
    valid = validity(array) if nulls else None
    if not isinstance(array, pa.DictionaryArray):
        return Strings(readable(array), valid)
    dictionary, dtype = array.dictionary, CODE_DTYPES[array.type.bit_width]
    codes = np.frombuffer(array.buffers()[1], dtype, count, array.offset * dtype.itemsize)
    if nulls := dictionary.null_count:  # a code may also stand for null
        if nulls == len(dictionary):
            return None
        present: Bools = validity(dictionary).take(codes, mode="clip")  # type: ignore[union-attr]
        valid = present if valid is None else valid & present
    if dictionary.type.id not in _KERNELS_READ:
        dictionary = readable(dictionary)
    return Codes(codes, valid, dictionary)


def readable(strings: pa.Array) -> pa.Array:
    """Cast strings to a layout that every compute kernel reads."""
    return strings if strings.type.id in _KERNELS_READ else strings.cast(pa.large_string())


def validity(array: pa.Array) -> Bools | None:
    """Return where the array is not null; None when it has no null."""
    if not array.null_count:
        return None
    bitmap = array.buffers()[0]
    if bitmap is None:  # the null type has no bitmap
        return np.zeros(len(array), np.bool_)
    return unpack_bits(bitmap, array.offset, len(array))


def where_valid(found: Bools, valid: Bools | None) -> Bools:
    """Clear the fresh array `found` where there is no value."""
    if valid is not None:
        found &= valid
    return found


def truths(answers: pa.BooleanArray) -> Bools:
    """Return where the array is true: null counts as false."""
    found = unpack_bits(answers.buffers()[1], answers.offset, len(answers))
    return where_valid(found, validity(answers))


def unpack_bits(bitmap: pa.Buffer, offset: int, count: int) -> Bools:
    """Unpack a bitmap of Arrow."""
    if not offset:
        packed = np.frombuffer(bitmap, np.uint8)
        return np.unpackbits(packed, None, count, "little").view(np.bool_)
    first, skipped = divmod(offset, 8)
    packed = np.frombuffer(bitmap, np.uint8, -1, first)
    return np.unpackbits(packed, None, skipped + count, "little").view(np.bool_)[skipped:]


def _take_valid(valid: Bools | None, at: Indices) -> Bools | None:
    return None if valid is None else valid.take(at, mode="clip")
