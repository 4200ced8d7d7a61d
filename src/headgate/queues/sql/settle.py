"""What a consumer says of what it claimed: done, failed, later, not mine."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headgate.queues.engine import (
    Notify,
    Operation,
    Outcome,
    QueueInfo,
    Receipt,
    SqlValue,
    Transaction,
)
from headgate.queues.sql.core import Core, one


class Settling(Core):
    def ack(self, queue: QueueInfo, receipts: Sequence[Receipt]) -> Operation[list[Outcome]]:
        yield Transaction.WRITE
        outcomes = yield from self.ack_within(queue, receipts)
        yield Transaction.COMMIT
        return outcomes

    def ack_within(
        self, queue: QueueInfo, receipts: Sequence[Receipt], *, archive: bool | None = None
    ) -> Operation[list[Outcome]]:
        """Ack, inside the caller's transaction. Unless he knows whether there is an archive, the database is asked: the
        queue may have been changed since it was looked at."""
        if not receipts:
            return []
        queue = self.last_known(queue)
        if archive is None:
            archive = (yield self.dialect.statement("keeps_archive", queue.id)) == [(1,)]
        if archive:
            now = self.dialect.now_us()
            yield self.dialect.each("archive", [(queue.id, r.id, r.token, now) for r in receipts])
        return (yield from self._settle("ack", queue, receipts))

    def nack(
        self, queue: QueueInfo, receipts: Sequence[Receipt], delay_us: int, reason: str | None
    ) -> Operation[list[Outcome]]:
        now = self.dialect.now_us()
        outcomes = yield from self._settle("nack", queue, receipts, now, delay_us, reason)
        yield Notify((self.last_known(queue).id,))
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
        yield Notify((self.last_known(queue).id,))
        return outcomes

    def promote(self, queue: QueueInfo) -> Operation[int]:
        id = self.last_known(queue).id
        rows = yield self.dialect.statement("promote", id, self.dialect.now_us())
        return len(rows)

    def next_due(self, queue: QueueInfo) -> Operation[int | None]:
        id = self.last_known(queue).id
        row = yield from one(self.dialect.statement("next_due", id, self.dialect.now_us()))
        return None if row is None else row[0]

    def _settle(
        self, name: str, queue: QueueInfo, receipts: Sequence[Receipt], *rest: SqlValue
    ) -> Operation[list[Outcome]]:
        """One statement for all receipts; those it did not find are asked about."""
        if not receipts:
            return []
        queue = self.last_known(queue)
        rows = [(queue.id, receipt.id, receipt.token, *rest) for receipt in receipts]
        done = {Receipt(row[0], row[1]) for row in (yield self.dialect.each(name, rows))}
        return (yield from self.outcomes(queue, receipts, done))

    def outcomes(
        self, queue: QueueInfo, receipts: Sequence[Receipt], done: Collection[Receipt]
    ) -> Operation[list[Outcome]]:
        """What became of all receipts, when it is known which are done; QueueNotFound when the queue is gone."""
        missing: list[SqlValue] = [receipt.id for receipt in receipts if receipt not in done]
        if not missing:
            return [Outcome.DONE] * len(receipts)
        queue = yield from self.current(queue)
        present = {row[0] for row in (yield self.dialect.statement("present", queue.id, missing))}
        lost = {receipt: Outcome.GONE for receipt in receipts}
        lost |= {receipt: Outcome.STALE for receipt in receipts if receipt.id in present}
        return [Outcome.DONE if receipt in done else lost[receipt] for receipt in receipts]
