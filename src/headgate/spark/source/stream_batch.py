"""The batch reader: planned with the summaries, masked on executors, and only then handed to Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from headgate.clock import now_us
from headgate.filters import normalize
from headgate.spark.options import SourceOptions
from headgate.spark.schema import arrow_schema, reading_columns, stream_columns
from headgate.spark.source.answering import AnsweringReader
from headgate.spark.source.planned import PlannedCatalog
from headgate.spark.source.projection import Projection, evened
from headgate.spark.source.ranges import Range, listing, plan, scan, sweep
from headgate.streams.read import SegmentCatalog, Start, StreamQuery, resolve_start

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Reader: TypeAlias = Callable[[Range, StreamQuery, SegmentCatalog], Iterator[pa.RecordBatch]]


class HeadgateReader(AnsweringReader):
    """Reads what is there now, in whatever order. `UTC()` is the moment at which the reader is made."""

    def __init__(
        self, schema: StructType, options: SourceOptions, clock: Callable[[], int] = now_us
    ) -> None:
        super().__init__(reading_columns(schema), arrow_schema(schema), clock())
        self.options = options

    def query(self) -> StreamQuery:
        columns = stream_columns(self.columns)
        return StreamQuery(
            normalize(self.whole(self.options.filter)).at(self.now_us), columns=columns
        )

    def partitions(self) -> list[InputPartition]:
        low, high, options = self.pushed.low, self.pushed.high, self.options
        catalogs = {path: listing(path) for path in options.paths}
        start, end = resolved(catalogs, options.start), resolved(catalogs, options.end)
        found = plan(
            options.paths,
            self.query(),
            start={path: max(offset, low) for path, offset in start.items()},
            end={path: min(offset, high) for path, offset in end.items()},
            parts=options.partitions,
            cores=options.cores,
            catalog_of=catalogs.__getitem__,
        )
        return [InputPartition(ranges) for ranges in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        ranges, fail = partition.value or (), self.options.fail_on_data_loss
        return read_ranges(ranges, self.query(), self.projection(), sweep, fail=fail)


def resolved(catalogs: Mapping[str, SegmentCatalog], start: Start) -> dict[str, int]:
    """The offset that `start` means in each stream."""
    return {path: resolve_start(start, catalog, now_us) for path, catalog in catalogs.items()}


def read_ranges(
    ranges: Iterable[Range],
    query: StreamQuery,
    projection: Projection,
    reader: Reader = scan,
    *,
    fail: bool = True,
) -> Iterator[pa.RecordBatch]:
    """The matches in the ranges, as batches for Spark; in the order of offsets unless the reader is another.

    What is gone since it was planned is an error, or left out when `fail` is false.
    """
    return evened(_projected(ranges, query, projection, reader, fail))


def _projected(
    ranges: Iterable[Range], query: StreamQuery, projection: Projection, reader: Reader, fail: bool
) -> Iterator[pa.RecordBatch]:
    for path, some in groupby(ranges, key=lambda one: one.path):
        catalog = PlannedCatalog(path, fail=fail)
        for one in some:
            for batch in reader(one, query, catalog):
                yield projection.batch(batch, path)
