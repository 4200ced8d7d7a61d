"""What a consumer without work waits for: a commit, a message that falls due, or the next poll."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from headgate.queues.aio.tasks import AsyncEvent, setter
from headgate.queues.engine import AsyncEngine, QueueInfo

_SHORTEST_PAUSE_S: Final = 0.005
_LONGEST_PAUSE_S: Final = 1.0
_LONGEST_WAIT_S: Final = 86_400.0  # far below the limits of the operating system


class AsyncWakeup:
    """Wakes one worker for one queue. A wake-up between `prepare` and `wait` is not lost."""

    def __init__(
        self, engine: AsyncEngine, queue: QueueInfo, *, notified: bool, poll: timedelta | None
    ) -> None:
        self._engine, self._operations, self.queue = engine, engine.operations, queue
        self._poll_s = None if poll is None else poll.total_seconds()
        self._pause_s = _SHORTEST_PAUSE_S
        self._woken = AsyncEvent()
        self._wake_from_thread = setter(self._woken)
        self._watch = engine.watch(self._wake_for) if notified else None

    def prepare(self) -> None:
        """Call this before a claim."""
        self._woken.clear()

    async def wait(self) -> None:
        """Call this after a claim that found nothing."""
        await self._woken.wait(await self.timeout())

    async def nap(self, seconds: float) -> None:
        """Wait that long, or until woken."""
        await self._woken.wait(seconds)

    def turn_to(self, queue: QueueInfo) -> None:
        """Wait for another queue from now on, after one more claim."""
        self.queue = queue
        self._woken.set()

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()

    async def timeout(self) -> float | None:
        """Seconds until the next message falls due or the next poll, whichever is earlier; None: wait for a commit."""
        if self._watch is None:
            return self._poll_s
        due_us = await self._engine.run(self._operations.next_due(self.queue))
        return self.timeout_until(due_us)

    def timeout_until(self, due_us: int | None) -> float | None:
        """Seconds to wait when the next message falls due in `due_us` microseconds.

        One that is due although the claim found nothing is locked by another transaction: the pauses grow until it is
        free.
        """
        times = (self._poll_s, self._seconds_until_due(due_us))
        return min((seconds for seconds in times if seconds is not None), default=None)

    def _seconds_until_due(self, due_us: int | None) -> float | None:
        if due_us == 0:
            pause, self._pause_s = self._pause_s, min(self._pause_s * 2, _LONGEST_PAUSE_S)
            return pause
        self._pause_s = _SHORTEST_PAUSE_S
        return None if due_us is None else min(due_us / 1e6, _LONGEST_WAIT_S)

    def _wake_for(self, queues: frozenset[int] | None) -> None:
        if queues is None or self._operations.last_known(self.queue).id in queues:
            self._wake_from_thread()
