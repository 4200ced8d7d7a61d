"""Messages -> Python columns -> Arrow arrays.

A Python column is one list of values for one field of many messages, so that a batch is checked and stored by column.
Nearly always all messages of a batch have the same headers. Then a column is one pass at C speed. Otherwise a column
holds only the values that exist and their rows, so that many names cost no more than few.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter, itemgetter
from types import NoneType
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.filters import KIND_OF, Kind
from headgate.message import HeaderValue, Message, validate

ABSENT: Final = frozenset({NoneType})
# Fields that most messages do without.
OPTIONAL_FIELDS: Final = frozenset(
    {"priority", "timestamp", "id", "filter_value", "key", "properties"}
)
# The names that become columns, of the headers of many messages; None for all.
ChooseNames: TypeAlias = Callable[[Sequence[Mapping[str, HeaderValue]]], Collection[str] | None]
_RowPositions: TypeAlias = npt.NDArray[np.intp]

_SAMPLE: Final = 256
_INDEX_TYPES: Final = ((1 << 7, pa.int8()), (1 << 15, pa.int16()))


# ---- messages -> Python columns ----------------------------------------------------------------------


class Column(NamedTuple):
    """The values of a field, and the types that occur.

    One value for each message, None where it has none; or, when `rows` are given, one for each of these rows.
    """

    values: list[Any]
    types: frozenset[type]
    messages: int
    rows: list[int] | None = None


class MessageColumns(NamedTuple):
    """Every field of many messages but their payloads."""

    topic: Column
    priority: Column
    timestamp: Column
    id: Column
    filter_value: Column
    key: Column
    headers: dict[str, Column]
    properties: dict[str, Column]


def transpose(
    messages: Sequence[Message],
    used: Collection[str] = OPTIONAL_FIELDS,
    choose: ChooseNames | None = None,
) -> MessageColumns:
    """Turn messages into columns.

    `used`: which of the optional fields some message may have; the others are not read. `choose`: which headers become
    columns, where messages differ in them.
    """
    number = len(messages)
    unused = Column([], ABSENT, number)
    return MessageColumns(
        make_column([m.topic for m in messages]),
        make_column([m.priority for m in messages])
        if "priority" in used
        else Column([0] * number, frozenset({int}), number),
        make_column([m.timestamp for m in messages]) if "timestamp" in used else unused,
        make_column([m.id for m in messages]) if "id" in used else unused,
        make_column([m.filter_value for m in messages]) if "filter_value" in used else unused,
        make_column([m.key for m in messages]) if "key" in used else unused,
        _transpose_valid(messages, "headers", choose),
        _transpose_valid(messages, "properties") if "properties" in used else {},
    )


def _transpose_valid(
    messages: Sequence[Message], field: str, choose: ChooseNames | None = None
) -> dict[str, Column]:
    try:
        return transpose_headers(list(map(attrgetter(field), messages)), choose=choose)
    except (AttributeError, TypeError):
        for message in messages:  # one of them has headers that are no mapping
            validate(message)
        raise


def make_column(values: list[Any]) -> Column:
    """Pair the values with the types that occur in them."""
    if values and values[0] is None and values.count(None) == len(values):
        # Most fields are unused: counting is much faster than looking at every type.
        return Column(values, ABSENT, len(values))
    return Column(values, frozenset(map(type, values)), len(values))


def transpose_headers(
    rows: Sequence[Mapping[str, HeaderValue]],
    only: Collection[str] | None = None,
    choose: ChooseNames | None = None,
) -> dict[str, Column]:
    """Make one column for each name, in order of appearance; `only` keeps a hostile batch from making thousands."""
    if not any(rows):
        return {}
    found = _transpose_uniform(rows)
    if found is None:
        return _transpose_mixed(rows, only if choose is None else choose(rows))
    return {name: make_column(v) for name, v in found.items() if only is None or name in only}


def _transpose_uniform(rows: Sequence[Mapping[str, HeaderValue]]) -> dict[str, list[Any]] | None:
    """Return the values of each name if all rows have the same names, else None."""
    names = list(rows[0])
    if list(map(len, rows)).count(len(names)) != len(rows):
        return None
    try:
        # A row with as many names as the first, and all names of the first, has no other.
        return {name: list(map(itemgetter(name), rows)) for name in names}
    except KeyError:
        return None


def _transpose_mixed(
    rows: Sequence[Mapping[str, HeaderValue]], only: Collection[str] | None
) -> dict[str, Column]:
    found: dict[str, tuple[list[int], list[Any]]] = {}
    for at, row in enumerate(rows):
        for name, value in row.items():
            if name in found:
                numbers, values = found[name]
            elif only is None or name in only:
                numbers, values = found[name] = [], []
            else:
                continue
            numbers.append(at)
            values.append(value)
    return {
        name: make_column(values)
        if len(values) == len(rows)
        else Column(values, frozenset(map(type, values)), len(rows), numbers)
        for name, (numbers, values) in found.items()
    }


# ---- Python columns -> Arrow arrays ------------------------------------------------------------------


def load_arrow() -> None:
    """Let pyarrow load what it loads at its first array: pandas, where that is installed, which takes 0.2 s."""
    pa.array([])


def text_array(column: Column) -> pa.Array:
    """Store strings, as a dictionary when at most half as many are distinct as there are messages."""
    texts = plain_text_array(column)
    if not _seems_to_repeat(column):
        return texts
    encoded = texts.dictionary_encode()
    return _narrow_codes(encoded) if len(encoded.dictionary) * 2 <= column.messages else texts


def plain_text_array(column: Column) -> pa.Array:
    """Store strings without a dictionary."""
    # Arrow would accept bytes.
    if not all(issubclass(kind, str | NoneType) for kind in column.types):
        found = ", ".join(sorted(kind.__name__ for kind in column.types))
        raise TypeError(f"a text column holds values of type {found}, not only str")
    return pa.array(column.values, pa.string())


def encoded_text_array(column: Column) -> pa.DictionaryArray:
    """Store strings as a dictionary, with codes as narrow as possible."""
    return _narrow_codes(plain_text_array(column).dictionary_encode())


def _narrow_codes(encoded: pa.DictionaryArray) -> pa.DictionaryArray:
    for size, index_type in _INDEX_TYPES:
        if len(encoded.dictionary) <= size:
            codes = encoded.indices.cast(index_type)
            return pa.DictionaryArray.from_arrays(codes, encoded.dictionary, safe=False)
    return encoded


def int_array(column: Column) -> pa.Array:
    """Store 64-bit integers."""
    if column.types == {int}:  # numpy reads a list of ints twice as fast as Arrow
        return pa.array(np.fromiter(column.values, np.int64, len(column.values)))
    return pa.array(column.values, pa.int64())


def byte_array(values: list[int]) -> pa.Array:
    """Store small unsigned integers, one byte each."""
    return pa.Array.from_buffers(pa.uint8(), len(values), [None, pa.py_buffer(bytes(values))])


def float_array(column: Column) -> pa.Array:
    """Store doubles."""
    return pa.array(column.values, pa.float64())


def bool_array(column: Column) -> pa.Array:
    """Store booleans."""
    return pa.array(column.values, pa.bool_())


ARRAY_OF: Final[dict[Kind, Callable[[Column], pa.Array]]] = {
    "string": text_array,
    "int": int_array,
    "float": float_array,
    "bool": bool_array,
}


def select_type(column: Column, type_: type) -> Column:
    """Return the column with None in place of every value of another type."""
    if column.types <= {type_, NoneType}:
        return column
    values: list[Any] = [v if type(v) is type_ else None for v in column.values]
    return column._replace(values=values, types=frozenset({type_, NoneType}))


def spread(array: pa.Array, column: Column) -> pa.Array:
    """Put the values of a column into their rows, null between them."""
    if column.rows is None:
        return array
    rows = np.array(column.rows)
    absent = np.ones(column.messages, np.bool_)
    absent[rows] = False
    if array.null_count == 0 and isinstance(array, pa.DictionaryArray):
        codes = _scatter(array.indices, rows, absent)
        return pa.DictionaryArray.from_arrays(codes, array.dictionary, safe=False)
    if array.null_count == 0 and array.type in (pa.int64(), pa.float64()):
        return _scatter(array, rows, absent)
    positions = np.zeros(column.messages, np.int32)
    positions[rows] = np.arange(len(rows))
    return array.take(pa.array(positions, mask=absent))


def _scatter(array: pa.Array, rows: _RowPositions, absent: npt.NDArray[np.bool_]) -> pa.Array:
    """Put numbers into these rows; several times faster than `take`."""
    values = array.to_numpy()
    spaced = np.zeros(len(absent), values.dtype)
    spaced[rows] = values
    return pa.array(spaced, mask=absent)


def opaque_array(column: Column) -> pa.BooleanArray:
    """Mark the values that exist but that no filter can compare."""
    comparable = {*KIND_OF, NoneType}
    marks = pa.array([type(value) not in comparable for value in column.values], pa.bool_())
    return marks if column.rows is None else spread(marks, column).fill_null(False)


def _seems_to_repeat(column: Column) -> bool:
    """Return False when more than half are distinct; if the first few repeat, the others are not counted."""
    values, absent = column.values, NoneType in column.types
    first = values[:_SAMPLE]
    if len(set(first)) * 2 <= len(first):
        return True
    return (len(set(values)) - absent) * 2 <= column.messages
