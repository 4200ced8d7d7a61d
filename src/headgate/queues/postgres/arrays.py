"""Lists as PostgreSQL reads them in binary. psycopg's own way looks at every element several times.

Import it where psycopg is known to be there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import chain, repeat
from typing import Any, Final, NamedTuple

from psycopg import pq
from psycopg.adapt import Dumper, PyFormat

_HEAD: Final = struct.Struct(">iiIii")  # dimensions, has NULLs, type of elements, length, first
_EMPTY: Final = struct.Struct(">iiI")  # no dimension, no NULLs, type of elements
_LENGTH: Final = struct.Struct(">i")
_NULL: Final = _LENGTH.pack(-1)


class Kind(NamedTuple):
    """Elements of one type: their number in pg_type, that of arrays of them, and one as bytes."""

    element: int
    array: int
    encode: Callable[[Any], bytes]


_BIGINT: Final = Kind(20, 1016, struct.Struct(">q").pack)
_KINDS: Final[dict[type, Kind]] = {
    int: _BIGINT,
    str: Kind(25, 1009, str.encode),
    bytes: Kind(17, 1001, bytes),
    float: Kind(701, 1022, struct.Struct(">d").pack),
    bool: Kind(16, 1000, struct.Struct(">?").pack),
}


def kind_of(values: Sequence[Any]) -> Kind:
    """That of the first value there is. Statements cast what is empty: as bigints, it can become anything."""
    first = next((value for value in values if value is not None), 0)
    return _KINDS[type(first)]


def packed(values: Sequence[Any], kind: Kind) -> bytes:
    """The array in PostgreSQL's binary form."""
    if not values:
        return _EMPTY.pack(0, 0, kind.element)
    nulls = None in values
    head = _HEAD.pack(1, nulls, kind.element, len(values), 1)
    if kind is _BIGINT and not nulls:
        return head + struct.pack(">" + "iq" * len(values), *chain(*zip(repeat(8), values)))
    if nulls:
        return head + b"".join(_element(value, kind.encode) for value in values)
    contents = list(map(kind.encode, values))
    lengths = map(_LENGTH.pack, map(len, contents))
    return b"".join([head, *chain.from_iterable(zip(lengths, contents, strict=True))])


def _element(value: Any, encode: Callable[[Any], bytes]) -> bytes:
    if value is None:
        return _NULL
    content = encode(value)
    return _LENGTH.pack(len(content)) + content


class ListDumper(Dumper):
    """Flat lists of values of one type, or None."""

    format = pq.Format.BINARY
    kind = _BIGINT

    def get_key(self, obj: list[Any], format: PyFormat) -> tuple[type, type]:
        return (list, type(next((value for value in obj if value is not None), 0)))

    def upgrade(self, obj: list[Any], format: PyFormat) -> ListDumper:
        chosen = ListDumper(list)
        chosen.kind = kind_of(obj)
        chosen.oid = chosen.kind.array
        return chosen

    def dump(self, obj: list[Any]) -> bytes:
        return packed(obj, self.kind)
