"""What a consumer says of what it claimed: done, failed, later, not mine."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.queues.contract import (
    Notify,
    Operation,
    Outcome,
    QueueInfo,
    Receipt,
    Rows,
    SqlValue,
    Transaction,
)
from headgate.queues.core import Core, one


class Settling(Core):
    def ack(self, queue: QueueInfo, receipts: Sequence[Receipt]) -> Operation[list[Outcome]]:
        if not queue.options.archive:
            return (yield from self._settle("ack", queue, receipts))
        yield Transaction.WRITE
        outcomes = yield from self.ack_within(queue, receipts)
        yield Transaction.COMMIT
        return outcomes

    def ack_within(self, queue: QueueInfo, receipts: Sequence[Receipt]) -> Operation[list[Outcome]]:
        """Ack, inside the caller's transaction."""
        if queue.options.archive and receipts:
            now = self.dialect.now_us()
            yield self.dialect.each("archive", [(queue.id, r.id, r.token, now) for r in receipts])
        return (yield from self._settle("ack", queue, receipts))

    def nack(
        self, queue: QueueInfo, receipts: Sequence[Receipt], delay_us: int, reason: str | None
    ) -> Operation[list[Outcome]]:
        now = self.dialect.now_us()
        outcomes = yield from self._settle("nack", queue, receipts, now, delay_us, reason)
        yield Notify((queue.id,))
        return outcomes

    def bury(
        self, queue: QueueInfo, receipts: Sequence[Receipt], reason: str | None
    ) -> Operation[list[Outcome]]:
        return (yield from self._settle("bury", queue, receipts, self.dialect.now_us(), reason))

    def extend(
        self, queue: QueueInfo, receipts: Sequence[Receipt], lease_us: int
    ) -> Operation[list[Outcome]]:
        return (yield from self._settle("extend", queue, receipts, self.dialect.now_us(), lease_us))

    def release(self, queue: QueueInfo, receipts: Sequence[Receipt]) -> Operation[list[Outcome]]:
        outcomes = yield from self._settle("release", queue, receipts, self.dialect.now_us())
        yield Notify((queue.id,))
        return outcomes

    def promote(self, queue: QueueInfo) -> Operation[int]:
        rows = yield self.dialect.statement("promote", queue.id, self.dialect.now_us())
        return len(rows)

    def next_due(self, queue: QueueInfo) -> Operation[int | None]:
        row = yield from one(self.dialect.statement("next_due", queue.id, self.dialect.now_us()))
        return None if row is None else row[0]

    def _settle(
        self, name: str, queue: QueueInfo, receipts: Sequence[Receipt], *rest: SqlValue
    ) -> Operation[list[Outcome]]:
        """One statement for all receipts; those it did not find are asked about."""
        if not receipts:
            return []
        rows = [(queue.id, receipt.id, receipt.token, *rest) for receipt in receipts]
        done = {Receipt(row[0], row[1]) for row in (yield self.dialect.each(name, rows))}
        missing = [receipt.id for receipt in receipts if receipt not in done]
        there: Rows = ()
        if missing:
            there = yield self.dialect.statement("present", queue.id, missing)
        present = {row[0] for row in there}
        return [_outcome(receipt, done, present) for receipt in receipts]


def _outcome(receipt: Receipt, done: set[Receipt], present: set[int]) -> Outcome:
    if receipt in done:
        return Outcome.DONE
    return Outcome.STALE if receipt.id in present else Outcome.GONE
