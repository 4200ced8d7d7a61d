"""Names of columns: the only place that formats and parses them.

    h.s.region   string          h.i.amount   int64         p.s.subject  (AMQP properties likewise)
    h.f.weight   double          h.b.express  bool          h.o.table    bool, true where the value is opaque

A header or property has one column for each kind of value it holds (a *view*), named by scope, view and name. A system
field is one column under its own name: `topic` and `priority` in every batch, `timestamp`, `id`, `filter_value` and
`key` where some message has one. A column that would be empty is left out. Headers without a column of their own are
in the column `overflow` (see `headgate.columns.overflow`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from headgate.filters import SYS_KINDS, VIEWS, Field, Scope, View
from headgate.message import SYSTEM_FIELDS

# The order of the columns in a file; header columns follow.
SYSTEM_COLUMNS: Final = (
    "offset",
    "timestamp",
    "topic",
    "filter_value",
    "key",
    "priority",
    "id",
    "payload",
)
TEXT_COLUMNS: Final = tuple(field.name for field in SYSTEM_FIELDS if field.kind == "string")
MAX_HEADER_COLUMNS: Final = 128  # headers past it are in the overflow column
_LETTERS: Final[dict[Scope, str]] = {"header": "h", "property": "p"}
_SCOPES: Final[dict[str, Scope]] = {letter: scope for scope, letter in _LETTERS.items()}
_VIEWS: Final[dict[str, View]] = {view[0]: view for view in VIEWS}


def column_name(field: Field, view: View) -> str:
    """Name the column that holds this kind of the field's values."""
    return field.name if field.scope == "sys" else typed_name(field.scope, view, field.name)


def typed_name(scope: Scope, view: View, name: str) -> str:
    """Name the column of a header or property: h.s.region."""
    return f"{_LETTERS[scope]}.{view[0]}.{name}"


def is_typed_name(column: str) -> bool:
    """Tell whether a column belongs to a header or property."""
    return column[1:2] == "." == column[3:4] and column[0] in _SCOPES and column[2] in _VIEWS


def is_header_column(column: str) -> bool:
    """Tell whether a column belongs to a header."""
    return column.startswith("h.") and is_typed_name(column)


@lru_cache(maxsize=8192)
def parse_column_name(column: str) -> tuple[Field | None, View | None]:
    """Return the field and the kind of values a column holds; (None, None) for offset, payload and overflow."""
    if column in SYS_KINDS:
        return Field("sys", column), SYS_KINDS[column]
    if not is_typed_name(column):
        return None, None
    return Field(_SCOPES[column[0]], column[4:]), _VIEWS[column[2]]


def header_of(column: str) -> str:
    """Return the header (or property) that a typed column belongs to."""
    return column[4:]


def view_of(column: str) -> View:
    """Return the view that a typed column holds."""
    return _VIEWS[column[2]]


def field_key(field: Field) -> str:
    """Name a field, whatever kinds it holds: h.region, p.subject, filter_value."""
    return field.name if field.scope == "sys" else f"{_LETTERS[field.scope]}.{field.name}"


def parse_field_key(key: str) -> Field:
    """Return the field of a key that `field_key` returned."""
    return Field(_SCOPES[key[0]], key[2:]) if key[1:2] == "." else Field("sys", key)
