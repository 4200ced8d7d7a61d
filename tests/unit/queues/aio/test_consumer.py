"""What a consumer of tasks does when the database does not: the same as one of threads."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from headgate import aio
from headgate.errors import DatabaseUnavailable
from headgate.queues.aio.engines import ThreadedEngine
from headgate.queues.memory.engine import MemoryEngine

PATIENCE = 30
OFTEN = timedelta(milliseconds=5)


class Outage(MemoryEngine):
    """Fails the next few operations."""

    left = 0
    problem: Exception = DatabaseUnavailable("nobody answers")

    def run(self, operation):
        if self.left:
            self.left -= 1
            operation.close()
            raise self.problem
        return super().run(operation)


@asynccontextmanager
async def queue_on(engine):
    async with aio.Database(ThreadedEngine(engine, ThreadPoolExecutor(1))) as db:
        yield await db.queue("q")


async def soon(awaitable):
    return await asyncio.wait_for(awaitable, PATIENCE)


def test_what_could_not_be_given_back_is_not_held_for_ever(caplog):
    async def held():
        engine, rejected = Outage(), asyncio.Event()

        def reject(message):
            engine.left = 1  # giving it back fails
            rejected.set()
            return False

        async with queue_on(engine) as queue:
            await queue.publish(b"a")
            async with queue.consumer(print, predicate=reject) as consumer:
                await soon(rejected.wait())
            return consumer._ledger.held()

    assert asyncio.run(held()) == []
    assert "nobody answers" in caplog.text


def test_what_was_handled_is_acked_though_the_next_could_not_be_given_back():
    async def left_over():
        engine, seen = Outage(), asyncio.Queue()

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


def test_nothing_ends_a_consumer_but_closing_it(caplog):
    async def first_seen():
        engine, seen = Outage(), asyncio.Queue()
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
def test_a_filter_that_no_index_answers_is_warned_of(tmp_path, caplog, filter, warned):
    async def consume():
        async with await aio.connect(f"sqlite:///{tmp_path}/q.db") as db:
            queue = await db.queue("q", filter_headers=["type"])
            async with queue.consumer(print, filter=filter):
                pass

    asyncio.run(consume())
    assert ("declare colour as filter headers" in caplog.text) == warned


def test_a_consumer_whose_tasks_were_cancelled_says_so_and_can_be_closed(caplog):
    async def left_over():
        begun = asyncio.Event()

        async def hang(delivery):
            begun.set()
            await asyncio.Event().wait()

        async with queue_on(MemoryEngine()) as queue:
            await queue.publish(b"a")
            async with queue.consumer(hang) as consumer:
                await soon(begun.wait())
                for task in consumer._running:
                    task.cancel()
            return [standing.state.name async for standing in queue.browse()]

    assert asyncio.run(left_over()) == ["LEASED"]
    assert "is cancelled at" in caplog.text


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
