"""How a message is cut into columns, so that a filter touches only what it asks about.

Every header becomes up to four typed columns, one for each kind of value it holds somewhere in the batch,
and a fifth that marks where it holds something no filter can compare:

    h.s.region   string          h.i.amount   int64         p.s.subject  (AMQP properties likewise)
    h.f.weight   double          h.b.express  bool          h.o.table    bool, true where it is opaque

A system field is one column under its own name. A column that would be empty is not there at all.
"""

from __future__ import annotations

from typing import Final, Protocol, TypeAlias
from typing import Literal as OneOf

import pyarrow as pa

from headgate.filters.nodes import SYS_KINDS, Field, Kind

View: TypeAlias = Kind | OneOf["opaque"]

VIEWS: Final[tuple[View, ...]] = ("string", "int", "float", "bool", "opaque")
_SCOPE_LETTER: Final = {"header": "h", "property": "p"}


def column_name(field: Field, view: View) -> str:
    """The column that holds this kind of the field's values."""
    if field.scope == "sys":
        return field.name
    return f"{_SCOPE_LETTER[field.scope]}.{view[0]}.{field.name}"


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


class BatchColumns:
    """A record batch whose columns are named as above."""

    __slots__ = ("_at", "batch")

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self._at = {name: i for i, name in enumerate(batch.schema.names)}

    @property
    def num_rows(self) -> int:
        rows: int = self.batch.num_rows
        return rows

    def view(self, field: Field, view: View) -> pa.Array | None:
        if field.scope == "sys" and SYS_KINDS[field.name] != view:
            return None
        at = self._at.get(column_name(field, view))
        return None if at is None else self.batch.column(at)
