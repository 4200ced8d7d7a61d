"""Schedulers: each publishes the due messages of the schedules in a database while it is open: `async with db.scheduler(): …`."""

from __future__ import annotations

import logging
from datetime import timedelta
from types import TracebackType

from headgate.errors import DatabaseClosed, QueueError, QueueOptionsError
from headgate.queues import arguments, schedules
from headgate.queues.aio.tasks import AsyncEvent, AsyncWorker, join_all
from headgate.queues.engine import AsyncEngine
from headgate.queues.ledger import RECONNECT_S

_log = logging.getLogger(__name__)


class AsyncScheduler:
    """Runs schedules. Several may be open, in one process or in many; each run is published once."""

    def __init__(self, engine: AsyncEngine, *, poll: timedelta = timedelta(seconds=5)) -> None:
        self._engine = engine
        self._poll_s = arguments.lease_us(poll) / 1e6  # finds schedules that other programs add
        self._stopping = AsyncEvent()
        self._worker: AsyncWorker | None = None

    async def run_once(self) -> float | None:
        """Publish what is due now; return the seconds until the next run, None without schedules."""
        left_us = await self._engine.run(schedules.run_due(self._engine.operations))
        return None if left_us is None else left_us / 1e6

    async def start(self) -> AsyncScheduler:
        """Begin to publish."""
        if self._worker is not None:
            raise QueueOptionsError("a scheduler is started once; make another one")
        self._worker = AsyncWorker(self._run, name="headgate-scheduler")
        self._worker.start()
        return self

    async def close(self) -> None:
        self._stopping.set()
        if self._worker is not None:
            await join_all([self._worker])

    async def __aenter__(self) -> AsyncScheduler:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _run(self) -> None:
        pause = RECONNECT_S[0]
        while not self._stopping.is_set():
            try:
                left = await self.run_once()
                pause = RECONNECT_S[0]
                # At least a moment: another scheduler may hold what is due.
                wait = self._poll_s if left is None else min(max(left, 0.01), self._poll_s)
                await self._stopping.wait(wait)
            except DatabaseClosed:
                return
            except Exception as problem:  # only closing may end a scheduler
                expected = isinstance(problem, QueueError)
                _log.warning("scheduler: %s; retrying", problem, exc_info=not expected)
                await self._stopping.wait(pause)
                pause = min(pause * 2, RECONNECT_S[1])
