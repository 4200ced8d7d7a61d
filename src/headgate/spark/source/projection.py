"""Stream columns -> plain Arrow batches of exactly the types a Spark schema asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.columns import BatchColumns, join_views, parse_column_name, shred_headers
from headgate.filters import Scope, View
from headgate.spark.schema import Column

BATCH_ROWS: Final = 1 << 14
_SMALL: Final = 1 << 12

Rows = npt.NDArray[np.int64]
_LIMITS: Final = {"int": 31, "smallint": 15, "tinyint": 7}
_STRUCT: Final[tuple[tuple[View, pa.DataType], ...]] = (
    ("string", pa.string()),
    ("int", pa.int64()),
    ("float", pa.float64()),
    ("bool", pa.bool_()),
)


class Projection:
    """Makes batches of one schema. `required` names columns that no row of the answer has null."""

    def __init__(
        self, columns: Sequence[Column], schema: pa.Schema, required: frozenset[str] = frozenset()
    ) -> None:
        self.columns, self.schema, self.required = columns, schema, required

    def batch(self, batch: pa.RecordBatch, stream: str = "") -> pa.RecordBatch:
        """A batch of stream columns as a batch of this schema."""
        source = Source(batch, stream)
        arrays = [
            _ARRAY_OF[column.holds](source, column, field.type)
            for column, field in zip(self.columns, self.schema, strict=True)
        ]
        made = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return self._without_nulls(made) if self.required else made

    def _without_nulls(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for name in self.required:
            column = batch.column(name)
            if column.null_count:
                batch = batch.filter(column.is_valid())
        return batch


def evened(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, short batches put together and long ones cut: each costs Spark a fixed price."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if rows + batch.num_rows > BATCH_ROWS and waiting:
            yield _put_together(waiting)
            waiting, rows = [], 0
        if batch.num_rows > BATCH_ROWS:
            yield from _cut(batch)
        elif batch.num_rows:
            waiting.append(batch)
            rows += batch.num_rows
        if rows >= _SMALL:
            yield _put_together(waiting)
            waiting, rows = [], 0
    if waiting:
        yield _put_together(waiting)


def _put_together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, BATCH_ROWS):
        yield batch.slice(start, BATCH_ROWS)


# ---- one column --------------------------------------------------------------------------------------


class Source:
    """A batch of stream columns, and the stream it is from."""

    def __init__(self, batch: pa.RecordBatch, stream: str) -> None:
        self.batch, self.stream = batch, stream
        self.columns = BatchColumns(batch)

    def column(self, name: str) -> pa.Array | None:
        array = self.columns.column(name)
        return None if array is None else _plain(array)

    def view(self, column: Column, view: View) -> pa.Array | None:
        """The values of one kind of the column's field, wherever they are kept."""
        assert column.field is not None
        found = self.columns.view(column.field, view)
        if found is None:
            return None
        return pc.if_else(found, True, None) if view == "opaque" else _plain(found)


def _plain(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _nulls(source: Source, kind: pa.DataType) -> pa.Array:
    return pa.nulls(source.batch.num_rows, kind)


def _system(source: Source, column: Column, kind: pa.DataType) -> pa.Array:
    found = source.column(column.name)
    return (
        _nulls(source, kind) if found is None else found if found.type == kind else found.cast(kind)
    )


def _stream(source: Source, column: Column, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(source.stream, kind), source.batch.num_rows)


def _field(source: Source, column: Column, kind: pa.DataType) -> pa.Array:
    views = (source.view(column, view) for view in column.views)
    found = [_fitted(array, column.type, kind) for array in views if array is not None]
    if not found:
        return _nulls(source, kind)
    return found[0] if len(found) == 1 else pc.coalesce(*found)


def _fitted(array: pa.Array, type_: str, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if type_ in _LIMITS:
        least, most = -(1 << _LIMITS[type_]), (1 << _LIMITS[type_]) - 1
        fits = pc.and_(pc.greater_equal(array, least), pc.less_equal(array, most))
        array = pc.if_else(fits, array, pa.scalar(None, array.type))
    return array.cast(kind, safe=False)  # an integer as the nearest double


# ---- all headers in one map --------------------------------------------------------------------------


class Part(NamedTuple):
    """One kind of one header: the rows that have it, and its values there."""

    name: str
    view: View
    rows: Rows
    values: pa.Array


def _parts(source: Source, scope: Scope) -> list[Part]:
    """Every kind of every header, by name."""
    columns = dict(zip(source.batch.schema.names, source.batch.columns, strict=True))
    overflow = source.columns.overflow
    if scope == "header" and overflow is not None:
        for name, array in shred_headers(overflow.rows).items():
            view = parse_column_name(name)[1] or "string"
            columns[name] = join_views(columns.get(name), array, view)
    found = (_part(name, array, scope) for name, array in columns.items())
    filled = [part for part in found if part is not None and len(part.rows)]
    return sorted(filled, key=lambda part: part.name)


def _part(name: str, array: pa.Array, scope: Scope) -> Part | None:
    field, view = parse_column_name(name)
    if field is None or view is None or field.scope != scope:
        return None
    array = _plain(array)
    there = array.fill_null(False) if view == "opaque" else array.is_valid()
    rows = np.flatnonzero(there.to_numpy(zero_copy_only=False))
    values = array if len(rows) == len(array) else array.take(pa.array(rows))
    return Part(field.name, view, rows, values)


def _values(source: Source, column: Column, kind: pa.DataType) -> pa.Array:
    parts = _parts(source, column.scope)
    fields = [
        _laid_out([_only(part, view, type_) for part in parts], type_) for view, type_ in _STRUCT
    ]
    structs = pa.StructArray.from_arrays(fields, fields=list(kind.item_type))
    return _mapped(parts, structs, source.batch.num_rows, kind)


def _only(part: Part, view: View, type_: pa.DataType) -> pa.Array:
    return part.values if part.view == view else pa.nulls(len(part.rows), type_)


def _texts(source: Source, column: Column, kind: pa.DataType) -> pa.Array:
    parts = _parts(source, column.scope)
    texts = _laid_out([_text(part) for part in parts], pa.string())
    return _mapped(parts, texts, source.batch.num_rows, kind)


def _text(part: Part) -> pa.Array:
    if part.view == "opaque":
        return pa.nulls(len(part.rows), pa.string())
    return part.values.cast(pa.string())


def _laid_out(arrays: list[pa.Array], kind: pa.DataType) -> pa.Array:
    return pa.concat_arrays(arrays) if arrays else pa.array([], kind)


def _mapped(parts: list[Part], values: pa.Array, count: int, kind: pa.DataType) -> pa.Array:
    """A map for every row, out of all entries one part after the other."""
    rows = np.concatenate([np.zeros(0, np.int64), *(part.rows for part in parts)])
    names = np.repeat(np.arange(len(parts)), [len(part.rows) for part in parts])
    order = np.argsort(rows, kind="stable")
    starts = np.searchsorted(rows[order], np.arange(count + 1))
    keys = pa.array([part.name for part in parts], pa.string()).take(pa.array(names[order]))
    return pa.MapArray.from_arrays(
        pa.array(starts, pa.int32()), keys, values.take(pa.array(order)), kind
    )


_ARRAY_OF: Final[dict[str, Callable[[Source, Column, pa.DataType], pa.Array]]] = {
    "offset": _system,
    "system": _system,
    "standing": _system,
    "stream": _stream,
    "field": _field,
    "values": _values,
    "texts": _texts,
}
