"""The source of a pipeline that reads a format of Spark (json, csv, kafka, rate, …): one `mapInArrow` routes and stages.

Records that cannot become messages are dead letters with their own bytes, or end the run, or are counted and dropped. A
record is malformed when Spark cannot parse it with the schema (json, csv, xml), or when it is no valid message: with a
header that is NaN, or a topic that is too long.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headgate.columns import typed_name
from headgate.errors import InvalidMessage, SparkOptionsError
from headgate.pipelines import (
    DEAD_LETTER,
    FAIL,
    KAFKA,
    PARSED_FORMATS,
    Counters,
    FormatSource,
    Pipeline,
    limit_options,
)
from headgate.spark.pipeline.router import descriptors, load_router
from headgate.spark.pipeline.source import DESCRIPTORS
from headgate.spark.schema import SchemaColumn, writing_columns
from headgate.spark.sink.composition import to_stream_columns
from headgate.spark.sink.staging import valid_columns

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

RECORD: Final = "_headgate_record"  # the column with the bytes of a record that could not be parsed
REASON_HEADER: Final = "malformed"  # of a dead letter
_REASON_COLUMN: Final = typed_name("header", "string", REASON_HEADER)
_SHOWN_BYTES: Final = 200  # of a record in an error
_NOT_PARSED: Final = "cannot be parsed with the schema"
_SPARKS_RECORD: Final = re.compile(r"\b_corrupt_record\b", re.IGNORECASE)
# RecordValidator finds a priority that is far too large; a cast to int would end the run.
_TYPES: Final = {"payload": "binary", "priority": "bigint", RECORD: "binary"}


def format_rows(spark: SparkSession, pipeline: Pipeline, source: FormatSource) -> DataFrame:
    """Read the source as rows whose columns are parts of messages: topic, payload, and headers by their names."""
    options = {**dict(source.options), **limit_options(pipeline), **record_options(source)}
    reader = spark.readStream.format(source.format).options(**options)
    if source.schema is not None:
        reader = reader.schema(_parse_schema(source.schema, keeps_records(source)))
    rows = reader.load(source.path) if source.path is not None else reader.load()
    return rows.select(*message_columns(source, rows.columns))


def read_problem(source: FormatSource, problem: str) -> str:
    """Spark's message about a source it cannot read, without its query plan."""
    first = problem.strip().partition("\n")[0].partition(" SQLSTATE:")[0].rstrip(" .;")
    hint = f"; {_kafka_hint()}" if source.format.lower() == KAFKA and "find" in first else ""
    return f"[source]: format {source.format!r}: {first}{hint}"


def notes_on_format(source: FormatSource) -> Iterator[str]:
    """Notes on what the format needs besides PySpark."""
    import pyspark

    jars = Path(pyspark.__path__[0], "jars").glob("spark-sql-kafka-0-10_*.jar")
    if source.format.lower() == KAFKA and not any(jars):
        yield f"[source]: {_kafka_hint()}"


def _kafka_hint() -> str:
    import pyspark

    version = pyspark.__version__
    return (
        "Kafka needs a jar that is not part of PySpark: run the pipeline with "
        f"--conf spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"
    )


# ---- records that cannot be parsed -------------------------------------------------------------------


def keeps_records(source: FormatSource) -> bool:
    """Whether Spark adds the text of a record it cannot parse as a column.

    Not when the source sets Spark's own handling, by an option or by the column that Spark fills itself.
    """
    if source.format.lower() not in PARSED_FORMATS or source.schema is None:
        return False
    own = {"mode", "columnnameofcorruptrecord"} & {key.lower() for key, _ in source.options}
    return not own and _SPARKS_RECORD.search(source.schema) is None


def record_options(source: FormatSource) -> dict[str, str]:
    """The options with which Spark adds the text of an unparsed record as a column; none where it should not."""
    if not keeps_records(source):
        return {}
    return {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": RECORD}


def _parse_schema(text: str, with_record: bool) -> StructType:
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(text)
    if not isinstance(schema, StructType):
        raise SparkOptionsError(f'schema: {text!r} names no columns; write "kind string, n long"')
    if with_record and RECORD in map(str.lower, schema.names):
        raise SparkOptionsError(f"schema: the column name {RECORD} is reserved; rename your column")
    return schema.add(RECORD, "string") if with_record else schema


def drop_record(rows: DataFrame) -> DataFrame:
    """Drop the column of malformed records."""
    return rows.drop(RECORD)


# ---- rows to messages --------------------------------------------------------------------------------


def message_columns(source: FormatSource, names: list[str]) -> list[SparkColumn]:
    """The columns to select from the source: parts of messages by their system names, then headers by theirs."""
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


def route_rows(rows: DataFrame, plan_file: str) -> DataFrame:
    """Route and stage the rows; the descriptors of the staged files."""
    columns = writing_columns(drop_record(rows).schema)
    return rows.mapInArrow(_route(columns, plan_file), DESCRIPTORS)


def _route(
    columns: tuple[SchemaColumn, ...], plan_file: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def route(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counters, router = Counters(), load_router(plan_file)
        validator = RecordValidator(columns, router.plan.malformed, counters)
        staged = [*router.stage(router.apply_filter(validator.messages(batches)), counters)]
        yield descriptors([*staged, *router.stage_letters(validator.letters)], counters)

    return route


# ---- malformed records -------------------------------------------------------------------------------


class RecordValidator:
    """Passes messages on and treats malformed records as `policy` says; `letters` are the dead letters of a task."""

    def __init__(self, columns: Sequence[SchemaColumn], policy: str, counters: Counters) -> None:
        self.columns, self.policy, self.counters = columns, policy, counters
        self.letters: list[pa.RecordBatch] = []
        self._rejected: list[tuple[bytes, str]] = []  # records of the current batch, with reasons

    def messages(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the source as valid stream columns."""
        for batch in batches:
            self.counters.scanned += batch.num_rows
            parsed = self._reject_unparsed(batch)
            if parsed.num_rows:
                yield from self._reject_invalid(parsed)
            if self._rejected:
                self.letters.append(_dead_letters(self._rejected))
                self._rejected = []

    def _reject_unparsed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        at = batch.schema.get_field_index(RECORD)
        if at < 0:
            return batch
        records, rest = batch.column(at), batch.remove_column(at)
        if records.null_count == len(records):
            return rest
        self._reject(records.drop_null().to_pylist(), _NOT_PARSED)
        return rest.filter(records.is_null())

    def _reject_invalid(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the valid rows; a batch with invalid rows is halved until these are alone."""
        try:
            columns = valid_columns(to_stream_columns(batch, self.columns))
        except InvalidMessage as problem:
            if batch.num_rows == 1:
                self._reject([_record_of(batch)], str(problem))
                return
            half = batch.num_rows // 2
            yield from self._reject_invalid(batch.slice(0, half))
            yield from self._reject_invalid(batch.slice(half))
        else:
            yield columns

    def _reject(self, records: list[bytes], reason: str) -> None:
        if self.policy == FAIL:
            raise InvalidMessage(
                "record",
                f"{reason}: {records[0][:_SHOWN_BYTES]!r}; fix the record, or let the pipeline continue without it: "
                'malformed = "dead-letter" or "drop" in [source]',
            )
        self.counters.malformed += len(records)
        if self.policy == DEAD_LETTER:
            self._rejected.extend((record, reason) for record in records)


def _dead_letters(rejected: Sequence[tuple[bytes, str]]) -> pa.RecordBatch:
    records, reasons = zip(*rejected, strict=True)
    payloads = pa.array(records, pa.binary())
    return valid_columns(pa.record_batch({"payload": payloads, _REASON_COLUMN: list(reasons)}))


def _record_of(row: pa.RecordBatch) -> bytes:
    """The bytes to keep of a row that Spark has parsed: its payload, or all columns as JSON."""
    values = {name: _value_of(row.column(name)) for name in row.schema.names}
    payload = values.get("payload")
    if payload is None:
        return json.dumps(values, default=str, ensure_ascii=False).encode("utf-8", "replace")
    return payload if isinstance(payload, bytes) else str(payload).encode("utf-8", "replace")


def _value_of(column: pa.Array) -> Any:
    """The one value of a column; bytes of a text that is not UTF-8, which Spark also passes on, are written as \\xe9."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        [text] = column.cast(pa.large_binary()).to_pylist()
        return None if text is None else text.decode("utf-8", "backslashreplace")
    [value] = column.to_pylist()
    return value
