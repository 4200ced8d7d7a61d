"""Rows of a Spark schema -> stream columns: what the source does, read backwards.

A plain column beside a `headers` map wins where it is not null: `df.withColumn("region", …)` changes that header.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.columns import column_name
from headgate.filters import Field, Scope, View
from headgate.spark.schema import Column, writing_columns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Arrays = dict[str, pa.Array]
Rows = npt.NDArray[np.int64]

_STORED: Final[dict[View, pa.DataType]] = {
    "string": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "opaque": pa.bool_(),
}
_STRUCT_VIEWS: Final[tuple[View, ...]] = ("string", "int", "float", "bool")


def to_stream_columns(
    batch: pa.RecordBatch, schema: StructType | Sequence[Column]
) -> pa.RecordBatch:
    """The batch as columns of a stream: h.s.region, topic, …; those that are empty are left out."""
    columns = _parsed(schema)
    found: Arrays = {}
    for column, array in zip(columns, batch.columns, strict=True):
        found.update(_system(column, array))
    plain = _plain_fields(columns, batch)
    for name, array in _map_fields(columns, batch):
        winner = _winning(plain, name)
        found[name] = array if winner is None else _where_null(winner, array)
    for name, array in plain.items():
        found[name] = pc.coalesce(array, found[name]) if name in found else array
    filled = {name: array for name, array in found.items() if array.null_count < len(array)}
    if not filled:  # a batch without columns would forget how many rows it has
        filled = {"priority": pa.array(np.zeros(batch.num_rows, np.int64))}
    return pa.RecordBatch.from_arrays(list(filled.values()), list(filled))


def _parsed(schema: StructType | Sequence[Column]) -> Sequence[Column]:
    if isinstance(schema, tuple | list) and all(isinstance(c, Column) for c in schema):
        return schema
    return writing_columns(schema)  # type: ignore[arg-type]


def _system(column: Column, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    if column.holds != "system":
        return
    if column.name == "timestamp":
        array = array.cast(pa.int64())
    if column.name == "payload":
        array = array.cast(pa.binary())
    yield column.name, array


# ---- headers and properties --------------------------------------------------------------------------


def _plain_fields(columns: Sequence[Column], batch: pa.RecordBatch) -> Arrays:
    found: Arrays = {}
    for column, array in zip(columns, batch.columns, strict=True):
        if column.holds != "field" or column.field is None:
            continue
        view = column.views[0]
        name, values = column_name(column.field, view), array.cast(_STORED[view])
        if view == "opaque":
            values = pc.if_else(values, True, None)
        found[name] = pc.coalesce(found[name], values) if name in found else values
    return found


def _map_fields(columns: Sequence[Column], batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
    for column, array in zip(columns, batch.columns, strict=True):
        if column.holds == "values":
            yield from _of_values(column.scope, array)
        elif column.holds == "texts":
            yield from _of_texts(column.scope, array)


def _of_texts(scope: Scope, array: pa.MapArray) -> Iterator[tuple[str, pa.Array]]:
    rows, keys, values = _entries(array)
    for key, entries in _by_key(keys):
        yield column_name(Field(scope, key), "string"), _placed(values, rows, entries, len(array))


def _of_values(scope: Scope, array: pa.MapArray) -> Iterator[tuple[str, pa.Array]]:
    rows, keys, values = _entries(array)
    kinds = dict(zip(_STRUCT_VIEWS, values.flatten(), strict=True))
    none = np.logical_and.reduce([_flags(pc.is_null(kind)) for kind in kinds.values()])
    opaque = pa.array(np.ones(len(values), np.bool_), mask=~(none & _flags(pc.is_valid(values))))
    for key, entries in _by_key(keys):
        field = Field(scope, key)
        for view, kind in (*kinds.items(), ("opaque", opaque)):
            placed = _placed(kind, rows, entries, len(array))
            if placed.null_count < len(array):
                yield column_name(field, view), placed


def _entries(array: pa.MapArray) -> tuple[Rows, pa.Array, pa.Array]:
    """Every entry of every map: the row it is in, its key and its value."""
    starts = array.offsets.to_numpy()
    valid = _flags(pc.is_valid(array))
    lengths = np.diff(starts)
    rows = np.repeat(np.arange(len(array)), lengths)
    first, count = int(starts[0]), int(starts[-1] - starts[0])
    keys, values = array.keys.slice(first, count), array.items.slice(first, count)
    if valid.all():
        return rows, keys, values
    there = pa.array(np.flatnonzero(valid[rows]))
    return rows[valid[rows]], keys.take(there), values.take(there)


def _by_key(keys: pa.Array) -> Iterator[tuple[str, Rows]]:
    """Every distinct key with its entries."""
    encoded = keys.dictionary_encode()
    codes = encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    borders = np.searchsorted(codes[order], np.arange(len(encoded.dictionary) + 1))
    for code, key in enumerate(encoded.dictionary.to_pylist()):
        yield key, order[borders[code] : borders[code + 1]]


def _placed(values: pa.Array, rows: Rows, entries: Rows, count: int) -> pa.Array:
    """The entries' values, each in its row, null in the others."""
    at = np.full(count, -1)
    at[rows[entries]] = entries
    return values.take(pa.array(at, mask=at < 0))


def _winning(plain: Arrays, name: str) -> pa.Array | None:
    """Where a plain column of any kind says what this header is."""
    others = [
        array for other, array in plain.items() if other[0] == name[0] and other[4:] == name[4:]
    ]
    if not others:
        return None
    return pa.array(np.logical_or.reduce([_flags(pc.is_valid(array)) for array in others]))


def _where_null(winner: pa.Array, array: pa.Array) -> pa.Array:
    return pc.if_else(winner, pa.scalar(None, array.type), array)


def _flags(array: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(array.to_numpy(zero_copy_only=False), np.bool_)
