"""What PostgreSQL does better than the operations all SQL databases share, or must do otherwise.

A claim is one statement, see postgres_claims; so is publishing, see postgres_publishing. Several transactions write at
the same time here, so what changes the catalog waits for those who judge messages by it, and what loses against another
is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final, TypeVar

from headgate.filters import Filter
from headgate.queues.engine import (
    ClaimedMessage,
    Operation,
    Outcome,
    QueueInfo,
    QueueOptions,
    Receipt,
    Rows,
    Start,
    Statement,
    Step,
    Transaction,
)
from headgate.queues.postgres.claims import (
    Answer,
    PostgresClaims,
    answer_of,
    claimed_of_answer,
    left_out,
)
from headgate.queues.postgres.connections import Conflict
from headgate.queues.postgres.dialect import index_name, key_expression
from headgate.queues.sql.claim import Wanted
from headgate.queues.sql.core import stepwise
from headgate.queues.sql.records import Undecodable, columns_of
from headgate.queues.sql.search import Examined, Search

T = TypeVar("T")

_MOST_TRIES: Final = 20
# How far a claim looks that found only what others had locked; at last it may take a while until they are done.
_REACHES: Final = (1, 8, *[64] * 18)


class PostgresOperations(PostgresClaims):
    # -- queues --

    def declare(self, name: str, options: QueueOptions | None) -> Operation[QueueInfo]:
        known = yield from self._find(name)
        if known is not None and _is_settled(known, options):
            yield from self.empty_dropped()
            return known
        declare = super().declare
        return (yield from retried(lambda: self._alone(declare(name, options))))

    def subscribe(
        self,
        name: str,
        filter: Filter,
        *,
        source: str | None = None,
        options: QueueOptions | None = None,
        start: Start = "next",
        lease_us: int | None = None,
    ) -> Operation[QueueInfo]:
        subscribe = super().subscribe
        return (
            yield from retried(
                lambda: self._alone(
                    subscribe(
                        name,
                        filter,
                        source=source,
                        options=options,
                        start=start,
                        lease_us=lease_us,
                    )
                )
            )
        )

    def _alone(self, operation: Operation[T]) -> Operation[T]:
        """The operation; once its transaction has begun, nobody else changes or uses the catalog."""
        return self._locking("own_catalog", operation)

    def _sharing(self, operation: Operation[T]) -> Operation[T]:
        """The operation; until its transaction ends, nobody changes the catalog."""
        return self._locking("share_catalog", operation)

    def _locking(self, lock: str, operation: Operation[T]) -> Operation[T]:
        def take(step: Step) -> Operation[Rows]:
            reply = yield step
            if step is Transaction.WRITE:
                yield self.dialect.statement(lock)
            return reply

        return stepwise(operation, take)

    def _take_stored(self, name: str, filter: Filter) -> Operation[None]:
        info = yield from self.find(name)
        if info.source is None:
            yield self.dialect.statement("share_stored")
        else:
            yield self.dialect.statement("share_stored_in", info.source)
        yield from super()._take_stored(name, filter)

    def build_indexes(self, info: QueueInfo, headers: Sequence[str]) -> Operation[None]:
        yield self.dialect.statement("lock_indexes")
        try:
            for header in headers:
                yield from self._build_index(index_name(header), key_expression(header))
            yield from self._backfill(info)
        finally:
            yield self.dialect.statement("unlock_indexes")

    def _build_index(self, index: str, expression: str) -> Operation[None]:
        found = yield self.dialect.statement("filter_index", index)
        if found and found[0][0]:
            return
        if found:  # somebody was interrupted while building it
            yield self.dialect.statement("drop_filter_index", index=index)
        yield self.dialect.statement("create_filter_index", index=index, expression=expression)

    def _backfill(self, info: QueueInfo) -> Operation[None]:
        wanted = list(info.options.filter_headers)
        after = 0
        while rows := (yield self.dialect.statement("backfill", info.id, after, wanted)):
            after = max(row[0] for row in rows)
        yield self.dialect.statement("set_indexed", info.id, wanted)

    def _route_some(self) -> Operation[int]:
        route = super()._route_some
        return (yield from retried(lambda: self._sharing(route())))

    # -- claiming --

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
    ) -> Operation[tuple[list[ClaimedMessage], list[Outcome]]]:
        queue = self.last_known(queue)
        if queue.kind != "queue":
            yield from self.route()
        search = self.search(queue, filter, skip)
        if search.reads:
            claim = super().claim
            again = partial(claim, filter=filter, skip=skip, acks=acks, together=together)
            return (yield from retried(lambda: again(queue, limit, lease_us)))
        wanted = Wanted(limit, lease_us, together)
        statement = self.claim_statement(search, wanted, acks)
        answer = answer_of((yield from retried(lambda: _asked(statement))))
        outcomes = yield from self._acked(queue, acks, answer.acked)
        if answer.version != self._catalog.version:
            current = yield from self.current(queue)
            if current.id != queue.id:  # dropped and made again: there was nothing to claim
                claimed, _ = yield from self.claim(
                    current, limit, lease_us, filter=filter, skip=skip, together=together
                )
                return claimed, outcomes
        if not answer.ids:
            answer = yield from self._claim_more(search, wanted, answer)
        fetched: Rows = ()
        if missing := left_out(answer):
            columns = columns_of("m")
            fetched = yield self.dialect.statement("claimed_messages", missing, columns=columns)
        try:
            return claimed_of_answer(answer, queue, fetched), outcomes
        except Undecodable:
            claimed = yield from self.sort_out(queue, answer.ids)
        if not claimed:
            claimed, _ = yield from self.claim(
                queue, limit, lease_us, filter=filter, skip=skip, together=together
            )
        return claimed, outcomes

    def _claim_more(self, search: Search, wanted: Wanted, answer: Answer) -> Operation[Answer]:
        """Ask again, as long as something was due, or all that was found was in somebody else's hands.

        What is due and locked by somebody else is passed over, and all others are claimed meanwhile.
        """
        due, reaches, reach = answer.due, iter(_REACHES), 1
        while not answer.ids:
            if due:
                due = (yield from self.promote(search.queue)) > 0
            elif not answer.found or not (reach := next(reaches, 0)):
                break
            again = self.claim_statement(search, wanted, reach=reach, waits=False)
            answer = answer_of((yield from retried(partial(_asked, again))))
        return answer

    def _acked(
        self, queue: QueueInfo, acks: Sequence[Receipt], acked: list[int] | None
    ) -> Operation[list[Outcome]]:
        if acked is None:
            return [Outcome.DONE] * len(acks)
        ids = set(acked)
        done = {receipt for receipt in acks if receipt.id in ids}
        return (yield from self.outcomes(queue, acks, done))

    def _kept(self, before: Examined, last: int, matches: list[int]) -> Operation[Examined]:
        """Ids appear out of order here: until all have ended who were at work when one was seen, it is not certain
        that none before it is missing."""
        [(oldest, next)] = yield self.dialect.statement("transactions")
        certain = before.upto
        if oldest == next:
            certain = last
        elif before.ending and oldest >= before.ending:
            certain = before.seen
        known = tuple(id for id in matches if id <= certain)
        return Examined(certain, known, last, next)

    # -- settling: two statements that lock the same rows in another order may meet --

    def ack(self, queue: QueueInfo, receipts: Sequence[Receipt]) -> Operation[list[Outcome]]:
        return (yield from retried(lambda: self.ack_within(queue, receipts)))

    def ack_within(
        self, queue: QueueInfo, receipts: Sequence[Receipt], *, archive: bool | None = None
    ) -> Operation[list[Outcome]]:
        """One statement that archives exactly what it acks: between two of them a lease could end."""
        return self._settle("ack", queue, receipts, self.dialect.now_us())

    def nack(
        self, queue: QueueInfo, receipts: Sequence[Receipt], delay_us: int, reason: str | None
    ) -> Operation[list[Outcome]]:
        nack = super().nack
        return (yield from retried(lambda: nack(queue, receipts, delay_us, reason)))

    def bury(
        self, queue: QueueInfo, receipts: Sequence[Receipt], reason: str | None
    ) -> Operation[list[Outcome]]:
        bury = super().bury
        return (yield from retried(lambda: bury(queue, receipts, reason)))

    def extend(
        self, queue: QueueInfo, receipts: Sequence[Receipt], lease_us: int
    ) -> Operation[list[Outcome]]:
        extend = super().extend
        return (yield from retried(lambda: extend(queue, receipts, lease_us)))

    def release(self, queue: QueueInfo, receipts: Sequence[Receipt]) -> Operation[list[Outcome]]:
        release = super().release
        return (yield from retried(lambda: release(queue, receipts)))


def retried(operation: Callable[[], Operation[T]]) -> Operation[T]:
    """The operation, begun again when another transaction was faster: nothing of it was done."""
    for _ in range(_MOST_TRIES):
        try:
            return (yield from operation())
        except Conflict:
            continue
    return (yield from operation())


def _asked(statement: Statement) -> Operation[Rows]:
    return (yield statement)


def _is_settled(info: QueueInfo, options: QueueOptions | None) -> bool:
    """Whether there is nothing to declare: the queue is as wanted, and its filter headers are indexed."""
    indexed = set(info.options.filter_headers) <= set(info.indexed)
    if options is None or not indexed:
        return options is None and indexed
    added = set(options.filter_headers) - set(info.options.filter_headers)
    rest = (options.max_attempts, options.dedup_window_us, options.archive)
    kept = (info.options.max_attempts, info.options.dedup_window_us, info.options.archive)
    return not added and rest == kept
