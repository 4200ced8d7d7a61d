"""A stream as a LazyFrame.

    import polars as pl
    from headgate.polars import scan_stream

    orders = scan_stream("data/orders")
    orders.filter(pl.col("region") == "EU", pl.col("amount") > 100).group_by("region").len().collect()

Polars hands its predicate and its projection to the scan. The stream applies the parts of the predicate that a filter can
express: it opens only the chunks that may match, and reads only the columns that are used. Polars itself applies the whole
predicate to the rows that are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate.columns import PlainColumn, PlainSchema, plain_columns
from headgate.errors import MissingExtra, StreamOptionsError
from headgate.filters import TRUE, And, Filter, FilterLike, as_filter, join_terms
from headgate.polars.predicate import Pushed, translate
from headgate.streams import SUPER_FILE, Stream, SuperStream

try:
    import polars as pl
    from polars.io.plugins import register_io_source
except ImportError as problem:
    raise MissingExtra("polars", "headgate.polars") from problem

if TYPE_CHECKING:
    from headgate.streams.read import OnCorrupt, Start

PARTITION = "partition"


def scan_stream(
    path: str | Path,
    filter: FilterLike | None = None,
    *,
    schema: PlainSchema | Mapping[str, Any] | None = None,
    start: Start = "first",
    on_corrupt: OnCorrupt = "error",
) -> pl.LazyFrame:
    """Return a LazyFrame of the messages that the filter selects in a stream or super stream.

    Its columns are those of `Stream.scan(…).to_reader()`: the fields of messages, and every header that the stream holds now, by
    its name. `schema` names the columns instead, `{"offset": pl.Int64, "region": pl.String}`. A frame that is collected
    again sees what was published meanwhile.
    """
    tree = TRUE if filter is None else as_filter(filter)
    source = _Source(Path(path), tree, start, on_corrupt, *_find_schema(Path(path), schema))
    return register_io_source(source.read, schema=source.frame_schema)


def _find_schema(
    path: Path, schema: PlainSchema | Mapping[str, Any] | None
) -> tuple[pa.Schema, dict[str, Any]]:
    """Return the columns as Arrow and as Polars have them."""
    found = _arrow_schema(schema) if schema is not None else None
    if found is None:
        with _open(path) as stream:
            found = stream.scan().to_reader().schema
    elif is_super(path):
        found = pa.schema([pa.field(PARTITION, pa.int32()), *found])
    frame = pl.from_arrow(found.empty_table())
    assert isinstance(frame, pl.DataFrame)
    return found, dict(frame.schema)


def _arrow_schema(schema: PlainSchema | Mapping[str, Any]) -> pa.Schema:
    if isinstance(schema, pa.Schema):
        plain_columns(schema)
        return schema
    try:
        named = {
            name: kind if isinstance(kind, pa.DataType) else _arrow_type(name, kind)
            for name, kind in schema.items()
        }
    except (AttributeError, TypeError) as problem:
        raise StreamOptionsError(
            f'schema: give the type of each column, for example {{"region": pl.String}}, not {schema!r}'
        ) from problem
    plain_columns(named)
    return pa.schema(list(named.items()))


def _arrow_type(name: str, kind: Any) -> pa.DataType:
    return pl.DataFrame(schema={name: kind}).to_arrow().schema.field(0).type


def is_super(path: Path) -> bool:
    """Tell whether there is a super stream in the directory."""
    return (path / SUPER_FILE).exists()


def _translate(predicate: pl.Expr, columns: Mapping[str, PlainColumn]) -> Pushed:
    """Translate a predicate; one that cannot be written as JSON, such as a Python function, is left to Polars."""
    try:
        text = predicate.meta.serialize(format="json")
    except (pl.exceptions.PolarsError, ValueError, TypeError):
        return Pushed()
    return translate(text, columns)


def _open(path: Path) -> Stream | SuperStream:
    return SuperStream.open(path) if is_super(path) else Stream.open(path)


@dataclass(frozen=True, slots=True)
class _Source:
    """Reads the batches of a stream for Polars whenever a frame is collected."""

    path: Path
    filter: Filter
    start: Start
    on_corrupt: OnCorrupt
    schema: pa.Schema
    frame_schema: dict[str, Any]

    def read(
        self,
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        """Yield those of the first `n_rows` rows that the predicate selects."""
        wanted = self.schema.names if with_columns is None else with_columns
        tested = [] if predicate is None else predicate.meta.root_names()
        names = [name for name in self.schema.names if name in {*wanted, *tested}]
        # `n_rows` counts rows before the predicate is applied, so then the scan must not leave any out.
        pushed = Pushed()
        if predicate is not None and n_rows is None:
            pushed = _translate(predicate, self._columns())
        left = n_rows
        for batch in self._batches(names, pushed):
            if left is not None:
                batch = batch.slice(0, left)
                left -= batch.num_rows
            frame = pl.from_arrow(batch)
            assert isinstance(frame, pl.DataFrame)
            if predicate is not None:
                frame = frame.filter(predicate)
            yield frame.select(wanted)
            if left == 0:
                return

    def _columns(self) -> dict[str, PlainColumn]:
        stored = [field for field in self.schema if not self._is_partition(field.name)]
        return {column.name: column for column in plain_columns(pa.schema(stored))}

    def _is_partition(self, name: str) -> bool:
        return name == PARTITION and is_super(self.path)

    def _batches(self, names: list[str], pushed: Pushed) -> Iterator[pa.RecordBatch]:
        filter = join_terms(And, (self.filter, pushed.filter))
        columns = [self.schema.field(name) for name in names if not self._is_partition(name)]
        # Where only the partition is asked for, some column must count the rows.
        plain = pa.schema(columns or [("offset", pa.int64())])
        with _open(self.path) as stream:
            if isinstance(stream, SuperStream):
                scan = stream.scan(filter, start=self.start, on_corrupt=self.on_corrupt)
                for batch in scan.to_reader(plain):
                    yield batch.select(names)
                return
            first = stream.scan(start=self.start, on_corrupt=self.on_corrupt).position
            low = min(max(first, pushed.low), stream.next_offset)
            rows = stream.scan(filter, start=low, end=pushed.high, on_corrupt=self.on_corrupt)
            yield from rows.to_reader(plain)
