"""How much of its source one batch of a pipeline covers.

A batch is stored in a queue in one transaction, and on SQLite nobody else publishes meanwhile: 300,000 messages take
about six seconds. So a pipeline that writes to a queue has a limit, unless its file says another one.
"""

from __future__ import annotations

from typing import Final

from headgate.pipelines.definition import FormatSource, Pipeline, Source, StreamSource
from headgate.pipelines.formats import FILES
from headgate.pipelines.queue_url import QUEUE

INTO_A_QUEUE_MESSAGES: Final = 50_000
INTO_A_QUEUE_BYTES: Final = 32 << 20
_MESSAGES: Final = "maxMessagesPerTrigger"
_BYTES: Final = "maxBytesPerTrigger"
_MESSAGES_OF_FORMAT: Final = {"headgate": _MESSAGES, "kafka": "maxOffsetsPerTrigger"}


def messages_option(source: Source) -> str | None:
    """The option of the source that limits the messages of a batch; None where it has none."""
    if not isinstance(source, FormatSource):
        return _MESSAGES
    return _MESSAGES_OF_FORMAT.get(source.format.lower())


def bytes_option(source: Source) -> str | None:
    """The option of the source that limits the bytes of a batch; None where it has none."""
    if isinstance(source, FormatSource):
        return _BYTES if source.format.lower() in ("headgate", *FILES) else None
    return _BYTES if isinstance(source, StreamSource) else None


def limit_options(pipeline: Pipeline) -> dict[str, str]:
    """The options that limit a batch: as the file says, else by default where a place is a queue."""
    source = pipeline.source
    said = {
        messages_option(source): pipeline.max_messages_per_trigger,
        bytes_option(source): pipeline.max_bytes_per_trigger,
    }
    limits = {**_defaults(pipeline), **{key: value for key, value in said.items() if value}}
    return {key: str(value) for key, value in limits.items() if key is not None}


def _defaults(pipeline: Pipeline) -> dict[str | None, int]:
    source = pipeline.source
    if not any(place.startswith(QUEUE) for place in pipeline.places()) or _has_own(source):
        return {}
    return {
        messages_option(source): INTO_A_QUEUE_MESSAGES,
        bytes_option(source): INTO_A_QUEUE_BYTES,
    }


def _has_own(source: Source) -> bool:
    """Whether the options of a format already limit a batch; Spark refuses two limits for files."""
    options = source.options if isinstance(source, FormatSource) else ()
    return any(key.lower().endswith("pertrigger") for key, _ in options)
