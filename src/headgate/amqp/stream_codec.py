"""Messages of AMQP in streams: what a stream stores of them, and what the consumers of a stream queue are sent.

The stream's message has the body as its payload, the routing key as its topic, and those headers and properties that a
filter can compare; `timestamp` is when it arrived. Its property `amqp` is the head as it came, in base64:

    u16     length of the next two
    ...     exchange and routing key, each as short text
    ...     flags and properties, as in the content header

A consumer gets the properties byte for byte, and the header `x-stream-offset`; as in RabbitMQ, a message without a delivery
mode gets the mode 1. A message without this property, or whose other fields say something else because they were
changed since, is sent as its fields say.
"""

from __future__ import annotations

import binascii
from typing import Any, Final, NamedTuple, TypeVar

from headgate.amqp.content import (
    FRAME_MAX,
    OVERHEAD,
    Content,
    content_frames,
    project_id,
    project_properties,
)
from headgate.amqp.properties import (
    PERSISTENT,
    PROPERTIES,
    Properties,
    content_header,
    decode_properties,
    encode_properties,
)
from headgate.amqp.tables import Malformed, decode_table, encode_table, short_text
from headgate.broker import FILTER_VALUE, stored_filter_value
from headgate.errors import InvalidMessage
from headgate.message import (
    OPAQUE,
    UNSTORABLE,
    HeaderValue,
    Message,
    check_header_name,
    message_of_fields,
    project_header_value,
)

HEAD: Final = "amqp"
OFFSET: Final = "x-stream-offset"
MOST_CACHED: Final = 2_048  # heads that are remembered

# Flags of the content header, and the properties that are columns of their own in a stream.
_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS, _DELIVERY_MODE = 0x8000, 0x4000, 0x2000, 0x1000
_TRANSIENT: Final = b"\x01"
_OFFSET_FIELD: Final = short_text(OFFSET) + b"l"
_MICROSECONDS: Final = 1_000_000


class ProjectedHead(NamedTuple):
    """The fields that filters read, taken from the properties of a message."""

    headers: dict[str, HeaderValue]
    priority: int
    id: str | None
    filter_value: str | None
    properties: dict[str, HeaderValue]  # but the head itself


class SentHead(NamedTuple):
    """The head of a message of a stream, split where `x-stream-offset` is inserted."""

    topic: str
    projected: ProjectedHead
    route: bytes
    properties: Properties
    before: bytes  # flags, and what stands in front of the headers
    table: bytes  # the headers, without their length
    after: bytes


Key = TypeVar("Key")
Value = TypeVar("Value")

# Threads share them: nothing is looked up twice, because another thread may clear them between.
_projected: dict[bytes, ProjectedHead] = {}
_sent: dict[str, SentHead | None] = {}
_names: dict[str, bool] = {}  # whether a stream can have a header of this name
_UNKNOWN: Final = object()


def to_stream(content: Content) -> Message:
    """The message that a stream stores."""
    properties = content.properties
    projected = _projected.get(properties.raw)
    if projected is None:
        projected = _remember(_projected, properties.raw, _project(properties))
    head, body = content.parts()
    return message_of_fields(
        body,
        _storable(content.routing_key),
        projected.headers,
        projected.priority,
        None,
        projected.id,
        projected.filter_value,
        None,
        {**projected.properties, HEAD: binascii.b2a_base64(head, newline=False).decode()},
    )


def from_stream(offset: int, message: Message) -> Content:
    """The message of a stream as a consumer gets it."""
    sent = _find_head(message) or _head_of_fields(message)
    fields = b"".join((sent.table, _OFFSET_FIELD, offset.to_bytes(8, "big")))
    raw = b"".join((sent.before, len(fields).to_bytes(4, "big"), fields, sent.after))
    body = message.payload
    header = content_header(raw, len(body))
    frames = content_frames(1, header, body, FRAME_MAX)
    is_single = len(body) <= FRAME_MAX - OVERHEAD
    return Content(
        sent.route, frames, 1, len(header) + OVERHEAD, is_single, sent.properties, len(body)
    )


def _remember(cache: dict[Key, Value], key: Key, value: Value) -> Value:
    if len(cache) >= MOST_CACHED:
        cache.clear()
    cache[key] = value
    return value


# ---- what filters see


def _project(properties: Properties) -> ProjectedHead:
    values, headers = properties.values, properties.headers
    value = headers.get(FILTER_VALUE)
    return ProjectedHead(
        {name: _project_value(one) for name, one in headers.items() if _is_name(name)},
        properties.priority,
        project_id(values),
        stored_filter_value(value) if isinstance(value, str) and value else None,
        project_properties(values),
    )


def _project_value(value: Any) -> HeaderValue:
    """As `project_header_value`, and faster for most values."""
    if type(value) is bool or (type(value) is str and value.isprintable()):
        return value
    return project_header_value(value)


def _is_name(name: str) -> bool:
    known = _names.get(name)
    return _remember(_names, name, _check_name(name)) if known is None else known


def _check_name(name: str) -> bool:
    try:
        check_header_name(name)
    except InvalidMessage:
        return False
    return True


def _storable(text: str) -> str:
    return UNSTORABLE.sub("\ufffd", text) if "\0" in text else text


# ---- what consumers are sent


def _find_head(message: Message) -> SentHead | None:
    """The head as it was published; None without one, or when a field of the message was changed since."""
    text = message.properties.get(HEAD)
    if not isinstance(text, str):
        return None
    known: Any = _sent.get(text, _UNKNOWN)
    sent: SentHead | None = (
        _remember(_sent, text, _decode_head(text)) if known is _UNKNOWN else known
    )
    if sent is None:
        return None
    projected = sent.projected
    same = (
        message.topic == sent.topic
        and message.headers == projected.headers
        and message.id == projected.id
        and message.priority == projected.priority
        and {**projected.properties, HEAD: text} == message.properties
    )
    return sent if same else None


def _decode_head(text: str) -> SentHead | None:
    try:
        head = binascii.a2b_base64(text)
        end = 2 + int.from_bytes(head[:2], "big")
        route, raw = head[2:end], head[end:]
        return _take_apart(route, Properties(raw, decode_properties(raw)))
    except (binascii.Error, Malformed, UnicodeDecodeError, IndexError):
        return None  # this property was written by another program


def _take_apart(route: bytes, properties: Properties) -> SentHead:
    raw = properties.raw
    flags, position = raw[0] << 8 | raw[1], 2
    for flag in (_CONTENT_TYPE, _CONTENT_ENCODING):
        if flags & flag:
            position += 1 + raw[position]
    before, table = raw[2:position], b""
    if flags & _HEADERS:
        end = position + 4 + int.from_bytes(raw[position : position + 4], "big")
        table, position = raw[position + 4 : end], end
    if OFFSET in properties.headers:  # it came out of a stream, and says where it was there
        kept, _ = decode_table(raw, position - len(table) - 4)
        del kept[OFFSET]
        table = encode_table(kept)[4:]
    after = raw[position:] if flags & _DELIVERY_MODE else _TRANSIENT + raw[position:]
    flags |= _HEADERS | _DELIVERY_MODE
    key = route[2 + route[0] :].decode()
    return SentHead(
        _storable(key),
        _project(properties),
        route,
        properties,
        flags.to_bytes(2, "big") + before,
        table,
        after,
    )


def encode_for_publish(message: Message, id: str) -> bytes:
    """The properties under which a message of the library is published, persistent; `id` is for a message without an id."""
    known = _find_head(message)
    values = dict(known.properties.values) if known is not None else _values_of(message)
    values.pop("user_id", None)  # a broker refuses that of another user
    return encode_properties({"message_id": id, **values, "delivery_mode": PERSISTENT})


def _head_of_fields(message: Message) -> SentHead:
    """The head of a message that did not come over AMQP."""
    raw = encode_properties(_values_of(message))
    return _take_apart(
        short_text("") + short_text(message.topic), Properties(raw, decode_properties(raw))
    )


def _values_of(message: Message) -> dict[str, Any]:
    """The properties that the fields of a message make."""
    values: dict[str, Any] = {
        name: message.properties[name]
        for name, letter in PROPERTIES
        if letter == "s" and isinstance(message.properties.get(name), str)
    }
    headers = {
        name: value for name, value in message.headers.items() if value not in (OPAQUE, None)
    }
    if message.filter_value is not None:
        headers.setdefault(FILTER_VALUE, message.filter_value)
    values["headers"] = headers
    if message.priority:
        values["priority"] = message.priority
    if message.id is not None:
        values["message_id"] = message.id
    if message.timestamp is not None and message.timestamp >= 0:
        values["timestamp"] = message.timestamp // _MICROSECONDS
    return {name: value for name, value in values.items() if not _is_too_long(value)}


def _is_too_long(value: object) -> bool:
    return isinstance(value, str) and len(value.encode()) > 255
