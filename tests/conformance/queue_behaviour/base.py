"""What the tests of a queue share: a clock, a database, a queue of orders, and what handlers have seen."""

from __future__ import annotations

import queue as queues
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from headgate.queues import Database, Delivery, Queue
from headgate.testing import ManualClock

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)

Connect = Callable[[], Database]


def payloads(deliveries: list[Delivery]) -> list[bytes]:
    return [delivery.message.payload for delivery in deliveries]


def claim_all(queue: Queue, filter: str | None = None) -> set[bytes]:
    return set(payloads(queue.claim(100, filter=filter)))


class QueueFixtures:
    """An engine defines the fixture `connect`, whose databases use the clock `time`."""

    @pytest.fixture
    def time(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def db(self, connect: Connect):
        with connect() as database:
            yield database

    @pytest.fixture
    def orders(self, db: Database) -> Queue:
        return db.queue("orders", filter_headers=["type", "region"], max_attempts=3)

    @pytest.fixture
    def seen(self) -> queues.Queue[Any]:
        """What handlers and callbacks put into it, from any thread."""
        return queues.Queue()
