"""Events, locks and workers of the asyncio API. `headgate.queues.threads` has the same names, without Async, for threads.

The sync API is generated from the asyncio API; only these two modules and `engines` are written for each of them.
"""

from __future__ import annotations

import asyncio
import inspect
from asyncio import Lock as Lock
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, ParamSpec, TypeVar, TypeVarTuple

T = TypeVar("T")
P = ParamSpec("P")
Ts = TypeVarTuple("Ts")

_CANCEL_S: Final = 1.0  # how long a cancelled task may take to end


class AsyncEvent:
    """An asyncio.Event whose `wait` takes a timeout."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.set, self.clear, self.is_set = self._event.set, self._event.clear, self._event.is_set

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until the event is set; return False after the timeout."""
        try:
            async with asyncio.timeout(timeout):
                return await self._event.wait()
        except TimeoutError:
            return False


def setter(event: AsyncEvent) -> Callable[[], object]:
    """Return a function that sets the event, from any thread; it returns False if the event loop was closed."""
    loop = asyncio.get_running_loop()

    def set_soon() -> bool:
        if loop.is_closed():
            return False
        loop.call_soon_threadsafe(event.set)
        return True

    return set_soon


async def call(function: Callable[P, object], *args: P.args, **options: P.kwargs) -> object:
    """Call a handler or callback, and return its result; an awaitable result is awaited."""
    answer = function(*args, **options)
    return await answer if inspect.isawaitable(answer) else answer


async def run_blocking(function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Call a function that blocks in a thread, and return its result. If the caller is cancelled, the function runs on."""
    return await asyncio.shield(asyncio.to_thread(function, *args, **options))


def ends_worker(problem: BaseException) -> bool:
    """Whether an exception is meant to end the current task: the task was cancelled, or interrupted by Ctrl-C.

    Otherwise it is the failure of a handler, for example one that awaits something cancelled or calls sys.exit.
    """
    if isinstance(problem, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(problem, KeyboardInterrupt | GeneratorExit)


class AsyncWorker:
    """A task that awaits a coroutine function once."""

    def __init__(
        self, target: Callable[[*Ts], Coroutine[Any, Any, None]], *args: *Ts, name: str
    ) -> None:
        self._run: Callable[[], Coroutine[Any, Any, None]] = lambda: target(*args)
        self._name = name
        self._task: asyncio.Task[None] | None = None
        self._left = AsyncEvent()  # the task has ended, or was abandoned

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=self._name)
        self._task.add_done_callback(self._note_end)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # read it: otherwise asyncio logs that it was never retrieved
        self._left.set()

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.done()

    def is_current(self) -> bool:
        """Whether the caller runs in this worker."""
        return self._task is not None and self._task is asyncio.current_task()

    async def join(self, timeout: float | None = None) -> None:
        """Wait until the task has ended or was abandoned."""
        if self._task is not None:
            await self._left.wait(timeout)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def abandon(self) -> None:
        """Cancel the task, give it a moment to clean up, and let `join` return from then on."""
        self.cancel()
        await self.join(_CANCEL_S)
        self._left.set()


async def join_all(workers: Iterable[AsyncWorker]) -> None:
    """Wait until all workers have ended or were abandoned. If the caller is cancelled, cancel the workers too."""
    listed = list(workers)
    try:
        for worker in listed:
            await worker.join()
    except asyncio.CancelledError:
        for worker in listed:
            worker.cancel()
        for worker in listed:
            await worker.join()
        raise
