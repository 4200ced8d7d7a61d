"""A message in the broker, whatever protocol brought it, and its entries in queues."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, Final

from headgate.message import Message
from headgate.routing import Envelope


class BrokerMessage(ABC):
    """The interface of a message; the protocol that received it keeps the bytes.

    The attributes are read for each publish, so they are plain attributes of the subclass.
    """

    __slots__ = ()

    persistent: bool
    priority: int
    expiration: int | None  # milliseconds
    body_size: int
    properties: object  # what decides routing besides the key; equal properties share one object

    @property
    @abstractmethod
    def exchange(self) -> str:
        """The exchange it was published to."""

    @property
    @abstractmethod
    def routing_key(self) -> str: ...

    @property
    @abstractmethod
    def headers(self) -> Mapping[str, Any]:
        """All headers, also those that no filter can compare."""

    @abstractmethod
    def envelope(self, routing_key: str | None = None) -> Envelope:
        """The values that exchanges route by; with another routing key, if one is given."""

    @property
    def has_common_properties(self) -> bool:
        """Whether an earlier message had equal properties, so that a route found for them is worth keeping."""
        return True

    def seen_by_filters(self, routing_key: str | None = None) -> Message:
        """The message as filters see it: everything but the body; with another routing key, if one is given."""
        return self.envelope(routing_key).message

    @abstractmethod
    def parts(self) -> tuple[bytes, bytes]:
        """The two parts that are stored: the head, in the form that the protocol decodes, and the body."""

    @abstractmethod
    def republished(
        self,
        exchange: str,
        routing_key: str,
        changed: Mapping[str, Any],
        removed: Collection[str] = (),
    ) -> BrokerMessage:
        """The message as it goes on to another exchange: without its expiration, some headers set or removed."""

    @abstractmethod
    def with_headers(
        self, changed: Mapping[str, Any], removed: Collection[str] = ()
    ) -> BrokerMessage:
        """The message with some headers set or removed; the others keep their bytes."""


READY: Final = 0  # in its place, or never looked for by a filter
HOLE: Final = 1  # taken, and still in its place
LEFT: Final = 2  # taken, and gone from its place


class QueueEntry:
    """A message in one queue: where it stands, and what happened to it there."""

    __slots__ = ("body_id", "deliveries", "expires", "lane", "message", "place", "position", "redelivered", "stored")  # fmt: skip

    def __init__(
        self, position: int, message: BrokerMessage, lane: int, expires: int | None
    ) -> None:
        self.position = position
        self.message = message
        self.lane = lane  # the number of its priority
        self.expires = expires  # milliseconds of the broker's clock
        self.stored = False  # whether the store has it, so that it must be deleted there
        self.redelivered = False
        self.deliveries = 0  # how often it came back
        self.body_id: int | None = None
        self.place = READY  # in its lane, as far as filters look for entries there

    def __lt__(self, other: QueueEntry) -> bool:
        return self.position < other.position
