"""Where a table keeps a message, and how headers are written into it.

Headers and properties are one JSON object each: text on SQLite, `jsonb` on PostgreSQL. The text keeps the four
kinds apart: an integer is digits, a float always has a point and never an exponent, so neither engine can take
one for the other, and both read back the very double that was written (SQLite from 3.53 on).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Final

from headgate.filters.nodes import Field
from headgate.message import HeaderValue, Opaque

_PLAIN_NAME: Final = re.compile("[A-Za-z_][A-Za-z0-9_-]{0,62}")


@dataclass(frozen=True, slots=True)
class Layout:
    """The SQL expressions that hold the parts of a message; by default, columns of their names.

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
        """The columns of a table or alias: `m.headers`, `m.topic` …"""
        return cls(*(f"{table}.{column}" for column in cls.__dataclass_fields__))

    def column(self, field: Field) -> str:
        """The column of a system field, or the one whose JSON holds the header or property."""
        match field.scope:
            case "header":
                return self.headers
            case "property":
                return self.properties
            case _:
                column: str = getattr(self, field.name)
                return column


def is_plain_name(name: str) -> bool:
    """Whether a header name may be part of SQL text; every other name is bound as a parameter."""
    return _PLAIN_NAME.fullmatch(name) is not None


def headers_json(headers: Mapping[str, HeaderValue]) -> str:
    """The canonical JSON of headers or properties: absent ones left out, what is no scalar as null."""
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
