"""A message that was received over AMQP: its frames are kept, and sent unchanged wherever that is possible.

route     exchange and routing key, each as short text: the last bytes of basic.publish, and of basic.deliver
raw       the content header frame and the body frames
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from typing import Any, Final

from headgate.amqp.methods import FRAME, FRAME_BODY, FRAME_HEADER
from headgate.amqp.properties import (
    PROPERTIES,
    Properties,
    change_properties,
    content_header,
    encode_properties,
    expiration_problem,
    raw_headers,
    read_properties,
)
from headgate.amqp.tables import Malformed, change_table, short_text
from headgate.broker import BrokerMessage, PreconditionFailed
from headgate.message import (
    INT64_MAX,
    UNSTORABLE,
    HeaderValue,
    Message,
    project_header_value,
    project_headers,
)
from headgate.routing import Envelope

OVERHEAD: Final = 8  # bytes of a frame around its payload
PROPERTIES_AT: Final = 7 + 12  # in a content header frame: behind class, weight and body size
FRAME_MAX: Final = 131_072


class SeenMessage(Message):
    """A message as filters see it: headers at once, everything else when a filter asks for it."""

    __slots__ = ("_source",)

    def __init__(self, topic: str, source: Properties) -> None:
        _put_topic(self, topic)
        _put_headers(self, project_headers(source.headers))
        _put_source(self, source)

    def __getattr__(self, name: str) -> Any:
        """Fill all fields; Python calls this for a field that is not filled yet."""
        if name not in Message.__slots__:
            raise AttributeError(name)
        values = self._source.values
        timestamp = values.get("timestamp", INT64_MAX) * 1_000_000
        super().__init__(
            b"",
            self.topic,
            self.headers,
            priority=self._source.priority,
            timestamp=timestamp if timestamp <= INT64_MAX else None,
            id=project_id(values),
            properties=project_properties(values),
        )
        return getattr(self, name)


def project_id(values: Mapping[str, Any]) -> str | None:
    """The message id as filters see it."""
    id = values.get("message_id")
    return None if id is None or UNSTORABLE.search(id) else id


def project_properties(values: Mapping[str, Any]) -> dict[str, HeaderValue]:
    """What filters see of the properties that are not fields of a message; the publisher's time in milliseconds, as in AMQP 1.0."""
    seen = {
        name: project_header_value(value)
        for name, value in values.items()
        if name not in OWN_FIELDS
    }
    created = values.get("timestamp", INT64_MAX) * 1000
    if created <= INT64_MAX:
        seen["creation_time"] = created
    return seen


OWN_FIELDS: Final = frozenset(
    ("headers", "priority", "timestamp", "message_id", "delivery_mode", "cluster_id")
)
# A message is frozen; these are its slots.
_put_topic: Final = Message.__dict__["topic"].__set__
_put_headers: Final = Message.__dict__["headers"].__set__
_put_source: Final = SeenMessage.__dict__["_source"].__set__


class Content(BrokerMessage):
    """A published message."""

    __slots__ = ("body_size", "channel", "expiration", "head_size", "is_single", "persistent", "priority", "properties", "raw", "route")  # fmt: skip
    properties: Properties

    def __init__(
        self,
        route: bytes,
        raw: bytes,
        channel: int,
        head_size: int,
        is_single: bool,
        properties: Properties,
        body_size: int,
    ) -> None:
        self.route, self.raw, self.channel = route, raw, channel
        self.head_size = head_size  # of the content header frame
        self.is_single = is_single  # at most one body frame
        self.properties = properties
        self.body_size = body_size
        self.persistent = properties.persistent
        self.priority = properties.priority
        self.expiration = properties.expiration_ms

    @property
    def exchange(self) -> str:
        return self.route[1 : 1 + self.route[0]].decode()

    @property
    def routing_key(self) -> str:
        return self.route[2 + self.route[0] :].decode()

    @property
    def headers(self) -> Mapping[str, Any]:
        return self.properties.headers

    @property
    def body(self) -> bytes:
        raw = self.raw
        if self.is_single:
            return raw[self.head_size + 7 : -1] if self.body_size else b""
        parts, position = [], self.head_size
        while position < len(raw):
            size = FRAME.unpack_from(raw, position)[2]
            parts.append(raw[position + 7 : position + 7 + size])
            position += size + OVERHEAD
        return b"".join(parts)

    def envelope(self, routing_key: str | None = None) -> Envelope:
        topic = self.routing_key if routing_key is None else routing_key
        return Envelope(topic, self.properties.headers, lambda: self.seen_by_filters(topic))

    @property
    def has_common_properties(self) -> bool:
        return self.properties.is_common

    def seen_by_filters(self, routing_key: str | None = None) -> Message:
        """The message as filters see it; messages with equal properties and topic share one."""
        topic = self.routing_key if routing_key is None else routing_key
        properties = self.properties
        if not properties.is_common:
            # Keeping one for each message would burden the garbage collector.
            return SeenMessage(topic, properties)
        seen = properties.seen
        if seen is None or seen[0] != topic:
            seen = properties.seen = topic, SeenMessage(topic, properties)
        return seen[1]

    def parts(self) -> tuple[bytes, bytes]:
        route = self.route
        return len(route).to_bytes(2, "big") + route + self.properties.raw, self.body

    def republished(
        self,
        exchange: str,
        routing_key: str,
        changed: Mapping[str, Any],
        removed: Collection[str] = (),
    ) -> Content:
        table = change_table(raw_headers(self.properties.raw), changed, removed)
        raw = change_properties(self.properties.raw, {"headers": table, "expiration": None})
        return make_content(short_text(exchange) + short_text(routing_key), raw, self.body)

    def with_headers(self, changed: Mapping[str, Any], removed: Collection[str] = ()) -> Content:
        table = change_table(raw_headers(self.properties.raw), changed, removed)
        raw = change_properties(self.properties.raw, {"headers": table})
        return make_content(self.route, raw, self.body)

    def with_reply_to(self, name: str) -> Content:
        """The message with another property `reply_to`."""
        raw = change_properties(self.properties.raw, {"reply_to": short_text(name)})
        return make_content(self.route, raw, self.body)

    def frames(self, channel: int, frame_max: int) -> bytes:
        """The content frames for a channel, each no longer than its connection allows."""
        raw, head = self.raw, self.head_size
        if self.is_single and len(raw) - head <= frame_max:
            if channel == self.channel:
                return raw
            number = channel.to_bytes(2, "big")
            if head == len(raw):
                return b"".join((b"\x02", number, raw[3:]))
            return b"".join((b"\x02", number, raw[3:head], b"\x03", number, raw[head + 3 :]))
        return content_frames(channel, raw[7 : head - 1], self.body, frame_max)


def make_content(route: bytes, properties: bytes, body: bytes) -> Content:
    """A message from its parts."""
    header = content_header(properties, len(body))
    raw = content_frames(1, header, body, FRAME_MAX)
    is_single = len(body) <= FRAME_MAX - OVERHEAD
    known = read_properties(properties)
    return Content(route, raw, 1, len(header) + OVERHEAD, is_single, known, len(body))


def make_message(
    exchange: str, routing_key: str, properties: Mapping[str, Any], body: bytes
) -> Content:
    """A message that was published over HTTP; PreconditionFailed names a property that cannot be used."""
    unknown = properties.keys() - {name for name, _ in PROPERTIES}
    if unknown:
        raise PreconditionFailed(f"there is no property '{min(unknown)}'")
    try:
        raw = encode_properties(properties)
        route = short_text(exchange) + short_text(routing_key)
    except (Malformed, TypeError, ValueError, AttributeError, struct.error) as problem:
        raise PreconditionFailed(
            f"a property has a value that AMQP does not allow: {problem}"
        ) from problem
    content = make_content(route, raw, body)
    if content.properties.expiration is not None and content.expiration is None:
        raise PreconditionFailed(expiration_problem(content.properties.expiration))
    return content


def content_frames(channel: int, header: bytes, body: bytes, frame_max: int) -> bytes:
    """A content header frame, and as many body frames as are needed."""
    parts = [FRAME.pack(FRAME_HEADER, channel, len(header)), header, b"\xce"]
    step = frame_max - OVERHEAD
    for start in range(0, len(body), step):
        piece = body[start : start + step]
        parts += (FRAME.pack(FRAME_BODY, channel, len(piece)), piece, b"\xce")
    return b"".join(parts)
