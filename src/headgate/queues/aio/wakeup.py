"""What a consumer without work waits for: a commit, a message that falls due, or the next poll."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import timedelta
from typing import Final

from headgate.queues.aio.tasks import AsyncEvent, setter
from headgate.queues.engine import AsyncEngine, QueueInfo
from headgate.queues.wakers import Waiter

_SHORTEST_PAUSE_S: Final = 0.005
_LONGEST_PAUSE_S: Final = 1.0
_LONGEST_WAIT_S: Final = 86_400.0  # far below the limits of the operating system


class AsyncWakeup:
    """Wakes one worker when its queue may have something to claim. A wake-up between `prepare` and `wait` is not lost.

    Workers with one `line` would claim the same messages, and take turns in being woken.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        queue: QueueInfo,
        *,
        notified: bool,
        poll: timedelta | None,
        line: Hashable | None = None,
    ) -> None:
        self._engine, self._operations, self.queue = engine, engine.operations, queue
        self._poll_s = None if poll is None else poll.total_seconds()
        self._pause_s = _SHORTEST_PAUSE_S
        self._woken = AsyncEvent()
        self._waiter: Waiter | None = None
        if notified:
            self._waiter = engine.join(line or self, self._queue_id, setter(self._woken))

    def prepare(self) -> None:
        """Forget earlier wake-ups. Call this before a claim, which finds what they were for."""
        self._woken.clear()
        if self._waiter is not None:
            self._waiter.look()

    async def wait(self) -> None:
        """Wait until something may be claimed, or for the next poll. Call this after a claim that found nothing."""
        if self._waiter is None:
            await self._woken.wait(self._poll_s)
        elif not await self._wait_in_line(self._waiter) and self._waiter.is_line_looking():
            # A message that falls due ends the wait of the whole line. If another worker claims it already, wait once more.
            await self._wait_in_line(self._waiter)

    async def _wait_in_line(self, waiter: Waiter) -> bool:
        """Wait until the worker is woken, and not only told of an earlier due time; return False after the timeout."""
        while True:
            timeout = await self.timeout()
            if not waiter.wait():
                return True
            if not await self._woken.wait(timeout):
                return waiter.is_called
            if waiter.is_called and not await self._is_too_late(waiter):
                return True
            self._woken.clear()  # a wake-up before this is not lost: `waiter.wait` reports it

    async def _is_too_late(self, waiter: Waiter) -> bool:
        """Let consumers of other processes go first, if the waiter has to; return whether nothing remains to be claimed."""
        delay_s = waiter.delay_s
        if delay_s is None:
            return False
        if delay_s:
            await AsyncEvent().wait(delay_s)
        if not waiter.look_later():
            return False
        is_left = await self._engine.run(self._operations.has_ready(self.queue))
        if delay_s:
            (waiter.note_left if is_left else waiter.note_taken)()
        return not is_left

    def hand_on(self) -> None:
        """Wake another worker, for there may be more. Call this after a claim that found something."""
        if self._waiter is not None:
            self._waiter.leave()

    async def nap(self, seconds: float) -> None:
        """Wait for this many seconds, or until woken."""
        await self._woken.wait(seconds)

    def turn_to(self, queue: QueueInfo) -> None:
        """Wait for another queue from now on, after one more claim."""
        self.queue = queue
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None:
            self._waiter.call()
        self._woken.set()

    def close(self) -> None:
        if self._waiter is not None:
            self._waiter.close()

    async def timeout(self) -> float | None:
        """Return the seconds until the next message falls due or the next poll, whichever is earlier; None: wait for a commit."""
        if self._waiter is None:
            return self._poll_s
        due_us = await self._engine.run(self._operations.next_due(self.queue))
        return self.timeout_until(due_us)

    def timeout_until(self, due_us: int | None) -> float | None:
        """Return the seconds to wait when the next message falls due in `due_us` microseconds.

        A message that is due although the claim found nothing is locked by another transaction: the pauses grow until it
        is free.
        """
        times = (self._poll_s, self._seconds_until_due(due_us))
        return min((seconds for seconds in times if seconds is not None), default=None)

    def _seconds_until_due(self, due_us: int | None) -> float | None:
        if due_us == 0:
            pause, self._pause_s = self._pause_s, min(self._pause_s * 2, _LONGEST_PAUSE_S)
            return pause
        self._pause_s = _SHORTEST_PAUSE_S
        return None if due_us is None else min(due_us / 1e6, _LONGEST_WAIT_S)

    def _queue_id(self) -> int:
        return self._operations.last_known(self.queue).id
