"""The reader of a pipeline's queue: it routes and stages the messages of a task, and returns descriptors."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from headgate.pipelines import Counters
from headgate.spark.options import QueueRead
from headgate.spark.pipeline.router import descriptors, load_router
from headgate.spark.sink.staging import valid_columns
from headgate.spark.source.queue_micro import QueueMicroReader, QueueShare


class RoutingQueueReader(QueueMicroReader):
    """A micro-batch reader of a queue whose tasks route the messages; their rows describe the staged files."""

    def __init__(self, options: QueueRead, plan_file: str) -> None:
        super().__init__(StructType().add("offset", "long"), options)
        self.columns = None
        self.plan_file = plan_file

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        share: QueueShare = partition.value
        counters = Counters(scanned=share.scanned)
        batches = (
            valid_columns(drop_empty_columns(batch))
            for batch in self.messages(share)
            if batch.num_rows
        )
        yield descriptors(load_router(self.plan_file).stage(batches, counters), counters)


def drop_empty_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Drop the column of the queue's ids, and columns that are null in every row."""
    names = [
        field.name
        for field, array in zip(batch.schema, batch.columns, strict=True)
        if field.name != "offset" and array.null_count < len(array)
    ]
    return batch.select(names)
