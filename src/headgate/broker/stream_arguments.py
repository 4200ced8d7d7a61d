"""The arguments of a consumer of a stream queue, and their checks. The texts of refusals are those of RabbitMQ 4.0.5."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypedDict

from headgate.broker.filter_argument import ParsedFilter, read_filter
from headgate.broker.queue_definition import QueueDefinition, age_seconds, type_name
from headgate.broker.refusals import PreconditionFailed
from headgate.message import MAX_NAME_BYTES, UNSTORABLE
from headgate.routing import X_FILTER
from headgate.streams import Fsync, StreamOptionFields, StreamOptions

OFFSET: Final = "x-stream-offset"
VALUES: Final = "x-stream-filter"
UNFILTERED: Final = "x-stream-match-unfiltered"
EXACT: Final = "x-stream-filter-exact"
FILTER_VALUE: Final = "x-stream-filter-value"  # a header of messages
LEAST_SEGMENT_BYTES: Final = 4_096

StreamStart = str | int | datetime | timedelta


class ConsumeArguments(TypedDict, total=False):
    """Keywords of `Stream.consume`."""

    filter_values: tuple[str, ...]
    match_unfiltered: bool
    whole_chunks: bool


@dataclass(frozen=True, slots=True)
class StreamSubscription:
    """Where a consumer of a stream begins, and which messages it gets."""

    start: StreamStart = "next"
    filter: ParsedFilter | None = None
    values: tuple[str, ...] | None = None  # filter values; None: all messages
    match_unfiltered: bool = False
    exact: bool = False  # else whole chunks that may hold one of the values

    @property
    def keywords(self) -> ConsumeArguments:
        if self.values is None:
            return {}
        return {
            "filter_values": self.values,
            "match_unfiltered": self.match_unfiltered,
            "whole_chunks": not self.exact,
        }


def read_subscription(where: str, arguments: Mapping[str, Any]) -> StreamSubscription:
    """The subscription that the arguments of a consumer describe; `where` names the queue in a refusal."""
    wanted, values = arguments.get(X_FILTER), _read_values(arguments.get(VALUES))
    return StreamSubscription(
        start=_read_start(where, arguments.get(OFFSET)),
        filter=None if wanted is None else read_filter(wanted, where),
        values=values,
        # For RabbitMQ a message with an empty filter value has none.
        match_unfiltered=arguments.get(UNFILTERED) is True or "" in (values or ()),
        exact=_read_flag(where, arguments, EXACT),
    )


def _read_start(where: str, value: Any) -> StreamStart:
    match value:
        case None:
            return "next"
        case "first" | "last" | "next":
            return str(value)
        case bool():
            pass
        case int():
            return max(value, 0)
        case datetime():
            return value
        case str() if (seconds := age_seconds(value)) is not None:
            return timedelta(seconds=seconds)
    said = f'<<"{value}">>' if isinstance(value, str) else value
    raise PreconditionFailed(
        f"invalid arg '{OFFSET}' for {where}: "
        f"{{invalid_stream_offset_arg,{{{type_name(value)},{said}}}}}"
    )


def _read_values(value: Any) -> tuple[str, ...] | None:
    """The filter values; RabbitMQ ignores what is no text, and an array without a text selects no value."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        return None
    return tuple(stored_filter_value(one) for one in value if isinstance(one, str))


def _read_flag(where: str, arguments: Mapping[str, Any], name: str) -> bool:
    value = arguments.get(name, False)
    if not isinstance(value, bool):
        raise PreconditionFailed(
            f"invalid arg '{name}' for {where}: \"expected boolean, got {type_name(value)}\""
        )
    return value


def stored_filter_value(text: str) -> str:
    """A filter value as the stream stores it: a digest where the text is too long, or has characters that no stream stores."""
    if len(text.encode("utf-8", "surrogatepass")) <= MAX_NAME_BYTES and not UNSTORABLE.search(text):
        return text
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def stream_options(definition: QueueDefinition, fsync: Fsync) -> StreamOptionFields:
    """The options of a queue's stream. What its definition does not say, or says no more, is as in a new stream."""
    age, most, segment = definition.max_age, definition.max_bytes, definition.segment_bytes
    options: StreamOptionFields = {
        "fsync": fsync,
        "filter_size": definition.filter_size or 0,
        "max_age": None if age is None else max(timedelta(microseconds=1), timedelta(seconds=age)),
        "max_bytes": None if most is None else max(1, most),
        "segment_bytes": StreamOptions().segment_bytes
        if segment is None
        else max(LEAST_SEGMENT_BYTES, segment),
    }
    # Without, others may have chosen headers, as `headgate stream advise` tells them to.
    if definition.indexed:
        options["indexed"] = definition.indexed
    return options
