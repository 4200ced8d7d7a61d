"""What is known about the source of a pipeline without Spark: what its format needs, and how its batches are limited.

A batch is stored in a queue in one transaction, and on SQLite no other publisher can write meanwhile: 300,000 messages
take about six seconds. So a pipeline that writes to a queue has a limit, unless its file sets another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headgate.errors import SparkOptionsError
from headgate.pipelines.definition import FormatSource, Pipeline, Source, StreamSource
from headgate.pipelines.places import is_queue, local_path

KAFKA: Final = "kafka"
PARSED_FORMATS: Final = ("csv", "json", "xml")  # text that is parsed record by record
QUEUE_BATCH_MESSAGES: Final = 50_000
QUEUE_BATCH_BYTES: Final = 32 << 20
_SCHEMA_FORMATS: Final = (*PARSED_FORMATS, "avro", "binaryfile", "orc", "parquet")
_SCHEMAS: Final = {
    "binaryfile": "path string, modificationTime timestamp, length long, content binary"
}
_FILE_FORMATS: Final = (*_SCHEMA_FORMATS, "delta", "text")
_PATTERN: Final = frozenset("*?[{")
_SERVERS: Final = "kafka.bootstrap.servers"
_TOPICS: Final = ("subscribe", "subscribePattern", "assign")
_MESSAGES: Final = "maxMessagesPerTrigger"
_BYTES: Final = "maxBytesPerTrigger"
_FORMAT_MESSAGES: Final = {"headgate": _MESSAGES, "kafka": "maxOffsetsPerTrigger"}


# ---- formats -----------------------------------------------------------------------------------------


def check_format(source: FormatSource) -> Iterator[str]:
    """Yield the problems that would keep Spark from reading the source."""
    format = source.format.lower()
    if format in _FILE_FORMATS:
        yield from _check_path(source)
    if format in _SCHEMA_FORMATS and source.schema is None:
        example = _SCHEMAS.get(format, "kind string, body string, amount long")
        yield (
            f"[source]: schema: {format} has no schema of its own when it is read as a stream; add one: "
            f'schema = "{example}"'
        )
    if format == KAFKA:
        yield from _check_kafka({key.lower() for key, _ in source.options})


def _check_path(source: FormatSource) -> Iterator[str]:
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
        yield f"[source]: path: there is nothing at {source.path}; create the folder, or name another"


def _check_kafka(options: set[str]) -> Iterator[str]:
    if _SERVERS not in options:
        yield f'[source.options]: kafka needs its servers: add "{_SERVERS}" = "host:9092"'
    if not options & {name.lower() for name in _TOPICS}:
        yield '[source.options]: kafka needs topics: add subscribe = "orders", or subscribePattern or assign'


# ---- limits of a batch -------------------------------------------------------------------------------


def messages_option(source: Source) -> str | None:
    """Return the option of the source that limits the messages of a batch; None if it has none."""
    if not isinstance(source, FormatSource):
        return _MESSAGES
    return _FORMAT_MESSAGES.get(source.format.lower())


def bytes_option(source: Source) -> str | None:
    """Return the option of the source that limits the bytes of a batch; None if it has none."""
    if isinstance(source, FormatSource):
        return _BYTES if source.format.lower() in ("headgate", *_FILE_FORMATS) else None
    return _BYTES if isinstance(source, StreamSource) else None


def limit_options(pipeline: Pipeline) -> dict[str, str]:
    """Return the options that limit a batch: those of the file, else defaults if a place is a queue."""
    source = pipeline.source
    own = {
        messages_option(source): pipeline.max_messages_per_trigger,
        bytes_option(source): pipeline.max_bytes_per_trigger,
    }
    limits = {**_default_limits(pipeline), **{key: value for key, value in own.items() if value}}
    return {key: str(value) for key, value in limits.items() if key is not None}


def _default_limits(pipeline: Pipeline) -> dict[str | None, int]:
    source = pipeline.source
    if not any(map(is_queue, pipeline.places())) or _has_own_limit(source):
        return {}
    return {messages_option(source): QUEUE_BATCH_MESSAGES, bytes_option(source): QUEUE_BATCH_BYTES}


def _has_own_limit(source: Source) -> bool:
    """Whether the options of a format already limit a batch; Spark refuses two limits for files."""
    options = source.options if isinstance(source, FormatSource) else ()
    return any(key.lower().endswith("pertrigger") for key, _ in options)
