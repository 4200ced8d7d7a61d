"""Subscribers whose process was away for so long that others dropped their subscription."""

import asyncio
import queue as queues
import threading
from datetime import timedelta

import pytest

from headgate import aio
from headgate.queues import push
from headgate.queues.database import connect
from headgate.testing import ManualClock

AWAY = timedelta(hours=2)
PATIENCE = 30


def test_callbacks_are_told_again_after_a_long_absence(tmp_path, caplog):
    time, seen = ManualClock(), queues.Queue()
    with connect(f"sqlite:///{tmp_path}/q.db", clock=time.clock) as db:
        orders = db.queue("orders")
        db.subscribe("#", lambda message: seen.put(message.payload), id="s")
        time.advance(AWAY)
        db.engine.run(db.engine.operations.route())  # somebody tidies up
        db._pushes.renew()
        orders.publish(b"after")
        assert seen.get(timeout=PATIENCE) == b"after"
    assert "away for too long" in caplog.text


def test_tasks_are_told_again_after_a_long_absence(tmp_path):
    async def first_seen():
        time, seen = ManualClock(), asyncio.Queue()
        async with await aio.connect(f"sqlite:///{tmp_path}/q.db", clock=time.clock) as db:
            orders = await db.queue("orders")
            await db.subscribe("#", lambda message: seen.put_nowait(message.payload), id="s")
            time.advance(AWAY)
            await db.engine.run(db.engine.operations.route())
            await db._pushes.renew()
            await orders.publish(b"after")
            return await asyncio.wait_for(seen.get(), PATIENCE)

    assert asyncio.run(first_seen()) == b"after"


def test_a_database_whose_subscription_was_dropped_can_be_closed(tmp_path):
    time = ManualClock()
    with connect(f"sqlite:///{tmp_path}/q.db", clock=time.clock) as db:
        db.subscribe("#", print, id="s")
        time.advance(AWAY)
        db.engine.run(db.engine.operations.route())


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(push, "STALLED_S", 0.05)


def test_a_callback_that_hangs_does_not_keep_the_database_open(impatient, caplog):
    begun, go_on, seen = threading.Event(), threading.Event(), queues.Queue()
    with connect("memory:") as db:
        db.subscribe("#", lambda message: begun.set() or go_on.wait(PATIENCE), id="hanging")
        db.subscribe("#", lambda message: seen.put(message.payload), id="good")
        db.queue("orders").publish_many([b"a", b"b"])
        assert begun.wait(PATIENCE)
    go_on.set()
    assert [seen.get_nowait(), seen.get_nowait()] == [b"a", b"b"]
    assert "'hanging' has not returned" in caplog.text


def test_a_task_that_hangs_does_not_keep_the_database_open(impatient, caplog):
    async def left_by():
        begun, seen = asyncio.Event(), []

        async def hang(message):
            begun.set()
            await asyncio.Event().wait()

        async with await aio.connect("memory:") as db:
            await db.subscribe("#", hang, id="hanging")
            await db.subscribe("#", lambda message: seen.append(message.payload), id="good")
            await (await db.queue("orders")).publish_many([b"a", b"b"])
            await asyncio.wait_for(begun.wait(), PATIENCE)
        return seen

    assert asyncio.run(left_by()) == [b"a", b"b"]
    assert "'hanging' has not returned" in caplog.text


def test_a_subscriber_may_unsubscribe_itself():
    seen = queues.Queue()

    def once(message):
        db.unsubscribe("#", "once")
        seen.put(message.payload)

    with connect("memory:") as db:
        db.subscribe("#", once, id="once")
        db.subscribe("#", lambda message: seen.put(b"other"), id="other")
        db.queue("orders").publish_many([b"a", b"b"])
    assert sorted(seen.queue) == [b"a", b"other", b"other"]
