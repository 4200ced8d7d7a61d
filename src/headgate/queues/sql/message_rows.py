"""Messages as rows of a SQL database: the columns, their order, and how rows become messages again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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
from headgate.queues.engine import ClaimedMessage, DeliverySnapshot, Operation, Row, SqlValue, State

if TYPE_CHECKING:
    from headgate.queues.sql.dialect import QueueDialect

# The columns that every query of messages selects, in this order; the payload, which may be large, is the last.
_TOPIC, *_FIELDS = (field.column for field in SYSTEM_FIELDS)
MESSAGE_COLUMNS: Final = (_TOPIC, "headers", "properties", *_FIELDS, "payload")

_WIDTH: Final = len(MESSAGE_COLUMNS)
_TEXTS: Final = frozenset(MESSAGE_COLUMNS) - {"priority", "timestamp", "payload"}
# What JSON may contain and no message has: large numbers, escaped surrogates and NUL. Such documents are checked.
_SUSPICIOUS: Final = re.compile(r"\\u|\d{19}|\d[eE]|NaN|Infinity")


class Undecodable(QueueError):
    """A stored row is not a valid message: it was written by SQL that bypassed the checks."""


class MessageRow(NamedTuple):
    """A row that ends with a message's columns."""

    prefix: Row  # the columns before the message's
    message: Message
    problem: str | None  # why it cannot be decoded; then the message holds only what could be


@cache
def columns_of(alias: str) -> str:
    """MESSAGE_COLUMNS for a SELECT list."""
    return ", ".join(f"{alias}.{column}" for column in MESSAGE_COLUMNS)


@cache
def filterable_columns_of(alias: str) -> str:
    """The columns that a filter can read, for a SELECT list: all but the payload."""
    return ", ".join(f"{alias}.{column}" for column in MESSAGE_COLUMNS[:-1])


def row_of(message: Message, timestamp_us: int | None) -> tuple[SqlValue, ...]:
    """The values of MESSAGE_COLUMNS for the message; a message without a timestamp gets `timestamp_us`."""
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
    """The message with these values of MESSAGE_COLUMNS."""
    topic, headers, properties, priority, timestamp, message_id, filter_value, key, payload = row
    if type(topic) is not str or "\0" in topic:
        raise Undecodable(f"the topic {topic!r} is not text, or contains NUL")
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
    """The messages with these MESSAGE_COLUMNS, each column a list."""
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


def keys_json(headers: Mapping[str, HeaderValue], filter_headers: Sequence[str]) -> str:
    """The filter headers that the message has, as JSON."""
    if not filter_headers:
        return "{}"
    return headers_json({name: headers[name] for name in filter_headers if name in headers})


def claimed_of(row: Row) -> ClaimedMessage:
    """The claimed message of a row: id, token, attempts, group, then MESSAGE_COLUMNS."""
    return ClaimedMessage(row[0], row[1], row[2], message_of(row[4:]), row[3])


def snapshot_of(row: MessageRow) -> DeliverySnapshot:
    """The snapshot of a row with the prefix id, state, attempts, visible_at, group, reason."""
    (id, state, attempts, visible_at, group, reason), message, problem = row
    return DeliverySnapshot(
        id, State(state), attempts, visible_at, message, group, reason or problem
    )


def read_messages(
    dialect: QueueDialect, name: str, *params: SqlValue, alias: str = "m", **gaps: str
) -> Operation[list[MessageRow]]:
    """Run a statement whose rows end with a message's columns.

    If a row cannot be decoded, the statement runs once more and selects the columns in a form that always can be.
    """
    try:
        rows = yield dialect.statement(name, *params, columns=columns_of(alias), **gaps)
        return [MessageRow(row[:-_WIDTH], message_of(row[-_WIDTH:]), None) for row in rows]
    except Undecodable:
        raw = dialect.raw_columns(alias)
        rows = yield dialect.statement(name, *params, columns=raw, **gaps)
        return [MessageRow(row[:-_WIDTH], *salvage(row[-_WIDTH:])) for row in rows]


def _headers_of(document: str | Mapping[str, Any]) -> dict[str, HeaderValue]:
    """The headers in a JSON text, or in a document that psycopg has decoded. Values that are no scalars are OPAQUE."""
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


# ---- rows that were written past the checks ------------------------------------------------------------


@cache
def raw_columns_of(alias: str) -> str:
    """MESSAGE_COLUMNS for SQLite such that no text is decoded: texts as bytes, and 0 where a column of texts holds a blob."""
    return ", ".join(
        f"CASE typeof({alias}.{column}) WHEN 'blob' THEN 0 ELSE CAST({alias}.{column} AS BLOB) END"
        if column in _TEXTS
        else f"{alias}.{column}"
        for column in MESSAGE_COLUMNS
    )


def salvage(row: Sequence[Any]) -> tuple[Message, str | None]:
    """The message of raw columns and None; or, if it cannot be decoded, the readable part of it and the problem."""
    try:
        values = [
            _decode_text(name, value) if name in _TEXTS else value
            for name, value in zip(MESSAGE_COLUMNS, row, strict=True)
        ]
        return message_of(values), None
    except Undecodable as problem:
        printable = [_printable(value) for value in row]
        topic = printable[0] if isinstance(printable[0], str) else ""
        payload = row[-1] if isinstance(row[-1], bytes) else b""
        message = message_of_fields(payload, topic, {}, 0, row[4])
        return message, f"{problem}: {printable[1]}"[:1000]


def _decode_text(column: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, bytes | str):
        raise Undecodable(f"the {column} is not text")
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError as problem:
        raise Undecodable(f"the {column} is not UTF-8 ({problem.reason})") from problem


def _printable(value: Any) -> Any:
    if not isinstance(value, bytes):
        return value
    return value.decode(errors="backslashreplace").replace("\0", "\\x00")
