"""Claims on PostgreSQL: one statement acks and claims. It returns one row, with leases and messages by column."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from itertools import repeat
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from headgate.filters import Filter
from headgate.queues.engine import (
    ClaimedMessage,
    ClaimRequest,
    Claims,
    Operation,
    Outcome,
    QueueInfo,
    Receipt,
    Row,
    Rows,
    SqlValue,
    Statement,
)
from headgate.queues.postgres.dialect import merge_branches
from headgate.queues.sql.catalog import CatalogCache
from headgate.queues.sql.claim import ScanClaims
from headgate.queues.sql.dialect import QueueDialect
from headgate.queues.sql.groups import BusyGroups
from headgate.queues.sql.lease import Leases, Settlement
from headgate.queues.sql.message_rows import MESSAGE_COLUMNS, Undecodable, columns_of, messages_of
from headgate.queues.sql.publish import rank_in
from headgate.queues.sql.route import SubscriptionRouter
from headgate.queues.sql.search import (
    FIRST_GAP,
    ClaimPlan,
    Planner,
    Search,
    first_candidates,
    keep,
    looked_at,
    parts_of,
    skip_of,
)

# The most bytes of all messages in one reply; a single message may have this divided by the limit. A value in
# PostgreSQL has at most eight times as much.
MOST_BYTES: Final = 128 * 1024 * 1024
# How many times the limit a claim considers, attempt by attempt, while all candidates it finds are locked by other
# transactions. The last attempts only give those time to end.
_REACHES: Final = (1, 8, *[64] * 18)
_FIRST_FREE: Final = 9  # the first parameter behind those that every claim has
_JSON: Final = ("headers", "properties")
_PRIORITY: Final = MESSAGE_COLUMNS.index("priority")
_ID: Final = itemgetter(0)

# The plan, whether ids are skipped, the reach, how many are looked at before a scan.
_Shape: TypeAlias = tuple[ClaimPlan, bool, int, int]


class PostgresClaimer:
    """Claims in one statement; after a scan in a read transaction where no index answers the filter."""

    def __init__(
        self,
        dialect: QueueDialect,
        catalog: CatalogCache,
        router: SubscriptionRouter,
        planner: Planner,
        leases: Leases,
        settlement: Settlement,
        scans: ScanClaims,
    ) -> None:
        self._dialect, self._catalog, self._router, self._planner = (
            dialect,
            catalog,
            router,
            planner,
        )
        self._leases, self._settlement, self._scans = leases, settlement, scans
        self._groups = BusyGroups(dialect)
        self._texts: dict[_Shape, tuple[str, list[SqlValue]]] = {}

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
        has_looked, scans = False, False
        catalog = yield from self._catalog.knowing(queue)
        while True:
            queue = catalog.find(queue.name)
            if queue.kind != "queue":
                yield from self._router.route()
            plan = self._planner.plan(queue, filter)
            search = Search(queue, plan, skip_of(skip), has_looked=has_looked)
            looks = search.scans and not scans and self._scans.looks_first(search)
            if search.scans and not looks:
                catalog = yield from self._catalog.read()
                if catalog.find(queue.name) == queue:
                    claimed, more = yield from self._scans.claim(search, request, acks)
                    return claimed, outcomes + more
                continue
            if filter is None and self._groups.is_time_to_look(queue):
                yield from self._groups.set_aside(queue)
            most = looked_at(limit) if looks else 0
            reply = reply_of((yield self.statement(search, request, acks, most=most)))
            if acks:
                outcomes = yield from self._outcomes(queue, acks, reply.acked)
                acks = ()
            if reply.version != catalog.version:
                catalog = yield from self._catalog.read()
                if catalog.find(queue.name).id != queue.id:
                    continue  # deleted and created again: there was nothing to claim
            if looks and not reply.ids:
                has_looked, scans = not reply.due and reply.candidates < limit, True
                continue
            if not reply.ids:
                reply = yield from self._retry(search, request, reply)
            claimed = yield from self._decode(queue, reply)
            if claimed or not reply.ids:  # else all of them became dead letters
                return claimed, outcomes

    def _retry(
        self, search: Search, request: ClaimRequest, reply: ClaimReply
    ) -> Operation[ClaimReply]:
        """Claim again after due deliveries were promoted or acks have freed a group, and as long as all candidates were
        locked by others.

        Due deliveries that another transaction has locked are skipped.
        """
        due, reaches, reach = reply.due, iter(_REACHES), 1
        while not reply.ids:
            if due:
                due = (yield from self._leases.promote(search.queue)) > 0
            elif not reply.candidates or not (reach := next(reaches, 0)):
                break
            again = self.statement(search, request, reach=reach, waits_for_due=False)
            reply = reply_of((yield again))
        return reply

    def _decode(self, queue: QueueInfo, reply: ClaimReply) -> Operation[list[ClaimedMessage]]:
        """The claimed messages, after those were fetched that are too large for the reply."""
        fetched: Rows = ()
        if missing := left_out(reply):
            columns = columns_of("m")
            fetched = yield self._dialect.statement("claimed_messages", missing, columns=columns)
        try:
            return claimed_of_reply(reply, queue, fetched)
        except Undecodable:
            return (yield from self._leases.bury_undecodable(queue, reply.ids))

    def _outcomes(
        self, queue: QueueInfo, acks: Sequence[Receipt], acked: list[int] | None
    ) -> Operation[list[Outcome]]:
        if acked is None:
            return [Outcome.DONE] * len(acks)
        ids = set(acked)
        done = {receipt for receipt in acks if receipt.id in ids}
        return (yield from self._settlement.outcomes(queue, acks, done))

    # -- the statement --

    def statement(
        self,
        search: Search,
        request: ClaimRequest,
        acks: Sequence[Receipt] = (),
        *,
        reach: int = 1,
        most: int = 0,
        waits_for_due: bool = True,
    ) -> Statement:
        """The statement of a claim without a scan. If it waits for due deliveries, it takes nothing while some are due:
        they must be promoted first. With `most`, it looks only at that many of the first READY deliveries, and
        takes nothing if too few of them match."""
        shape = (search.plan, bool(search.skip), reach, most)
        known = self._texts.get(shape)
        if known is None:
            known = self._text(*shape)
            keep(self._texts, shape, known)
        text, values = known
        skipped = [list(search.skip)] if search.skip else []
        limit, lease_us, together = request
        ids, tokens = by_column(acks)
        now = self._dialect.now_us()
        first = (search.queue.id, limit, lease_us, now, ids, tokens, together, waits_for_due)
        return Statement(text, (*first, *skipped, *values))

    def _text(
        self, plan: ClaimPlan, skips: bool, reach: int, most: int
    ) -> tuple[str, list[SqlValue]]:
        """The text, and the values of its conditions, which are the last parameters."""
        free, first, skipping = self._dialect.text("group_is_free"), _FIRST_FREE, ""
        if skips:
            ids = self._dialect.placeholder(first)
            skipping, first = f" AND {self._dialect.text('not_skipped', ids=ids)}", first + 1
        values: list[SqlValue]
        parts = [
            part
            for condition in plan.conditions
            for part in parts_of(self._dialect, condition, with_aside=skips)
        ]
        if most:
            [condition] = plan.conditions
            where = self._dialect.shifted(condition.where, first - FIRST_GAP)
            text = first_candidates(self._dialect, condition, where.text + skipping, most)
            candidates = self._dialect.text("looked_candidates", first=text)
            values = list(where.params)
        elif len(parts) == 1 and reach == 1:
            where = self._dialect.shifted(parts[0].where, first - FIRST_GAP)
            candidates = self._dialect.text(
                "locked_candidates", where=where.text + skipping, group_is_free=free
            )
            values = list(where.params)
        else:
            branches, values = merge_branches(self._dialect, parts, free + skipping, first)
            candidates = self._dialect.text("merged_candidates", branches=branches)
            candidates = candidates.replace("{reach}", str(reach))
        gaps = {"candidates": candidates, "columns": arrays_of("m"), "most_bytes": str(MOST_BYTES)}
        return self._dialect.text("claim", **gaps), values


def by_column(receipts: Sequence[Receipt]) -> tuple[list[int], list[int]]:
    """The ids in ascending order, and their tokens: a single one, where all are equal."""
    ordered = sorted(receipts)
    ids, tokens = [receipt.id for receipt in ordered], [receipt.token for receipt in ordered]
    return ids, tokens[:1] if len(set(tokens)) == 1 else tokens


@cache
def arrays_of(alias: str) -> str:
    """MESSAGE_COLUMNS for a SELECT list, each as an array."""
    casts = ("::text" if column in _JSON else "" for column in MESSAGE_COLUMNS)
    named = zip(MESSAGE_COLUMNS, casts, strict=True)
    return ", ".join(f"array_agg({alias}.{column}{cast})" for column, cast in named)


# ---- the reply -----------------------------------------------------------------------------------------


class ClaimReply(NamedTuple):
    """The row that the statement returns."""

    version: int  # of the catalog
    due: bool  # whether deliveries must be promoted first; then nothing was claimed
    candidates: int  # their number, locked ones included; one more if the acks have freed a group
    acked: list[int] | None  # None: all
    archived: None  # the statement archives on its way
    token: int  # of all leases
    ids: list[int]
    attempts: list[int]
    groups: list[str | None]
    columns: Sequence[list[Any]]  # id and MESSAGE_COLUMNS of the messages that are not too large


def reply_of(rows: Rows) -> ClaimReply:
    """The reply in the only row; the arrays of a claim that leased nothing are NULL."""
    [(version, due, candidates, acked, archived, token, ids, attempts, groups, *columns)] = rows
    leases = (ids or [], attempts or [], groups or [])
    messages = [column or [] for column in columns]
    return ClaimReply(version, due, candidates, acked, archived, token, *leases, messages)


def left_out(reply: ClaimReply) -> list[int]:
    """The leased messages that are too large for the reply."""
    included = reply.columns[0]
    return [] if len(included) == len(reply.ids) else list(set(reply.ids).difference(included))


def claimed_of_reply(
    reply: ClaimReply, queue: QueueInfo, fetched: Sequence[Row] = ()
) -> list[ClaimedMessage]:
    """The claimed messages in the order of the queue; `fetched` are the rows of those left out."""
    ids, *columns = _append_rows(reply.columns, fetched)
    if not ids:
        return []
    attempts, groups = _leases_of(reply, ids)
    messages = messages_of(columns)
    claimed = list(map(ClaimedMessage, ids, repeat(reply.token), attempts, messages, groups))
    claimed.sort(key=_ID)
    if len(set(columns[_PRIORITY])) > 1:
        claimed.sort(key=lambda each: rank_in(queue, each.message))
    return claimed


def _append_rows(columns: Sequence[list[Any]], rows: Sequence[Row]) -> Sequence[list[Any]]:
    if not rows:
        return columns
    return [[*column, *more] for column, more in zip(columns, zip(*rows, strict=True), strict=True)]


def _leases_of(reply: ClaimReply, ids: list[int]) -> tuple[Sequence[int], Sequence[str | None]]:
    """The attempts and groups of these messages, in their order."""
    if ids == reply.ids:
        return reply.attempts, reply.groups
    positions = {id: at for at, id in enumerate(reply.ids)}
    order = [positions[id] for id in ids]
    return [reply.attempts[at] for at in order], [reply.groups[at] for at in order]
