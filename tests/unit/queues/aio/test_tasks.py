"""Events and workers of the asyncio classes."""

import asyncio
import threading

import pytest

from headgate.queues.aio.tasks import (
    AsyncEvent,
    AsyncWorker,
    call,
    ends_worker,
    join_all,
    run_blocking,
    setter,
)
from tests.patience import PATIENCE


def test_waiting_for_an_event_ends_when_it_is_set_or_after_the_timeout():
    async def waits():
        event = AsyncEvent()
        before = await event.wait(0.001)
        event.set()
        return before, await event.wait(PATIENCE)

    assert asyncio.run(waits()) == (False, True)


def test_another_thread_sets_an_event_and_may_do_so_after_the_loop_is_closed():
    async def woken():
        event = AsyncEvent()
        set_event = setter(event)
        threading.Thread(target=set_event).start()
        return await event.wait(PATIENCE), set_event

    is_set, set_event = asyncio.run(woken())
    assert is_set
    set_event()


def test_a_handler_is_awaited_if_it_is_a_coroutine_function():
    async def double(number):
        return number * 2

    assert asyncio.run(call(double, 4)) == 8
    assert asyncio.run(call(lambda number: number * 2, 4)) == 8


def test_a_blocking_call_goes_on_when_its_caller_is_cancelled():
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def block():
        begun.set()
        go_on.wait(PATIENCE)
        done.set()

    async def cancel():
        task = asyncio.create_task(run_blocking(block))
        await asyncio.to_thread(begun.wait, PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()

    asyncio.run(cancel())
    assert done.wait(PATIENCE)


def test_a_task_ends_when_it_is_cancelled_and_not_when_its_handler_raises_cancelled_error():
    async def ends() -> tuple[bool, bool]:
        of_handler = ends_worker(asyncio.CancelledError())
        asyncio.current_task().cancel()
        of_task = ends_worker(asyncio.CancelledError())
        asyncio.current_task().uncancel()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            return of_handler, of_task
        return of_handler, of_task

    assert asyncio.run(ends()) == (False, True)


def test_an_abandoned_worker_is_cancelled():
    async def abandon():
        worker = AsyncWorker(asyncio.Event().wait, name="hangs")
        assert not worker.is_alive()
        worker.start()
        await worker.join(0.001)
        alive = worker.is_alive()
        await worker.abandon()
        await join_all([worker])
        return alive, worker.is_alive()

    assert asyncio.run(abandon()) == (True, False)
