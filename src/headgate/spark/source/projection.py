"""Stream columns -> plain Arrow batches with exactly the types of a Spark schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.columns import BatchColumns, join_views, parse_column_name, shred_headers
from headgate.filters import Scope, View
from headgate.spark.schema import SchemaColumn

BATCH_ROWS: Final = 1 << 14
_SMALL: Final = 1 << 12

_RowNumbers = npt.NDArray[np.int64]
_LIMITS: Final = {"int": 31, "smallint": 15, "tinyint": 7}
_STRUCT: Final[tuple[tuple[View, pa.DataType], ...]] = (
    ("string", pa.string()),
    ("int", pa.int64()),
    ("float", pa.float64()),
    ("bool", pa.bool_()),
)


class Projection:
    """Makes batches of one schema. Rows with a null in a `required` column are left out."""

    def __init__(
        self,
        columns: Sequence[SchemaColumn],
        schema: pa.Schema,
        required: frozenset[str] = frozenset(),
    ) -> None:
        self.columns, self.schema, self.required = columns, schema, required

    def batch(self, batch: pa.RecordBatch, stream: str = "") -> pa.RecordBatch:
        """Convert a batch of stream columns to this schema."""
        source = SourceBatch(batch, stream)
        arrays = [
            _ARRAY_OF[column.holds](source, column, field.type)
            for column, field in zip(self.columns, self.schema, strict=True)
        ]
        projected = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return self._drop_nulls(projected) if self.required else projected

    def _drop_nulls(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for name in self.required:
            column = batch.column(name)
            if column.null_count:
                batch = batch.filter(column.is_valid())
        return batch


def even_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join short batches and split long ones, since each batch costs Spark a fixed price."""
    for batch in join_short(batches):
        yield from _split(batch)


def join_short(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join short batches of one schema. A column of codes has one dictionary in all of them."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if waiting and rows + batch.num_rows > BATCH_ROWS:
            yield _join(waiting)
            waiting, rows = [], 0
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= _SMALL:
            yield _join(waiting)
            waiting, rows = [], 0
    if waiting:
        yield _join(waiting)


def _join(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    columns = zip(*(batch.columns for batch in batches), strict=True)
    return pa.RecordBatch.from_arrays(list(map(_concat_codes, columns)), schema=batches[0].schema)


def _concat_codes(arrays: Sequence[pa.Array]) -> pa.Array:
    # Arrow itself would compare the words of every dictionary.
    if isinstance(arrays[0], pa.DictionaryArray):
        codes = pa.concat_arrays([array.indices for array in arrays])
        return pa.DictionaryArray.from_arrays(codes, arrays[0].dictionary, safe=False)
    return pa.concat_arrays(arrays)


def _split(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, BATCH_ROWS):
        yield batch.slice(start, BATCH_ROWS)


# ---- one column --------------------------------------------------------------------------------------


class SourceBatch:
    """A batch of stream columns, and the stream or queue it was read from."""

    def __init__(self, batch: pa.RecordBatch, stream: str) -> None:
        self.batch, self.stream = batch, stream
        self.columns = BatchColumns(batch)

    def column(self, name: str) -> pa.Array | None:
        array = self.columns.column(name)
        return None if array is None else _decode(array)

    def view(self, column: SchemaColumn, view: View) -> pa.Array | None:
        """The values of one kind of the column's field, from its own column or the overflow."""
        assert column.field is not None
        values = self.columns.view(column.field, view)
        if values is None:
            return None
        return pc.if_else(values, True, None) if view == "opaque" else _decode(values)


def _decode(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _nulls(source: SourceBatch, kind: pa.DataType) -> pa.Array:
    return pa.nulls(source.batch.num_rows, kind)


def _system_array(source: SourceBatch, column: SchemaColumn, kind: pa.DataType) -> pa.Array:
    array = source.column(column.name)
    if array is None:
        return _nulls(source, kind)
    return array if array.type == kind else array.cast(kind)


def _stream_array(source: SourceBatch, column: SchemaColumn, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(source.stream, kind), source.batch.num_rows)


def _field_array(source: SourceBatch, column: SchemaColumn, kind: pa.DataType) -> pa.Array:
    views = (source.view(column, view) for view in column.views)
    arrays = [_cast(array, column.type, kind) for array in views if array is not None]
    if not arrays:
        return _nulls(source, kind)
    return arrays[0] if len(arrays) == 1 else pc.coalesce(*arrays)


def _decoded_array(source: SourceBatch, column: SchemaColumn, kind: pa.DataType) -> pa.Array:
    from headgate.spark.source.payloads import decode_json

    payloads = source.column("payload")
    return _nulls(source, kind) if payloads is None else decode_json(payloads, kind)


def _cast(array: pa.Array, type_: str, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if type_ in _LIMITS:
        least, most = -(1 << _LIMITS[type_]), (1 << _LIMITS[type_]) - 1
        fits = pc.and_(pc.greater_equal(array, least), pc.less_equal(array, most))
        array = pc.if_else(fits, array, pa.scalar(None, array.type))
    return array.cast(kind, safe=False)  # an integer becomes the nearest double


# ---- maps of headers ---------------------------------------------------------------------------------


class HeaderPart(NamedTuple):
    """The values of one kind of one header, and the rows that have them."""

    name: str
    view: View
    rows: _RowNumbers
    values: pa.Array


def _parts(source: SourceBatch, scope: Scope) -> list[HeaderPart]:
    """Every kind of every header, sorted by name."""
    columns = dict(zip(source.batch.schema.names, source.batch.columns, strict=True))
    overflow = source.columns.overflow
    if scope == "header" and overflow is not None:
        for name, array in shred_headers(overflow.rows).items():
            view = parse_column_name(name)[1] or "string"
            columns[name] = join_views(columns.get(name), array, view)
    parts = (_part(name, array, scope) for name, array in columns.items())
    filled = [part for part in parts if part is not None and len(part.rows)]
    return sorted(filled, key=lambda part: part.name)


def _part(name: str, array: pa.Array, scope: Scope) -> HeaderPart | None:
    field, view = parse_column_name(name)
    if field is None or view is None or field.scope != scope:
        return None
    array = _decode(array)
    present = array.fill_null(False) if view == "opaque" else array.is_valid()
    rows = np.flatnonzero(present.to_numpy(zero_copy_only=False))
    values = array if len(rows) == len(array) else array.take(pa.array(rows))
    return HeaderPart(field.name, view, rows, values)


def _value_maps(source: SourceBatch, column: SchemaColumn, kind: pa.DataType) -> pa.Array:
    parts = _parts(source, column.scope)
    fields = [
        _concat([_only(part, view, type_) for part in parts], type_) for view, type_ in _STRUCT
    ]
    structs = pa.StructArray.from_arrays(fields, fields=list(kind.item_type))
    return _build_maps(parts, structs, source.batch.num_rows, kind)


def _only(part: HeaderPart, view: View, type_: pa.DataType) -> pa.Array:
    return part.values if part.view == view else pa.nulls(len(part.rows), type_)


def _text_maps(source: SourceBatch, column: SchemaColumn, kind: pa.DataType) -> pa.Array:
    parts = _parts(source, column.scope)
    texts = _concat([_text(part) for part in parts], pa.string())
    return _build_maps(parts, texts, source.batch.num_rows, kind)


def _text(part: HeaderPart) -> pa.Array:
    if part.view == "opaque":
        return pa.nulls(len(part.rows), pa.string())
    return part.values.cast(pa.string())


def _concat(arrays: list[pa.Array], kind: pa.DataType) -> pa.Array:
    return pa.concat_arrays(arrays) if arrays else pa.array([], kind)


def _build_maps(
    parts: list[HeaderPart], values: pa.Array, count: int, kind: pa.DataType
) -> pa.Array:
    """Build a map for every row from the entries of all parts, which are given part by part."""
    rows = np.concatenate([np.zeros(0, np.int64), *(part.rows for part in parts)])
    names = np.repeat(np.arange(len(parts)), [len(part.rows) for part in parts])
    order = np.argsort(rows, kind="stable")
    starts = np.searchsorted(rows[order], np.arange(count + 1))
    keys = pa.array([part.name for part in parts], pa.string()).take(pa.array(names[order]))
    return pa.MapArray.from_arrays(
        pa.array(starts, pa.int32()), keys, values.take(pa.array(order)), kind
    )


_ARRAY_OF: Final[dict[str, Callable[[SourceBatch, SchemaColumn, pa.DataType], pa.Array]]] = {
    "offset": _system_array,
    "system": _system_array,
    "standing": _system_array,
    "stream": _stream_array,
    "field": _field_array,
    "decoded": _decoded_array,
    "values": _value_maps,
    "texts": _text_maps,
}
