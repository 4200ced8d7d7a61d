"""How a task waits: until it is woken, something falls due, or it is time to look anyway."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from headgate.queues.aio.engines import AsyncEngine
from headgate.queues.engine import QueueInfo
from headgate.queues.waiting import Patience


class Waiting:
    """One waiter for one queue. A wake between `prepare` and `wait` is not lost."""

    def __init__(
        self, engine: AsyncEngine, queue: QueueInfo, *, notified: bool, poll: timedelta | None
    ) -> None:
        self._engine, self.queue = engine, queue
        self._patience = Patience(poll)
        self._woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._watch = engine.watch(self._wake) if notified else None

    def prepare(self) -> None:
        """Call this before looking."""
        self._woken.clear()

    async def wait(self) -> None:
        """Call this after having found nothing."""
        await self.nap(await self._timeout())

    async def nap(self, seconds: float | None) -> None:
        """Wait that long, or until stopped or woken."""
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return

    def turn_to(self, queue: QueueInfo) -> None:
        """Wait for another queue from now on, after one more look."""
        self.queue = queue
        self._woken.set()

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()

    def _wake(self, queues: frozenset[int] | None) -> None:
        named = queues is None or self._engine.operations.last_known(self.queue).id in queues
        if named and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._woken.set)

    async def _timeout(self) -> float | None:
        if self._watch is None:
            return self._patience.seconds(None)
        due = await self._engine.run(self._engine.operations.next_due(self.queue))
        return self._patience.seconds(due)
