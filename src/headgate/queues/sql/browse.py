"""Browsing without claiming, statistics and index advice; deleting and requeueing in bulk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from headgate.filters import Filter, to_text
from headgate.filters.compile import compile_predicate
from headgate.filters.compile.sql import ALWAYS, Sql, compile_sql
from headgate.message import INT64_MAX, Message
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
from headgate.queues.sql.dialect import ON_MESSAGE, QueueDialect
from headgate.queues.sql.message_rows import (
    MessageRow,
    columns_of,
    message_of,
    read_messages,
    snapshot_of,
)
from headgate.queues.sql.plan import branches_of, headers_in, probed_headers
from headgate.queues.sql.route import SubscriptionRouter
from headgate.queues.sql.search import Candidates, ClaimPlan, Search, merged_select

_SHORTEST_PAGE: Final = 100
_ADVISED_LIMIT: Final = 10
_AFTER: Final = 3  # the number of the parameter with the id after which to continue
_READ_AT_ONCE: Final = 20_000  # deliveries to whose messages one statement applies a filter


class ChoosePlan(Protocol):
    def __call__(self, queue: QueueInfo, filter: Filter | None) -> Operation[ClaimPlan]:
        """The plan that a claim with this filter would use."""
        ...


class Browser:
    """Reads queues as they are, without claiming."""

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
        candidates = yield from self._candidates.find(Search(queue, plan, with_aside=True), limit)
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
        # As a number in the text, so that the planner uses the index of that state.
        in_state = "" if state is None else f" AND d.state = {int(state)}"
        if filter is None:
            pages = self._read_pages(queue, limit, after, in_state)
        else:
            pages = self._read_matches(queue, limit, after, in_state, filter)
        return [snapshot_of(row) for row in (yield from pages)]

    def latest(
        self,
        queue: QueueInfo,
        limit: int,
        *,
        before: int = INT64_MAX,
        state: State | None = None,
    ) -> Operation[list[DeliverySnapshot]]:
        queue = yield from self._find_routed(queue)
        in_state = "" if state is None else f" AND d.state = {int(state)}"
        where = f"d.message < {self._dialect.placeholder(_AFTER)}{in_state}"
        rows = yield from read_messages(
            self._dialect, "snapshots", queue.id, limit, before, where=where, order="d.message DESC"
        )
        return [snapshot_of(row) for row in rows]

    def _read_pages(
        self, queue: QueueInfo, limit: int, after: int, in_state: str
    ) -> Operation[list[MessageRow]]:
        where = f"d.message > {self._dialect.placeholder(_AFTER)}{in_state}"
        return (
            yield from read_messages(
                self._dialect, "snapshots", queue.id, limit, after, where=where, order="d.message"
            )
        )

    def _read_matches(
        self, queue: QueueInfo, limit: int, after: int, in_state: str, filter: Filter
    ) -> Operation[list[MessageRow]]:
        """The next deliveries whose message matches. In each range of ids, the messages are read first, or the deliveries,
        whichever costs less."""
        condition, matches = self._condition(filter)
        first, last = (self._dialect.placeholder(_AFTER + at) for at in (0, 1))
        where = f"d.message > {first} AND d.message <= {last} AND {condition.text}{in_state}"
        size = limit if matches is None else max(limit, _SHORTEST_PAGE)
        found: list[MessageRow] = []
        while len(found) < limit:
            [(count, end, is_dense)] = yield self._dialect.statement(
                "next_deliveries", queue.id, _READ_AT_ONCE, after, in_state=in_state
            )
            name = "snapshots_in_range" if is_dense else "snapshots"
            params = (queue.id, size, after, end, *condition.params)
            rows = yield from read_messages(
                self._dialect, name, *params, where=where, order="d.message"
            )
            found += [row for row in rows if matches is None or matches(row.message)]
            if len(rows) < size and count < _READ_AT_ONCE:
                break
            after = rows[-1].prefix[0] if len(rows) == size else end
        return found[:limit]

    def _condition(self, filter: Filter) -> tuple[Sql, Callable[[Message], bool] | None]:
        """The filter as a condition on messages, and the predicate by which Python must check them as well, if it must.

        The condition is true for rows that it cannot read; Python then decides.
        """
        now, first = self._dialect.wall_us(), _AFTER + 2
        plan = compile_sql(
            filter, self._dialect.name, first_parameter=first, layout=ON_MESSAGE, now_us=now
        )
        where = self._dialect.number_placeholders(plan.where, first)
        if plan.residual is None and not self._dialect.has("readable"):
            return where, None
        if self._dialect.has("readable"):
            where = Sql(self._dialect.text("readable", where=where.text), where.params)
        return where, compile_predicate(filter, self._dialect.wall_us)

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
        """Find the queue as it is now; a subscription first receives its messages from the `inbox` view."""
        queue = yield from self._catalog.find(queue.name)
        if queue.kind != "queue":
            yield from self._router.route()
        return queue

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
            usage.filter,
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


class BulkChanges:
    """Deletes and requeues many deliveries of a queue."""

    def __init__(self, dialect: QueueDialect, catalog: CatalogCache) -> None:
        self._dialect, self._catalog = dialect, catalog

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
        """Run the statement until it changes nothing, each time in a short transaction; return the number of rows."""
        count = 0
        while rows := (yield statement):
            count += len(rows)
        return count
