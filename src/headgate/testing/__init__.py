"""Test code that uses Headgate: a database in memory, a broker, a clock that you move, a factory of messages.

`headgate.testing.fixtures` offers the same as pytest fixtures.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from headgate.clock import Clock
from headgate.message import HeaderValue, Message

if TYPE_CHECKING:
    from headgate.queues import Database
    from headgate.testing.broker import RunningBroker

    Broker = RunningBroker

__all__ = ["Broker", "ManualClock", "MessageFactory", "memory_database"]


def __getattr__(name: str) -> object:
    if name in ("Broker", "RunningBroker"):  # loads a server, which few tests need
        from headgate.testing.broker import RunningBroker

        return RunningBroker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_MICROSECOND = timedelta(microseconds=1)


class ManualClock:
    """A clock that stands still until it is told to move. `clock` is what an engine takes as its clock.

    from datetime import timedelta

    from headgate.testing import ManualClock

    clock = ManualClock()
    with memory_database(clock) as database:
        orders = database.queue("orders")
        orders.publish(b"order 1", delay=timedelta(hours=1))
        assert orders.claim() == []
        clock.advance(timedelta(hours=1))
        assert len(orders.claim()) == 1
    """

    def __init__(self) -> None:
        self.elapsed_us = 1_000_000_000
        self.wall_us = 1_700_000_000_000_000
        self.boot_id = "boot-1"
        self.clock = Clock(lambda: self.wall_us, lambda: self.elapsed_us, lambda: self.boot_id)

    def advance(self, span: timedelta) -> None:
        """Let time pass."""
        self.elapsed_us += span // _MICROSECOND
        self.wall_us += span // _MICROSECOND

    def set_wall_clock(self, by: timedelta) -> None:
        """Change the time of day, as an administrator does; no time passes."""
        self.wall_us += by // _MICROSECOND

    def restart_machine(self) -> None:
        """Begin counting elapsed time again, under another boot id."""
        self.elapsed_us, self.boot_id = 5_000_000, self.boot_id + "+"


def memory_database(clock: ManualClock | None = None) -> Database:
    """A new, empty database in this process, with the behaviour of SQLite and PostgreSQL and no files.

        from headgate.testing import memory_database

        with memory_database() as database:
            orders = database.queue("orders")
            orders.publish(b"order 1")
            assert orders.stats().ready == 1

    With a manual clock, leases end and delayed messages become due when the clock is advanced.
    """
    from headgate.queues import connect

    return connect("memory:", clock=None if clock is None else clock.clock)


class MessageFactory:
    """Makes messages that share a topic and headers and differ in payload and id: `message-1`, `message-2`, …

    from headgate.testing import MessageFactory

    orders = MessageFactory("orders.created", headers={"region": "EU"})
    first, second = orders.make_many(2)
    assert (first.id, second.payload) == ("message-1", b"message-2")
    assert orders.make(headers={"amount": 5}).headers == {"region": "EU", "amount": 5}
    """

    def __init__(
        self, topic: str = "test", headers: Mapping[str, HeaderValue] | None = None
    ) -> None:
        self.topic, self.headers = topic, dict(headers or {})
        self._made = 0

    def make(
        self,
        payload: bytes | None = None,
        *,
        topic: str | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        priority: int = 0,
    ) -> Message:
        """The next message. `headers` are added to the factory's own and override them."""
        self._made += 1
        id = f"message-{self._made}"
        return Message(
            id.encode() if payload is None else payload,
            topic=self.topic if topic is None else topic,
            headers={**self.headers, **(headers or {})},
            priority=priority,
            id=id,
        )

    def make_many(self, count: int) -> list[Message]:
        """The next `count` messages."""
        return [self.make() for _ in range(count)]
