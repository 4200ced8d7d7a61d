"""The columns a filter reads: one for each kind of value a field holds, named after both.

    h.s.region   string          h.i.amount   int64         p.s.subject  (AMQP properties likewise)
    h.f.weight   double          h.b.express  bool          h.o.table    bool, true where it is opaque

A system field is one column under its own name: `topic` and `priority` in every batch, `timestamp`, `id`,
`filter_value` and `key` where some message has one. A column that would be empty is left out.
Headers without a column of their own are in the column `overflow` (see `headgate.columns.overflow`).
"""

from __future__ import annotations

from typing import Final, Protocol, TypeAlias
from typing import Literal as OneOf

import pyarrow as pa

from headgate.filters.nodes import Field, Kind, Scope

View: TypeAlias = Kind | OneOf["opaque"]

VIEWS: Final[tuple[View, ...]] = ("string", "int", "float", "bool", "opaque")
_SCOPE_LETTER: Final = {"header": "h", "property": "p"}


def column_name(field: Field, view: View) -> str:
    """The column that holds this kind of the field's values."""
    scope, name = field.scope, field.name
    return name if scope == "sys" else f"{_SCOPE_LETTER[scope]}.{view[0]}.{name}"


def typed_name(scope: Scope, view: View, name: str) -> str:
    """The column of a header or property, by its name."""
    return f"{_SCOPE_LETTER[scope]}.{view[0]}.{name}"


class Columns(Protocol):
    """What the Arrow target reads: rows of messages, a view at a time."""

    @property
    def num_rows(self) -> int: ...

    def view(self, field: Field, view: View) -> pa.Array | None:
        """The values of that kind, null elsewhere; None when no row holds one.

        A string view may be dictionary-encoded. The opaque view is a boolean array, true where the field
        holds something no filter can compare.
        """
        ...
