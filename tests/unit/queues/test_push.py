"""Callbacks whose subscription expired, that hang, or that delete themselves."""

import asyncio
import queue as queues
import threading
from datetime import timedelta

import pytest

from headgate import aio
from headgate.queues import connect, push
from headgate.queues.aio import push as aio_push
from headgate.testing import ManualClock
from tests.patience import PATIENCE

EXPIRED = timedelta(hours=2)


def test_a_callback_is_called_again_after_its_subscription_expired(tmp_path, caplog):
    time, seen = ManualClock(), queues.Queue()
    with connect(f"sqlite:///{tmp_path}/q.db", clock=time.clock) as db:
        orders = db.queue("orders")
        callbacks = push.Callbacks(db.engine)
        callbacks.add("#", lambda message: seen.put(message.payload), id="s")
        time.advance(EXPIRED)
        db.engine.run(db.engine.operations.route())  # as another process does
        callbacks.renew()
        orders.publish(b"after")
        assert seen.get(timeout=PATIENCE) == b"after"
        callbacks.close()
    assert "its subscription expired before it was renewed" in caplog.text


def test_an_asyncio_callback_is_called_again_after_its_subscription_expired(tmp_path):
    async def first_seen():
        time, seen = ManualClock(), asyncio.Queue()
        async with await aio.connect(f"sqlite:///{tmp_path}/q.db", clock=time.clock) as db:
            orders = await db.queue("orders")
            callbacks = aio_push.AsyncCallbacks(db.engine)
            await callbacks.add("#", lambda message: seen.put_nowait(message.payload), id="s")
            time.advance(EXPIRED)
            await db.engine.run(db.engine.operations.route())
            await callbacks.renew()
            await orders.publish(b"after")
            first = await asyncio.wait_for(seen.get(), PATIENCE)
            await callbacks.close()
            return first

    assert asyncio.run(first_seen()) == b"after"


def test_a_database_can_be_closed_after_the_subscription_of_a_callback_expired(tmp_path):
    time = ManualClock()
    with connect(f"sqlite:///{tmp_path}/q.db", clock=time.clock) as db:
        db.add_callback("#", print, id="s")
        time.advance(EXPIRED)
        db.engine.run(db.engine.operations.route())


@pytest.fixture
def impatient(monkeypatch):
    for module in (push, aio_push):
        monkeypatch.setattr(module, "STALLED_S", 0.05)


def test_a_callback_that_hangs_does_not_keep_the_database_open(impatient, caplog):
    begun, go_on, seen = threading.Event(), threading.Event(), queues.Queue()
    with connect("memory:") as db:
        db.add_callback("#", lambda message: begun.set() or go_on.wait(PATIENCE), id="hanging")
        db.add_callback("#", lambda message: seen.put(message.payload), id="good")
        db.queue("orders").publish_many([b"a", b"b"])
        assert begun.wait(PATIENCE)
    go_on.set()
    assert [seen.get_nowait(), seen.get_nowait()] == [b"a", b"b"]
    assert "'hanging' has not returned" in caplog.text


def test_an_asyncio_callback_that_hangs_does_not_keep_the_database_open(impatient, caplog):
    async def left_by():
        begun, seen = asyncio.Event(), []

        async def hang(message):
            begun.set()
            await asyncio.Event().wait()

        async with await aio.connect("memory:") as db:
            await db.add_callback("#", hang, id="hanging")
            await db.add_callback("#", lambda message: seen.append(message.payload), id="good")
            await (await db.queue("orders")).publish_many([b"a", b"b"])
            await asyncio.wait_for(begun.wait(), PATIENCE)
        return seen

    assert asyncio.run(left_by()) == [b"a", b"b"]
    assert "'hanging' has not returned" in caplog.text


def test_a_callback_may_delete_itself():
    seen = queues.Queue()

    def once(message):
        db.delete_callback("#", "once")
        seen.put(message.payload)

    with connect("memory:") as db:
        db.add_callback("#", once, id="once")
        db.add_callback("#", lambda message: seen.put(b"other"), id="other")
        db.queue("orders").publish_many([b"a", b"b"])
    assert sorted(seen.queue) == [b"a", b"other", b"other"]
