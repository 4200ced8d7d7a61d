"""The source of a pipeline that reads what Spark reads: json, csv, kafka, rate, … one `mapInArrow` routes and stages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headgate.errors import HeadgateError, PipelineError, SparkOptionsError
from headgate.pipelines import (
    KAFKA,
    PARSED,
    Counters,
    FormatSource,
    Pipeline,
    kafka_jar,
    limit_options,
)
from headgate.spark.pipeline.malformed import RECORD, Sieve
from headgate.spark.pipeline.route import descriptors, router
from headgate.spark.pipeline.source import EMITTED
from headgate.spark.schema import Column, writing_columns

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_SPARKS_RECORD: Final = re.compile(r"\b_corrupt_record\b", re.IGNORECASE)
# A priority that is far too large is for the sieve to find: the cast to an int would end the run.
_TYPES: Final = {"payload": "binary", "priority": "bigint", RECORD: "binary"}


def foreign_rows(spark: SparkSession, pipeline: Pipeline, source: FormatSource) -> DataFrame:
    """The source's rows with columns that are parts of messages: topic, payload, and headers by their names.

    What Spark or a message cannot do with them is refused here, before anything runs.
    """
    from pyspark.errors import PySparkException

    try:
        rows = _selected(spark, pipeline, source)
        writing_columns(_without_record(rows).schema)
    except PySparkException as problem:
        raise PipelineError(str(pipeline.file), (_said(source, str(problem)),)) from None
    except HeadgateError as problem:
        raise PipelineError(str(pipeline.file), (f"[source]: {problem}",)) from None
    return rows


def _selected(spark: SparkSession, pipeline: Pipeline, source: FormatSource) -> DataFrame:
    options = {**dict(source.options), **limit_options(pipeline), **record_options(source)}
    reader = spark.readStream.format(source.format).options(**options)
    if source.schema is not None:
        reader = reader.schema(_schema(source.schema, keeps_records(source)))
    rows = reader.load(source.path) if source.path is not None else reader.load()
    return rows.select(*message_columns(source, rows.columns))


def _said(source: FormatSource, problem: str) -> str:
    """What Spark says of a source it cannot read, without its plan."""
    said = problem.strip().partition("\n")[0].partition(" SQLSTATE:")[0].rstrip(" .;")
    hint = f"; {kafka_jar()}" if source.format.lower() == KAFKA and "find" in said else ""
    return f"[source]: format {source.format!r}: {said}{hint}"


# ---- records that cannot be parsed -------------------------------------------------------------------


def keeps_records(source: FormatSource) -> bool:
    """Whether Spark hands over the text of a record it cannot parse; not when its own way with them is asked for, by an
    option or by the column it fills itself."""
    if source.format.lower() not in PARSED or source.schema is None:
        return False
    own = {"mode", "columnnameofcorruptrecord"} & {key.lower() for key, _ in source.options}
    return not own and _SPARKS_RECORD.search(source.schema) is None


def record_options(source: FormatSource) -> dict[str, str]:
    """The options that make it do so."""
    if not keeps_records(source):
        return {}
    return {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": RECORD}


def _schema(text: str, with_record: bool) -> StructType:
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(text)
    if not isinstance(schema, StructType):
        raise SparkOptionsError(f'schema: {text!r} names no columns; write "kind string, n long"')
    if with_record and RECORD in map(str.lower, schema.names):
        raise SparkOptionsError(f"schema: {RECORD} is a column of ours; name yours otherwise")
    return schema.add(RECORD, "string") if with_record else schema


def _without_record(rows: DataFrame) -> DataFrame:
    return rows.drop(RECORD)


# ---- rows to messages --------------------------------------------------------------------------------


def message_columns(source: FormatSource, names: list[str]) -> list[SparkColumn]:
    """What to select from the source: parts of messages under our names, then headers under theirs."""
    from pyspark.sql import functions

    used = {column.partition(".")[0] for _, column in source.columns} | {RECORD}
    headers = source.headers
    if headers is None:
        headers = tuple((name, name) for name in names if name not in used)
    record = [(RECORD, RECORD)] if RECORD in names else []
    return [
        functions.col(column).cast(_TYPES[part]).alias(part)
        if part in _TYPES
        else functions.col(column).alias(part)
        for part, column in [*source.columns, *headers, *record]
    ]


def routed(rows: DataFrame, plan_file: str) -> DataFrame:
    """The descriptors of what the rows were staged into."""
    columns = writing_columns(_without_record(rows).schema)
    return rows.mapInArrow(_route(columns, plan_file), EMITTED)


def _route(
    columns: tuple[Column, ...], plan_file: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def route(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counters, chosen = Counters(), router(plan_file)
        sieve = Sieve(columns, chosen.plan.malformed, counters)
        staged = [*chosen.stage(chosen.passing(sieve.messages(batches)), counters)]
        yield descriptors([*staged, *chosen.stage_letters(sieve.letters)], counters)

    return route
