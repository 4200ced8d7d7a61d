"""Counters that publishing and delivering raise, and the open connections with theirs.

A batch raises a counter once where that is possible; numbers that follow from others are not counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import Any, Final, Protocol

GONE: Final = "\0"  # stands for the exchanges that were deleted


class QueueTraffic:
    """Counts of messages that left a queue since the broker started."""

    __slots__ = ("deliver", "deliver_no_ack", "get", "get_empty", "get_no_ack", "redeliver", "reject", "requeue")  # fmt: skip

    def __init__(self) -> None:
        self.deliver = self.deliver_no_ack = 0
        self.get = self.get_no_ack = self.get_empty = 0
        self.redeliver = self.requeue = self.reject = 0


class RouteTraffic:
    """Messages published to one exchange that went to this many queues each."""

    __slots__ = ("count", "dropped", "exchange", "fan_out", "returned", "routed")

    def __init__(self, exchange: str, fan_out: int) -> None:
        self.exchange, self.fan_out = exchange, fan_out
        self.count = 0
        self.routed = 0  # copies of messages whose headers decided, which have no fixed fan-out
        self.returned = self.dropped = 0  # messages that no queue got: mandatory ones, and others

    @property
    def published_out(self) -> int:
        return self.count * self.fan_out + self.routed


class ExchangeTraffic:
    """The counters of a virtual host's exchanges; what a deleted exchange counted stays in the sum."""

    def __init__(self) -> None:
        self._by_exchange: dict[str, dict[int, RouteTraffic]] = {}
        self._gone = RouteTraffic(GONE, 0)

    def of(self, exchange: str, fan_out: int) -> RouteTraffic:
        """The counters of messages to an exchange that go to this many queues."""
        known = self._by_exchange.setdefault(exchange, {})
        traffic = known.get(fan_out)
        if traffic is None:
            traffic = known[fan_out] = RouteTraffic(exchange, fan_out)
        return traffic

    def forget(self, exchange: str) -> None:
        """Add the counters of a deleted exchange to the sum."""
        gone = self._gone
        for traffic in self._by_exchange.pop(exchange, {}).values():
            gone.count += traffic.count
            gone.routed += traffic.published_out
            gone.returned += traffic.returned
            gone.dropped += traffic.dropped

    def __iter__(self) -> Iterator[RouteTraffic]:
        yield self._gone
        for known in self._by_exchange.values():
            yield from known.values()


class ChannelTraffic:
    """Counts of messages that passed a channel."""

    __slots__ = ("confirm", "deliver", "deliver_no_ack", "dropped", "get", "get_empty", "get_no_ack", "published_before", "redeliver", "reject", "requeue", "returned")  # fmt: skip

    def __init__(self) -> None:
        self.published_before = 0  # confirms were asked for
        self.confirm = self.returned = self.dropped = 0
        self.deliver = self.deliver_no_ack = self.redeliver = 0
        self.get = self.get_no_ack = self.get_empty = 0
        self.requeue = self.reject = 0


class ClientChannel(Protocol):
    """A channel, as far as one can look at it from outside."""

    number: int
    prefetch: int
    prefetch_all: int
    is_confirming: bool
    published: int
    traffic: ChannelTraffic

    @property
    def unacked(self) -> Sized: ...

    @property
    def consumers(self) -> Mapping[str, Any]: ...

    @property
    def transaction(self) -> Sized | None: ...


class Client(Protocol):
    """The other end of a connection."""

    received_bytes: int
    sent_bytes: int

    @property
    def channels(self) -> Mapping[int, ClientChannel]: ...

    def close(self, text: str) -> None:
        """Close the connection, and say why."""


@dataclass(eq=False, slots=True, kw_only=True)
class OpenConnection:
    """A connection that has logged in and opened a virtual host."""

    client: Client
    user: str
    vhost: str
    host: str
    port: int
    peer_host: str
    peer_port: int
    connected_at: int  # milliseconds of the broker's clock
    protocol: str
    mechanism: str
    heartbeat: int
    channel_max: int
    frame_max: int
    tls: bool
    properties: Mapping[str, Any]

    @property
    def name(self) -> str:
        """How RabbitMQ names it."""
        return f"{self.peer_host}:{self.peer_port} -> {self.host}:{self.port}"
