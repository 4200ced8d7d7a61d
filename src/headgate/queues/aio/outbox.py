"""The outbox and its relay, awaited."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Iterable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any

from headgate.errors import DatabaseClosed, QueueOptionsError
from headgate.message import HeaderValue, Message
from headgate.queues import arguments
from headgate.queues.aio.engines import AsyncEngine
from headgate.queues.consuming import RECONNECT_S
from headgate.queues.outbox import entry_of, inserter, relay_within, with_outbox
from headgate.queues.parked import OUTBOX_QUEUE, Parked, list_parked, retry_parked
from headgate.queues.relay import BATCH, warn_of_waiting

_log = logging.getLogger(__name__)


class Outbox:
    """Bound to one connection of the caller's, of psycopg's or SQLAlchemy's asyncio kind."""

    def __init__(self, engine: AsyncEngine, connection: Any) -> None:
        self._insert = inserter(engine, connection)

    async def publish(
        self,
        queue: str,
        payload: bytes | Message,
        *,
        topic: str | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        priority: int = 0,
        delay: timedelta | None = None,
        dedup_key: str | None = None,
        group: str | None = None,
        **fields: Any,
    ) -> str:
        """To the queue of that name, once the caller commits; its delivery key."""
        publication = arguments.publication(
            payload,
            topic=topic,
            headers=headers,
            priority=priority,
            delay=delay,
            dedup_key=dedup_key,
            group=group,
            default_topic=queue,
            fields=fields,
        )
        values = entry_of(queue, publication)
        answer = self._insert(values)
        if inspect.isawaitable(answer):
            await answer
        delivery_key: str = values[0]
        return delivery_key


class Relay:
    """Open, it moves what is committed in the outbox into the queues of the same database: `async with db.relay():`."""

    def __init__(self, engine: AsyncEngine, *, poll: timedelta = timedelta(seconds=5)) -> None:
        self._engine, self._operations = engine, with_outbox(engine.operations)
        self._poll_s = poll.total_seconds()
        self._woken, self._stopping = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def run_once(self) -> int:
        """Move everything that is committed now; how much."""
        moved = 0
        while looked_at := await self._engine.run(relay_within(self._operations, BATCH)):
            moved += looked_at
        return moved

    async def parked(self) -> list[Parked]:
        """What could not be moved, and why: there is no such queue."""
        return await self._engine.run(list_parked(self._operations.dialect))

    async def retry(self, ids: Iterable[int] | None = None) -> int:
        """Let what is parked be moved again, those named or all; how many. A relay must run to do it."""
        return await self._engine.run(retry_parked(self._operations.dialect, ids))

    async def start(self) -> Relay:
        if self._task is not None:
            raise QueueOptionsError("a relay is started once; make another one")
        self._loop = asyncio.get_running_loop()
        self._watch = self._engine.watch(self._wake)
        self._task = asyncio.create_task(self._run())
        return self

    async def close(self) -> None:
        self._stopping.set()
        self._woken.set()
        if self._task is not None:
            await self._task
            self._watch.close()

    async def __aenter__(self) -> Relay:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _wake(self, queues: frozenset[int] | None) -> None:
        if (queues is None or OUTBOX_QUEUE in queues) and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._woken.set)

    async def _run(self) -> None:
        pause = RECONNECT_S[0]
        while not self._stopping.is_set():
            self._woken.clear()
            try:
                await self.run_once()
                pause = RECONNECT_S[0]
                await self._wait(self._poll_s)
            except DatabaseClosed:
                return
            except Exception as problem:  # nothing may end a relay but closing it
                warn_of_waiting(problem)
                await self._wait(pause)
                pause = min(pause * 2, RECONNECT_S[1])

    async def _wait(self, seconds: float) -> None:
        if self._stopping.is_set():
            return
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return
