"""Columns -> messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from headgate.columns import overflow
from headgate.columns.names import parse_column_name
from headgate.filters import SYS_KINDS
from headgate.message import OPAQUE, HeaderValue, Message, message_of_fields

_FIELDS: Final = ("payload", *SYS_KINDS)
_OTHERWISE: Final[dict[str, Any]] = {"payload": b"", "topic": "", "priority": 0}


class Record(NamedTuple):
    """A message and where it stands in its stream."""

    offset: int
    message: Message


def decode(batch: pa.RecordBatch) -> list[Message]:
    """The messages of a batch whose columns are named as in a chunk; what has no column is left at its default."""
    count = batch.num_rows
    of = {name: _values(batch, name, count) for name in _FIELDS}
    headers, properties = _typed(batch, "header"), _typed(batch, "property")
    return [
        message_of_fields(payload, topic, of_header, priority, stamped, id_, filter_value, key, of_property)
        for payload, topic, of_header, priority, stamped, id_, filter_value, key, of_property in zip(
            of["payload"], of["topic"], headers, of["priority"], of["timestamp"],
            of["id"], of["filter_value"], of["key"], properties, strict=True,
        )
    ]  # fmt: skip


def decode_records(batch: pa.RecordBatch) -> list[Record]:
    """The messages of a batch with their offsets."""
    return list(map(Record, values_of(batch.column("offset")), decode(batch)))


def values_of(array: pa.Array) -> list[Any]:
    """What `to_pylist` gives, many times faster."""
    if isinstance(array, pa.DictionaryArray):
        words = [*values_of(array.dictionary), None]
        codes = array.indices.fill_null(-1) if array.null_count else array.indices
        return [words[code] for code in codes.to_numpy().tolist()]
    if not array.null_count or pa.types.is_string(array.type) or pa.types.is_binary(array.type):
        return _listed(array)
    values = _listed(array.fill_null(False if pa.types.is_boolean(array.type) else 0))
    for row in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist():
        values[row] = None
    return values


def _listed(array: pa.Array) -> list[Any]:
    values: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
    return values


def _values(batch: pa.RecordBatch, name: str, count: int) -> Sequence[Any]:
    at = batch.schema.get_field_index(name)
    return [_OTHERWISE.get(name)] * count if at < 0 else values_of(batch.column(at))


def _typed(batch: pa.RecordBatch, scope: str) -> list[dict[str, HeaderValue]]:
    """The headers, or the properties, of every row."""
    rows: list[dict[str, HeaderValue]] = [{} for _ in range(batch.num_rows)]
    for column, array in zip(batch.schema.names, batch.columns, strict=True):
        field, view = parse_column_name(column)
        if field is not None and field.scope == scope:
            values = values_of(array)
            _put(rows, field.name, _opaque(values) if view == "opaque" else values)
    at = batch.schema.get_field_index(overflow.OVERFLOW)
    if scope == "header" and at >= 0:
        for row, rest in zip(rows, overflow.overflowing(batch.column(at)), strict=True):
            row.update(rest)
    return rows


def _put(rows: list[dict[str, HeaderValue]], name: str, values: Iterable[HeaderValue]) -> None:
    for row, value in zip(rows, values, strict=True):
        if value is not None:
            row[name] = value


def _opaque(marks: Sequence[bool | None]) -> list[HeaderValue]:
    return [OPAQUE if mark else None for mark in marks]
