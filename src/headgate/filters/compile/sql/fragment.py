"""SQL as text with holes, and the table it reads: a fragment carries its parameters, no value is part of the text.

While a condition is being written, a hole is a NUL, which no other part of the text can hold; `number_holes`
turns the holes into the placeholders of a dialect at the end, when their order is known.

Headers and properties are one JSON object each: text on SQLite, `jsonb` on PostgreSQL. The text keeps the four
kinds apart: an integer is digits, a float always has a point and never an exponent, so neither engine can take
one for the other, and both read back the very double that was written (SQLite from 3.53 on).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from json.encoder import encode_basestring
from typing import Final

from headgate.filters.nodes import Field
from headgate.message import HeaderValue, Opaque, Scalar

HOLE: Final = "\0"
# SQLite refuses expressions nested deeper than 1,000, and reads `a OR b OR c` as `(a OR b) OR c`: long chains
# are split in halves.
_WIDEST: Final = 32
_SLOT: Final = re.compile(r"\{(\d)\}")


@dataclass(frozen=True, slots=True)
class Sql:
    """A condition or value with its parameters. With `$n` placeholders, a joined fragment must be numbered to follow it."""

    text: str
    params: tuple[Scalar, ...] = ()

    def and_also(self, other: Sql) -> Sql:
        """Join two conditions with AND."""
        return Sql(f"({self.text}) AND ({other.text})", self.params + other.params)


ALWAYS: Final = Sql("TRUE")
NEVER: Final = Sql("FALSE")


def bind(value: Scalar, hole: str = HOLE) -> Sql:
    """Make a hole with its parameter."""
    return Sql(hole, (value,))


def write(template: str, *parts: Sql) -> Sql:
    """Replace `{0}`, `{1}` … in the template by fragments; their parameters follow their order in the text."""
    params: list[Scalar] = []

    def put(slot: re.Match[str]) -> str:
        part = parts[int(slot[1])]
        params.extend(part.params)
        return part.text

    text = _SLOT.sub(put, template)
    return Sql(text, tuple(params))


def list_fragments(parts: Iterable[Sql]) -> Sql:
    """Separate the fragments by commas."""
    return _concatenate(", ", tuple(parts))


def space_fragments(parts: Iterable[Sql]) -> Sql:
    """Separate the fragments by spaces."""
    return _concatenate(" ", tuple(parts))


def all_of(parts: Iterable[Sql]) -> Sql:
    """Join conditions with AND, without those that are always true."""
    kept = tuple(dict.fromkeys(part for part in parts if part != ALWAYS))
    return NEVER if NEVER in kept else _join(" AND ", kept, ALWAYS)


def any_of(parts: Iterable[Sql]) -> Sql:
    """Join conditions with OR, without those that are never true."""
    kept = tuple(dict.fromkeys(part for part in parts if part != NEVER))
    return ALWAYS if ALWAYS in kept else _join(" OR ", kept, NEVER)


def number_holes(sql: Sql, first: int) -> Sql:
    """Turn the holes into `$first`, `$first+1` …"""
    numbers = count(first)
    return Sql(re.sub(HOLE, lambda _: f"${next(numbers)}", sql.text), sql.params)


def mark_holes(sql: Sql) -> Sql:
    """Turn the holes into `?`."""
    return Sql(sql.text.replace(HOLE, "?"), sql.params)


def _join(word: str, parts: Sequence[Sql], neutral: Sql) -> Sql:
    if len(parts) < 2:
        return parts[0] if parts else neutral
    if len(parts) > _WIDEST:
        middle = len(parts) // 2
        parts = [_join(word, half, neutral) for half in (parts[:middle], parts[middle:])]
    joined = _concatenate(word, parts)
    return Sql(f"({joined.text})", joined.params)


def _concatenate(separator: str, parts: Sequence[Sql]) -> Sql:
    return Sql(
        separator.join(part.text for part in parts), tuple(p for part in parts for p in part.params)
    )


# ---- the table ---------------------------------------------------------------------------------------

_PLAIN_NAME: Final = re.compile("[A-Za-z_][A-Za-z0-9_-]{0,62}")


@dataclass(frozen=True, slots=True)
class Layout:
    """The SQL expressions for the parts of a message; by default, columns of their names.

    They become part of the SQL text as they are: they come from the code that owns the table, never from a user.
    """

    headers: str = "headers"
    properties: str = "properties"
    topic: str = "topic"
    priority: str = "priority"
    timestamp: str = "timestamp"
    id: str = "id"
    filter_value: str = "filter_value"
    key: str = "key"

    @classmethod
    def of(cls, table: str) -> Layout:
        """Prefix the columns with a table or alias: `m.headers`, `m.topic` …"""
        return cls(*(f"{table}.{column}" for column in cls.__dataclass_fields__))

    def column(self, field: Field) -> str:
        """Return the column of a system field, or the one whose JSON holds the header or property."""
        match field.scope:
            case "header":
                return self.headers
            case "property":
                return self.properties
            case _:
                column: str = getattr(self, field.name)
                return column


def is_plain_name(name: str) -> bool:
    """Tell whether a header name may be part of SQL text; every other name is bound as a parameter."""
    return _PLAIN_NAME.fullmatch(name) is not None


def headers_json(headers: Mapping[str, HeaderValue]) -> str:
    """Write the canonical JSON of headers or properties: without absent ones, opaque values as null."""
    if not headers:
        return "{}"
    pairs = (
        f"{encode_basestring(name)}:{_value_json(value)}"
        for name, value in headers.items()
        if value is not None
    )
    return "{" + ",".join(pairs) + "}"


def _value_json(value: str | int | float | bool | Opaque) -> str:
    if isinstance(value, str):
        return encode_basestring(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return _float_json(value) if isinstance(value, float) else "null"


def _float_json(value: float) -> str:
    text = repr(value)
    if "e" in text:
        text = format(Decimal(text), "f")
    return text if "." in text else text + ".0"
