"""Columns -> messages, and one header of a batch at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from headgate.columns.names import column_name, parse_column_name
from headgate.columns.overflow import OVERFLOW, Overflow, read_overflow
from headgate.filters import SYS_KINDS, Field, View
from headgate.message import OPAQUE, HeaderValue, Message, message_of_fields

_FIELDS: Final = ("payload", *SYS_KINDS)
_DEFAULTS: Final[dict[str, Any]] = {"payload": b"", "topic": "", "priority": 0}


class BatchColumns:
    """A record batch of shredded messages (see `columns.names`), read one view of one field at a time."""

    __slots__ = ("_schema", "batch", "overflow")

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch, self._schema = batch, batch.schema
        array = self.column(OVERFLOW)
        empty = array is None or array.null_count == len(array)
        self.overflow = None if empty else Overflow(array)

    @property
    def num_rows(self) -> int:
        rows: int = self.batch.num_rows
        return rows

    def view(self, field: Field, view: View) -> pa.Array | None:
        """Return the values of a field that are of this kind, null elsewhere; None when no row holds one."""
        if field.scope == "sys" and SYS_KINDS[field.name] != view:
            return None
        at = self._schema.get_field_index(column_name(field, view))
        array = None if at < 0 else self.batch.column(at)
        if self.overflow is None or field.scope != "header":
            return array
        return self.overflow.complete_view(array, field.name, view)

    def column(self, name: str) -> pa.Array | None:
        """Return the column of this name; None when the batch has none."""
        at = self._schema.get_field_index(name)
        return None if at < 0 else self.batch.column(at)


class Record(NamedTuple):
    """A message and its offset in the stream."""

    offset: int
    message: Message


def decode_messages(batch: pa.RecordBatch) -> list[Message]:
    """Make the messages of a batch whose columns are named as in a chunk; a field without a column has its default."""
    count = batch.num_rows
    of = {name: _field_values(batch, name, count) for name in _FIELDS}
    headers, properties = _typed_values(batch, "header"), _typed_values(batch, "property")
    return [
        message_of_fields(payload, topic, of_header, priority, stamped, id_, filter_value, key, of_property)
        for payload, topic, of_header, priority, stamped, id_, filter_value, key, of_property in zip(
            of["payload"], of["topic"], headers, of["priority"], of["timestamp"],
            of["id"], of["filter_value"], of["key"], properties, strict=True,
        )
    ]  # fmt: skip


def decode_records(batch: pa.RecordBatch) -> list[Record]:
    """Make the messages of a batch, with their offsets."""
    return list(map(Record, list_values(batch.column("offset")), decode_messages(batch)))


def list_values(array: pa.Array) -> list[Any]:
    """Return what `to_pylist` returns, many times faster."""
    if isinstance(array, pa.DictionaryArray):
        if len(array.dictionary) > len(array):
            return list_values(array.dictionary_decode())
        words = [*list_values(array.dictionary), None]
        codes = array.indices.fill_null(-1) if array.null_count else array.indices
        return [words[code] for code in codes.to_numpy().tolist()]
    if not array.null_count or pa.types.is_string(array.type) or pa.types.is_binary(array.type):
        return _list_numpy(array)
    values = _list_numpy(array.fill_null(False if pa.types.is_boolean(array.type) else 0))
    for row in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist():
        values[row] = None
    return values


def _list_numpy(array: pa.Array) -> list[Any]:
    values: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
    return values


def _field_values(batch: pa.RecordBatch, name: str, count: int) -> Sequence[Any]:
    at = batch.schema.get_field_index(name)
    return [_DEFAULTS.get(name)] * count if at < 0 else list_values(batch.column(at))


def _typed_values(batch: pa.RecordBatch, scope: str) -> list[dict[str, HeaderValue]]:
    """Collect the headers, or the properties, of every row."""
    rows: list[dict[str, HeaderValue]] = [{} for _ in range(batch.num_rows)]
    for column, array in zip(batch.schema.names, batch.columns, strict=True):
        field, view = parse_column_name(column)
        if field is not None and field.scope == scope:
            values = list_values(array)
            _put(rows, field.name, _opaque_values(values) if view == "opaque" else values)
    at = batch.schema.get_field_index(OVERFLOW)
    if scope == "header" and at >= 0:
        for row, rest in zip(rows, read_overflow(batch.column(at)), strict=True):
            row.update(rest)
    return rows


def _put(rows: list[dict[str, HeaderValue]], name: str, values: Iterable[HeaderValue]) -> None:
    for row, value in zip(rows, values, strict=True):
        if value is not None:
            row[name] = value


def _opaque_values(marks: Sequence[bool | None]) -> list[HeaderValue]:
    return [OPAQUE if mark else None for mark in marks]
