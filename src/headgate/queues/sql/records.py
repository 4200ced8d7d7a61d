"""Messages as rows: the columns all engines share, in their order."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from headgate.errors import QueueError
from headgate.filters.compile.sql import headers_json
from headgate.message import (
    OPAQUE,
    SYSTEM_FIELDS,
    HeaderValue,
    Message,
    check_header_name,
    check_header_value,
    message_of_fields,
)
from headgate.queues.engine import ClaimedMessage, DeliverySnapshot, Row, SqlValue, State

# What every query that reads messages selects, in this order; the payload last, behind everything small.
_TOPIC, *_FIELDS = (field.column for field in SYSTEM_FIELDS)
MESSAGE_COLUMNS: Final = (_TOPIC, "headers", "properties", *_FIELDS, "payload")

_TEXTS: Final = frozenset(MESSAGE_COLUMNS) - {"priority", "timestamp", "payload"}
# Where a document of headers may hold what no message has: large numbers, escaped surrogates and NUL.
_SUSPICIOUS: Final = re.compile(r"\\u|\d{19}|\d[eE]|NaN|Infinity")


class Undecodable(QueueError):
    """What is stored is no message: somebody wrote it past the checks."""


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
    if type(topic) is not str or "\0" in topic:
        raise Undecodable(f"the topic {topic!r} is not text, or holds NUL")
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


def claimed_of(row: Row) -> ClaimedMessage:
    """From id, token, attempts, group, then MESSAGE_COLUMNS."""
    return ClaimedMessage(row[0], row[1], row[2], message_of(row[4:]), row[3])


def standing_of(row: Row) -> DeliverySnapshot:
    """From id, state, attempts, visible_at, group, reason, then MESSAGE_COLUMNS."""
    return DeliverySnapshot(
        row[0], State(row[1]), row[2], row[3], message_of(row[6:]), row[4], row[5]
    )


def _headers_of(document: str | Mapping[str, Any]) -> dict[str, HeaderValue]:
    """Text, or what psycopg has read already. What is no scalar is there, and that is all."""
    try:
        values: dict[str, Any] = (
            json.loads(document) if isinstance(document, str) else dict(document)
        )
        if isinstance(document, str) and _SUSPICIOUS.search(document):
            _check_headers(values)
        items = values.items()
    except (ValueError, TypeError, AttributeError, RecursionError) as problem:
        raise Undecodable(f"the headers cannot be read: {problem}") from problem
    for name, value in items:
        if not isinstance(value, str | int | float):
            values[name] = OPAQUE
    return values


def _check_headers(values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        check_header_name(name)
        if isinstance(value, str | int | float):
            check_header_value(f"header {name!r}", value)


# ---- what somebody wrote past the checks -----------------------------------------------------------------


@cache
def raw_columns_of(alias: str) -> str:
    """MESSAGE_COLUMNS for SQLite, which decodes no text: texts as bytes, and 0 for what is no text."""
    return ", ".join(
        f"CASE typeof({alias}.{column}) WHEN 'blob' THEN 0 ELSE CAST({alias}.{column} AS BLOB) END"
        if column in _TEXTS
        else f"{alias}.{column}"
        for column in MESSAGE_COLUMNS
    )


def salvage(row: Sequence[Any]) -> tuple[Message, str | None]:
    """The message from raw columns; where it cannot be read, what can be shown of it, and why it cannot."""
    try:
        found = [
            _text(n, v) if n in _TEXTS else v for n, v in zip(MESSAGE_COLUMNS, row, strict=True)
        ]
        return message_of(found), None
    except Undecodable as problem:
        shown = [_shown(value) for value in row]
        topic = shown[0] if isinstance(shown[0], str) else ""
        payload = row[-1] if isinstance(row[-1], bytes) else b""
        return message_of_fields(payload, topic, {}, 0, row[4]), f"{problem}: {shown[1]}"[:1000]


def _text(column: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, bytes | str):
        raise Undecodable(f"the {column} is not text")
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError as problem:
        raise Undecodable(f"the {column} is not UTF-8 ({problem.reason})") from problem


def _shown(value: Any) -> Any:
    if not isinstance(value, bytes):
        return value
    return value.decode(errors="backslashreplace").replace("\0", "\\x00")
