"""What a claim hands out."""

from __future__ import annotations

from datetime import timedelta
from typing import Generic, TypeVar

from headgate.message import Message
from headgate.queues import arguments
from headgate.queues.engine import ClaimedMessage, Engine, Operation, Outcome, QueueInfo, Receipt

E = TypeVar("E")


class Leased(Generic[E]):
    """A message that is leased to the caller, and the engine it is settled by, at once or awaited."""

    def __init__(self, engine: E, queue: QueueInfo, claimed: ClaimedMessage) -> None:
        self._engine, self._queue, self._claimed = engine, queue, claimed
        self.message: Message = claimed.message
        self.settled: str | None = None  # "acked", "nacked", "released"

    def __repr__(self) -> str:
        state = self.settled or "leased"
        return f"<Delivery {self.id} of {self._queue.name!r}, attempt {self.attempts}, {state}>"

    @property
    def id(self) -> int:
        return self._claimed.id

    @property
    def token(self) -> int:
        return self._claimed.token

    @property
    def attempts(self) -> int:
        """How often it was claimed, this time included."""
        return self._claimed.attempts

    @property
    def group(self) -> str | None:
        return self._claimed.group

    @property
    def receipt(self) -> Receipt:
        return self._claimed.receipt


class Delivery(Leased[Engine]):
    """A message that is leased to the caller. Exactly one of ack, nack and release ends that."""

    def ack(self) -> None:
        """Done with it. To say so twice of this object is harmless; when the lease is over, StaleLease."""
        if self.settled != "acked":
            self._settle("ack", self._engine.operations.ack(self._queue, [self.receipt]))
            self.settled = "acked"

    def nack(
        self, delay: timedelta | None = None, *, reason: str | None = None, requeue: bool = True
    ) -> None:
        """Failed: to be tried again, after the delay; without requeue, or when attempts are used up, a dead letter."""
        operations, receipts = self._engine.operations, [self.receipt]
        reason = arguments.storable_reason(reason)
        if requeue:
            span = arguments.microseconds(delay)
            self._settle("nack", operations.nack(self._queue, receipts, span, reason))
        else:
            self._settle("nack", operations.bury(self._queue, receipts, reason))
        self.settled = "nacked"

    def extend(self, lease: timedelta) -> None:
        """The lease ends that long from now, or when it would have ended anyway if that is later."""
        span = arguments.lease_us(lease)
        self._settle("extend", self._engine.operations.extend(self._queue, [self.receipt], span))

    def release(self) -> None:
        """Give it back at once, as if it had never been claimed."""
        self._settle("release", self._engine.operations.release(self._queue, [self.receipt]))
        self.settled = "released"

    def _settle(self, verb: str, operation: Operation[list[Outcome]]) -> None:
        outcomes = self._engine.run(operation)
        arguments.check_settled(self._queue.name, [self.receipt], outcomes, verb)
