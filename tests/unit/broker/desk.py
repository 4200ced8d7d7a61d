"""A broker in memory whose clock a test moves, and a consumer that keeps what it gets."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

from headgate.amqp import AmqpCodec
from headgate.amqp.content import make_content
from headgate.amqp.properties import encode_properties
from headgate.broker import Broker, BrokerConsumer, BrokerQueue, QueueEntry
from headgate.store import InMemoryStore


def bodies(entries: Sequence[QueueEntry]) -> list[bytes]:
    return [entry.message.parts()[1] for entry in entries]


class Taker(BrokerConsumer):
    """A consumer that takes everything it wants."""

    def __init__(self, queue: BrokerQueue, text: str | None, room: int = 100) -> None:
        super().__init__(f"taker of {text}", queue, no_ack=False, exclusive=False, priority=0)
        self.filter_text, self.most = text, room
        self.entries: list[QueueEntry] = []

    @property
    def got(self) -> list[bytes]:
        return bodies(self.entries)

    def room(self) -> int:
        return self.most

    def deliver(self, entries: Sequence[QueueEntry]) -> None:
        self.entries += entries

    def notify_cancel(self) -> None:
        pass


class Desk:
    """A broker in memory, and a clock that the test moves."""

    def __init__(self, bound: int = 1_000) -> None:
        self.now, self.timers = 1_000_000, []
        store = InMemoryStore(lambda call: call())
        self.broker = Broker(
            store, AmqpCodec(), self._call_later, now_ms=lambda: self.now, bound=bound
        )
        self.broker.slice_s = 60.0
        self.vhost = self.broker.vhosts["/"]

    def _call_later(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self.timers, (self.now + seconds * 1000, id(call), call))

    def declare(self, **arguments: Any) -> BrokerQueue:
        given = {name.replace("_", "-"): value for name, value in arguments.items()}
        return self.vhost.declare_queue("q", arguments=given)

    def publish(self, *bodies: bytes, **headers: Any) -> None:
        """Publish messages in one turn of the broker."""
        properties = encode_properties({"headers": headers})
        for body in bodies:
            self.vhost.queues["q"].publish(make_content(b"\x00\x01q", properties, body))
        self.broker.flush()

    def consume(self, queue: BrokerQueue, text: str | None, room: int = 100) -> Taker:
        taker = Taker(queue, text, room)
        queue.add_consumer(taker)
        self.broker.flush()
        return taker

    def wait(self, ms: int) -> None:
        self.now += ms
        while self.timers and self.timers[0][0] <= self.now:
            heapq.heappop(self.timers)[2]()
        self.broker.flush()
