"""Messages as rows: the columns all engines share, in their order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from headgate.filters.targets.sql import headers_json
from headgate.message import OPAQUE, HeaderValue, Message, message_of_fields
from headgate.queues.contract import Claimed, Row, SqlValue, Standing, State

# What every query that reads messages selects, in this order; the payload last, behind everything small.
MESSAGE_COLUMNS: Final = (
    "topic",
    "headers",
    "properties",
    "priority",
    "timestamp",
    "message_id",
    "filter_value",
    "key",
    "payload",
)


@cache
def columns_of(alias: str) -> str:
    """The columns of a message, for a SELECT list."""
    return ", ".join(f"{alias}.{column}" for column in MESSAGE_COLUMNS)


@cache
def filtered_columns_of(alias: str) -> str:
    """Those a filter can look at: all but the payload."""
    return ", ".join(f"{alias}.{column}" for column in MESSAGE_COLUMNS[:-1])


def row_of(message: Message, timestamp_us: int | None) -> tuple[SqlValue, ...]:
    """The message as MESSAGE_COLUMNS."""
    return (
        message.topic,
        headers_json(message.headers),
        headers_json(message.properties),
        message.priority,
        timestamp_us if message.timestamp is None else message.timestamp,
        message.id,
        message.filter_value,
        message.key,
        bytes(message.payload),
    )


def message_of(row: Sequence[Any]) -> Message:
    """The message from MESSAGE_COLUMNS."""
    topic, headers, properties, priority, timestamp, message_id, filter_value, key, payload = row
    return message_of_fields(
        bytes(payload),
        topic,
        {} if headers == "{}" else _headers_of(headers),
        priority,
        timestamp,
        message_id,
        filter_value,
        key,
        {} if properties == "{}" else _headers_of(properties),
    )


def messages_of(columns: Sequence[Sequence[Any]]) -> Iterator[Message]:
    """The messages from MESSAGE_COLUMNS, each of them given as a list."""
    topics, headers, properties, priorities, timestamps, ids, filter_values, keys, payloads = (
        columns
    )
    return map(
        message_of_fields,
        payloads,
        topics,
        [{} if document == "{}" else _headers_of(document) for document in headers],
        priorities,
        timestamps,
        ids,
        filter_values,
        keys,
        [{} if document == "{}" else _headers_of(document) for document in properties],
    )


def keys_json(headers: Mapping[str, HeaderValue], wanted: Sequence[str]) -> str:
    """The filter headers that the message has."""
    if not wanted:
        return "{}"
    return headers_json({name: headers[name] for name in wanted if name in headers})


def claimed_of(row: Row) -> Claimed:
    """From id, token, attempts, group, then MESSAGE_COLUMNS."""
    return Claimed(row[0], row[1], row[2], message_of(row[4:]), row[3])


def standing_of(row: Row) -> Standing:
    """From id, state, attempts, visible_at, group, reason, then MESSAGE_COLUMNS."""
    return Standing(row[0], State(row[1]), row[2], row[3], message_of(row[6:]), row[4], row[5])


def _headers_of(document: str | Mapping[str, Any]) -> dict[str, HeaderValue]:
    """Text, or what psycopg has read already. What is no scalar is there, and that is all."""
    values: dict[str, Any] = json.loads(document) if isinstance(document, str) else dict(document)
    for name, value in values.items():
        if not isinstance(value, str | int | float):
            values[name] = OPAQUE
    return values
