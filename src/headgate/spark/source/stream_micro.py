"""The micro-batch reader of streams: how far each batch goes, what it reads, and a cursor that shows the progress.

An offset is `{directory: next offset}`. A batch covers messages whether they match or not, so a query advances even when
no message matches; limits count all of them too.
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
from headgate.pipelines import canonical_location
from headgate.spark.options import StreamRead
from headgate.spark.schema import stream_columns
from headgate.spark.source.projection import Projection
from headgate.spark.source.ranges import (
    OffsetRange,
    PlannedCatalog,
    order_tasks,
    plan,
    stream_catalog,
)
from headgate.spark.source.stream_batch import decoding_columns, read_ranges, resolve_starts
from headgate.streams.read import ScanStats, StreamQuery

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from headgate.streams.read import Cursors

Offsets: TypeAlias = dict[str, int]

_log: Final = logging.getLogger(__name__)


class StreamShare(NamedTuple):
    """The ranges that one task of a micro-batch reads, and the moment that `UTC()` is in all of them.

    The first share also carries the messages and chunks that the whole batch scanned.
    """

    ranges: tuple[OffsetRange, ...]
    now_us: int
    planned: ScanStats | None = None
    scanned: int = 0


class StreamMicroReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads messages as they are appended, in the order of offsets within each task."""

    def __init__(
        self, schema: StructType, options: StreamRead, clock: Callable[[], int] = now_us
    ) -> None:
        self.columns, self.arrow = decoding_columns(schema, options)
        self.options, self._clock = options, clock
        self._paths = sorted(options.paths)  # Spark compares offsets as text
        self._target: Offsets | None = None
        self._catalogs: dict[str, PlannedCatalog] = {}
        self._cursors: dict[str, Cursors] = {}
        self._stored: Offsets = {}

    def stop(self) -> None:
        for cursors in self._cursors.values():
            cursors.close()

    # ---- offsets -------------------------------------------------------------------------------------

    def initialOffset(self) -> Offsets:
        starts = resolve_starts(
            {path: stream_catalog(path) for path in self._paths}, self.options.start
        )
        return {path: max(offset, self._first(path)) for path, offset in starts.items()}

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
        # Spark commits a batch only when it starts the next one; asking for more means that the last one is done.
        self.commit(start)
        begin, end = self._begin(start), self._available()
        self._check_shrunk(begin, end)
        if self._target is not None:
            end = {path: min(offset, self._target[path]) for path, offset in end.items()}
        end = {path: max(offset, begin[path]) for path, offset in end.items()}
        if isinstance(limit, ReadMaxRows):
            end = limit_offsets(begin, end, limit.max_rows)
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self.options.max_bytes
        if most is not None and not isinstance(limit, ReadAllAvailable):
            ahead = {path: offset for path, offset in begin.items() if offset < end[path]}
            weights = {path: self._message_bytes(path, offset) for path, offset in ahead.items()}
            end = limit_offsets(begin, end, most, weights)
        return end

    def _available(self) -> Offsets:
        return {path: self._catalog(path).next_offset() for path in self._paths}

    def _begin(self, start: Mapping[str, int]) -> Offsets:
        """Where a batch starts; a stream that is new in the query is read from its beginning."""
        known = self.positions(start)
        return {path: known[path] if path in known else self._first(path) for path in self._paths}

    def positions(self, start: Mapping[str, int]) -> Offsets:
        """The query's position in each stream; an earlier run may have spelled the directories differently."""
        if all(path in start for path in self._paths):
            return {path: start[path] for path in self._paths}
        known = {canonical_location(path): offset for path, offset in start.items()}
        found = {path: start.get(path, known.get(canonical_location(path))) for path in self._paths}
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
        """The average size of a message on disk around this offset."""
        segment = self._catalog(path).covering(offset)
        if segment is None:
            return 1.0
        return max(1.0, int(segment.lengths().sum()) / (segment.next_offset - segment.first_offset))

    # ---- one batch -----------------------------------------------------------------------------------

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(share) for share in self.plan_shares(start, end) if share.ranges]

    def plan_shares(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[StreamShare]:
        """Plan the tasks of a batch. When no chunk can match, one share without ranges carries what was scanned."""
        begin, until = self._bounds(start, end)
        now, stats = self._clock(), ScanStats()
        first, *others = self._plan(begin, until, now, stats) or [()]
        scanned = sum(until[path] - offset for path, offset in begin.items())
        return [
            StreamShare(first, now, stats, scanned),
            *(StreamShare(ranges, now) for ranges in others),
        ]

    def _bounds(self, start: Mapping[str, int], end: Mapping[str, int]) -> tuple[Offsets, Offsets]:
        """Where a batch starts and ends in each stream; a repeated batch ends where the earlier run recorded."""
        begin, until = self._begin(start), self.positions(end)
        return begin, {path: until.get(path, offset) for path, offset in begin.items()}

    def _plan(
        self, begin: Offsets, until: Offsets, moment: int, stats: ScanStats
    ) -> list[tuple[OffsetRange, ...]]:
        """Plan the ranges of each task of a batch; all messages between its bounds must still exist."""
        for path in self._paths:
            self._catalog(path).relist()
        tasks = plan(
            self._paths,
            self.query(moment),
            start=begin,
            end=until,
            tasks=self.options.partitions,
            cores=self.options.cores,
            catalog_of=self._catalog,
            stats=stats,
        )
        return order_tasks(tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        share: StreamShare = partition.value
        projection, fail = Projection(self.columns, self.arrow), self.options.fail_on_data_loss
        return read_ranges(share.ranges, self.query(share.now_us), projection, fail=fail)

    def commit(self, end: dict[str, int]) -> None:
        """Store the query's progress as a cursor of each stream."""
        if not self.options.cursor:
            return
        try:
            for path, offset in end.items():
                if self._stored.get(path) != offset:
                    self._cursors_of(path).commit(self.options.cursor, offset)
                    self._stored[path] = offset
        except StreamError as problem:  # a stream that is read-only can still be read
            _log.warning("the progress of the query is not stored as a cursor: %s", problem)

    def query(self, moment: int) -> StreamQuery:
        filter = normalize(self.options.filter).at(moment)
        return StreamQuery(filter, columns=stream_columns(self.columns))

    def _cursors_of(self, path: str) -> Cursors:
        from headgate.streams.read import Cursors

        if path not in self._cursors:
            self._cursors[path] = Cursors(Path(path))
        return self._cursors[path]

    # ---- lost data -----------------------------------------------------------------------------------

    def _check_shrunk(self, begin: Offsets, available: Offsets) -> None:
        for path, offset in begin.items():
            if available[path] < offset:
                raise DataLost(
                    f"{path}: the query is at offset {offset}, and the stream ends at {available[path]}: it was "
                    "deleted and created again; start the query with a new checkpoint"
                )


def limit_offsets(
    begin: Offsets, end: Offsets, most: int, weights: Mapping[str, float] | None = None
) -> Offsets:
    """Limit a batch to a weight of `most`, but to one message at least.

    Every stream gets a part in proportion to its messages; a message weighs 1, or as much as `weights` says.
    """
    ahead = {path: end[path] - offset for path, offset in begin.items()}
    weighed = {path: count * (weights or {}).get(path, 1.0) for path, count in ahead.items()}
    total = sum(weighed.values())
    if total <= most:
        return end
    counts = {path: int(count * most / total) for path, count in ahead.items()}
    left = most - sum(counts[path] * (weights or {}).get(path, 1.0) for path in counts)
    for path in sorted(ahead, key=lambda path: (counts[path], -ahead[path])):
        price = (weights or {}).get(path, 1.0)
        if counts[path] < ahead[path] and (price <= left or not any(counts.values())):
            counts[path] += 1
            left -= price
    return {path: offset + counts[path] for path, offset in begin.items()}
