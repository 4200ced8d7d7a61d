"""The message, its system fields, and the one definition of a valid message (`validate`).

A header value is a typed scalar: text, a 64-bit integer, a finite float or a boolean; `None` means that
the header is absent. Any other value that arrives over AMQP (a list, a table, bytes, void, NaN, an integer
beyond 64 bits) becomes `OPAQUE` in `project_headers`: it exists, but no filter can compare it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypedDict, cast

from headgate.checks import suggest
from headgate.errors import InvalidMessage

Scalar: TypeAlias = str | int | float | bool

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
MAX_NAME_BYTES: Final = 255  # AMQP's short string, so that every message can leave over AMQP
MAX_PRIORITY: Final = 255


@dataclass(frozen=True, slots=True)
class SystemField:
    """A field of the message itself: an attribute of `Message`, a column of a stream, `sys.<name>` in a filter."""

    name: str
    kind: Literal["string", "int"]
    required: bool = False  # every message has a value
    sql_column: str = ""  # in the tables of queues, where it is not called `name`
    aliases: tuple[str, ...] = ()  # what AMQP's filter language calls it

    @property
    def column(self) -> str:
        """The column that holds it in the tables of queues."""
        return self.sql_column or self.name


# The only list of them: filters, columns, streams, queues and Spark derive theirs from it.
SYSTEM_FIELDS: Final = (
    SystemField("topic", "string", required=True),
    SystemField("priority", "int", required=True, aliases=("header.priority", "h.priority")),
    SystemField("timestamp", "int"),
    SystemField(
        "id",
        "string",
        sql_column="message_id",
        aliases=("properties.message_id", "p.message_id", "sys.MessageId"),
    ),
    SystemField("filter_value", "string"),
    SystemField("key", "string"),
)

# The standard properties of AMQP 1.0 and 0-9-1 that are not fields of their own here.
PROPERTY_NAMES: Final = frozenset(
    [
        "user_id",
        "to",
        "subject",
        "reply_to",
        "correlation_id",
        "content_type",
        "content_encoding",
        "absolute_expiry_time",
        "creation_time",
        "group_id",
        "group_sequence",
        "reply_to_group_id",
        "expiration",
        "type",
        "app_id",
        "amqp",  # the head of a message as it came over AMQP 0-9-1, in base64; see `headgate.amqp.stream_codec`
    ]
)


class Opaque:
    """A header value that exists, but that no filter can compare."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "OPAQUE"

    def __reduce__(self) -> str:
        return "OPAQUE"


OPAQUE: Final = Opaque()

HeaderValue: TypeAlias = Scalar | Opaque | None


@dataclass(frozen=True, slots=True, init=False)
class Message:
    """One message. Building one checks nothing; publishing does, see `validate`.

    It copies a dict of headers and a bytearray, so that both can be used again for the next message.
    The AMQP properties (`correlation_id`, `reply_to`, `content_type`, `expiration`, …) are given by name,
    `Message(b"…", reply_to="answers")`, and kept in `properties`.
    """

    payload: bytes
    topic: str
    headers: Mapping[str, HeaderValue]
    priority: int
    timestamp: int | None  # microseconds since 1970 UTC; None: stamped when published
    id: str | None
    filter_value: str | None
    key: str | None
    properties: Mapping[str, HeaderValue]

    def __init__(
        self,
        payload: bytes = b"",
        topic: str = "",
        headers: Mapping[str, HeaderValue] | None = None,
        priority: int = 0,
        timestamp: int | None = None,
        id: str | None = None,
        filter_value: str | None = None,
        key: str | None = None,
        properties: Mapping[str, HeaderValue] | None = None,
        **named_properties: HeaderValue,
    ) -> None:
        put = object.__setattr__
        put(self, "payload", payload if type(payload) is bytes else _own_bytes(payload))
        put(self, "topic", topic)
        if type(headers) is dict:
            put(self, "headers", headers.copy())
        else:
            put(self, "headers", {} if headers is None else _own_mapping(headers))
        put(self, "priority", priority)
        put(self, "timestamp", timestamp)
        put(self, "id", id)
        put(self, "filter_value", filter_value)
        put(self, "key", key)
        if not named_properties and not properties:
            properties = {}
        else:
            properties = _gather_properties(properties, named_properties)
            if (
                isinstance(properties, dict) and "message_id" in properties
            ):  # AMQP's name for what is `id` here
                message_id = properties.pop("message_id")
                put(self, "id", message_id if id is None else id)
        put(self, "properties", properties)

    @property
    def correlation_id(self) -> HeaderValue:
        return self.properties.get("correlation_id")

    @property
    def reply_to(self) -> HeaderValue:
        return self.properties.get("reply_to")

    @property
    def content_type(self) -> HeaderValue:
        return self.properties.get("content_type")

    @property
    def expiration(self) -> HeaderValue:
        return self.properties.get("expiration")

    @classmethod
    def from_json(cls, value: object, **fields: Any) -> Message:
        """Make a message with `value` as JSON in its payload, and the content type of JSON."""
        payload = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        return cls(payload, **{"content_type": "application/json", **fields})

    def json(self) -> Any:
        """Decode the payload as JSON."""
        return json.loads(self.payload)


class MessageDetails(TypedDict, total=False):
    """The keywords of `Message` after payload, topic, headers and priority."""

    timestamp: int | None
    id: str | None
    filter_value: str | None
    key: str | None
    properties: Mapping[str, HeaderValue] | None
    user_id: HeaderValue
    to: HeaderValue
    subject: HeaderValue
    reply_to: HeaderValue
    correlation_id: HeaderValue
    content_type: HeaderValue
    content_encoding: HeaderValue
    absolute_expiry_time: HeaderValue
    creation_time: HeaderValue
    group_id: HeaderValue
    group_sequence: HeaderValue
    reply_to_group_id: HeaderValue
    expiration: HeaderValue
    type: HeaderValue
    app_id: HeaderValue
    amqp: HeaderValue


class MessageFields(MessageDetails, total=False):
    """The keywords of `Message` after the payload."""

    topic: str
    headers: Mapping[str, HeaderValue] | None
    priority: int


def as_message(message: Message | bytes, fields: MessageFields) -> Message:
    """Build the message of a payload and its fields; return a Message as it is."""
    if not isinstance(message, Message):
        return Message(message, **fields)
    if fields:
        raise InvalidMessage(
            min(fields), "a Message has fields of its own; leave it out, or publish the payload"
        )
    return message


def check_many(messages: object) -> None:
    """Refuse one message, or one payload, where many are meant: bytes are a sequence of numbers."""
    if not isinstance(messages, Iterable) or isinstance(
        messages, bytes | bytearray | str | Mapping
    ):
        kind = type(messages).__name__
        raise InvalidMessage(
            "messages", f"must be a list of messages or payloads, not {kind}; publish() takes one"
        )


def _own_bytes(payload: Any) -> Any:
    """Copy mutable bytes; return anything else as it is, for `validate` to refuse."""
    return bytes(payload) if isinstance(payload, bytearray | memoryview) else payload


def _own_mapping(headers: Any) -> Any:
    return dict(headers) if isinstance(headers, Mapping) else headers


class _Draft:
    """A message that is being made from stored fields: with the slots of a message, but not frozen."""

    __slots__ = Message.__slots__


def message_of_fields(
    payload: bytes,
    topic: str,
    headers: dict[str, HeaderValue],
    priority: int = 0,
    timestamp: int | None = None,
    id: str | None = None,
    filter_value: str | None = None,
    key: str | None = None,
    properties: dict[str, HeaderValue] | None = None,
) -> Message:
    """Make a message of fields that are known to be valid, in a third of the time of Message()."""
    draft: Any = _Draft()
    draft.payload = payload
    draft.topic = topic
    draft.headers = headers
    draft.priority = priority
    draft.timestamp = timestamp
    draft.id = id
    draft.filter_value = filter_value
    draft.key = key
    draft.properties = {} if properties is None else properties
    draft.__class__ = Message  # frozen from here on
    return cast(Message, draft)


def with_filter_value(message: Message, filter_value: str | None) -> Message:
    """Copy a message, with another filter value."""
    # Not by `message_of_fields`: this runs once a message, and a call with nine arguments takes as long as all the rest.
    draft: Any = _Draft()
    draft.payload = message.payload
    draft.topic = message.topic
    draft.headers = message.headers
    draft.priority = message.priority
    draft.timestamp = message.timestamp
    draft.id = message.id
    draft.filter_value = filter_value
    draft.key = message.key
    draft.properties = message.properties
    draft.__class__ = Message  # frozen from here on
    return draft  # type: ignore[no-any-return]  # a cast would be one more call


def _gather_properties(properties: Any, named: Mapping[str, HeaderValue]) -> Any:
    unknown = named.keys() - PROPERTY_NAMES
    if unknown:
        name, known = min(unknown), sorted({*Message.__slots__, *PROPERTY_NAMES})
        raise TypeError(
            f"Message() got an unexpected keyword argument {name!r}; {suggest(name, known)}"
        )
    if not isinstance(properties, Mapping | None):
        return properties  # for `validate` to refuse
    return {**(properties or {}), **{k: v for k, v in named.items() if v is not None}}


# ---- the valid message -------------------------------------------------------------------------------

# Characters that no engine, file or protocol stores in text, and those that no name may hold.
UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
CONTROL: Final = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_OPTIONAL_TEXTS: Final = tuple(
    field.name for field in SYSTEM_FIELDS if field.kind == "string" and not field.required
)


def validate(message: Message) -> None:
    """Refuse a message that some engine could not store or compare; the error names the field and the remedy.

    Faster checks elsewhere are tested against this one (tests/conformance/test_valid_messages.py).
    """
    if not isinstance(message.payload, bytes | bytearray | memoryview):
        kind = type(message.payload).__name__
        raise InvalidMessage(
            "payload", f"must be bytes, not {kind}; encode it, or use Message.from_json"
        )
    _check_mapping("headers", message.headers)
    _check_mapping("properties", message.properties)
    _check_name("topic", message.topic)
    if type(message.priority) is not int or not 0 <= message.priority <= MAX_PRIORITY:
        raise InvalidMessage(
            "priority", f"must be an integer from 0 to {MAX_PRIORITY}, not {message.priority!r}"
        )
    if message.timestamp is not None:
        _check_int("timestamp", message.timestamp, "microseconds since 1970 UTC, as an integer")
    for field in _OPTIONAL_TEXTS:
        value = getattr(message, field)
        if value is not None:
            _check_name(field, value)
    for name, header in message.headers.items():
        check_header_name(name)
        check_header_value(f"header {name!r}", header)
    for name, header in message.properties.items():
        if name not in PROPERTY_NAMES:
            known = ", ".join(sorted(PROPERTY_NAMES))
            raise InvalidMessage(
                f"property {name!r}", f"is not an AMQP property; use a header, or one of {known}"
            )
        check_header_value(f"property {name!r}", header)


def _check_mapping(where: str, value: object) -> None:
    if type(value) is not dict and not isinstance(value, Mapping):
        kind = type(value).__name__
        raise InvalidMessage(where, f'must be a dict such as {{"region": "EU"}}, not {kind}')


def check_header_name(name: object) -> None:
    """Refuse a header name unless it is text of at most 255 bytes without control characters."""
    if type(name) is not str:
        raise InvalidMessage(
            f"header {name!r}", f"header names must be str, not {type(name).__name__}"
        )
    _check_size(f"header {name[:40]!r}", name)
    if CONTROL.search(name):
        raise InvalidMessage(
            f"header {name!r}", "header names cannot hold control characters or lone surrogates"
        )


def check_header_value(where: str, value: object) -> None:
    """Refuse a header value unless it is text, an int64, a finite float, a bool, OPAQUE, or None for absent."""
    kind = type(value)
    if kind is str:
        if UNSTORABLE.search(cast(str, value)):
            raise InvalidMessage(
                where, "text cannot hold NUL or lone surrogates; move it to the payload"
            )
    elif kind is int:
        _check_int(where, value, "a 64-bit integer; send larger numbers as text")
    elif kind is float:
        if not math.isfinite(cast(float, value)):
            raise InvalidMessage(
                where, f"{value} is not a finite number; leave the header out instead"
            )
    elif kind is not bool and value is not None and value is not OPAQUE:
        raise InvalidMessage(where, f"must be str, int, float or bool, not {kind.__name__}")


def project_headers(headers: Mapping[str, object]) -> Mapping[str, HeaderValue]:
    """Convert headers that arrived over AMQP: values that filters can compare, and `OPAQUE` for all others.

    Returns the given headers where no value has to be converted.
    """
    for value in headers.values():  # most are short texts and integers: they are not worth a call
        kind = type(value)
        if kind is str:
            if not value.isascii() or "\0" in value:  # type: ignore[attr-defined, operator]
                break
        elif kind is int:
            if not INT64_MIN <= value <= INT64_MAX:  # type: ignore[operator]
                break
        elif kind is not bool:
            break
    else:
        return cast(Mapping[str, HeaderValue], headers)
    return {name: project_header_value(value) for name, value in headers.items()}


def project_header_value(value: object) -> HeaderValue:
    """Convert a value to text, a number or a boolean; `OPAQUE` when `validate` would refuse it."""
    if type(value) is bool or (type(value) is int and INT64_MIN <= value <= INT64_MAX):
        return value
    for kind in (bool, str, int, float):
        if isinstance(value, kind):
            projected = kind(value)
            break
    else:
        return OPAQUE
    try:
        check_header_value("", projected)
    except InvalidMessage:
        return OPAQUE
    return projected


def _check_int(where: str, value: object, meaning: str) -> None:
    if type(value) is not int:
        raise InvalidMessage(where, f"must be {meaning}, not {value!r}")
    if not INT64_MIN <= value <= INT64_MAX:
        bits = value.bit_length()  # Python refuses to print very long integers
        shown = f"{value!r}" if bits < 256 else f"one of {bits:,} bits"
        raise InvalidMessage(where, f"must be {meaning}, not {shown}")


def _check_name(where: str, value: object) -> None:
    if type(value) is not str:
        raise InvalidMessage(where, f"must be str, not {type(value).__name__}")
    _check_size(where, value)
    if UNSTORABLE.search(value):
        raise InvalidMessage(where, "cannot hold NUL or lone surrogates")


def _check_size(where: str, value: str) -> None:
    # A code point has at most four bytes: only longer text has to be encoded to know its size.
    if (
        len(value) * 4 > MAX_NAME_BYTES
        and (size := len(value.encode("utf-8", "surrogatepass"))) > MAX_NAME_BYTES
    ):
        raise InvalidMessage(where, f"is {size} bytes long, the limit is {MAX_NAME_BYTES}")
