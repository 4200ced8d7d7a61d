"""A delivery: a message that a claim has leased, and the verbs that settle it."""

from __future__ import annotations

from datetime import timedelta

from headgate.message import Message
from headgate.queues import arguments, policies
from headgate.queues.engine import (
    AsyncEngine,
    ClaimedMessage,
    Operation,
    Outcome,
    QueueInfo,
    Receipt,
)


class AsyncDelivery:
    """A message that is leased to the caller. Exactly one of ack, nack and release ends the lease."""

    def __init__(self, engine: AsyncEngine, queue: QueueInfo, claimed: ClaimedMessage) -> None:
        self._engine, self._queue, self._claimed = engine, queue, claimed
        self.message: Message = claimed.message
        self.settled: str | None = None  # "acked", "nacked", "released"

    def __repr__(self) -> str:
        state = self.settled or "leased"
        return f"<{type(self).__name__} {self.id} of {self._queue.name!r}, attempt {self.attempts}, {state}>"

    @property
    def id(self) -> int:
        return self._claimed.id

    @property
    def token(self) -> int:
        """The token of the lease; with the id it settles the delivery elsewhere, see Queue.delivery."""
        return self._claimed.token

    @property
    def attempts(self) -> int:
        """How often the message was claimed, this time included."""
        return self._claimed.attempts

    @property
    def group(self) -> str | None:
        return self._claimed.group

    @property
    def receipt(self) -> Receipt:
        return self._claimed.receipt

    async def ack(self, *, result: object = None) -> None:
        """Ack the message: it is done. A second ack of this object does nothing; StaleLease if the lease has ended.

        `result`, which must be JSON, is kept if the publisher asked for it; a consumer passes what its handler returned.
        """
        if self.settled == "acked":
            return
        operations = self._engine.operations
        if policies.wants_result(self.message):
            value = policies.encode_result(result)
            operation = operations.ack_with_result(self._queue, self.receipt, value)
        else:
            operation = operations.ack(self._queue, [self.receipt])
        await self._settle("ack", operation)
        self.settled = "acked"

    async def nack(
        self, delay: timedelta | None = None, *, reason: str | None = None, requeue: bool = True
    ) -> None:
        """Nack the message: it failed, and is retried after the delay.

        Without requeue, or when its attempts are used up, it becomes a dead letter.
        """
        operations, receipts = self._engine.operations, [self.receipt]
        reason = arguments.storable_reason(reason)
        if requeue:
            delay_us = arguments.microseconds("delay", delay)
            await self._settle("nack", operations.nack(self._queue, receipts, delay_us, reason))
        else:
            await self._settle("nack", operations.bury(self._queue, receipts, reason))
        self.settled = "nacked"

    async def extend(self, lease: timedelta) -> None:
        """Extend the lease until that long from now; a lease that ends later is not shortened."""
        lease_us = arguments.lease_us(lease)
        operation = self._engine.operations.extend(self._queue, [self.receipt], lease_us)
        await self._settle("extend", operation)

    async def release(self) -> None:
        """Give the message back at once; the claim is not counted."""
        await self._settle("release", self._engine.operations.release(self._queue, [self.receipt]))
        self.settled = "released"

    async def _settle(self, verb: str, operation: Operation[list[Outcome]]) -> None:
        outcomes = await self._engine.run(operation)
        arguments.check_settled(self._queue.name, [self.receipt], outcomes, verb)
