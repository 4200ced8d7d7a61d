"""Subscribers whose process was away for so long that others dropped their subscription."""

import asyncio
import queue as queues
from datetime import timedelta

from headgate import aio
from headgate.queues.database import connect
from tests.manual_clock import ManualClock

AWAY = timedelta(minutes=5)
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
