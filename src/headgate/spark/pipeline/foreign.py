"""The source of a pipeline that reads what Spark reads: json, csv, kafka, rate, … one `mapInArrow` routes and stages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headgate.spark.compose import to_stream_columns
from headgate.spark.pipeline.counters import Counters
from headgate.spark.pipeline.definition import FormatSource, Pipeline
from headgate.spark.pipeline.limits import limit_options
from headgate.spark.pipeline.route import descriptors, router
from headgate.spark.pipeline.source import EMITTED
from headgate.spark.schema import Column, writing_columns
from headgate.spark.staging import valid_columns

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

_TYPES: Final = {"payload": "binary", "priority": "int"}


def foreign_rows(spark: SparkSession, pipeline: Pipeline, source: FormatSource) -> DataFrame:
    """The source's rows with columns that are parts of messages: topic, payload, and headers by their names."""
    options = {**dict(source.options), **limit_options(pipeline)}
    reader = spark.readStream.format(source.format).options(**options)
    if source.schema is not None:
        reader = reader.schema(source.schema)
    rows = reader.load(source.path) if source.path is not None else reader.load()
    return rows.select(*message_columns(source, rows.columns))


def message_columns(source: FormatSource, names: list[str]) -> list[SparkColumn]:
    """What to select from the source: parts of messages under our names, then headers under theirs."""
    from pyspark.sql import functions

    used = {column.partition(".")[0] for _, column in source.columns}
    headers = source.headers
    if headers is None:
        headers = tuple((name, name) for name in names if name not in used)
    pairs = [*source.columns, *headers]
    return [
        functions.col(column).cast(_TYPES[part]).alias(part)
        if part in _TYPES
        else functions.col(column).alias(part)
        for part, column in pairs
    ]


def routed(rows: DataFrame, plan_file: str) -> DataFrame:
    """The descriptors of what the rows were staged into."""
    return rows.mapInArrow(_route(writing_columns(rows.schema), plan_file), EMITTED)


def _route(
    columns: tuple[Column, ...], plan_file: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def route(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counters, chosen = Counters(), router(plan_file)

        def messages() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                if batch.num_rows:
                    counters.came_by += batch.num_rows
                    yield valid_columns(to_stream_columns(batch, columns))

        yield descriptors(chosen.stage(chosen.passing(messages()), counters), counters)

    return route
