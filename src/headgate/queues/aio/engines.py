"""Opens the asyncio engine of a database URL: a native one, or a blocking one in a worker thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

from headgate.errors import DatabaseClosed
from headgate.filters import Filter
from headgate.forks import call_in_child
from headgate.queues import engines
from headgate.queues.engine import (
    AsyncEngine,
    ClaimRequest,
    Claims,
    CommitWatch,
    Engine,
    Operation,
    Publication,
    QueueInfo,
    Receipt,
    Wake,
)
from headgate.queues.engines import ConnectOptions as ConnectOptions
from headgate.queues.engines import Synchronous as Synchronous
from headgate.queues.wakers import Waiter

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


async def open_engine(url: str, options: ConnectOptions) -> AsyncEngine:
    """Open the engine that the URL names: a native one on PostgreSQL, else a ThreadedEngine."""
    if engines.is_postgres(url):
        postgres = engines.import_postgres()
        engine: AsyncEngine = await postgres.AsyncPostgresEngine(
            url, **engines.postgres_options(options)
        ).open()
        return engine
    worker = _new_worker()
    loop = asyncio.get_running_loop()
    try:
        blocking = await loop.run_in_executor(worker, engines.open_engine, url, options)
    except BaseException:
        worker.shutdown(wait=False)
        raise
    return ThreadedEngine(blocking, worker)


class ThreadedEngine:
    """An engine that blocks, run in one worker thread: SQLite has one writer anyway."""

    def __init__(self, engine: Engine, worker: ThreadPoolExecutor | None = None) -> None:
        self._engine, self._worker, self._closed = engine, worker or _new_worker(), False
        self.operations = engine.operations
        self.path = getattr(engine, "path", None)  # the file of the database, if it has one
        call_in_child(self, ThreadedEngine._start_over)

    def _start_over(self) -> None:
        """Make a worker thread in a forked child, which has none."""
        self._worker = _new_worker()

    async def run(self, operation: Operation[T]) -> T:
        return await self._in_worker(self._engine.run, operation)

    async def publish_one(self, queue: QueueInfo, publication: Publication) -> int:
        return await self._in_worker(self._engine.publish_one, queue, publication)

    async def claim(
        self,
        queue: QueueInfo,
        request: ClaimRequest,
        filter: Filter | None,
        acks: Sequence[Receipt],
    ) -> Claims:
        return await self._in_worker(self._engine.claim, queue, request, filter, acks)

    async def _in_worker(self, act: Callable[[*Ts], T], *args: *Ts) -> T:
        if self._closed:
            raise DatabaseClosed("the database was closed; connect again")
        # Shielded: a cancelled caller leaves no statement half done; the thread completes it.
        work = asyncio.get_running_loop().run_in_executor(self._worker, act, *args)
        return await asyncio.shield(work)

    def watch(self, wake: Wake) -> CommitWatch:
        return self._engine.watch(wake)

    def join(
        self, line: Hashable, queue_id: Callable[[], int], wake: Callable[[], object]
    ) -> Waiter:
        return self._engine.join(line, queue_id, wake)

    async def close(self) -> None:
        self._closed = True
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._close)

    def _close(self) -> None:
        self._worker.shutdown()
        self._engine.close()


def _new_worker() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="headgate-aio")
