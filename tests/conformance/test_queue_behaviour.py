"""The in-memory engine and SQLite pass the tests of queue_behaviour."""

from __future__ import annotations

from functools import partial

import pytest

from headgate.clock import now_us
from headgate.queues import Database
from headgate.queues import connect as connect_to
from headgate.queues.memory.engine import MemoryEngine, MemoryStore
from headgate.testing import ManualClock
from tests.conformance.queue_behaviour import (
    AsideBehaviour,
    Connect,
    DatabaseBehaviour,
    QueueBehaviour,
)
from tests.conformance.sqlite_shell import run_elsewhere


class TestMemory(QueueBehaviour):
    @pytest.fixture
    def connect(self, time: ManualClock) -> Connect:
        store = MemoryStore(time.clock)
        return lambda: Database(MemoryEngine(store))


class TestSqlite(DatabaseBehaviour):
    @pytest.fixture
    def connect(self, time: ManualClock, tmp_path) -> Connect:
        time.wall_us = now_us()  # plain SQL uses the time of day
        url = f"sqlite:///{tmp_path}/queues.db?synchronous=OFF"
        return lambda: connect_to(url, clock=time.clock)

    @pytest.fixture
    def door(self, tmp_path):
        return partial(run_elsewhere, tmp_path / "queues.db")


class TestSqliteAside(AsideBehaviour):
    @pytest.fixture
    def connect(self, time: ManualClock, tmp_path) -> Connect:
        return lambda: connect_to(
            f"sqlite:///{tmp_path}/queues.db?synchronous=OFF", clock=time.clock
        )
