"""PostgreSQL, and the asyncio API on PostgreSQL and SQLite, pass the tests of queue_behaviour."""

from __future__ import annotations

import asyncio
from functools import partial

import psycopg
import pytest

from headgate.clock import now_us
from headgate.errors import QueueError
from headgate.message import Message
from headgate.queues.database import connect as connect_to
from headgate.queues.engine import (
    Operation,
    Publication,
    Statement,
    Transaction,
    TransactionMode,
)
from headgate.queues.postgres.dialect import index_name
from headgate.queues.postgres.engine import AsyncPostgresEngine
from headgate.testing import ManualClock
from tests.conformance import blocking_aio
from tests.conformance.queue_behaviour import AsideBehaviour, Connect, DatabaseBehaviour
from tests.conformance.sqlite_shell import run_elsewhere


@pytest.fixture
def postgres_door(postgres_url: str, postgres_schema: str):
    def run(statement: str, *, commit: bool = True) -> list[tuple[object, ...]]:
        with psycopg.connect(postgres_url) as connection:
            connection.execute(f"SET search_path = {postgres_schema}")
            cursor = connection.execute(statement)
            rows = cursor.fetchall() if cursor.description else []
            connection.commit() if commit else connection.rollback()
            return rows

    return run


@pytest.mark.postgres
class TestPostgres(DatabaseBehaviour):
    @pytest.fixture
    def connect(self, time: ManualClock, postgres_url: str, postgres_schema: str) -> Connect:
        return lambda: connect_to(postgres_url, schema=postgres_schema, clock=time.clock)

    @pytest.fixture
    def door(self, postgres_door):
        return postgres_door


@pytest.mark.postgres
class TestPostgresAside(AsideBehaviour):
    @pytest.fixture
    def connect(self, time: ManualClock, postgres_url: str, postgres_schema: str) -> Connect:
        return lambda: connect_to(postgres_url, schema=postgres_schema, clock=time.clock)


@pytest.mark.postgres
def test_a_message_that_is_committed_after_later_ones_is_found(postgres_url, postgres_schema):
    """Its number is lower than theirs, which were examined already."""
    wanted = "colour = 'red'"
    with (
        connect_to(postgres_url, schema=postgres_schema) as db,
        psycopg.connect(postgres_url) as slow,
    ):
        orders = db.queue("orders")
        slow.execute(f"SET search_path = {postgres_schema}")
        slow.execute(
            "INSERT INTO inbox (queue, headers, payload) VALUES ('orders', '{\"colour\": \"red\"}', 'early')"
        )
        orders.publish(b"late", headers={"colour": "blue"})
        assert [orders.claim(filter=wanted) for _ in range(3)] == [[], [], []]
        slow.commit()
        assert [d.message.payload for d in orders.claim(filter=wanted)] == [b"early"]


_ADVISORY_LOCKS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"


@pytest.mark.postgres
def test_a_failed_index_build_releases_its_advisory_lock(postgres_url, postgres_schema):
    with (
        connect_to(postgres_url, schema=postgres_schema) as db,
        psycopg.connect(postgres_url, autocommit=True) as other,
    ):
        db.queue("orders")
        other.execute(f"CREATE TABLE {postgres_schema}.{index_name('type')} ()")
        with pytest.raises(QueueError, match="already exists"):
            db.queue("orders", filter_headers=["type"])
        assert other.execute(_ADVISORY_LOCKS).fetchall() == [(0,)]
        other.execute(f"DROP TABLE {postgres_schema}.{index_name('type')}")
        assert db.queue("orders", filter_headers=["type"]).info.indexed == ("type",)


@pytest.mark.postgres
def test_a_cancelled_operation_runs_its_last_step(postgres_url, postgres_schema):
    async def cancelled() -> None:
        engine = await AsyncPostgresEngine(postgres_url, schema=postgres_schema).open()
        try:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(engine.run(holding_a_lock()), timeout=0.2)
        finally:
            with psycopg.connect(postgres_url) as other:
                left.extend(other.execute(_ADVISORY_LOCKS).fetchall())
            await engine.close()

    def holding_a_lock() -> Operation[None]:
        yield Statement("SELECT pg_advisory_lock(1)")
        try:
            yield Statement("SELECT pg_sleep(60)")
        finally:
            yield Statement("SELECT pg_advisory_unlock(1)")

    left: list[tuple[object, ...]] = []
    asyncio.run(cancelled())
    assert left == [(0,)]


@pytest.mark.postgres
def test_the_connection_of_a_call_that_was_cancelled_twice_is_not_used_again(
    postgres_url, postgres_schema
):
    def slow(begun: asyncio.Event) -> Operation[None]:
        def sleep() -> Operation[None]:
            begun.set()
            yield Statement("SELECT pg_sleep(60)")

        yield Transaction(TransactionMode.WRITE, sleep)

    async def cancel_twice(engine: AsyncPostgresEngine, pause: float) -> None:
        begun = asyncio.Event()
        call = asyncio.create_task(engine.run(slow(begun)))
        await asyncio.wait_for(begun.wait(), 30)
        call.cancel()
        await asyncio.sleep(pause)  # the second one may come at any moment of the clean-up
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(call, 30)

    async def published() -> int:
        engine = await AsyncPostgresEngine(postgres_url, schema=postgres_schema).open()
        try:
            queue = await engine.run(engine.operations.declare("orders", None))
            for pause in (0, 0.0002, 0.0005, 0.001, 0.002, 0.004):
                await cancel_twice(engine, pause)
                for _ in range(4):
                    await engine.publish_one(queue, Publication(Message(b"a", "orders")))
            return len(await engine.run(engine.operations.browse(queue, 100)))
        finally:
            await engine.close()

    assert asyncio.run(published()) == 24


@pytest.mark.postgres
class TestAsyncPostgres(DatabaseBehaviour):
    @pytest.fixture
    def connect(self, time: ManualClock, postgres_url: str, postgres_schema: str) -> Connect:
        return lambda: blocking_aio.connect(postgres_url, schema=postgres_schema, clock=time.clock)

    @pytest.fixture
    def door(self, postgres_door):
        return postgres_door


class TestAsyncSqlite(DatabaseBehaviour):
    @pytest.fixture
    def connect(self, time: ManualClock, tmp_path) -> Connect:
        time.wall_us = now_us()  # plain SQL uses the time of day
        url = f"sqlite:///{tmp_path}/queues.db?synchronous=OFF"
        return lambda: blocking_aio.connect(url, clock=time.clock)

    @pytest.fixture
    def door(self, tmp_path):
        return partial(run_elsewhere, tmp_path / "queues.db")
