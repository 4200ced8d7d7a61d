"""How a message is cut into columns, so that a filter touches only what it asks about.

Every header becomes up to four typed columns, one for each kind of value it holds somewhere in the batch,
and a fifth that marks where it holds something no filter can compare:

    h.s.region   string          h.i.amount   int64         p.s.subject  (AMQP properties likewise)
    h.f.weight   double          h.b.express  bool          h.o.table    bool, true where it is opaque

A system field is one column under its own name: `topic` and `priority` in every batch, `timestamp`, `id`,
`filter_value` and `key` where some message has one. A column that would be empty is not there at all.
Headers that have no column of their own are in the column `overflow` (see `headgate.columns.overflow_views`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import pyarrow as pa

from headgate.columns.arrays import (
    ARRAY_OF,
    byte_array,
    encoded_text,
    int_array,
    marks,
    plain_text,
    text_array,
    values_of_type,
)
from headgate.columns.names import typed_name
from headgate.columns.transposed import ABSENT, Column, Transposed, by_name, transpose
from headgate.columns.validate import validate_transposed
from headgate.filters import KIND_OF, Scope, View
from headgate.message import HeaderValue, Message, validate

_COMPARABLE: Final = frozenset(KIND_OF)
_OPTIONAL_FIELDS: Final[dict[str, Callable[[Column], pa.Array]]] = {
    "timestamp": int_array,
    "id": plain_text,  # an id that repeats is no id: not worth looking for a dictionary
    "filter_value": text_array,
    "key": text_array,
}


def shred(messages: Sequence[Message]) -> pa.RecordBatch:
    """The messages as columns, payloads left out. Refuses only what no column could hold."""
    return _shredded(transpose(messages), messages)


def shred_valid(messages: Sequence[Message]) -> pa.RecordBatch:
    """What `validate_batch` and `shred` do, for the price of one look at the messages."""
    columns = transpose(messages)
    validate_transposed(columns, messages)
    return _shredded(columns, messages)


def shred_headers(
    rows: Sequence[Mapping[str, HeaderValue]],
    scope: Scope = "header",
    only: Collection[str] | None = None,
) -> dict[str, pa.Array]:
    """The typed columns of the headers (or properties) of many messages, by column name."""
    return shred_columns(by_name(rows, only), scope)


def shred_columns(columns: Mapping[str, Column], scope: Scope = "header") -> dict[str, pa.Array]:
    """The same for headers that are transposed already."""
    return {
        typed_name(scope, view, name): array
        for name, column in columns.items()
        for view, array in typed_views(column).items()
    }


def _shredded(columns: Transposed, messages: Sequence[Message]) -> pa.RecordBatch:
    try:
        arrays = {
            **_system_columns(columns),
            **shred_columns(columns.headers, "header"),
            **shred_columns(columns.properties, "property"),
        }
    except (TypeError, ValueError, OverflowError):
        for message in messages:
            validate(message)  # says which message, which field, and what to do
        raise
    return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


def _system_columns(columns: Transposed) -> dict[str, pa.Array]:
    arrays = {
        "topic": encoded_text(columns.topic),
        "priority": byte_array(columns.priority.values),
    }
    for name, array_of in _OPTIONAL_FIELDS.items():
        column: Column = getattr(columns, name)
        if not column.types <= ABSENT:
            arrays[name] = array_of(column)
    return arrays


def typed_views(column: Column) -> dict[View, pa.Array]:
    """One array for each kind of value that occurs, and the opaque marks if something else does."""
    views: dict[View, pa.Array] = {
        kind: ARRAY_OF[kind](values_of_type(column, type_))
        for type_, kind in KIND_OF.items()
        if type_ in column.types
    }
    if not column.types <= _COMPARABLE | ABSENT:
        views["opaque"] = marks(column)
    return views
