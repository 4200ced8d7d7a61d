"""What a claim hands out, settled with await."""

from __future__ import annotations

from datetime import timedelta

from headgate.queues import arguments
from headgate.queues.aio.engines import AsyncEngine
from headgate.queues.delivery import Leased
from headgate.queues.engine import Operation, Outcome


class Delivery(Leased[AsyncEngine]):
    """A message that is leased to the caller. Exactly one of ack, nack and release ends that."""

    async def ack(self) -> None:
        """Done with it. To say so twice of this object is harmless; when the lease is over, StaleLease."""
        if self.settled != "acked":
            await self._settle("ack", self._engine.operations.ack(self._queue, [self.receipt]))
            self.settled = "acked"

    async def nack(
        self, delay: timedelta | None = None, *, reason: str | None = None, requeue: bool = True
    ) -> None:
        """Failed: to be tried again, after the delay; without requeue, or when attempts are used up, a dead letter."""
        operations, receipts = self._engine.operations, [self.receipt]
        reason = arguments.storable_reason(reason)
        if requeue:
            span = arguments.microseconds(delay)
            await self._settle("nack", operations.nack(self._queue, receipts, span, reason))
        else:
            await self._settle("nack", operations.bury(self._queue, receipts, reason))
        self.settled = "nacked"

    async def extend(self, lease: timedelta) -> None:
        """The lease ends that long from now, or when it would have ended anyway if that is later."""
        span = arguments.lease_us(lease)
        operation = self._engine.operations.extend(self._queue, [self.receipt], span)
        await self._settle("extend", operation)

    async def release(self) -> None:
        """Give it back at once, as if it had never been claimed."""
        await self._settle("release", self._engine.operations.release(self._queue, [self.receipt]))
        self.settled = "released"

    async def _settle(self, verb: str, operation: Operation[list[Outcome]]) -> None:
        outcomes = await self._engine.run(operation)
        arguments.check_settled(self._queue.name, [self.receipt], outcomes, verb)
