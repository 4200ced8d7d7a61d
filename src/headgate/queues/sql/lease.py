"""Leases: granted to the candidates of a claim, then settled by ack, nack, bury, extend or release."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Protocol

from headgate.queues.engine import (
    ClaimedMessage,
    ClaimRequest,
    Notify,
    Operation,
    Outcome,
    QueueInfo,
    Receipt,
    SqlValue,
    Statement,
)
from headgate.queues.sql.catalog import CatalogCache
from headgate.queues.sql.dialect import QueueDialect
from headgate.queues.sql.message_rows import Undecodable, claimed_of, columns_of, read_messages

_log = logging.getLogger(__name__)


class Leases:
    """Grants leases, and makes deliveries READY or DEAD when their delay or lease is over."""

    def __init__(self, dialect: QueueDialect, catalog: CatalogCache) -> None:
        self._dialect, self._catalog = dialect, catalog
        # A statement for a single delivery, where that is cheaper.
        has_one = dialect.has("lease_one")
        self._lease_one = dialect.text("lease_one", columns=columns_of("m")) if has_one else None

    def grant(
        self, queue: QueueInfo, ids: Sequence[int], request: ClaimRequest, now: int | None
    ) -> Operation[list[ClaimedMessage]]:
        """Lease the deliveries that are still READY and whose group is free, in the order of the queue."""
        leased = ids
        try:
            if len(ids) == 1 and self._lease_one is not None:
                key = (queue.id, ids[0])
                rows = yield Statement(self._lease_one, (*key, now, request.lease_us, *key))
                return [claimed_of(row) for row in rows]
            doubt = int(request.together and len(ids) > 1)
            lease = self._dialect.statement(
                "lease", queue.id, list(ids), now, request.lease_us, doubt
            )
            leased = [row[0] for row in (yield lease)]
            if not leased:
                return []
            rows = yield self._dialect.statement(
                "leased", queue.id, leased, columns=columns_of("m")
            )
            return [claimed_of(row) for row in rows]
        except Undecodable:
            return (yield from self.bury_undecodable(queue, leased))

    def bury_undecodable(
        self, queue: QueueInfo, leased: Sequence[int]
    ) -> Operation[list[ClaimedMessage]]:
        """Make those of the leased deliveries dead letters that cannot be decoded; return the others."""
        rows = yield from read_messages(self._dialect, "leased", queue.id, list(leased))
        claimed, unreadable = [], []
        for (id, token, attempts, group), message, problem in rows:
            if problem is None:
                claimed.append(ClaimedMessage(id, token, attempts, message, group))
            else:
                _log.warning("message %d of %r becomes a dead letter: %s", id, queue.name, problem)
                unreadable.append((queue.id, id, token, self._dialect.now_us(), problem))
        if unreadable:
            yield self._dialect.for_each("bury", unreadable)
        return claimed

    def promote(self, queue: QueueInfo) -> Operation[int]:
        """Make due deliveries READY or DEAD, up to a thousand; return their number."""
        id = self._catalog.last_known(queue).id
        rows = yield self._dialect.statement("promote", id, self._dialect.now_us())
        return len(rows)

    def next_due(self, queue: QueueInfo) -> Operation[int | None]:
        """Microseconds until the next delivery falls due, 0 if one is due; None if no delivery will."""
        id = self._catalog.last_known(queue).id
        rows = yield self._dialect.statement("next_due", id, self._dialect.now_us())
        return rows[0][0] if rows else None

    def has_ready(self, queue: QueueInfo) -> Operation[bool]:
        """Whether a claim may find something; also True if the queue was deleted: then the claim raises QueueNotFound."""
        [(found,)] = yield self._dialect.statement("has_ready", self._catalog.last_known(queue).id)
        return bool(found)

    def promote_due(self, queue: QueueInfo) -> Operation[int]:
        """Promote deliveries if one is due; return their number."""
        if (yield from self.next_due(queue)) == 0:
            return (yield from self.promote(queue))
        return 0


class Settlement:
    """Ends or extends leases. Outcomes are DONE for valid receipts, STALE or GONE for the others."""

    def __init__(self, dialect: QueueDialect, catalog: CatalogCache) -> None:
        self._dialect, self._catalog = dialect, catalog

    def nack(
        self, queue: QueueInfo, receipts: Sequence[Receipt], delay_us: int, reason: str | None
    ) -> Operation[list[Outcome]]:
        now = self._dialect.now_us()
        outcomes = yield from self.settle("nack", queue, receipts, now, delay_us, reason)
        yield Notify((self._catalog.last_known(queue).id,))
        return outcomes

    def bury(
        self, queue: QueueInfo, receipts: Sequence[Receipt], reason: str | None
    ) -> Operation[list[Outcome]]:
        return self.settle("bury", queue, receipts, self._dialect.now_us(), reason)

    def extend(
        self, queue: QueueInfo, receipts: Sequence[Receipt], lease_us: int
    ) -> Operation[list[Outcome]]:
        return self.settle("extend", queue, receipts, self._dialect.now_us(), lease_us)

    def release(self, queue: QueueInfo, receipts: Sequence[Receipt]) -> Operation[list[Outcome]]:
        outcomes = yield from self.settle("release", queue, receipts, self._dialect.now_us())
        yield Notify((self._catalog.last_known(queue).id,))
        return outcomes

    def settle(
        self, name: str, queue: QueueInfo, receipts: Sequence[Receipt], *rest: SqlValue
    ) -> Operation[list[Outcome]]:
        """Run the named statement for all receipts, and return their outcomes."""
        if not receipts:
            return []
        queue = self._catalog.last_known(queue)
        rows = [(queue.id, receipt.id, receipt.token, *rest) for receipt in receipts]
        settled = yield self._dialect.for_each(name, rows)
        if len(settled) == len(receipts):
            return [Outcome.DONE] * len(receipts)
        done = {Receipt(id, token) for id, token in settled}
        return (yield from self.outcomes(queue, receipts, done))

    def outcomes(
        self, queue: QueueInfo, receipts: Sequence[Receipt], done: Collection[Receipt]
    ) -> Operation[list[Outcome]]:
        """The outcome of each receipt, given which are done; QueueNotFound when the queue was deleted."""
        missing: list[SqlValue] = [receipt.id for receipt in receipts if receipt not in done]
        if not missing:
            return [Outcome.DONE] * len(receipts)
        queue = yield from self._catalog.find(queue.name)
        rows = yield self._dialect.statement("existing_ids", queue.id, missing)
        existing = {id for (id,) in rows}
        return [
            Outcome.DONE
            if receipt in done
            else Outcome.STALE
            if receipt.id in existing
            else Outcome.GONE
            for receipt in receipts
        ]


class Acks(Protocol):
    """How a database acks: with its archive, in one statement or in a transaction."""

    def ack(self, queue: QueueInfo, receipts: Sequence[Receipt]) -> Operation[list[Outcome]]:
        """Ack in a transaction of its own."""
        ...

    def ack_within(self, queue: QueueInfo, receipts: Sequence[Receipt]) -> Operation[list[Outcome]]:
        """Ack in the transaction of the caller."""
        ...
