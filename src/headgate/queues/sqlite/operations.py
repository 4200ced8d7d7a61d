"""Publish, claim and ack on SQLite: one write transaction each, and one statement for a single message."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from headgate.filters import Filter
from headgate.filters.compile.sql import Layout, index_expression
from headgate.queues.engine import (
    ClaimedMessage,
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
from headgate.queues.sql.claim import Claims, ScanClaims, ScanMemory, claim_mode, record_in_order
from headgate.queues.sql.declare import Declarations, backfill
from headgate.queues.sql.delete import QueueDeletion
from headgate.queues.sql.dialect import QueueDialect
from headgate.queues.sql.groups import BusyGroups
from headgate.queues.sql.lease import ClaimRequest, Leases, Settlement
from headgate.queues.sql.message_rows import Undecodable, claimed_of, columns_of, row_of
from headgate.queues.sql.operations import SqlOperations
from headgate.queues.sql.publish import RoutedPublication, check_is_queue, delivery_row, route
from headgate.queues.sql.route import SubscriptionRouter
from headgate.queues.sql.search import (
    FIRST_GAP,
    Candidates,
    ClaimPlan,
    Planner,
    Search,
    choose,
    keep,
    skip_of,
)
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
    """The id of each publication: stored now, stored before with its dedup key, or 0."""
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
        self._settlement, self._acks, self._groups = settlement, acks, BusyGroups(dialect)
        self._claim_state = dialect.text("claim_state")
        self._ack_for_claim = dialect.text("ack_for_claim")
        self._texts_of_one: dict[ClaimPlan, str] = {}

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
        queue = self._catalog.last_known(queue)
        while True:
            version = self._catalog.latest.version
            if queue.kind != "queue":
                yield from self._router.route()
            plan = yield from self._indexes.choose(queue, filter)
            search = Search(queue, plan, skip_of(skip) if skip else ())
            if not search.scans:
                if filter is None and self._groups.is_time_to_look(queue):
                    yield from self._groups.set_aside(queue)
                claims = yield from self._claim_by_index(search, request, version, acks)
                if claims is not None:
                    return claims
            known, queue = queue, (yield from self._catalog.find(queue.name))
            if search.scans and queue == known:
                return (yield from self._scans.claim(search, request, acks))

    def _claim_by_index(
        self, search: Search, request: ClaimRequest, version: int, acks: Sequence[Receipt]
    ) -> Operation[Claims | None]:
        """Ack and claim; None, and nothing is changed, if the catalog has another version."""
        outcomes: list[Outcome] = []
        if request.limit == 1 and len(acks) < 2 and _is_plain(search):
            first = yield from self._claim_one(search, request, version, acks)
            if first is None:
                return None
            if first.claimed or not first.promoted:
                return first.claimed, first.outcomes
            outcomes, acks = first.outcomes, acks[len(first.outcomes) :]
        while True:
            body = partial(self._claim_in_transaction, search, request, version, acks)
            round: _Round | None = yield Transaction(claim_mode(acks), body)
            if round is None:
                return None
            outcomes += round.outcomes
            # Otherwise the promoted deliveries are dead or do not match: try again.
            if round.claimed or not round.promoted:
                return round.claimed, outcomes
            acks = ()

    def _claim_one(
        self, search: Search, request: ClaimRequest, version: int, acks: Sequence[Receipt]
    ) -> Operation[_Round | None]:
        """Claim one message after one ack or none, with few calls of SQLite; `promoted` is 1 if it must be tried again."""
        queue, now = search.queue, self._dialect.now_us()
        candidates = (queue.id, 1, *search.plan.selects[0][1])
        params = (queue.id, now, *candidates, *candidates, now, request.lease_us, version)
        claim = Statement(self._text_of_one(search.plan), params)
        body = partial(
            self._ack_and_claim_one, claim, (queue.id, *acks[0], version) if acks else None
        )
        acked, [(current, due), *rows] = yield Transaction(claim_mode(acks), body)
        if current != version:
            return None
        outcomes = [Outcome.DONE] * len(acks)
        if acks and not acked:
            outcomes = yield from self._settlement.outcomes(queue, acks, ())
        if due or not rows:
            return _Round([], due, outcomes)
        try:
            return _Round([claimed_of(rows[0])], 0, outcomes)
        except Undecodable:
            buried = self._leases.bury_undecodable(queue, [rows[0][0]])
            return _Round((yield from buried), 1, outcomes)

    def _ack_and_claim_one(
        self, claim: Statement, ack: tuple[SqlValue, ...] | None
    ) -> Operation[tuple[int, Rows]]:
        """Whether a message was acked, and the rows of the claim; of one that cannot be read, that it must be tried again."""
        acked = 0
        if ack is not None:
            [(acked,)] = yield Statement(self._ack_for_claim, ack)
        try:
            return acked, (yield claim)
        except Undecodable:  # it was not leased
            [(version,)] = yield self._dialect.statement("catalog_version")
            return acked, [(version, 1)]

    def _text_of_one(self, plan: ClaimPlan) -> str:
        """The statements of a claim of one message by this plan."""
        text = self._texts_of_one.get(plan)
        if text is None:
            candidates, params = plan.selects[0]
            names = enumerate(("now", "lease", "version"), FIRST_GAP + len(params))
            gaps = {name: self._dialect.placeholder(number) for number, name in names}
            gaps |= {"candidates": candidates, "columns": columns_of("m")}
            text = self._dialect.text("claim_one", **gaps)
            keep(self._texts_of_one, plan, text)
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


def _is_plain(search: Search) -> bool:
    """Whether the next message is found by one SELECT, and an ack keeps nothing in the archive."""
    queue, plan = search.queue, search.plan
    is_exact = len(plan.conditions) == 1 and plan.conditions[0].residual is None
    return is_exact and not (search.skip or queue.paused or queue.options.archive)


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
