"""What Spark's own formats need before a pipeline can read them, known without a session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headgate.errors import SparkOptionsError
from headgate.pipelines.definition import FormatSource
from headgate.pipelines.location import local_path

KAFKA: Final = "kafka"
PARSED: Final = ("csv", "json", "xml")  # text that is parsed, record by record
_WITH_SCHEMA: Final = (*PARSED, "avro", "binaryfile", "orc", "parquet")
_SCHEMAS: Final = {
    "binaryfile": "path string, modificationTime timestamp, length long, content binary"
}
FILES: Final = (*_WITH_SCHEMA, "delta", "text")
_PATTERN: Final = frozenset("*?[{")
_SERVERS: Final = "kafka.bootstrap.servers"
_TOPICS: Final = ("subscribe", "subscribePattern", "assign")


def problems_of_format(source: FormatSource) -> Iterator[str]:
    """What would keep Spark from reading the source."""
    kind = source.format.lower()
    if kind in FILES:
        yield from _of_path(source)
    if kind in _WITH_SCHEMA and source.schema is None:
        example = _SCHEMAS.get(kind, "kind string, body string, amount long")
        yield (
            f"[source]: schema: {kind} has none of its own for a stream; add one: "
            f'schema = "{example}"'
        )
    if kind == KAFKA:
        yield from _of_kafka({key.lower() for key, _ in source.options})


def _of_path(source: FormatSource) -> Iterator[str]:
    if source.path is None:
        yield f'[source]: path: {source.format} reads files; add path = "in", the folder they are in'
        return
    try:
        local = None if _PATTERN & set(source.path) else local_path(source.path)
        missing = local is not None and not local.exists()
    except (OSError, SparkOptionsError) as problem:
        yield f"[source]: path: {problem}"
        return
    if missing:
        yield f"[source]: path: there is nothing at {source.path}; make the folder, or name another"


def _of_kafka(options: set[str]) -> Iterator[str]:
    if _SERVERS not in options:
        yield f'[source.options]: kafka needs its servers: add "{_SERVERS}" = "host:9092"'
    if not options & {name.lower() for name in _TOPICS}:
        yield '[source.options]: kafka needs topics: add subscribe = "orders", or subscribePattern or assign'


def notes_on_format(source: FormatSource) -> Iterator[str]:
    """What is missing unless the session brings it along."""
    import pyspark

    jars = Path(pyspark.__path__[0], "jars").glob("spark-sql-kafka-0-10_*.jar")
    if source.format.lower() == KAFKA and not any(jars):
        yield f"[source]: {kafka_jar()}"


def kafka_jar() -> str:
    """How to get what Spark reads Kafka with."""
    import pyspark

    version = pyspark.__version__
    return (
        "kafka is read with a jar that PySpark does not bring along: give run "
        f"--conf spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"
    )
