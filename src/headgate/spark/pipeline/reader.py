"""The reader of a pipeline's streams: it routes and stages while it scans, and emits descriptors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from headgate.errors import DataLost
from headgate.filters import normalize
from headgate.pipelines import Counters
from headgate.spark.options import SourceOptions
from headgate.spark.pipeline.route import descriptors, router
from headgate.spark.source.planned import PlannedCatalog
from headgate.spark.source.ranges import Range, scan
from headgate.spark.source.stream_micro import HeadgateStreamReader, Offsets
from headgate.streams.read import ScanStats, StreamQuery


class Share(NamedTuple):
    """What one task of a micro-batch reads; the first one also tells what planning came by and left out."""

    ranges: tuple[Range, ...]
    now_us: int
    planned: ScanStats
    came_by: int = 0


class RoutingReader(HeadgateStreamReader):
    """Offsets, limits and cursors as in any reading of streams; a task's rows are descriptors."""

    def __init__(self, options: SourceOptions, plan_file: str) -> None:
        super().__init__(StructType().add("offset", "long"), options)
        self.plan_file = plan_file

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        begin, until = self._bounds(start, end)
        now, stats = self._clock(), ScanStats()
        # When nothing is left to read, what was left out is still to be told.
        first, *others = self._planned(begin, until, now, stats) or [()]
        came_by = sum(until[path] - offset for path, offset in begin.items())
        shared = [Share(ranges, now, ScanStats()) for ranges in others]
        return [InputPartition(s) for s in (Share(first, now, stats, came_by), *shared)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        share: Share = partition.value
        counters = Counters(came_by=share.came_by)
        counters.add_planned(share.planned)
        scanned = self._scanned(share, counters)
        yield descriptors(router(self.plan_file).stage(scanned, counters), counters)

    def _positions(self, start: Mapping[str, int]) -> Offsets:
        found = super()._positions(start)
        if len(found) < min(len(start), len(self._paths)):
            raise DataLost(
                f"the checkpoint has positions in {', '.join(start)}, and not all of them lead to {', '.join(self._paths)}: what "
                "was delivered would be delivered again; bring back the links or directories it knows, or choose another "
                "checkpoint to begin anew"
            )
        return found

    def _query(self, moment: int) -> StreamQuery:
        return StreamQuery(normalize(self.options.filter).at(moment))

    def _scanned(self, share: Share, counters: Counters) -> Iterator[pa.RecordBatch]:
        """The matches of all ranges, in order; what is opened is counted."""
        query = self._query(share.now_us)
        for path, some in groupby(share.ranges, key=lambda one: one.path):
            catalog = PlannedCatalog(path, fail=self.options.fail_on_data_loss)
            for one in some:
                found = scan(one, query, catalog)
                yield from found
                counters.add_scanned(found.stats)
