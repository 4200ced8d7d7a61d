"""Rows of a Spark schema -> stream columns: the inverse of the source's projection.

A plain column beside a `headers` map takes precedence where it is not null: `df.withColumn("region", …)` changes that
header.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.columns import column_name, parse_column_name
from headgate.filters import Field, Scope, View
from headgate.spark.schema import SchemaColumn, writing_columns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_Arrays = dict[str, pa.Array]
_RowNumbers = npt.NDArray[np.int64]

_STORED: Final[dict[View, pa.DataType]] = {
    "string": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "opaque": pa.bool_(),
}
_STRUCT_VIEWS: Final[tuple[View, ...]] = ("string", "int", "float", "bool")


def to_stream_columns(
    batch: pa.RecordBatch, schema: StructType | Sequence[SchemaColumn]
) -> pa.RecordBatch:
    """Convert the batch to columns of a stream: h.s.region, topic, …; empty columns are left out."""
    columns = _parse_schema(schema)
    composed: _Arrays = {}
    for column, array in zip(columns, batch.columns, strict=True):
        composed.update(_system(column, array))
    plain = _plain_fields(columns, batch)
    for name, array in _map_fields(columns, batch):
        overridden = _overridden(plain, name)
        composed[name] = array if overridden is None else _clear(overridden, array)
    for name, array in plain.items():
        composed[name] = pc.coalesce(array, composed[name]) if name in composed else array
    filled = {name: array for name, array in composed.items() if array.null_count < len(array)}
    if not filled:  # a batch without columns has no number of rows
        filled = {"priority": pa.array(np.zeros(batch.num_rows, np.int64))}
    return pa.RecordBatch.from_arrays(list(filled.values()), list(filled))


def _parse_schema(schema: StructType | Sequence[SchemaColumn]) -> Sequence[SchemaColumn]:
    if isinstance(schema, tuple | list) and all(isinstance(c, SchemaColumn) for c in schema):
        return schema
    return writing_columns(schema)  # type: ignore[arg-type]


def _system(column: SchemaColumn, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    if column.holds != "system":
        return
    if column.name == "timestamp":
        array = array.cast(pa.int64())
    if column.name == "payload":
        array = array.cast(pa.binary())
    yield column.name, array


# ---- headers and properties --------------------------------------------------------------------------


def _plain_fields(columns: Sequence[SchemaColumn], batch: pa.RecordBatch) -> _Arrays:
    plain: _Arrays = {}
    for column, array in zip(columns, batch.columns, strict=True):
        if column.holds != "field" or column.field is None:
            continue
        view = column.views[0]
        name, values = column_name(column.field, view), array.cast(_STORED[view])
        if view == "opaque":
            values = pc.if_else(values, True, None)
        plain[name] = pc.coalesce(plain[name], values) if name in plain else values
    return plain


def _map_fields(
    columns: Sequence[SchemaColumn], batch: pa.RecordBatch
) -> Iterator[tuple[str, pa.Array]]:
    for column, array in zip(columns, batch.columns, strict=True):
        if column.holds == "values":
            yield from _value_fields(column.scope, array)
        elif column.holds == "texts":
            yield from _text_fields(column.scope, array)


def _text_fields(scope: Scope, array: pa.MapArray) -> Iterator[tuple[str, pa.Array]]:
    rows, keys, values = _entries(array)
    for key, entries in _by_key(keys):
        yield (
            column_name(Field(scope, key), "string"),
            _place_values(values, rows, entries, len(array)),
        )


def _value_fields(scope: Scope, array: pa.MapArray) -> Iterator[tuple[str, pa.Array]]:
    rows, keys, values = _entries(array)
    kinds = dict(zip(_STRUCT_VIEWS, values.flatten(), strict=True))
    none = np.logical_and.reduce([_flags(pc.is_null(kind)) for kind in kinds.values()])
    opaque = pa.array(np.ones(len(values), np.bool_), mask=~(none & _flags(pc.is_valid(values))))
    for key, entries in _by_key(keys):
        field = Field(scope, key)
        for view, kind in (*kinds.items(), ("opaque", opaque)):
            column = _place_values(kind, rows, entries, len(array))
            if column.null_count < len(array):
                yield column_name(field, view), column


def _entries(array: pa.MapArray) -> tuple[_RowNumbers, pa.Array, pa.Array]:
    """Every entry of every map: the row it is in, its key and its value."""
    starts = array.offsets.to_numpy()
    valid = _flags(pc.is_valid(array))
    lengths = np.diff(starts)
    rows = np.repeat(np.arange(len(array)), lengths)
    first, count = int(starts[0]), int(starts[-1] - starts[0])
    keys, values = array.keys.slice(first, count), array.items.slice(first, count)
    if valid.all():
        return rows, keys, values
    kept = pa.array(np.flatnonzero(valid[rows]))
    return rows[valid[rows]], keys.take(kept), values.take(kept)


def _by_key(keys: pa.Array) -> Iterator[tuple[str, _RowNumbers]]:
    """Every distinct key with its entries."""
    encoded = keys.dictionary_encode()
    codes = encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    borders = np.searchsorted(codes[order], np.arange(len(encoded.dictionary) + 1))
    for code, key in enumerate(encoded.dictionary.to_pylist()):
        yield key, order[borders[code] : borders[code + 1]]


def _place_values(
    values: pa.Array, rows: _RowNumbers, entries: _RowNumbers, count: int
) -> pa.Array:
    """A column with the entries' values in their rows, and null in the others."""
    at = np.full(count, -1)
    at[rows[entries]] = entries
    return values.take(pa.array(at, mask=at < 0))


def _overridden(plain: _Arrays, name: str) -> pa.Array | None:
    """The rows in which a plain column of any kind sets this header; None when there is no such column."""
    field = parse_column_name(name)[0]
    others = [array for other, array in plain.items() if parse_column_name(other)[0] == field]
    if not others:
        return None
    return pa.array(np.logical_or.reduce([_flags(pc.is_valid(array)) for array in others]))


def _clear(rows: pa.Array, array: pa.Array) -> pa.Array:
    return pc.if_else(rows, pa.scalar(None, array.type), array)


def _flags(array: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(array.to_numpy(zero_copy_only=False), np.bool_)
