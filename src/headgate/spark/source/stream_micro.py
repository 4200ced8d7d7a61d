"""The stream reader: how far each micro-batch goes, what it reads, and a cursor that shows where the query stands.

An offset is `{directory: next offset}`. A batch covers messages whether they match or not, so it advances when all of
them are filtered out; the limits count the same messages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from headgate.clock import now_us
from headgate.errors import DataLost, StreamError
from headgate.filters import normalize
from headgate.pipelines import real_place
from headgate.spark.options import SourceOptions
from headgate.spark.schema import arrow_schema, reading_columns, stream_columns
from headgate.spark.source.planned import PlannedCatalog
from headgate.spark.source.projection import Projection
from headgate.spark.source.ranges import Range, in_sequence, listing, plan
from headgate.spark.source.stream_batch import read_ranges, resolved
from headgate.streams.read import ScanStats, StreamQuery

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from headgate.streams.read import Cursors

Offsets: TypeAlias = dict[str, int]

_log: Final = logging.getLogger(__name__)


class Share(NamedTuple):
    """What one task of a micro-batch reads. `UTC()` is the same for all of them."""

    ranges: tuple[Range, ...]
    now_us: int


class HeadgateStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what comes, in the order of offsets within each task."""

    def __init__(
        self, schema: StructType, options: SourceOptions, clock: Callable[[], int] = now_us
    ) -> None:
        self.columns, self.arrow = reading_columns(schema), arrow_schema(schema)
        self.options, self._clock = options, clock
        self._paths = sorted(options.paths)  # Spark compares offsets as text
        self._target: Offsets | None = None
        self._catalogs: dict[str, PlannedCatalog] = {}
        self._cursors: dict[str, Cursors] = {}
        self._shown: Offsets = {}

    def stop(self) -> None:
        for cursors in self._cursors.values():
            cursors.close()

    # ---- how far -------------------------------------------------------------------------------------

    def initialOffset(self) -> Offsets:
        wanted = resolved({path: listing(path) for path in self._paths}, self.options.start)
        return {path: max(offset, self._first(path)) for path, offset in wanted.items()}

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.max_messages is not None:
            return ReadMaxRows(self.options.max_messages)
        if self.options.max_bytes is not None:
            return ReadMaxBytes(self.options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._available()

    def reportLatestOffset(self) -> Offsets:
        return self._available()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> Offsets:
        # Spark commits a batch when the next one comes; that it asks for more says that it is done.
        self.commit(start)
        begin, end = self._begin(start), self._available()
        self._check_shrunk(begin, end)
        if self._target is not None:
            end = {path: min(offset, self._target[path]) for path, offset in end.items()}
        end = {path: max(offset, begin[path]) for path, offset in end.items()}
        if isinstance(limit, ReadMaxRows):
            end = limited(begin, end, limit.max_rows)
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self.options.max_bytes
        if most is not None and not isinstance(limit, ReadAllAvailable):
            ahead = {path: offset for path, offset in begin.items() if offset < end[path]}
            weights = {path: self._message_bytes(path, offset) for path, offset in ahead.items()}
            end = limited(begin, end, most, weights)
        return end

    def _available(self) -> Offsets:
        return {path: self._catalog(path).next_offset() for path in self._paths}

    def _begin(self, start: Mapping[str, int]) -> Offsets:
        """Where a batch starts; a stream that was not asked for before is read from its beginning."""
        known = self._positions(start)
        return {path: known[path] if path in known else self._first(path) for path in self._paths}

    def _positions(self, start: Mapping[str, int]) -> Offsets:
        """Where the query stands in its streams; an earlier run may have spelled their directories in another way."""
        if all(path in start for path in self._paths):
            return {path: start[path] for path in self._paths}
        known = {real_place(path): offset for path, offset in start.items()}
        found = {path: start.get(path, known.get(real_place(path))) for path in self._paths}
        return {path: offset for path, offset in found.items() if offset is not None}

    def _first(self, path: str) -> int:
        catalog = self._catalog(path)
        catalog.relist()
        return catalog.first_offset()

    def _catalog(self, path: str) -> PlannedCatalog:
        if path not in self._catalogs:
            self._catalogs[path] = PlannedCatalog(path, fail=self.options.fail_on_data_loss)
        return self._catalogs[path]

    def _message_bytes(self, path: str, offset: int) -> float:
        """What a message weighs on disk around this offset."""
        segment = self._catalog(path).covering(offset)
        if segment is None:
            return 1.0
        return max(1.0, int(segment.lengths().sum()) / (segment.next_offset - segment.first_offset))

    # ---- one batch -----------------------------------------------------------------------------------

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        moment = self._clock()
        ranges = self._planned(*self._bounds(start, end), moment)
        return [InputPartition(Share(some, moment)) for some in ranges]

    def _bounds(self, start: Mapping[str, int], end: Mapping[str, int]) -> tuple[Offsets, Offsets]:
        """Where a batch starts and ends in each stream; one that is done again ends where the earlier run has written."""
        begin, until = self._begin(start), self._positions(end)
        return begin, {path: until.get(path, offset) for path, offset in begin.items()}

    def _planned(
        self, begin: Offsets, until: Offsets, moment: int, stats: ScanStats | None = None
    ) -> list[tuple[Range, ...]]:
        """What each task of a batch reads; everything between its bounds must still be there."""
        for path in self._paths:
            self._catalog(path).relist()
        found = plan(
            self._paths,
            self._query(moment),
            start=begin,
            end=until,
            parts=self.options.partitions,
            cores=self.options.cores,
            catalog_of=self._catalog,
            stats=stats,
        )
        return in_sequence(found)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        share: Share = partition.value
        projection, fail = Projection(self.columns, self.arrow), self.options.fail_on_data_loss
        return read_ranges(share.ranges, self._query(share.now_us), projection, fail=fail)

    def commit(self, end: dict[str, int]) -> None:
        """Show where the query stands as a cursor of each stream."""
        if not self.options.cursor:
            return
        try:
            for path, offset in end.items():
                if self._shown.get(path) != offset:
                    self._cursors_of(path).commit(self.options.cursor, offset)
                    self._shown[path] = offset
        except StreamError as problem:  # a stream may well be read-only, and be read all the same
            _log.warning("the progress of the query is not shown: %s", problem)

    def _query(self, moment: int) -> StreamQuery:
        return StreamQuery(
            normalize(self.options.filter).at(moment), columns=stream_columns(self.columns)
        )

    def _cursors_of(self, path: str) -> Cursors:
        from headgate.streams.read import Cursors

        if path not in self._cursors:
            self._cursors[path] = Cursors(Path(path))
        return self._cursors[path]

    # ---- what is gone --------------------------------------------------------------------------------

    def _check_shrunk(self, begin: Offsets, available: Offsets) -> None:
        for path, offset in begin.items():
            if available[path] < offset:
                raise DataLost(
                    f"{path}: the query stands at offset {offset}, the stream ends at {available[path]}: it was "
                    "deleted and made again; start the query with a new checkpoint"
                )


def limited(
    begin: Offsets, end: Offsets, most: int, weights: Mapping[str, float] | None = None
) -> Offsets:
    """So much of each stream that all together weigh at most `most`, though at least one message goes on.

    Every stream gets a part in proportion to what it has; a message weighs 1, or what `weights` says.
    """
    ahead = {path: end[path] - offset for path, offset in begin.items()}
    weighed = {path: count * (weights or {}).get(path, 1.0) for path, count in ahead.items()}
    total = sum(weighed.values())
    if total <= most:
        return end
    given = {path: int(count * most / total) for path, count in ahead.items()}
    left = most - sum(given[path] * (weights or {}).get(path, 1.0) for path in given)
    for path in sorted(ahead, key=lambda path: (given[path], -ahead[path])):
        price = (weights or {}).get(path, 1.0)
        if given[path] < ahead[path] and (price <= left or not any(given.values())):
            given[path] += 1
            left -= price
    return {path: offset + given[path] for path, offset in begin.items()}
