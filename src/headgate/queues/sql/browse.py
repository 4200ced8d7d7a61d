"""Looking without touching, tidying up, and numbers."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.filters import Filter, to_text
from headgate.filters.compile import predicate
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
from headgate.queues.sql.claim import Claiming
from headgate.queues.sql.core import Read, one
from headgate.queues.sql.planning import probed_headers
from headgate.queues.sql.records import columns_of, standing_of


class Looking(Claiming):
    def peek(
        self, queue: QueueInfo, limit: int, filter: Filter | None = None
    ) -> Operation[list[DeliverySnapshot]]:
        queue = yield from self.current(queue)
        if queue.kind != "queue":
            yield from self.route()
        search = yield from self.plan(queue, filter)
        found = yield from self._candidates(search, limit)
        if not found:
            return []
        ids: list[SqlValue] = [candidate.id for candidate in found]
        rows = yield from self.read_messages(
            "standings",
            queue.id,
            limit,
            ids,
            where=self.dialect.text("among", ids=self.dialect.placeholder(3)),
            order="d.rank, d.message",
        )
        return [_standing(row) for row in rows]

    def browse(
        self,
        queue: QueueInfo,
        limit: int,
        *,
        after: int = 0,
        state: State | None = None,
        filter: Filter | None = None,
    ) -> Operation[list[DeliverySnapshot]]:
        queue = yield from self.current(queue)
        if queue.kind != "queue":
            yield from self.route()
        matches = (lambda _: True) if filter is None else predicate(filter, self.dialect.wall_us)
        found: list[DeliverySnapshot] = []
        while len(found) < limit:
            page = max(limit, 100)
            rows = yield from self._page_by_id(queue, page, after, state)
            found += [one for one in map(_standing, rows) if matches(one.message)]
            if len(rows) < page:
                break
            after = rows[-1].before[0]
        return found[:limit]

    def _page_by_id(
        self, queue: QueueInfo, limit: int, after: int, state: State | None
    ) -> Operation[list[Read]]:
        where = f"d.message > {self.dialect.placeholder(3)}"
        if state is not None:  # as a number in the text, so that the indexes of one state are found
            where += f" AND d.state = {int(state)}"
        return self.read_messages(
            "standings", queue.id, limit, after, where=where, order="d.message"
        )

    def archived(
        self, queue: QueueInfo, limit: int, *, after: int = 0
    ) -> Operation[list[DeliverySnapshot]]:
        queue = yield from self.current(queue)
        rows = yield self.dialect.statement(
            "archived", queue.id, after, limit, columns=columns_of("a")
        )
        return [standing_of(row) for row in rows]

    # -- tidying --

    def purge(self, queue: QueueInfo, state: State | None = None) -> Operation[int]:
        queue = yield from self.current(queue)
        if state is None:
            return (yield from self._repeat(self.dialect.statement("purge_waiting", queue.id)))
        statement = self.dialect.statement("purge_state", queue.id, state=str(int(state)))
        return (yield from self._repeat(statement))

    def prune(self, queue: QueueInfo, older_than_us: int) -> Operation[int]:
        queue = yield from self.current(queue)
        count = 0
        for name in ("prune", "prune_archive"):
            count += yield from self._repeat(
                self.dialect.statement(name, queue.id, self.dialect.timestamp_us(), older_than_us)
            )
        return count

    def requeue(self, queue: QueueInfo, ids: Sequence[int] | None = None) -> Operation[int]:
        queue = yield from self.current(queue)
        now = self.dialect.now_us()
        if ids is None:
            count = yield from self._repeat(self.dialect.statement("requeue", queue.id, now))
        else:
            some = self.dialect.statement("requeue_some", queue.id, now, list(ids))
            count = len((yield some))
        yield Notify((queue.id,))
        return count

    def _repeat(self, statement: Statement) -> Operation[int]:
        """Until it changes nothing: each piece is a transaction of its own, and nobody waits long."""
        count = 0
        while rows := (yield statement):
            count += len(rows)
        return count

    # -- numbers --

    def stats(self, queue: QueueInfo) -> Operation[QueueStats]:
        info = yield from self.find(queue.name)
        counts = {row[0]: row[1] for row in (yield self.dialect.statement("counts", info.id))}
        now = self.dialect.timestamp_us()
        oldest = yield from one(self.dialect.statement("oldest_ready", info.id, now))
        usage = yield self.dialect.statement("usage", info.id)
        return QueueStats(
            info,
            counts.get(State.READY, 0),
            counts.get(State.DELAYED, 0),
            counts.get(State.LEASED, 0),
            counts.get(State.DEAD, 0),
            oldest[0] if oldest else None,
            {row[0]: Usage(*row[1:]) for row in usage},
        )

    def add_usage(self, queue: QueueInfo, consumer: str, usage: Usage) -> Operation[None]:
        queue = yield from self.current(queue)
        yield self.dialect.statement(
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
        info = yield from self.find(queue.name)
        search = yield from self.plan(info, filter)
        query = self.candidates_statement(search, search.conditions, 10)
        rows = yield Statement(self.dialect.text("explain", query=query.text), query.params)
        return IndexAdvice(
            tuple(str(row[-1]) for row in rows),
            any(condition.scans for condition in search.conditions),
            tuple(name for name in probed_headers(filter) if name not in info.indexed),
            tuple(
                f"{to_text(condition.residual)}: {'; '.join(condition.reasons)}"
                for condition in search.conditions
                if condition.residual is not None
            ),
        )


def _standing(row: Read) -> DeliverySnapshot:
    (id, state, attempts, visible_at, group, reason), message, problem = row
    return DeliverySnapshot(
        id, State(state), attempts, visible_at, message, group, reason or problem
    )
