"""A basic.publish: where it goes, its content frame by frame, and the checks of its properties."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from headgate.amqp.content import OVERHEAD, PROPERTIES_AT, Content
from headgate.amqp.methods import FRAME_BODY, FRAME_HEADER
from headgate.amqp.permissions import Permissions
from headgate.amqp.properties import expiration_problem, read_properties
from headgate.amqp.reply_codes import ConnectionFailed, octets
from headgate.amqp.tables import Malformed
from headgate.broker import (
    Login,
    NotImplementedHere,
    PreconditionFailed,
    Route,
    VirtualHost,
    type_name,
)

IMPERSONATOR: Final = "impersonator"  # the tag of users that may publish in the name of others
MAX_BODY: Final = 128 << 20
PUBLISH_IDS: Final = (60, 40)  # class and method of basic.publish
_SIZE: Final = struct.Struct(">Q")
_BASIC: Final = b"\0\x3c"


class Publish(NamedTuple):
    """A basic.publish whose content is still to come."""

    route: Route
    suffix: bytes
    mandatory: bool


def resolve_publish(route: bytes, vhost: VirtualHost, permissions: Permissions) -> Publish:
    """Parse exchange, routing key and flags, check the permissions, and find the route."""
    try:
        size = 1 + route[0]
        exchange = route[1:size].decode()
        key_end = size + 1 + route[size]
        routing_key = route[size + 1 : key_end].decode()
        bits = route[key_end]
    except (IndexError, UnicodeDecodeError) as problem:
        raise Malformed("a method whose arguments cannot be read") from problem
    if bits & 2:
        raise NotImplementedHere("immediate=true")
    permissions.check("write", "exchange", exchange)
    found = vhost.find_route(exchange, routing_key)
    permissions.check_topics("write", exchange, (routing_key,))
    return Publish(found, route[:key_end], bool(bits & 1))


class ArrivingMessage:
    """Collects the frames of one message until it is complete."""

    def __init__(self, publish: Publish) -> None:
        self.publish = publish
        self._frames: list[bytes] = []
        self._missing = -1  # bytes of the body still to come; -1: the header as well

    def add(self, kind: int, raw: bytes) -> bool:
        """Take a content frame; return whether it was the last."""
        if kind == FRAME_HEADER and self._missing < 0:
            self._missing = _announced_size(raw)
            if self._missing > MAX_BODY:
                raise PreconditionFailed(
                    f"message size {self._missing} is larger than configured max size {MAX_BODY}"
                )
        elif kind == FRAME_BODY and self._missing >= 0:
            self._missing -= len(raw) - OVERHEAD
            if self._missing < 0:
                raise ConnectionFailed(505, "more body than the content header announced")
        else:
            raise ConnectionFailed(
                505, "expected content header for class 60, got non content header frame instead"
            )
        self._frames.append(raw)
        return self._missing == 0

    def content(self, channel: int) -> Content:
        """The message, once it is complete; `channel` is the number in its frames."""
        head, *bodies = self._frames
        size = sum(map(len, bodies)) - OVERHEAD * len(bodies)
        properties = read_properties(head[PROPERTIES_AT:-1])
        raw = b"".join(self._frames)
        return Content(
            self.publish.suffix, raw, channel, len(head), len(bodies) <= 1, properties, size
        )


def _announced_size(raw: bytes) -> int:
    """The size of the body that a content header announces."""
    if len(raw) < OVERHEAD + 14:
        raise ConnectionFailed(501, f"type 2, all octets = {octets(raw[7:-1])}: unknown_frame")
    if raw[7:9] != _BASIC:
        found = int.from_bytes(raw[7:9], "big")
        raise ConnectionFailed(
            505, f"expected content header for class 60, got one for class {found} instead"
        )
    size: int = _SIZE.unpack_from(raw, 11)[0]
    return size


def check_content(content: Content, login: Login) -> None:
    """Refuse properties that are invalid, or that this user may not set."""
    if content.properties.expiration is not None and content.expiration is None:
        raise PreconditionFailed(expiration_problem(content.properties.expiration))
    claimed = content.properties.values.get("user_id")
    if claimed not in (None, login.name) and IMPERSONATOR not in login.tags:
        raise PreconditionFailed(
            f"user_id property set to '{claimed}' but authenticated user was '{login.name}'"
        )
    for name in ("CC", "BCC"):
        keys = content.headers.get(name, [])
        if not isinstance(keys, list):
            problem = f'{{unacceptable_type_in_header,"{name}",{type_name(keys)}}}'
            raise PreconditionFailed(f"invalid message: {problem}")
