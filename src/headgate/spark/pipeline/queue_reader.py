"""The reader of a pipeline's queue: it routes and stages what a task finds, and emits descriptors."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from headgate.pipelines import Counters
from headgate.spark.pipeline.route import descriptors, router
from headgate.spark.sink.staging import valid_columns
from headgate.spark.source.queue_micro import QueueStreamReader, Share
from headgate.spark.source.queue_options import QueueRead


class RoutingQueueReader(QueueStreamReader):
    """Offsets and limits as in any following of a queue; a task's rows are descriptors."""

    def __init__(self, asked: QueueRead, plan_file: str) -> None:
        super().__init__(StructType().add("offset", "long"), asked)
        self.columns = None
        self.plan_file = plan_file

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        share: Share = partition.value
        counters = Counters(came_by=share.came_by)
        found = (valid_columns(filled(batch)) for batch in self.messages(share) if batch.num_rows)
        yield descriptors(router(self.plan_file).stage(found, counters), counters)


def filled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Without the ids, which are the queue's, and without what no message has."""
    names = [
        field.name
        for field, array in zip(batch.schema, batch.columns, strict=True)
        if field.name != "offset" and array.null_count < len(array)
    ]
    return batch.select(names)
