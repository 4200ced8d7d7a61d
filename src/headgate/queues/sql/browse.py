"""Browsing without claiming, deleting in bulk, statistics and index advice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from headgate.filters import Filter, to_text
from headgate.filters.compile import compile_predicate
from headgate.filters.compile.sql import ALWAYS
from headgate.queues.engine import (
    DeliverySnapshot,
    IndexAdvice,
    Notify,
    Operation,
    QueueInfo,
    QueueStats,
    SqlValue,
    State,
    Statement,
    Usage,
)
from headgate.queues.sql.catalog import CatalogCache
from headgate.queues.sql.dialect import QueueDialect
from headgate.queues.sql.message_rows import columns_of, message_of, read_messages, snapshot_of
from headgate.queues.sql.plan import branches_of, headers_in, probed_headers
from headgate.queues.sql.route import SubscriptionRouter
from headgate.queues.sql.search import Candidates, ClaimPlan, Search, merged_select

_SHORTEST_PAGE: Final = 100
_ADVISED_LIMIT: Final = 10


class ChoosePlan(Protocol):
    def __call__(self, queue: QueueInfo, filter: Filter | None) -> Operation[ClaimPlan]:
        """The plan that a claim with this filter would use."""
        ...


class Browser:
    """Reads queues as they are; changes many deliveries at once."""

    def __init__(
        self,
        dialect: QueueDialect,
        catalog: CatalogCache,
        router: SubscriptionRouter,
        choose_plan: ChoosePlan,
        candidates: Candidates,
    ) -> None:
        self._dialect, self._catalog, self._router = dialect, catalog, router
        self._choose_plan, self._candidates = choose_plan, candidates

    def peek(
        self, queue: QueueInfo, limit: int, filter: Filter | None = None
    ) -> Operation[list[DeliverySnapshot]]:
        queue = yield from self._find_routed(queue)
        plan = yield from self._choose_plan(queue, filter)
        candidates = yield from self._candidates.find(Search(queue, plan), limit)
        if not candidates:
            return []
        ids: list[SqlValue] = [candidate.id for candidate in candidates]
        rows = yield from read_messages(
            self._dialect,
            "snapshots",
            queue.id,
            limit,
            ids,
            where=self._dialect.text("id_among", ids=self._dialect.placeholder(3)),
            order="d.rank, d.message",
        )
        return [snapshot_of(row) for row in rows]

    def browse(
        self,
        queue: QueueInfo,
        limit: int,
        *,
        after: int = 0,
        state: State | None = None,
        filter: Filter | None = None,
    ) -> Operation[list[DeliverySnapshot]]:
        queue = yield from self._find_routed(queue)
        matches = (
            (lambda _: True) if filter is None else compile_predicate(filter, self._dialect.wall_us)
        )
        where = f"d.message > {self._dialect.placeholder(3)}"
        if (
            state is not None
        ):  # as a number in the text, so that the planner uses the index of that state
            where += f" AND d.state = {int(state)}"
        found: list[DeliverySnapshot] = []
        page = max(limit, _SHORTEST_PAGE)
        while len(found) < limit:
            rows = yield from read_messages(
                self._dialect, "snapshots", queue.id, page, after, where=where, order="d.message"
            )
            found += [snapshot_of(row) for row in rows if matches(row.message)]
            if len(rows) < page:
                break
            after = rows[-1].prefix[0]
        return found[:limit]

    def archived(
        self, queue: QueueInfo, limit: int, *, after: int = 0
    ) -> Operation[list[DeliverySnapshot]]:
        queue = yield from self._catalog.find(queue.name)
        rows = yield self._dialect.statement(
            "archived", queue.id, after, limit, columns=columns_of("a")
        )
        return [
            DeliverySnapshot(
                id, State(state), attempts, acked_at, message_of(columns), group, reason
            )
            for id, state, attempts, acked_at, group, reason, *columns in rows
        ]

    def _find_routed(self, queue: QueueInfo) -> Operation[QueueInfo]:
        """The queue as it is now; a subscription after it has got its messages from the SQL door."""
        queue = yield from self._catalog.find(queue.name)
        if queue.kind != "queue":
            yield from self._router.route()
        return queue

    # -- deleting and requeueing --

    def purge(self, queue: QueueInfo, state: State | None = None) -> Operation[int]:
        queue = yield from self._catalog.find(queue.name)
        if state is None:
            return (yield from self._repeat(self._dialect.statement("purge_waiting", queue.id)))
        statement = self._dialect.statement("purge_state", queue.id, state=str(int(state)))
        return (yield from self._repeat(statement))

    def prune(self, queue: QueueInfo, older_than_us: int) -> Operation[int]:
        queue = yield from self._catalog.find(queue.name)
        count = 0
        for name in ("prune", "prune_archive"):
            count += yield from self._repeat(
                self._dialect.statement(name, queue.id, self._dialect.timestamp_us(), older_than_us)
            )
        return count

    def requeue(self, queue: QueueInfo, ids: Sequence[int] | None = None) -> Operation[int]:
        queue = yield from self._catalog.find(queue.name)
        now = self._dialect.now_us()
        if ids is None:
            count = yield from self._repeat(self._dialect.statement("requeue", queue.id, now))
        else:
            some = self._dialect.statement("requeue_some", queue.id, now, list(ids))
            count = len((yield some))
        yield Notify((queue.id,))
        return count

    def _repeat(self, statement: Statement) -> Operation[int]:
        """Run the statement until it changes nothing; each run is a short transaction. How many rows were changed."""
        count = 0
        while rows := (yield statement):
            count += len(rows)
        return count

    # -- statistics --

    def stats(self, queue: QueueInfo) -> Operation[QueueStats]:
        info = yield from self._catalog.find(queue.name)
        counts = {row[0]: row[1] for row in (yield self._dialect.statement("counts", info.id))}
        now = self._dialect.timestamp_us()
        oldest = yield self._dialect.statement("oldest_ready", info.id, now)
        usage = yield self._dialect.statement("usage", info.id)
        return QueueStats(
            info,
            counts.get(State.READY, 0),
            counts.get(State.DELAYED, 0),
            counts.get(State.LEASED, 0),
            counts.get(State.DEAD, 0),
            oldest[0][0] if oldest else None,
            {row[0]: Usage(*row[1:]) for row in usage},
        )

    def add_usage(self, queue: QueueInfo, consumer: str, usage: Usage) -> Operation[None]:
        queue = yield from self._catalog.find(queue.name)
        yield self._dialect.statement(
            "add_usage",
            queue.id,
            consumer,
            usage.claims,
            usage.empty_claims,
            usage.rows,
            usage.claim_us,
            usage.unmatched,
            usage.acked,
            usage.nacked,
            usage.failures,
        )

    def advise(self, queue: QueueInfo, filter: Filter) -> Operation[IndexAdvice]:
        info = yield from self._catalog.find(queue.name)
        plan = yield from self._choose_plan(info, filter)
        text, params = merged_select(self._dialect, plan.conditions)
        explain = self._dialect.text("explain", query=text)
        rows = yield Statement(explain, (info.id, _ADVISED_LIMIT, *params))
        return IndexAdvice(
            tuple(str(row[-1]) for row in rows),
            any(each.scans and each.ranged is None for each in plan.conditions),
            tuple(name for name in self._helpful_headers(filter) if name not in info.indexed),
            tuple(
                f"{to_text(condition.residual)}: {'; '.join(condition.reasons)}"
                for condition in plan.conditions
                if condition.residual is not None
            ),
        )

    def _helpful_headers(self, filter: Filter) -> tuple[str, ...]:
        """The headers to declare, so that the filter is answered by lookups, or by a range in one index."""
        if probed := probed_headers(filter):
            return probed
        [branch, *others] = branches_of(filter, headers_in(filter))
        ranged = None if others else self._dialect.range_of(branch, ALWAYS)
        return () if ranged is None else (ranged.header,)
