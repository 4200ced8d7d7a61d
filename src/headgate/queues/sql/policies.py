"""Rates, expiry, uniqueness and results on SQL: the steps before and after a plain publish, claim and ack."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from headgate.errors import QueueOptionsError
from headgate.filters import Filter
from headgate.queues.engine import (
    RESULTS,
    ClaimRequest,
    Claims,
    JobResult,
    Notify,
    Operation,
    Outcome,
    Publication,
    QueueInfo,
    RateLimit,
    Receipt,
    Rows,
    Transaction,
    TransactionMode,
    run_inline,
)
from headgate.queues.policies import EXPIRING, LIMITED, Bucket, decode_result
from headgate.queues.sql.catalog import CatalogCache
from headgate.queues.sql.claim import claim_mode
from headgate.queues.sql.dialect import QueueDialect
from headgate.queues.sql.lease import Acks, Leases, Settlement
from headgate.queues.sql.publish import Publisher, check_is_queue

if TYPE_CHECKING:
    from headgate.queues.sql.operations import Claimer


class PolicyPublisher:
    """Publishes messages; if one has a ttl, a unique key or a result, one by one in one transaction."""

    def __init__(self, dialect: QueueDialect, catalog: CatalogCache, publisher: Publisher) -> None:
        self._dialect, self._catalog, self._publisher = dialect, catalog, publisher

    def publish(
        self, queue: QueueInfo | None, publications: Sequence[Publication]
    ) -> Operation[list[int]]:
        for each in publications:
            if each.asks_for_more:
                return self._publish_more(queue, publications)
        return self._publisher.publish(queue, publications)

    def _publish_more(
        self, queue: QueueInfo | None, publications: Sequence[Publication]
    ) -> Operation[list[int]]:
        if any(each.ttl_us is not None for each in publications):
            yield from self._begin_to_expire(queue)
        ids: list[int] = yield Transaction(
            TransactionMode.WRITE, partial(self._publish, queue, publications)
        )
        return ids

    def _begin_to_expire(self, queue: QueueInfo | None) -> Operation[None]:
        """Let claims on all possible receivers look for expired messages, before the first message with a ttl is published.

        In a transaction of its own: a publisher's transaction keeps the catalog from being changed.
        """
        catalog = yield from self._catalog.read()
        target = None if queue is None else catalog.find(queue.name)
        receivers = [info for info in catalog.by_name.values() if info.kind != "queue"]
        receivers += [] if target is None else [target]
        if not all(info.policies & EXPIRING for info in receivers):
            id = 0 if target is None else target.id
            yield self._dialect.statement("add_policy", id, EXPIRING)

    def _publish(
        self, queue: QueueInfo | None, publications: Sequence[Publication]
    ) -> Operation[list[int]]:
        ids = []
        for each in publications:
            if queue is None:
                if each.unique is not None or each.result_us is not None:
                    raise QueueOptionsError("unique and result belong to a queue; publish to one")
                ids.append((yield from self._publish_new(None, each)))
            else:
                info = yield from self._catalog.find(queue.name)
                check_is_queue(info)
                known = yield from self._find_known(info, each)
                ids.append(known or (yield from self._publish_new(info, each)))
        return ids

    def _find_known(self, queue: QueueInfo, publication: Publication) -> Operation[int]:
        """The id of the message that was published before with this unique or dedup key; 0 if there is none."""
        if publication.unique is not None:
            rows = yield self._dialect.statement("hold_unique_key", queue.id, publication.unique)
            [(id,)] = rows
            if id and (yield self._dialect.statement("is_pending", queue.id, id)):
                return int(id)
        if publication.dedup_key is not None:
            rows = yield self._dialect.statement(
                "known_dedup_keys", queue.id, [publication.dedup_key], self._dialect.now_us()
            )
            if rows:
                return int(rows[0][1])
        return 0

    def _publish_new(self, queue: QueueInfo | None, publication: Publication) -> Operation[int]:
        [id] = yield from run_inline(self._publisher.publish(queue, [publication]))
        now = self._dialect.now_us()
        if id and publication.ttl_us is not None:
            yield self._dialect.statement("set_expires_at", id, now, publication.ttl_us)
        if queue is not None and publication.unique is not None:
            yield self._dialect.statement("set_unique_key", queue.id, publication.unique, id)
            yield self._dialect.statement("forget_unique_keys", queue.id, id)
        if queue is not None and publication.result_us is not None:
            yield self._dialect.statement("add_result", id, queue.id, publication.result_us)
            yield self._dialect.statement("forget_results", now, id)
        return id


class PolicyClaimer:
    """Claims messages; from a queue with policies after deleting the expired ones, and only as many as its rate allows."""

    def __init__(
        self,
        dialect: QueueDialect,
        catalog: CatalogCache,
        claimer: Claimer,
        leases: Leases,
        settlement: Settlement,
        acks: Acks,
    ) -> None:
        self._dialect, self._catalog, self._claimer = dialect, catalog, claimer
        self._leases, self._settlement, self._acks = leases, settlement, acks

    def claim(
        self,
        queue: QueueInfo,
        limit: int,
        lease_us: int,
        *,
        filter: Filter | None = None,
        skip: Collection[int] = (),
        acks: Sequence[Receipt] = (),
        together: bool = False,
    ) -> Operation[Claims]:
        outcomes: list[Outcome] = []
        request = ClaimRequest(limit, lease_us, together)
        while True:
            policies = self._catalog.last_known(queue).policies
            if policies:
                claims = self._claim(queue, request, filter, skip, acks)
            else:
                claims = self._claimer.claim(
                    queue, limit, lease_us, filter=filter, skip=skip, acks=acks, together=together
                )
            claimed, more = yield from claims
            if not claimed or self._catalog.last_known(queue).policies == policies:
                return claimed, outcomes + more if outcomes else more
            # The claim has read a newer catalog, with other policies: release the messages, and claim by these.
            outcomes, acks = outcomes + more, ()
            receipts = [one.receipt for one in claimed]
            yield from self._settlement.release(queue, receipts)

    def _claim(
        self,
        queue: QueueInfo,
        request: ClaimRequest,
        filter: Filter | None,
        skip: Collection[int],
        acks: Sequence[Receipt],
    ) -> Operation[Claims]:
        info = self._catalog.last_known(queue)
        if info.policies & EXPIRING:
            yield from self._delete_expired(info, acks)
        if info.policies & LIMITED:
            body = partial(self._claim_limited, info, request, filter, skip, acks)
            return (yield from self._catalog.transact(claim_mode(acks), body))
        limit, lease_us, together = request
        return (
            yield from self._claimer.claim(
                queue, limit, lease_us, filter=filter, skip=skip, acks=acks, together=together
            )
        )

    def _delete_expired(self, queue: QueueInfo, acks: Sequence[Receipt]) -> Operation[None]:
        """Delete what has expired, in short transactions; not what was handled and is to be acked."""
        now, acked = self._dialect.now_us(), [receipt.id for receipt in acks]
        while (yield self._dialect.statement("delete_expired", queue.id, now, acked)):
            pass

    def _claim_limited(
        self,
        queue: QueueInfo,
        request: ClaimRequest,
        filter: Filter | None,
        skip: Collection[int],
        acks: Sequence[Receipt],
    ) -> Operation[Claims]:
        bucket = yield from self._bucket("lock_rate", queue)
        tokens = request.limit if bucket is None else bucket.tokens
        if not tokens:
            outcomes = (yield from run_inline(self._acks.ack(queue, acks))) if acks else []
            return [], outcomes
        claim = self._claimer.claim(
            queue,
            min(request.limit, tokens),
            request.lease_us,
            filter=filter,
            skip=skip,
            acks=acks,
            together=request.together,
        )
        claimed, outcomes = yield from run_inline(claim)
        if claimed and bucket is not None:
            full_at = bucket.take(len(claimed))
            yield self._dialect.statement("set_full_at", queue.id, full_at)
        return claimed, outcomes

    def _bucket(self, name: str, queue: QueueInfo) -> Operation[Bucket | None]:
        rows: Rows = yield self._dialect.statement(name, queue.id, self._dialect.now_us())
        if not rows:
            return None
        count, period_us, full_at, now = rows[0]
        return Bucket(RateLimit(count, period_us), full_at, now)

    def next_due(self, queue: QueueInfo) -> Operation[int | None]:
        """Microseconds until a delivery falls due, or until the rate allows the next claim."""
        info = self._catalog.last_known(queue)
        if info.policies & LIMITED:
            bucket = yield from self._bucket("rate", info)
            if bucket is not None and bucket.wait_us:
                return bucket.wait_us
        return (yield from self._leases.next_due(queue))

    def set_rate(self, queue: QueueInfo, limit: RateLimit | None) -> Operation[QueueInfo]:
        """Limit the rate of claims, or remove the limit."""

        def change() -> Operation[None]:
            info = yield from self._catalog.find(queue.name)
            if limit is None:
                yield self._dialect.statement("set_policy", info.id, LIMITED, 0)
                yield self._dialect.statement("delete_rate", info.id)
            else:
                yield self._dialect.statement("set_policy", info.id, LIMITED, LIMITED)
                yield self._dialect.statement("set_rate", info.id, limit.count, limit.period_us)
            yield Notify((info.id,))

        yield Transaction(TransactionMode.WRITE, change)
        return (yield from self._catalog.find(queue.name))

    def rate(self, queue: QueueInfo) -> Operation[RateLimit | None]:
        """The limit of the rate of claims."""
        bucket = yield from self._bucket("rate", (yield from self._catalog.find(queue.name)))
        return None if bucket is None else bucket.limit


class Results:
    """What handlers returned for the messages whose publishers asked for it."""

    def __init__(self, dialect: QueueDialect, catalog: CatalogCache, acks: Acks) -> None:
        self._dialect, self._catalog, self._acks = dialect, catalog, acks

    def ack_with_result(
        self, queue: QueueInfo, receipt: Receipt, value: str
    ) -> Operation[list[Outcome]]:
        """Ack a delivery, and store what its handler returned, in one transaction."""

        def settle() -> Operation[list[Outcome]]:
            outcomes = yield from run_inline(self._acks.ack(queue, [receipt]))
            if outcomes == [Outcome.DONE]:
                id, now = self._catalog.last_known(queue).id, self._dialect.now_us()
                yield self._dialect.statement("set_result", receipt.id, id, value, now)
                yield Notify((RESULTS,))
            return outcomes

        outcomes: list[Outcome] = yield Transaction(TransactionMode.WRITE, settle)
        return outcomes

    def result(self, id: int) -> Operation[JobResult | None]:
        """The result of a message; None if none was asked for, or it has expired."""
        rows: Rows = yield self._dialect.statement("result", id, self._dialect.now_us())
        return decode_result(rows[0][0], bool(rows[0][1]), *rows[0][2:]) if rows else None
