"""The reader of a pipeline's streams: it routes and stages while it scans, and returns descriptors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from headgate.errors import DataLost
from headgate.filters import normalize
from headgate.pipelines import Counters
from headgate.spark.options import StreamRead
from headgate.spark.pipeline.router import descriptors, load_router
from headgate.spark.source.ranges import PlannedCatalog, scan
from headgate.spark.source.stream_micro import Offsets, StreamMicroReader, StreamShare
from headgate.streams.read import StreamQuery


class RoutingStreamReader(StreamMicroReader):
    """A micro-batch reader of streams whose tasks route the messages; their rows describe the staged files."""

    def __init__(self, options: StreamRead, plan_file: str) -> None:
        super().__init__(StructType().add("offset", "long"), options)
        self.plan_file = plan_file

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(share) for share in self.plan_shares(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        share: StreamShare = partition.value
        counters = Counters(scanned=share.scanned)
        if share.planned is not None:
            counters.add_planned(share.planned)
        batches = self._scan(share, counters)
        yield descriptors(load_router(self.plan_file).stage(batches, counters), counters)

    def positions(self, start: Mapping[str, int]) -> Offsets:
        known = super().positions(start)
        if len(known) < min(len(start), len(self.options.paths)):
            raise DataLost(
                f"the checkpoint has positions in {', '.join(start)}, and not all of these are streams of the pipeline, "
                f"{', '.join(sorted(self.options.paths))}: messages would be delivered again; restore the links or directories "
                "in the checkpoint, or choose another checkpoint to start over"
            )
        return known

    def query(self, moment: int) -> StreamQuery:
        return StreamQuery(normalize(self.options.filter).at(moment))

    def _scan(self, share: StreamShare, counters: Counters) -> Iterator[pa.RecordBatch]:
        """The matches of all ranges, in order; counts the chunks that are opened."""
        query = self.query(share.now_us)
        for path, of_stream in groupby(share.ranges, key=lambda one: one.path):
            catalog = PlannedCatalog(path, fail=self.options.fail_on_data_loss)
            for one in of_stream:
                batches = scan(one, query, catalog)
                yield from batches
                counters.add_scanned(batches.stats)
