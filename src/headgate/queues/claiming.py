"""Who gets what: the claim, with its filter inside.

Where matches can be looked up, or everything matches, a claim is one short write transaction. Where deliveries or
messages must be read to know, the search is a read transaction, which nobody waits for; what it finds is leased
afterwards, if it is still there: messages never change, so a match stays a match.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeVar

from headgate.filters.nodes import Filter, depends_on_time
from headgate.filters.targets.python import predicate
from headgate.filters.targets.sql import Sql
from headgate.message import Message
from headgate.queues.contract import (
    Claimed,
    Operation,
    Outcome,
    QueueInfo,
    Receipt,
    Row,
    SqlValue,
    Statement,
    Transaction,
)
from headgate.queues.dialect import Condition, Dialect
from headgate.queues.examining import Examining
from headgate.queues.planning import Branch, branches_of
from headgate.queues.publishing import Publishing
from headgate.queues.records import (
    Undecodable,
    claimed_of,
    columns_of,
    filtered_columns_of,
    message_of,
)
from headgate.queues.search import FIRST_GAP, Candidate, Search
from headgate.queues.settling import Settling

_log = logging.getLogger(__name__)

_PAGE: Final = 500  # rows looked at between two checks whether that is enough
_BRANCHES_AT_ONCE: Final = 50
_REMEMBERED: Final = 256

K = TypeVar("K")
V = TypeVar("V")


class Claiming(Settling, Publishing, Examining):
    def __init__(self, dialect: Dialect) -> None:
        super().__init__(dialect)
        # Filters come again and again.
        self._conditions: dict[
            tuple[int, tuple[str, ...], Filter | None], tuple[Condition, ...]
        ] = {}
        self._texts: dict[tuple[Condition, ...], tuple[str, tuple[SqlValue, ...]]] = {}

    def claim(
        self,
        queue: QueueInfo,
        limit: int,
        lease_us: int,
        *,
        filter: Filter | None = None,
        skip: Collection[int] = (),
        acks: Sequence[Receipt] = (),
    ) -> Operation[tuple[list[Claimed], list[Outcome]]]:
        queue = yield from self.current(queue)
        if queue.kind != "queue":
            yield from self.route()
        search = yield from self.plan(queue, filter, skip)
        if search.reads:
            return (yield from self._claim_after_search(search, limit, lease_us, acks))
        yield _begin(acks)
        outcomes = yield from self.ack_within(queue, acks)
        claimed: list[Claimed] = []
        paused, due = yield from self._standing(queue)
        if due:
            yield from self.promote(queue)
        while not paused and not claimed:
            found = yield from self._candidates(search, limit)
            claimed = yield from self._lease(queue, one_per_group(found), lease_us)
            if not found:
                break
        yield Transaction.COMMIT
        return claimed, outcomes

    def _claim_after_search(
        self, search: Search, limit: int, lease_us: int, acks: Sequence[Receipt]
    ) -> Operation[tuple[list[Claimed], list[Outcome]]]:
        queue = search.queue
        outcomes: list[Outcome] = []
        if (yield from self.next_due(queue)) == 0:
            yield from self.promote(queue)
        while True:
            yield Transaction.READ
            paused, _ = yield from self._standing(queue)
            found = [] if paused else (yield from self._searched(search, limit))
            yield Transaction.COMMIT
            if not found and not acks:
                return [], outcomes
            yield _begin(acks)
            outcomes += yield from self.ack_within(queue, acks)
            claimed = yield from self._lease(queue, one_per_group(found), lease_us)
            yield Transaction.COMMIT
            if claimed or not found:
                return claimed, outcomes
            acks = ()

    def plan(
        self, queue: QueueInfo, filter: Filter | None, skip: Collection[int] = ()
    ) -> Operation[Search]:
        """How to look for it; a database that cannot choose an index well is asked a little before."""
        return self.search(queue, filter, skip)
        yield

    def search(self, queue: QueueInfo, filter: Filter | None, skip: Collection[int] = ()) -> Search:
        """The filter as the conditions of its branches."""
        key = (queue.id, queue.indexed, filter)
        conditions = self._conditions.get(key)
        if conditions is None:
            conditions = self.conditions(branches_of(filter, queue.indexed))
            if filter is None or not depends_on_time(filter):
                remember(self._conditions, key, conditions)
        lasting = filter is not None and not depends_on_time(filter) and queue.kind == "queue"
        return Search(queue, conditions, tuple(skip), lasting)

    def conditions(self, branches: Sequence[Branch]) -> tuple[Condition, ...]:
        return tuple(self.dialect.condition(branch, FIRST_GAP) for branch in branches)

    def _standing(self, queue: QueueInfo) -> Operation[tuple[bool, bool]]:
        """Whether it is paused, and whether something must be promoted; neither when it is gone."""
        rows = yield self.dialect.statement("standing", queue.id, self.dialect.now_us())
        return (bool(rows[0][0]), bool(rows[0][1])) if rows else (False, False)

    # -- candidates --

    def _searched(self, search: Search, limit: int) -> Operation[list[Candidate]]:
        """As `_candidates`; what was read once for nothing is not read again."""
        if not self.remembers(search):
            return (yield from self._candidates(search, limit))
        if self.has_examined(search):
            matches = yield from self._examine(search)
            if matches is not None:
                return (yield from self._claimable(search, matches, limit))
        found = yield from self._candidates(search, limit)
        if not found:
            yield from self._examine(search)
        return found

    def _candidates(self, search: Search, limit: int) -> Operation[list[Candidate]]:
        """The first that match, in the order of the queue."""
        exact = [c for c in search.conditions if c.residual is None]
        found: set[Candidate] = set()
        for at in range(0, len(exact), _BRANCHES_AT_ONCE):
            statement = self.candidates_statement(search, exact[at : at + _BRANCHES_AT_ONCE], limit)
            found.update(Candidate(*row) for row in (yield statement))
        for condition in search.conditions:
            if condition.residual is not None:
                found.update((yield from self._looked_at(search, condition, limit)))
        return sorted(found, key=lambda candidate: (candidate.rank, candidate.id))[:limit]

    def _looked_at(
        self, search: Search, condition: Condition, limit: int
    ) -> Operation[list[Candidate]]:
        """Page by page, what Python says matches."""
        assert condition.residual is not None
        matches: Callable[[Message], bool] = predicate(condition.residual, self.dialect.wall_ms)
        found: list[Candidate] = []
        last: Row | None = None
        while len(found) < limit:
            rows = yield self._page_statement(search, condition, last)
            found += [Candidate(*row[:3]) for row in rows if matches(message_of((*row[3:], b"")))]
            if len(rows) < _PAGE:
                break
            last = rows[-1]
        return found[:limit]

    def candidates_statement(
        self, search: Search, conditions: Sequence[Condition], limit: int
    ) -> Statement:
        """One SELECT, or one for each branch, put together; each of them ends at the limit."""
        key = tuple(conditions)
        known = None if search.skip else self._texts.get(key)
        if known is None:
            known = self._merged_selects(conditions, search.skip)
            if not search.skip:
                remember(self._texts, key, known)
        text, params = known
        return Statement(text, (search.queue.id, limit, *params))

    def _merged_selects(
        self, conditions: Sequence[Condition], skip: tuple[int, ...]
    ) -> tuple[str, tuple[SqlValue, ...]]:
        params: list[SqlValue] = [None, None]  # the queue and the limit
        texts = []
        for condition in conditions:
            where = self._shifted(condition.where, len(params) + 1 - FIRST_GAP)
            params += where.params
            texts.append(self._select(where.text, params, skip, condition))
        merged = " UNION ALL ".join(f"SELECT * FROM ({text}) AS b" for text in texts)
        return texts[0] if len(texts) == 1 else merged, tuple(params[2:])

    def _page_statement(self, search: Search, condition: Condition, last: Row | None) -> Statement:
        params: list[SqlValue] = [search.queue.id, _PAGE, *condition.where.params]
        where = condition.where.text
        if last is not None:
            where += " AND " + self.dialect.text(
                "after", rank=self._bind(params, last[1]), message=self._bind(params, last[0])
            )
        text = self._select(where, params, search.skip, condition, ", " + filtered_columns_of("m"))
        return Statement(text, tuple(params))

    def _select(
        self,
        where: str,
        params: list[SqlValue],
        skip: tuple[int, ...],
        condition: Condition,
        columns: str = "",
    ) -> str:
        if skip:
            ids = self._bind(params, list(skip))
            where += " AND " + self.dialect.text("not_skipped", ids=ids)
        join = " " + self.dialect.text("candidate_join") if condition.needs_message else ""
        gaps = {"where": where, "join": join, "columns": columns}
        return self.dialect.text("candidates", **gaps, index=self.dialect.index_hint(condition))

    def _bind(self, params: list[SqlValue], value: SqlValue) -> str:
        params.append(value)
        return self.dialect.placeholder(len(params))

    def _shifted(self, where: Sql, by: int) -> Sql:
        return where if not by else self.dialect.shifted(where, by)

    # -- leasing --

    def _lease(
        self, queue: QueueInfo, candidates: Sequence[Candidate], lease_us: int
    ) -> Operation[list[Claimed]]:
        if not candidates:
            return []
        ids: list[SqlValue] = [candidate.id for candidate in candidates]
        now = self.dialect.now_us()
        rows = yield self.dialect.statement("lease", queue.id, ids, now, lease_us)
        if not rows:
            return []
        leased = [row[0] for row in rows]
        try:
            rows = yield self.dialect.statement("leased", queue.id, leased, columns=columns_of("m"))
            return [claimed_of(row) for row in rows]
        except Undecodable:
            return (yield from self.sort_out(queue, leased))

    def sort_out(self, queue: QueueInfo, leased: Sequence[int]) -> Operation[list[Claimed]]:
        """Of what was just leased, what can be read; what somebody wrote past the checks becomes dead letters."""
        rows = yield from self.read_messages("leased", queue.id, list(leased))
        claimed, unreadable = [], []
        for (id, token, attempts, group), message, problem in rows:
            if problem is None:
                claimed.append(Claimed(id, token, attempts, message, group))
            else:
                _log.warning("message %d of %r is a dead letter now: %s", id, queue.name, problem)
                unreadable.append((queue.id, id, token, self.dialect.now_us(), problem))
        if unreadable:
            yield self.dialect.each("bury", unreadable)
        return claimed


def _begin(acks: Sequence[Receipt]) -> Transaction:
    """Only an ack must last: whoever held a lease that a power failure forgets is gone as well."""
    return Transaction.WRITE if acks else Transaction.LEASE


def remember(known: dict[K, V], key: K, value: V) -> None:
    """Keep it, and not too many others."""
    if len(known) >= _REMEMBERED:
        known.clear()
    known[key] = value


def one_per_group(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The first of each group, and everything that is in no group."""
    taken: set[str] = set()
    chosen = []
    for candidate in candidates:
        if candidate.group is None:
            chosen.append(candidate)
        elif candidate.group not in taken:
            taken.add(candidate.group)
            chosen.append(candidate)
    return chosen
