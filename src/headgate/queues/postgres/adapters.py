"""How values go to PostgreSQL and come back, faster than psycopg's own way, which looks at every element several times.

Lists are sent in PostgreSQL's binary form; integers always as int8, so that one plan serves all values; JSON comes back as
text, which its readers decode.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import chain, repeat
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import pq
from psycopg.adapt import Dumper, PyFormat
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import TextLoader

_HEAD: Final = struct.Struct(">iiIii")  # dimensions, has NULLs, type of elements, length, first
_EMPTY: Final = struct.Struct(">iiI")  # no dimension, no NULLs, type of elements
_LENGTH: Final = struct.Struct(">i")
_NULL: Final = _LENGTH.pack(-1)


class ArrayType(NamedTuple):
    """A type of elements: its number in pg_type, the number of its array type, and an element as bytes."""

    element: int
    array: int
    encode: Callable[[Any], bytes]


_BIGINT: Final = ArrayType(20, 1016, struct.Struct(">q").pack)
_TYPES: Final[dict[type, ArrayType]] = {
    int: _BIGINT,
    str: ArrayType(25, 1009, str.encode),
    bytes: ArrayType(17, 1001, bytes),
    float: ArrayType(701, 1022, struct.Struct(">d").pack),
    bool: ArrayType(16, 1000, struct.Struct(">?").pack),
}


def array_type_of(values: Sequence[Any]) -> ArrayType:
    """The type of the first value that is not None. Statements cast empty lists: from bigint[] to any type."""
    first = next((value for value in values if value is not None), 0)
    return _TYPES[type(first)]


def pack_array(values: Sequence[Any], array_type: ArrayType) -> bytes:
    """The array in PostgreSQL's binary form."""
    if not values:
        return _EMPTY.pack(0, 0, array_type.element)
    nulls = None in values
    head = _HEAD.pack(1, nulls, array_type.element, len(values), 1)
    if array_type is _BIGINT and not nulls:
        return head + struct.pack(">" + "iq" * len(values), *chain(*zip(repeat(8), values)))
    if nulls:
        return head + b"".join(_pack_element(value, array_type.encode) for value in values)
    contents = list(map(array_type.encode, values))
    lengths = map(_LENGTH.pack, map(len, contents))
    return b"".join([head, *chain.from_iterable(zip(lengths, contents, strict=True))])


def _pack_element(value: Any, encode: Callable[[Any], bytes]) -> bytes:
    if value is None:
        return _NULL
    content = encode(value)
    return _LENGTH.pack(len(content)) + content


class ListDumper(Dumper):
    """Flat lists of values of one type, or None."""

    format = pq.Format.BINARY
    array_type = _BIGINT

    def get_key(self, obj: list[Any], format: PyFormat) -> tuple[type, type]:
        return (list, type(next((value for value in obj if value is not None), 0)))

    def upgrade(self, obj: list[Any], format: PyFormat) -> ListDumper:
        dumper = ListDumper(list)
        dumper.array_type = array_type_of(obj)
        dumper.oid = dumper.array_type.array
        return dumper

    def dump(self, obj: list[Any]) -> bytes:
        return pack_array(obj, self.array_type)


class JsonbText(TextLoader):
    """jsonb as text. In its binary form a version precedes the text."""

    format = pq.Format.BINARY

    def load(self, data: Any) -> str | bytes:
        return bytes(data[1:]).decode()


def register_adapters(connection: psycopg.Connection | psycopg.AsyncConnection) -> None:
    """Use these adapters on the connection, and prepare every statement when it is first run."""
    adapters = connection.adapters
    adapters.register_dumper(int, Int8BinaryDumper)
    adapters.register_dumper(list, ListDumper)
    adapters.register_loader("jsonb", TextLoader)
    adapters.register_loader("jsonb", JsonbText)
    connection.prepare_threshold = 0
