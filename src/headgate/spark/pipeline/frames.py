"""The rows of a pipeline whose messages pass through Spark: read, decoded, cast, filtered, and changed by SQL steps.

A stream or queue whose messages are only routed needs none of this: its tasks route what they scan.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import HeadgateError, PipelineError, SparkOptionsError
from headgate.filters import Field, View, fields_read, parse
from headgate.pipelines import (
    FormatSource,
    PayloadColumns,
    Pipeline,
    QueueSource,
    Source,
    SqlStep,
)
from headgate.spark.filter_column import map_views, to_column
from headgate.spark.pipeline.formats import RECORD, drop_record, format_rows, read_problem
from headgate.spark.pipeline.records import RecordDecoder, avro_decoder, protobuf_decoder
from headgate.spark.schema import LOSSLESS, writing_columns

if TYPE_CHECKING:
    from pyarrow import StructType
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

MESSAGES: Final = "messages"  # the view from which a step reads its rows
_DECODED: Final = "_headgate_decoded"
_KINDS: Final[dict[str, View]] = {
    "string": "string", "bigint": "int", "int": "int", "smallint": "int", "tinyint": "int",
    "double": "float", "float": "float", "boolean": "bool",
}  # fmt: skip
_PARTS: Final = ("topic", "priority", "timestamp", "id", "filter_value", "key")


def passes_through_spark(pipeline: Pipeline) -> bool:
    """Whether the rows of this pipeline are rows of Spark before they are routed."""
    return isinstance(pipeline.source, FormatSource) or bool(pipeline.reading)


def message_rows(spark: SparkSession, pipeline: Pipeline, options: Mapping[str, str]) -> DataFrame:
    """Read the rows to route; their columns are parts of messages. `options` are those of a stream or queue as a source.

    Raises when Spark cannot read the source or run a step, or when the columns cannot become messages.
    """
    source, reading = pipeline.source, pipeline.reading
    rows = _named(pipeline, "[source]", partial(_read, spark, pipeline, options), source)
    if reading.payload is not None:
        payload = reading.payload
        rows = _named(pipeline, "[source]: payload", partial(decode_payload, rows, payload))
    for column, type_ in reading.casts:
        rows = _named(pipeline, "[source.casts]", partial(cast_column, rows, column, type_))
    if applies_filter(pipeline):
        rows = _named(
            pipeline, "[source]: filter", partial(keep_matches, rows, source.filter or "")
        )
    for number, step in enumerate(reading.steps, 1):
        rows = _named(pipeline, f"[[step]] {number}", partial(run_step, spark, rows, step))
    last = f"[[step]] {len(reading.steps)}" if reading.steps else "[source]"
    return _named(pipeline, last, partial(_check_columns, rows))


def _check_columns(rows: DataFrame) -> DataFrame:
    writing_columns(drop_record(rows).schema)
    return rows


def applies_filter(pipeline: Pipeline) -> bool:
    """Whether the source's filter is applied to rows of Spark, before the steps.

    A stream or queue applies its own filter, unless it reads columns that are made after the scan.
    """
    source, reading = pipeline.source, pipeline.reading
    if source.filter is None or not reading:
        return False
    return isinstance(source, FormatSource) or reads_made_columns(pipeline)


def reads_made_columns(pipeline: Pipeline) -> bool:
    """Whether the filter reads a column that is decoded from the payload or cast."""
    from pyspark.sql.types import StructType

    reading, filter = pipeline.reading, pipeline.source.filter
    if filter is None:
        return False
    made = {column for column, _ in reading.casts}
    if reading.payload is not None and reading.payload.format == "json":
        schema = StructType.fromDDL(reading.payload.schema)
        made.update(schema.fieldNames() if isinstance(schema, StructType) else ())
    names = {field.name for field in fields_read(parse(filter)) if field.scope == "header"}
    known_later = reading.payload is not None and reading.payload.format != "json"
    return known_later or not names.isdisjoint(made)


def _named(
    pipeline: Pipeline, where: str, work: Callable[[], DataFrame], source: Source | None = None
) -> DataFrame:
    """Do a part of the work; report its errors as problems of the pipeline's file, with the table `where` they are."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        with _without_spark_logs():
            return work()
    except (PySparkException, Py4JJavaError) as problem:
        # PySpark has no error of its own for every one of Java's, such as that of an unknown format.
        java = problem.java_exception if isinstance(problem, Py4JJavaError) else None
        message = str(problem) if java is None else str(java.getMessage())
        if isinstance(source, FormatSource):
            text = read_problem(source, message)
        else:
            text = f"{where}: {_describe(message)}"
        raise PipelineError(str(pipeline.file), (text,)) from None
    except HeadgateError as problem:
        raise PipelineError(str(pipeline.file), (f"{where}: {problem}",)) from None


@contextmanager
def _without_spark_logs() -> Iterator[None]:
    """Keep PySpark from logging the Java stack of an error as a page of JSON, besides raising the error."""
    loggers = [logging.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was_disabled in zip(loggers, before, strict=True):
            logger.disabled = was_disabled


def _describe(problem: str) -> str:
    """Spark's message without its SQLSTATE."""
    return problem.strip().partition(" SQLSTATE:")[0].rstrip(" .;")


# ---- reading -----------------------------------------------------------------------------------------


def _read(spark: SparkSession, pipeline: Pipeline, options: Mapping[str, str]) -> DataFrame:
    source, reading = pipeline.source, pipeline.reading
    if isinstance(source, FormatSource):
        return format_rows(spark, pipeline, source)
    if isinstance(source, QueueSource) and source.reads_once:
        raise SparkOptionsError(
            "steps, casts and payloads need the archive of a queue, or a stream; current messages of a queue can only be routed"
        )
    schema = LOSSLESS if reading.schema is None else f"{LOSSLESS}, {reading.schema}"
    from headgate.spark.datasource import HeadgateSource

    spark.dataSource.register(HeadgateSource)
    return spark.readStream.format("headgate").options(**options).schema(schema).load()


# ---- columns -----------------------------------------------------------------------------------------


def decode_payload(rows: DataFrame, payload: PayloadColumns) -> DataFrame:
    """Add a column for each field of the payload; what cannot be decoded is a malformed record."""
    from pyspark.sql import functions

    if "payload" not in rows.columns:
        raise SparkOptionsError('no column is the payload; add columns = { payload = "…" }')
    decoded, record = _DECODERS[payload.format](payload.schema)
    rows = rows.withColumn(_DECODED, decoded)
    names = [name for name in rows.select(f"{_DECODED}.*").columns if name != RECORD]
    reserved = sorted({*names} & {*_PARTS, "payload", "headers", "properties", "offset"})
    if reserved:
        raise SparkOptionsError(
            f"the field {reserved[0]!r} has the name of a part of a message; leave it out of the schema, and let a step read "
            f"it: SELECT *, get_json_object(string(payload), '$.{reserved[0]}') AS its_{reserved[0]} FROM messages"
        )
    old = functions.col(RECORD) if RECORD in rows.columns else functions.lit(None)
    fields = {name: functions.col(_DECODED)[name] for name in names}
    return rows.withColumns({RECORD: functions.coalesce(old, record), **fields}).drop(_DECODED)


def _decode_json(schema: str) -> tuple[SparkColumn, SparkColumn]:
    from pyspark.sql import functions

    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": RECORD}
    text = functions.col("payload").cast("string")
    decoded = functions.from_json(text, f"{schema}, {RECORD} string", options)
    failed = functions.col(_DECODED)[RECORD].isNotNull()
    return decoded, functions.when(failed, functions.col("payload").cast("binary"))


def _decode_records(
    decoder: Callable[[str], tuple[StructType, RecordDecoder]], schema: str
) -> tuple[SparkColumn, SparkColumn]:
    from pyspark.sql import functions
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.pandas.types import from_arrow_type

    kind, decode = decoder(schema)
    make_udf: Callable[..., Any] = arrow_udf  # its annotations know no structs
    decoded = make_udf(decode, from_arrow_type(kind))(functions.col("payload"))
    failed = functions.col(_DECODED).isNull() & functions.col("payload").isNotNull()
    return decoded, functions.when(failed, functions.col("payload").cast("binary"))


_DECODERS: Final[dict[str, Callable[[str], tuple[SparkColumn, SparkColumn]]]] = {
    "json": _decode_json,
    "avro": partial(_decode_records, avro_decoder),
    "protobuf": partial(_decode_records, protobuf_decoder),
}


def cast_column(rows: DataFrame, column: str, type_: str) -> DataFrame:
    """Cast a column; a value that cannot be cast is null."""
    if column not in rows.columns:
        raise SparkOptionsError(
            f"there is no column {column!r}; there are {', '.join(rows.columns)}"
        )
    return rows.withColumn(column, rows[f"`{column}`"].try_cast(type_))


def keep_matches(rows: DataFrame, filter: str) -> DataFrame:
    """Keep the rows that the filter matches, and malformed records."""
    from pyspark.sql import functions

    matches = to_column(parse(filter), _column_views(rows))
    if RECORD in rows.columns:
        matches = matches | functions.col(RECORD).isNotNull()
    return rows.where(matches)


def _column_views(rows: DataFrame) -> Callable[[Field, View], SparkColumn | None]:
    """Resolve fields in plain columns first, and then in the maps of headers and properties."""
    from pyspark.sql import functions

    types = dict(rows.dtypes)
    maps = map_views()

    def resolve(field: Field, view: View) -> SparkColumn | None:
        in_map = "headers" in types if field.scope == "header" else "properties" in types
        if field.scope == "sys":
            return _part(field.name, view)
        own = functions.col(f"`{field.name}`") if field.name in types else None
        if own is None or field.scope != "header":
            return maps(field, view) if in_map else None
        if view == "opaque":
            below = maps(field, view) if in_map else None
            return functions.lit(False) if below is None else own.isNull() & below
        value = own if _KINDS.get(types[field.name]) == view else None
        if not in_map:
            return value
        below = functions.when(own.isNull(), maps(field, view))
        return below if value is None else functions.coalesce(value, below)

    def _part(name: str, view: View) -> SparkColumn | None:
        if name not in types or maps(Field("sys", name), view) is None:
            return None
        if types[name] == "timestamp":
            return functions.unix_micros(functions.col(name))
        return functions.col(name).cast("bigint") if view == "int" else functions.col(name)

    return resolve


# ---- steps -------------------------------------------------------------------------------------------


def run_step(spark: SparkSession, rows: DataFrame, step: SqlStep) -> DataFrame:
    """Run the step's query over the rows; malformed records bypass it."""
    from pyspark.sql import functions

    records = None
    if RECORD in rows.columns:
        records = rows.where(functions.col(RECORD).isNotNull()).select(RECORD)
        rows = rows.where(functions.col(RECORD).isNull()).drop(RECORD)
    if step.watermark is not None:
        rows = rows.withWatermark(*step.watermark)
    made = _query(spark, rows, step.sql)
    return made if records is None else made.unionByName(records, allowMissingColumns=True)


def _query(spark: SparkSession, rows: DataFrame, sql: str) -> DataFrame:
    rows.createOrReplaceTempView(MESSAGES)
    try:
        return spark.sql(sql)
    finally:
        spark.catalog.dropTempView(MESSAGES)
