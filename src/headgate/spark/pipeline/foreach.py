"""The sink of a pipeline some of whose places Spark writes itself: a function for `foreachBatch`.

Executors prepare the staged files; then Spark appends those of its places, and the other places commit theirs as usual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headgate.errors import PipelineError, SparkOptionsError
from headgate.pipelines import NOWHERE, Pipeline, SparkPlace, parse_place
from headgate.spark.sink.destination import BatchMark, destination_of, owner_of
from headgate.spark.sink.spark_format import SparkDestination, require_format
from headgate.spark.sink.staging import StagedPart
from headgate.spark.sink.writer import DESCRIPTOR_NAMES, DESCRIPTOR_SCHEMA, MessageSink, query_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PREPARED: Final = f"{DESCRIPTOR_SCHEMA}, folder string"
_PREPARED: Final = pa.schema(
    {
        "destination": pa.int32(),
        "file": pa.string(),
        "rows": pa.int64(),
        "nbytes": pa.int64(),
        "crc": pa.int64(),
        "folder": pa.string(),
    }
)


def spark_places(pipeline: Pipeline) -> list[SparkPlace]:
    """The places that Spark writes itself."""
    return [
        each for place in pipeline.places() if isinstance(each := parse_place(place), SparkPlace)
    ]


def require_formats(pipeline: Pipeline, spark: SparkSession) -> None:
    """Raise when the session lacks a format that a sink needs."""
    for sink in pipeline.sinks:
        place = None if sink.to == NOWHERE else parse_place(sink.to)
        if isinstance(place, SparkPlace):
            try:
                require_format(spark, place.format)
            except SparkOptionsError as problem:
                raise PipelineError(
                    str(pipeline.file), (f"sink of {sink.queue!r}: {problem}",)
                ) from None


def batch_store(pipeline: Pipeline) -> Callable[[DataFrame, int], None]:
    """The function that stores a batch of descriptors at all places of a pipeline, each once."""
    owner = owner_of(str(pipeline.checkpoint))
    sink = MessageSink(
        tuple(
            destination_of(place, "", owner, pipeline.layout_of(place))
            for place in pipeline.places()
        ),
        None,
    )
    options = [dict(pipeline.options_of(place)) for place in pipeline.places()]

    def store(batch: DataFrame, number: int) -> None:
        sink.open()
        rows = batch.mapInArrow(partial(_prepare, sink), PREPARED).collect()
        staged = [StagedPart(**row.asDict()) for row in rows]
        mark = BatchMark(query_id(str(pipeline.checkpoint)), number)
        for index, destination in enumerate(sink.destinations):
            if isinstance(destination, SparkDestination):
                own = [each for each in staged if each.destination == index]
                destination.append(batch.sparkSession, mark, own, options[index])
        sink.commit(mark, staged)

    return store


def _prepare(sink: MessageSink, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    staged = sink.stage(batch.select(list(DESCRIPTOR_NAMES)) for batch in batches)
    if staged:
        yield pa.RecordBatch.from_pylist([asdict(part) for part in staged], _PREPARED)
