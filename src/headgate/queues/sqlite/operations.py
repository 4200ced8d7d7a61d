"""Publish, claim and ack on SQLite: one write transaction each, and one statement for a single message."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from headgate.filters import Filter
from headgate.filters.compile.sql import Layout, index_expression
from headgate.queues.engine import (
    ClaimedMessage,
    ClaimRequest,
    Claims,
    Notify,
    Operation,
    Outcome,
    Publication,
    QueueInfo,
    Receipt,
    Rows,
    SqlValue,
    Statement,
    Transaction,
    TransactionMode,
)
from headgate.queues.sql.backlog import Backlogs
from headgate.queues.sql.browse import Browser
from headgate.queues.sql.catalog import CatalogCache
from headgate.queues.sql.claim import ScanClaims, ScanMemory, claim_mode, record_in_order
from headgate.queues.sql.declare import Declarations, backfill
from headgate.queues.sql.delete import QueueDeletion
from headgate.queues.sql.dialect import QueueDialect
from headgate.queues.sql.groups import BusyGroups
from headgate.queues.sql.lease import Leases, Settlement
from headgate.queues.sql.message_rows import Undecodable, claimed_of, columns_of, row_of
from headgate.queues.sql.operations import SqlOperations
from headgate.queues.sql.publish import RoutedPublication, check_is_queue, delivery_row, route
from headgate.queues.sql.route import SubscriptionRouter
from headgate.queues.sql.search import (
    FIRST_GAP,
    Candidate,
    Candidates,
    ClaimPlan,
    Planner,
    Search,
    choose,
    keep,
    skip_of,
)
from headgate.queues.sqlite.connection import RunStatement
from headgate.queues.sqlite.dialect import IndexChoice

_KEYS: Final = Layout(headers="keys")


def sqlite_operations(
    dialect: QueueDialect, catalog: CatalogCache, publisher: SqlitePublisher
) -> SqlOperations:
    """The operations on SQLite."""
    deletion = QueueDeletion(dialect)
    backlogs = Backlogs(dialect, catalog)
    router = SubscriptionRouter(dialect, catalog, deletion, backlogs)
    planner, candidates = Planner(dialect), Candidates(dialect)
    indexes = IndexChoice(dialect, planner)
    leases, settlement = Leases(dialect, catalog), Settlement(dialect, catalog)
    acks = SqliteAcks(dialect, catalog, settlement)
    scan_memory = ScanMemory(dialect, candidates, record_in_order)
    scans = ScanClaims(dialect, leases, acks, scan_memory)
    return SqlOperations(
        dialect,
        catalog=catalog,
        declarations=Declarations(
            dialect, catalog, router, deletion, backlogs, SqliteIndexes(dialect)
        ),
        router=router,
        publisher=publisher,
        claimer=SqliteClaimer(
            dialect, catalog, router, indexes, candidates, leases, settlement, acks, scans
        ),
        leases=leases,
        settlement=settlement,
        acks=acks,
        browser=Browser(dialect, catalog, router, indexes.choose, candidates),
        planner=planner,
        scan_memory=scan_memory,
    )


# ---- publish -------------------------------------------------------------------------------------------


class SqlitePublisher:
    """Stores messages and their deliveries in one transaction."""

    def __init__(self, dialect: QueueDialect, catalog: CatalogCache) -> None:
        self._dialect, self._catalog = dialect, catalog

    def row_of_one(self, queue: QueueInfo, publication: Publication) -> tuple[SqlValue, ...] | None:
        """The parameters of publish_one by the latest known catalog; None where one statement is not enough."""
        catalog = self._catalog.latest
        target = catalog.by_name.get(queue.name)
        if target is None or catalog.has_subscriptions or publication.dedup_key is not None:
            return None
        if publication.asks_for_more:
            return None
        row = row_of(publication.message, self._dialect.timestamp_us())
        _, *delivery = delivery_row(0, target, publication, self._dialect.now_us())
        return (*row, *delivery, catalog.version)

    def publish(
        self, queue: QueueInfo | None, publications: Sequence[Publication]
    ) -> Operation[list[int]]:
        if not publications:
            return []
        ids: list[int] = yield Transaction(
            TransactionMode.WRITE, partial(self._publish, queue, publications)
        )
        return ids

    def _publish(
        self, queue: QueueInfo | None, publications: Sequence[Publication]
    ) -> Operation[list[int]]:
        catalog = yield from self._catalog.read()
        target = None if queue is None else catalog.find(queue.name)
        if target is not None:
            check_is_queue(target)
        known = yield from self._known_keys(target, publications)
        routed = route(catalog, target, publications, known)
        ids = (yield from self._store(routed)) if routed else []
        yield from self._remember_keys(target, routed, ids)
        return _ids_of(publications, known, routed, ids)

    def _store(self, routed: Sequence[RoutedPublication]) -> Operation[list[int]]:
        """Store the messages and their deliveries; the ids of the messages."""
        timestamp, now = self._dialect.timestamp_us(), self._dialect.now_us()
        messages = [row_of(each.publication.message, timestamp) for each in routed]
        rows = yield self._dialect.for_each("insert_message", messages)
        ids: list[int] = [id for (id,) in rows]
        deliveries = [
            delivery_row(id, queue, each.publication, now)
            for id, each in zip(ids, routed, strict=True)
            for queue in each.receivers
        ]
        yield self._dialect.for_each("insert_delivery", deliveries)
        yield Notify(tuple({queue.id for each in routed for queue in each.receivers}))
        return ids

    def _known_keys(
        self, queue: QueueInfo | None, publications: Sequence[Publication]
    ) -> Operation[dict[str, int]]:
        """The dedup keys that were published within the window, and the ids of their messages."""
        keys = [p.dedup_key for p in publications if p.dedup_key is not None]
        if queue is None or not keys:
            return {}
        now = self._dialect.now_us()
        yield self._dialect.statement("forget_expired_keys", now)
        rows = yield self._dialect.statement("known_dedup_keys", queue.id, keys, now)
        return {key: id for key, id in rows}

    def _remember_keys(
        self, queue: QueueInfo | None, routed: Sequence[RoutedPublication], ids: Sequence[int]
    ) -> Operation[None]:
        if queue is None:
            return
        now, window = self._dialect.now_us(), queue.options.dedup_window_us
        rows = [
            (queue.id, each.publication.dedup_key, id, now, window)
            for each, id in zip(routed, ids, strict=True)
            if each.publication.dedup_key is not None
        ]
        if rows:
            yield self._dialect.for_each("remember_key", rows)


def _ids_of(
    publications: Iterable[Publication],
    known: Mapping[str, int],
    routed: Sequence[RoutedPublication],
    ids: Sequence[int],
) -> list[int]:
    """The id of each publication: stored now, stored before with its dedup key, or 0 without receivers."""
    by_position = {each.at: id for each, id in zip(routed, ids, strict=True)}
    by_key = dict(known)
    for each, id in zip(routed, ids, strict=True):
        if each.publication.dedup_key is not None:
            by_key[each.publication.dedup_key] = id
    return [
        by_position.get(at, 0) if p.dedup_key is None else by_key.get(p.dedup_key, 0)
        for at, p in enumerate(publications)
    ]


# ---- claim ---------------------------------------------------------------------------------------------


class _Round(NamedTuple):
    """The result of one transaction of a claim."""

    claimed: list[ClaimedMessage]
    promoted: int
    outcomes: list[Outcome]


class SqliteClaimer:
    """Claims in one short write transaction; after a scan in a read transaction where no index answers the filter."""

    def __init__(
        self,
        dialect: QueueDialect,
        catalog: CatalogCache,
        router: SubscriptionRouter,
        indexes: IndexChoice,
        candidates: Candidates,
        leases: Leases,
        settlement: Settlement,
        acks: SqliteAcks,
        scans: ScanClaims,
    ) -> None:
        self._dialect, self._catalog, self._router, self._indexes = (
            dialect,
            catalog,
            router,
            indexes,
        )
        self._candidates, self._leases, self._scans = candidates, leases, scans
        self._settlement, self._acks, self.groups = settlement, acks, BusyGroups(dialect)
        self._claim_state = dialect.text("claim_state")
        self._ack_next, self._ack_several = dialect.text("ack_next"), dialect.text("ack_several")
        self._no_message = dialect.text("no_message")
        self._lease_next = dialect.text("lease_next")
        self._lease_several = dialect.text("lease_several")
        self._next_texts: dict[ClaimPlan, str] = {}

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
        request = ClaimRequest(limit, lease_us, together)
        outcomes: list[Outcome] = []
        catalog = yield from self._catalog.knowing(queue)
        while True:
            queue = catalog.find(queue.name)
            if queue.kind != "queue":
                yield from self._router.route()
            plan = yield from self._indexes.choose(queue, filter)
            search = Search(queue, plan, skip_of(skip) if skip else ())
            if not search.scans:
                if filter is None and self.groups.is_time_to_look(queue):
                    yield from self.groups.set_aside(queue)
                claim = self._claim_by_index(search, request, catalog.version, acks, outcomes)
                claimed = yield from claim
                if claimed is not None:
                    return claimed, outcomes
            catalog = yield from self._catalog.read()
            if search.scans and catalog.find(queue.name) == queue:
                left = acks[len(outcomes) :]
                claimed, more = yield from self._scans.claim(search, request, left)
                return claimed, outcomes + more

    def _claim_by_index(
        self,
        search: Search,
        request: ClaimRequest,
        version: int,
        acks: Sequence[Receipt],
        outcomes: list[Outcome],
    ) -> Operation[list[ClaimedMessage] | None]:
        """Ack what has no outcome yet, add its outcomes, and claim; None if the catalog has another version."""
        while True:
            left = acks[len(outcomes) :]
            body = partial(self._claim_in_transaction, search, request, version, left)
            round: _Round | None = yield Transaction(claim_mode(left), body)
            if round is None:
                return None
            outcomes += round.outcomes
            # Otherwise the promoted deliveries are dead or do not match: try again.
            if round.claimed or not round.promoted:
                return round.claimed

    def plain_claim(
        self,
        queue: QueueInfo,
        request: ClaimRequest,
        filter: Filter | None,
        acks: Sequence[Receipt],
    ) -> Callable[[RunStatement], Claims | None] | None:
        """A function that acks and claims in a transaction. It returns None, and is to be rolled back, if that takes more than its
        few statements. Where that is known before, there is no function."""
        catalog = self._catalog.latest
        info = catalog.by_name.get(queue.name)
        if info is None or info.kind != "queue" or info.policies or info.paused:
            return None
        plan = self._indexes.only_plan(info, filter)
        if plan is None or plan.scans or len(plan.conditions) > 1 or info.options.archive:
            return None
        return partial(self._claim_plainly, info.id, plan, request, catalog.version, acks)

    def _claim_plainly(
        self,
        queue: int,
        plan: ClaimPlan,
        request: ClaimRequest,
        version: int,
        acks: Sequence[Receipt],
        run: RunStatement,
    ) -> Claims | None:
        """Ack and claim by a plan of one SELECT, and by this version of the catalog."""
        if self._ack_plainly(queue, acks, run) < len(acks):
            return None
        limit, lease_us, together = request
        now, text = self._dialect.now_us(), self._next_messages(plan)
        try:
            rows: Rows = run(text, (queue, limit, *plan.selects[0][1], now)).fetchall()
            claimed = [claimed_of(row[:-3]) for row in rows]
        except (UnicodeDecodeError, Undecodable):
            return None
        for current, due in [rows[0][-2:]] if rows else run(self._no_message, (queue, now)):
            if current != version or due:
                return None
        if len(claimed) > 1:
            candidates = [Candidate(row[0], 0, row[3], row[-3]) for row in rows]
            ids = [each.id for each in choose(candidates, together=together)]
            if len(ids) < len(claimed):
                claimed = [one for one in claimed if one.id in set(ids)]
        if len(claimed) > 1:
            run(self._lease_several, (queue, json.dumps(ids), now, lease_us, int(together)))
        elif claimed:
            run(self._lease_next, (queue, claimed[0].id, now, lease_us))
        return claimed, [Outcome.DONE] * len(acks)

    def _ack_plainly(self, queue: int, acks: Sequence[Receipt], run: RunStatement) -> int:
        """Ack without an archive; how many were acked."""
        if len(acks) == 1:
            return run(self._ack_next, (queue, *acks[0])).connection.changes()
        by_token: dict[int, list[int]] = {}
        for id, token in acks:
            by_token.setdefault(token, []).append(id)
        acked = 0
        for token, ids in by_token.items():
            acked += run(self._ack_several, (queue, json.dumps(ids), token)).connection.changes()
        return acked

    def _next_messages(self, plan: ClaimPlan) -> str:
        """The statement that finds the next messages by this plan."""
        text = self._next_texts.get(plan)
        if text is None:
            candidates, params = plan.selects[0]
            now = self._dialect.placeholder(FIRST_GAP + len(params))
            text = self._dialect.text(
                "next_messages", candidates=candidates, columns=columns_of("m"), now=now
            )
            keep(self._next_texts, plan, text)
        return text

    def _claim_in_transaction(
        self, search: Search, request: ClaimRequest, version: int, acks: Sequence[Receipt]
    ) -> Operation[_Round | None]:
        queue = search.queue
        claimed: list[ClaimedMessage] = []
        now = self._dialect.now_us()
        rows = yield Statement(self._claim_state, (queue.id, now))
        paused, due, current = rows[0] if rows else (False, False, -1)
        if current != version:
            return None
        outcomes = (yield from self._acks.ack_in_transaction(queue, acks)) if acks else []
        promoted = (yield from self._leases.promote(queue)) if due else 0
        while not paused and not claimed:
            candidates = yield from self._candidates.find(search, request.limit)
            if not candidates:
                break
            chosen = choose(candidates, together=request.together)
            ids = [candidate.id for candidate in chosen]
            claimed = yield from self._leases.grant(queue, ids, request, now)
            if not claimed:
                search = search.without(chosen, candidates)
        return _Round(claimed, promoted, outcomes)


# ---- ack -----------------------------------------------------------------------------------------------


class SqliteAcks:
    """Acks in a transaction: what the queue archives is copied first. A single ack without archive is one statement."""

    def __init__(
        self, dialect: QueueDialect, catalog: CatalogCache, settlement: Settlement
    ) -> None:
        self._dialect, self._catalog, self._settlement = dialect, catalog, settlement
        self._ack_one = dialect.text("ack_one")

    def ack(self, queue: QueueInfo, receipts: Sequence[Receipt]) -> Operation[list[Outcome]]:
        if len(receipts) == 1:
            key = (self._catalog.last_known(queue).id, *receipts[0])
            if (yield Statement(self._ack_one, key)):
                return [Outcome.DONE]
        outcomes: list[Outcome] = yield Transaction(
            TransactionMode.WRITE, partial(self.ack_within, queue, receipts)
        )
        return outcomes

    def ack_within(self, queue: QueueInfo, receipts: Sequence[Receipt]) -> Operation[list[Outcome]]:
        """Ack in the transaction of the caller, which may know the queue by an old catalog."""
        if not receipts:
            return []
        queue = self._catalog.last_known(queue)
        rows = yield self._dialect.statement("keeps_archive", queue.id)
        if rows == [(1,)]:
            yield from self._archive(queue, receipts)
        return (yield from self._settlement.settle("ack", queue, receipts))

    def ack_in_transaction(
        self, queue: QueueInfo, receipts: Sequence[Receipt]
    ) -> Operation[list[Outcome]]:
        """Ack in the transaction of the caller, which has checked the version of the catalog."""
        if queue.options.archive:
            yield from self._archive(queue, receipts)
        return (yield from self._settlement.settle("ack", queue, receipts))

    def _archive(self, queue: QueueInfo, receipts: Sequence[Receipt]) -> Operation[None]:
        now = self._dialect.now_us()
        rows = [(queue.id, receipt.id, receipt.token, now) for receipt in receipts]
        yield self._dialect.for_each("archive", rows)


# ---- filter indexes ------------------------------------------------------------------------------------


class SqliteIndexes:
    """Builds the indexes on filter headers."""

    def __init__(self, dialect: QueueDialect) -> None:
        self._dialect = dialect

    def build(self, info: QueueInfo, headers: Sequence[str]) -> Operation[None]:
        for header in headers:
            index = self._dialect.index_name(header)
            expression = index_expression("sqlite", header, _KEYS)
            misnamed = self._dialect.statement("misnamed_indexes", index, expression)
            for (other,) in (yield misnamed):
                yield self._dialect.statement("drop_filter_index", index=other)
            yield self._dialect.statement("create_filter_index", index=index, expression=expression)
        yield from backfill(self._dialect, info)
