"""Plain columns: one Arrow schema for all batches, as DuckDB, Polars and pandas expect it.

A stream's own columns differ from batch to batch, and hold one kind of value each (`columns.names`). A plain column is

    offset int64, timestamp timestamp[us, UTC], topic, filter_value, key, id string, priority uint8, payload binary
    region string                  the header of that name, if all its values are of one kind
    h.s.amount, h.i.amount, …      one kind of a header that holds several, or that has the name of a field
    p.s.subject, …                 a property

A value of another kind than its column is null there; but a column of doubles shows integers, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headgate.columns.decode import BatchColumns
from headgate.columns.names import (
    SYSTEM_COLUMNS,
    column_name,
    is_typed_name,
    parse_column_name,
    typed_name,
)
from headgate.columns.overflow import OVERFLOW
from headgate.errors import InvalidMessage, StreamOptionsError
from headgate.filters import Field, View
from headgate.message import check_header_name

PlainSchema: TypeAlias = pa.Schema | Mapping[str, pa.DataType]

_TEXT: Final = (pa.string(), pa.large_string(), pa.string_view())
_MOMENT: Final = pa.timestamp("us", "UTC")
# The types of each field of a message, the default first.
_SYSTEM_TYPES: Final[dict[str, tuple[pa.DataType, ...]]] = {
    "offset": (pa.int64(),),
    "timestamp": (_MOMENT, pa.int64()),
    "topic": _TEXT,
    "filter_value": _TEXT,
    "key": _TEXT,
    "priority": (pa.uint8(), pa.int64(), pa.int32(), pa.int16()),
    "id": _TEXT,
    "payload": (pa.binary(), pa.large_binary(), pa.binary_view()),
}
_VIEW_TYPES: Final[dict[View, tuple[pa.DataType, ...]]] = {
    "string": _TEXT,
    "int": (pa.int64(),),
    "float": (pa.float64(),),
    "bool": (pa.bool_(),),
    "opaque": (pa.bool_(),),
}
_HEADER_VIEWS: Final[dict[pa.DataType, tuple[View, ...]]] = {
    **dict.fromkeys(_TEXT, ("string",)),
    pa.int64(): ("int",),
    pa.float64(): ("float", "int"),
    pa.bool_(): ("bool",),
}


@dataclass(frozen=True, slots=True)
class PlainColumn:
    """One column of a plain schema: a field of the message, or some kinds of a header or property."""

    name: str
    type: pa.DataType
    field: Field | None = None  # None: offset and payload, which no filter knows
    views: tuple[View, ...] = ()

    def stored(self) -> Iterator[str]:
        """Yield the columns of a stream that hold the values of this column."""
        if self.field is None or self.field.scope == "sys":
            yield self.name
            return
        yield from (column_name(self.field, view) for view in self.views)
        if self.field.scope == "header":
            yield OVERFLOW

    def read(self, columns: BatchColumns) -> pa.Array:
        """Return the values of this column in a batch of a stream."""
        arrays = [_cast(array, self.type) for array in self._arrays(columns)]
        if not arrays:
            return pa.nulls(columns.num_rows, self.type)
        return arrays[0] if len(arrays) == 1 else pc.coalesce(*arrays)

    def _arrays(self, columns: BatchColumns) -> Iterator[pa.Array]:
        if self.field is None or self.field.scope == "sys":
            if (array := columns.column(self.name)) is not None:
                yield array
            return
        for view in self.views:
            if (array := columns.view(self.field, view)) is not None:
                yield array


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.type == kind:
        return array
    return array.cast(kind, safe=False)  # an integer becomes the nearest double


def plain_columns(schema: PlainSchema) -> tuple[PlainColumn, ...]:
    """Return what the columns of a schema mean; refuse those that cannot be filled."""
    if not isinstance(schema, pa.Schema | Mapping):
        raise StreamOptionsError(
            f'schema: give the type of each column, for example {{"region": pyarrow.string()}}, not {schema!r}'
        )
    named = (
        zip(schema.names, schema.types, strict=True)
        if isinstance(schema, pa.Schema)
        else schema.items()
    )
    columns = tuple(_plain_column(name, kind) for name, kind in named)
    names = [column.name for column in columns]
    if not names or len(set(names)) < len(names):
        raise StreamOptionsError(f"schema: give each column once, and at least one, not {names}")
    return columns


def _plain_column(name: str, kind: pa.DataType) -> PlainColumn:
    field, view = parse_column_name(name)
    if name in _SYSTEM_TYPES:
        return PlainColumn(name, _check_type(name, kind, _SYSTEM_TYPES[name]), field)
    if field is not None and view is not None:
        return PlainColumn(name, _check_type(name, kind, _VIEW_TYPES[view]), field, (view,))
    try:
        check_header_name(name)
    except InvalidMessage as problem:
        raise StreamOptionsError(f"schema: {problem}") from None
    kind = _check_type(name, kind, (pa.string(), pa.int64(), pa.float64(), pa.bool_(), *_TEXT))
    return PlainColumn(name, kind, Field("header", name), _HEADER_VIEWS[kind])


def _check_type(name: str, kind: object, known: Collection[pa.DataType]) -> pa.DataType:
    """Return the type, also if only its name was given; refuse one that is not among the known ones."""
    for type in known:
        if type == kind:
            return type
    types = ", ".join(dict.fromkeys(map(str, known)))
    raise StreamOptionsError(f"schema: {name!r} can be {types}, not {kind}")


def typed_schema(stored: Iterable[str]) -> pa.Schema:
    """Return a schema of these columns of a stream, under their own names."""
    names = dict.fromkeys(["offset", *stored])
    return pa.schema([(name, _stored_type(name)) for name in names])


def _stored_type(name: str) -> pa.DataType:
    if name in _SYSTEM_TYPES:
        return _SYSTEM_TYPES[name][0]
    view = parse_column_name(name)[1]
    if view is None:
        raise StreamOptionsError(
            f"columns: {name!r} has no plain form; name the headers in it instead: h.s.…, h.i.…"
        )
    return _VIEW_TYPES[view][0]


def plain_schema(stored: Iterable[str], reserved: Collection[str] = ()) -> pa.Schema:
    """Return a schema with every header and property that is stored in these columns."""
    kinds: dict[Field, list[View]] = {}
    for name in sorted(stored):
        field, view = parse_column_name(name)
        if field is not None and view is not None and field.scope != "sys":
            kinds.setdefault(field, []).append(view)
    found = {name: types[0] for name, types in _SYSTEM_TYPES.items()}
    for field, views in kinds.items():
        taken = field.scope != "header" or field.name in (*SYSTEM_COLUMNS, OVERFLOW, *reserved)
        if len(views) == 1 and views != ["opaque"] and not taken and not is_typed_name(field.name):
            found[field.name] = _VIEW_TYPES[views[0]][0]
        else:
            found |= {
                typed_name(field.scope, view, field.name): _VIEW_TYPES[view][0] for view in views
            }
    return pa.schema(list(found.items()))


def stored_columns(columns: Iterable[PlainColumn]) -> tuple[str, ...]:
    """Return the columns of a stream that these plain ones are made of."""
    return tuple(dict.fromkeys(name for column in columns for name in column.stored()))


def project_batch(batch: pa.RecordBatch, columns: Collection[PlainColumn]) -> pa.RecordBatch:
    """Turn a batch of a stream into one of these plain columns."""
    source = BatchColumns(batch)
    fields = [pa.field(column.name, column.type) for column in columns]
    arrays = [column.read(source) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
