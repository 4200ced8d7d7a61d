"""Engines that are awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar, TypeVarTuple
from urllib.parse import urlsplit

from headgate.errors import DatabaseClosed
from headgate.forks import call_in_child
from headgate.queues.database import open_engine
from headgate.queues.engine import (
    CommitWatch,
    Engine,
    Operation,
    Operations,
    Publication,
    QueueInfo,
    Wake,
)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class AsyncEngine(Protocol):
    """Like `contract.Engine`, awaited. `watch` calls back from another thread."""

    @property
    def operations(self) -> Operations: ...

    async def run(self, operation: Operation[T]) -> T: ...

    async def publish_one(self, queue: QueueInfo, publication: Publication) -> int: ...

    def watch(self, wake: Wake) -> CommitWatch: ...

    async def close(self) -> None: ...


class ThreadedEngine:
    """An engine that blocks, run in one worker thread: SQLite has one writer anyway."""

    def __init__(self, engine: Engine, worker: ThreadPoolExecutor) -> None:
        self._engine, self._worker, self._closed = engine, worker, False
        self.operations = engine.operations
        self.path = getattr(engine, "path", None)  # of its file, if it has one
        call_in_child(self, ThreadedEngine._start_over)

    def _start_over(self) -> None:
        """In a forked child, which has no worker thread."""
        self._worker = _worker()

    async def run(self, operation: Operation[T]) -> T:
        return await self._in_worker(self._engine.run, operation)

    async def publish_one(self, queue: QueueInfo, publication: Publication) -> int:
        return await self._in_worker(self._engine.publish_one, queue, publication)

    async def _in_worker(self, act: Callable[[*Ts], T], *args: *Ts) -> T:
        if self._closed:
            raise DatabaseClosed("the database was closed; connect again")
        # Shielded: a cancelled caller does not leave a statement half done; the thread ends it.
        work = asyncio.get_running_loop().run_in_executor(self._worker, act, *args)
        return await asyncio.shield(work)

    def watch(self, wake: Wake) -> CommitWatch:
        return self._engine.watch(wake)

    async def close(self) -> None:
        self._closed = True
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._close)

    def _close(self) -> None:
        self._worker.shutdown()
        self._engine.close()


def _worker() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="headgate-aio")


def is_meant_for_task(problem: BaseException) -> bool:
    """Whether this task is being ended: cancelled, or interrupted by Ctrl-C. Raised by what it calls, such as a handler
    that awaits something cancelled or calls sys.exit, it is only that call's failure."""
    if isinstance(problem, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(problem, KeyboardInterrupt | GeneratorExit)


async def open_async_engine(url: str, **options: Any) -> AsyncEngine:
    """The engine a URL names."""
    if urlsplit(url).scheme in ("postgresql", "postgres"):
        from headgate.queues.postgres.engine import AsyncPostgresEngine

        return await AsyncPostgresEngine(url, **options).open()
    worker = _worker()
    loop = asyncio.get_running_loop()
    try:
        engine = await loop.run_in_executor(worker, lambda: open_engine(url, **options))
    except BaseException:
        worker.shutdown(wait=False)
        raise
    return ThreadedEngine(engine, worker)
