"""What a consumer of tasks does when the database fails or its tasks are cancelled."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from headgate import aio
from headgate.queues.aio.engines import ThreadedEngine
from headgate.queues.memory.engine import MemoryEngine
from tests.patience import PATIENCE
from tests.unit.queues.outage import OutageEngine

OFTEN = timedelta(milliseconds=5)


@asynccontextmanager
async def queue_on(engine):
    async with aio.AsyncDatabase(ThreadedEngine(engine)) as db:
        yield await db.queue("q")


async def soon(awaitable):
    return await asyncio.wait_for(awaitable, PATIENCE)


def test_the_lease_of_a_message_whose_release_failed_is_not_extended(caplog):
    async def leased():
        engine, rejected = OutageEngine(), asyncio.Event()

        def reject(message):
            engine.left = 1  # the release fails
            rejected.set()
            return False

        async with queue_on(engine) as queue:
            await queue.publish(b"a")
            async with queue.consumer(print, predicate=reject) as consumer:
                await soon(rejected.wait())
            return consumer.leased

    assert asyncio.run(leased()) == 0
    assert "no answer from the database" in caplog.text


def test_a_handled_message_is_acked_although_the_release_of_the_next_failed():
    async def left_over():
        engine, seen = OutageEngine(), asyncio.Queue()

        def unless_b(message):
            engine.left = int(message.payload == b"b")
            return message.payload != b"b"

        async with queue_on(engine) as queue:
            await queue.publish_many([b"a", b"b"])
            handle = lambda delivery: seen.put_nowait(delivery.message.payload)  # noqa: E731
            async with queue.consumer(handle, predicate=unless_b, mode="poll", poll=OFTEN):
                assert await soon(seen.get()) == b"a"
                while engine.left:
                    await asyncio.sleep(0)
                await queue.publish(b"c")
                assert await soon(seen.get()) == b"c"
            return [standing.message.payload async for standing in queue.browse()]

    assert asyncio.run(left_over()) == [b"b"]


def test_an_unexpected_error_does_not_end_a_consumer(caplog):
    async def first_seen():
        engine, seen = OutageEngine(), asyncio.Queue()
        async with queue_on(engine) as queue:
            engine.left, engine.problem = 1, RuntimeError("a mistake of ours")
            async with queue.consumer(lambda d: seen.put_nowait(d.message.payload)):
                while engine.left:
                    await asyncio.sleep(0)
                await queue.publish(b"a")
                return await soon(seen.get())

    assert asyncio.run(first_seen()) == b"a"
    assert "a mistake of ours" in caplog.text


@pytest.mark.parametrize(("filter", "warned"), [("colour = 'red'", True), ("type = 'x'", False)])
def test_a_filter_without_an_index_is_warned_of(tmp_path, caplog, filter, warned):
    async def consume():
        async with await aio.connect(f"sqlite:///{tmp_path}/q.db") as db:
            queue = await db.queue("q", filter_headers=["type"])
            async with queue.consumer(print, filter=filter):
                pass

    asyncio.run(consume())
    assert ("declare colour as filter headers" in caplog.text) == warned


def test_a_consumer_whose_tasks_were_cancelled_logs_it_and_can_be_closed(caplog):
    async def left_over():
        begun = asyncio.Event()

        async def hang(delivery):
            begun.set()
            await asyncio.Event().wait()

        async with queue_on(MemoryEngine()) as queue:
            await queue.publish(b"a")
            async with queue.consumer(hang):
                await soon(begun.wait())
                for task in asyncio.all_tasks() - {asyncio.current_task()}:
                    task.cancel()
            return [standing.state.name async for standing in queue.browse()]

    assert asyncio.run(left_over()) == ["LEASED"]
    assert "was cancelled while it handled" in caplog.text


def test_a_database_closed_before_its_consumer_ends_every_task():
    async def closed():
        seen = asyncio.Event()
        async with queue_on(MemoryEngine()) as queue:
            await queue.publish(b"a")
            consumer = await queue.consumer(lambda delivery: seen.set()).start()
            await soon(seen.wait())
        await soon(consumer.close())

    asyncio.run(closed())


def test_a_handler_may_close_its_consumer():
    async def left():
        closed = asyncio.Event()

        async def close(delivery):
            await consumer.close()
            closed.set()

        async with queue_on(MemoryEngine()) as queue:
            await queue.publish_many([b"a", b"b"])
            consumer = queue.consumer(close, batch=1)
            async with consumer:
                await soon(closed.wait())
            return [standing.message.payload async for standing in queue.browse()]

    assert asyncio.run(left()) == [b"b"]
