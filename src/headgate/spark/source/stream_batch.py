"""The batch reader of streams: planned with the summaries, filtered on executors, and only then passed to Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from headgate.clock import now_us
from headgate.filters import normalize
from headgate.spark.options import StreamRead
from headgate.spark.pushdown import PushdownReader
from headgate.spark.schema import (
    DECODED,
    SchemaColumn,
    arrow_schema,
    reading_columns,
    stream_columns,
)
from headgate.spark.source.projection import Projection, even_batches
from headgate.spark.source.ranges import (
    OffsetRange,
    PlannedCatalog,
    plan,
    scan,
    stream_catalog,
    sweep,
)
from headgate.streams.read import SegmentCatalog, Start, StreamQuery, resolve_start

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ReadRange: TypeAlias = Callable[
    [OffsetRange, StreamQuery, SegmentCatalog], Iterator[pa.RecordBatch]
]


class StreamBatchReader(PushdownReader):
    """Reads the messages that exist at planning, in any order. `UTC()` is the moment at which the reader is made."""

    def __init__(
        self, schema: StructType, options: StreamRead, clock: Callable[[], int] = now_us
    ) -> None:
        super().__init__(*decoding_columns(schema, options), clock())
        self.options = options

    def query(self) -> StreamQuery:
        columns = stream_columns(self.columns)
        filter = normalize(self.add_pushed(self.options.filter)).at(self.now_us)
        return StreamQuery(filter, columns=columns)

    def partitions(self) -> list[InputPartition]:
        low, high, options = self.pushed.low, self.pushed.high, self.options
        catalogs = {path: stream_catalog(path) for path in options.paths}
        start, end = resolve_starts(catalogs, options.start), resolve_starts(catalogs, options.end)
        tasks = plan(
            options.paths,
            self.query(),
            start={path: max(offset, low) for path, offset in start.items()},
            end={path: min(offset, high) for path, offset in end.items()},
            tasks=options.partitions,
            cores=options.cores,
            catalog_of=catalogs.__getitem__,
        )
        return [InputPartition(ranges) for ranges in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        ranges, fail = partition.value or (), self.options.fail_on_data_loss
        return read_ranges(ranges, self.query(), self.projection(), sweep, fail=fail)


def decoding_columns(
    schema: StructType, options: StreamRead
) -> tuple[tuple[SchemaColumn, ...], pa.Schema]:
    """Parse the columns of a schema that is read from streams; also return their Arrow types."""
    columns, arrow = reading_columns(schema, decodes=bool(options.payload)), arrow_schema(schema)
    if any(column.holds == "decoded" for column in columns):
        from headgate.spark.source.payloads import check_json_type

        check_json_type(arrow.field(DECODED).type)
    return columns, arrow


def resolve_starts(catalogs: Mapping[str, SegmentCatalog], start: Start) -> dict[str, int]:
    """Resolve `start` to an offset in each stream."""
    return {path: resolve_start(start, catalog, now_us) for path, catalog in catalogs.items()}


def read_ranges(
    ranges: Iterable[OffsetRange],
    query: StreamQuery,
    projection: Projection,
    read_range: ReadRange = scan,
    *,
    fail: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Read the matches in the ranges, as batches for Spark; with `scan` in the order of offsets.

    Messages that were deleted since planning are an error, or skipped when `fail` is false.
    """
    return even_batches(_project_ranges(ranges, query, projection, read_range, fail))


def _project_ranges(
    ranges: Iterable[OffsetRange],
    query: StreamQuery,
    projection: Projection,
    read_range: ReadRange,
    fail: bool,
) -> Iterator[pa.RecordBatch]:
    for path, of_stream in groupby(ranges, key=lambda one: one.path):
        catalog = PlannedCatalog(path, fail=fail)
        for one in of_stream:
            for batch in read_range(one, query, catalog):
                yield projection.batch(batch, path)
