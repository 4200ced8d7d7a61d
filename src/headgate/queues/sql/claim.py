"""Who gets what: the claim, with its filter inside.

Where matches can be looked up, or everything matches, a claim is one short write transaction. Where deliveries or
messages must be read to know, the search is a read transaction, which nobody waits for; what it finds is leased
afterwards, if it is still there: messages never change, so a match stays a match.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple, TypeVar

from headgate.filters import Filter, depends_on_time
from headgate.filters.compile import predicate
from headgate.filters.compile.sql import Sql
from headgate.queues.engine import (
    ClaimedMessage,
    Operation,
    Outcome,
    QueueInfo,
    Receipt,
    Row,
    SqlValue,
    Statement,
    Transaction,
)
from headgate.queues.sql.dialect import Condition, Dialect
from headgate.queues.sql.examining import Examining
from headgate.queues.sql.planning import Branch, branches_of
from headgate.queues.sql.publish import Publishing
from headgate.queues.sql.records import (
    Undecodable,
    claimed_of,
    columns_of,
    filtered_columns_of,
    message_of,
)
from headgate.queues.sql.search import FIRST_GAP, IN_DOUBT, Candidate, RejectedIds, Search, skipping
from headgate.queues.sql.settle import Settling

_log = logging.getLogger(__name__)

_PAGE: Final = 500  # rows looked at between two checks whether that is enough
_LONGEST_PAGE: Final = 5_000
_BRANCHES_AT_ONCE: Final = 50
_REMEMBERED: Final = 256

K = TypeVar("K")
V = TypeVar("V")


class Wanted(NamedTuple):
    """How many, for how long, and whether one consumer handles them, one after the other."""

    limit: int
    lease_us: int
    together: bool


class Round(NamedTuple):
    """What one transaction of a claim did."""

    claimed: list[ClaimedMessage]
    promoted: int
    outcomes: list[Outcome]


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
        together: bool = False,
    ) -> Operation[tuple[list[ClaimedMessage], list[Outcome]]]:
        wanted = Wanted(limit, lease_us, together)
        version, queue = self._catalog.version, self.last_known(queue)
        while True:
            if queue.kind != "queue":
                yield from self.route()
            search = yield from self.plan(queue, filter, skip)
            if not search.reads:
                at_once = yield from self._claim_at_once(search, wanted, version, acks)
                if at_once is not None:
                    return at_once
            before, queue = queue, (yield from self.current(queue))
            version = self._catalog.version
            if search.reads and queue == before:
                return (yield from self._claim_after_search(search, wanted, acks))

    def _claim_at_once(
        self, search: Search, wanted: Wanted, version: int, acks: Sequence[Receipt]
    ) -> Operation[tuple[list[ClaimedMessage], list[Outcome]] | None]:
        """What is claimed, and what became of the acks; None, and nothing done, when the catalog has another version."""
        outcomes: list[Outcome] = []
        while True:
            done = yield from self._promote_and_claim(search, wanted, version, acks)
            if done is None:
                return None
            outcomes += done.outcomes
            if done.claimed or not done.promoted:  # else it has died, or does not match
                return done.claimed, outcomes
            acks = ()

    def _promote_and_claim(
        self, search: Search, wanted: Wanted, version: int, acks: Sequence[Receipt]
    ) -> Operation[Round | None]:
        """In one transaction."""
        queue = search.queue
        yield _begin(acks)
        claimed: list[ClaimedMessage] = []
        paused, due, current = yield from self._standing(queue)
        if current != version:
            yield Transaction.COMMIT
            return None
        outcomes = yield from self.ack_within(queue, acks, archive=queue.options.archive)
        promoted = (yield from self.promote(queue)) if due else 0
        while not paused and not claimed:
            found = yield from self._candidates(search, wanted.limit)
            if not found:
                break
            given = given_of(found, wanted)
            claimed = yield from self._lease(queue, given, wanted)
            if not claimed:
                search = search.passing_over(given, found)
        yield Transaction.COMMIT
        return Round(claimed, promoted, outcomes)

    def _claim_after_search(
        self, search: Search, wanted: Wanted, acks: Sequence[Receipt]
    ) -> Operation[tuple[list[ClaimedMessage], list[Outcome]]]:
        """What others are at work on is passed over: whoever stopped in the middle of it may hold it for long."""
        queue = search.queue
        claimed: list[ClaimedMessage] = []
        outcomes: list[Outcome] = []
        promoted = yield from self._promote_due(queue)
        while not claimed:
            found = yield from self._found(search, wanted.limit)
            given = given_of(found, wanted)
            if given or acks:
                yield _begin(acks)
                outcomes += yield from self.ack_within(queue, acks)
                claimed = yield from self._lease(queue, given, wanted)
                yield Transaction.COMMIT
                acks = ()
            if given:
                search = search.passing_over(given, found)
            elif promoted:
                promoted = yield from self._promote_due(queue)
            else:
                break
        return claimed, outcomes

    def _promote_due(self, queue: QueueInfo) -> Operation[int]:
        """Promote, if something is due; how many were."""
        if (yield from self.next_due(queue)) == 0:
            return (yield from self.promote(queue))
        return 0

    def _found(self, search: Search, limit: int) -> Operation[list[Candidate]]:
        """In a read transaction, the first that match; none where the queue is paused."""
        yield Transaction.READ
        paused, *_ = yield from self._standing(search.queue)
        found = [] if paused else (yield from self._searched(search, limit))
        yield Transaction.COMMIT
        return found

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
        return Search(queue, conditions, skipping(skip), lasting)

    def conditions(self, branches: Sequence[Branch]) -> tuple[Condition, ...]:
        return tuple(self.dialect.condition(branch, FIRST_GAP) for branch in branches)

    def _standing(self, queue: QueueInfo) -> Operation[tuple[bool, bool, int]]:
        """Whether it is paused, whether something must be promoted, and the version of the catalog, which is none (-1)
        when the queue is gone."""
        rows = yield self.dialect.statement("standing", queue.id, self.dialect.now_us())
        return (bool(rows[0][0]), bool(rows[0][1]), rows[0][2]) if rows else (False, False, -1)

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
        if isinstance(search.skip, RejectedIds):
            return (yield from self._passed_over(search, search.skip, limit))
        exact = [c for c in search.conditions if c.residual is None]
        found: set[Candidate] = set()
        for at in range(0, len(exact), _BRANCHES_AT_ONCE):
            statement = self.candidates_statement(search, exact[at : at + _BRANCHES_AT_ONCE], limit)
            found.update(Candidate(*row) for row in (yield statement))
        for condition in search.conditions:
            if condition.residual is not None:
                found.update((yield from self._looked_at(search, condition, limit)))
        return first_of(found, limit)

    def _passed_over(
        self, search: Search, skip: RejectedIds, limit: int
    ) -> Operation[list[Candidate]]:
        """The first that match and are not to be skipped, from where the last claim was; else from the beginning."""
        found: set[Candidate] = set()
        for after in dict.fromkeys((skip.resume, None)):
            passed: set[int] = set()
            for condition in search.conditions:
                looking = self._looked_at(search, condition, limit, after, passed)
                found.update((yield from looking))
            if found:
                break
        else:
            skip.forget_all_but(passed)
        first = first_of(found, limit)
        skip.note(first)
        return first

    def _looked_at(
        self,
        search: Search,
        condition: Condition,
        limit: int,
        after: tuple[int, int] | None = None,
        passed: set[int] | None = None,
    ) -> Operation[list[Candidate]]:
        """Page by page, what Python says matches, after that rank and id; `passed` gets what is to be skipped."""
        matches = self._row_predicate(search, condition)
        found: list[Candidate] = []
        size = _PAGE if condition.residual is not None else limit * 2
        while len(found) < limit:
            rows = yield self._page_statement(search, condition, after, size)
            found += [Candidate(*row[:4]) for row in rows if matches(row)]
            if passed is not None:
                passed.update(row[0] for row in rows if row[0] in search.skip)
            if len(rows) < size:
                break
            after, size = (rows[-1][1], rows[-1][0]), max(size, min(size * 2, _LONGEST_PAGE))
        return found[:limit]

    def _row_predicate(self, search: Search, condition: Condition) -> Callable[[Row], bool]:
        """Whether a row of a page is wanted."""
        skip = search.skip if isinstance(search.skip, RejectedIds) else ()
        if condition.residual is None:
            return lambda row: row[0] not in skip
        matches = predicate(condition.residual, self.dialect.wall_us)
        return lambda row: row[0] not in skip and matches(message_of((*row[4:], b"")))

    def candidates_statement(
        self, search: Search, conditions: Sequence[Condition], limit: int
    ) -> Statement:
        """One SELECT, or one for each branch, put together; each of them ends at the limit."""
        key = tuple(conditions)
        assert isinstance(search.skip, tuple)
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

    def _page_statement(
        self, search: Search, condition: Condition, after: tuple[int, int] | None, size: int
    ) -> Statement:
        params: list[SqlValue] = [search.queue.id, size, *condition.where.params]
        where = condition.where.text
        if after is not None:
            rank, message = (self._bind(params, value) for value in after)
            where += " AND " + self.dialect.text("after", rank=rank, message=message)
        skip = search.skip if isinstance(search.skip, tuple) else ()
        columns = "" if condition.residual is None else ", " + filtered_columns_of("m")
        text = self._select(where, params, skip, condition, columns)
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
        self, queue: QueueInfo, candidates: Sequence[Candidate], wanted: Wanted
    ) -> Operation[list[ClaimedMessage]]:
        if not candidates:
            return []
        ids: list[SqlValue] = [candidate.id for candidate in candidates]
        now, doubt = self.dialect.now_us(), int(wanted.together and len(ids) > 1)
        rows = yield self.dialect.statement("lease", queue.id, ids, now, wanted.lease_us, doubt)
        if not rows:
            return []
        leased = [row[0] for row in rows]
        try:
            rows = yield self.dialect.statement("leased", queue.id, leased, columns=columns_of("m"))
            return [claimed_of(row) for row in rows]
        except Undecodable:
            return (yield from self.sort_out(queue, leased))

    def sort_out(self, queue: QueueInfo, leased: Sequence[int]) -> Operation[list[ClaimedMessage]]:
        """Of what was just leased, what can be read; what somebody wrote past the checks becomes dead letters."""
        rows = yield from self.read_messages("leased", queue.id, list(leased))
        claimed, unreadable = [], []
        for (id, token, attempts, group), message, problem in rows:
            if problem is None:
                claimed.append(ClaimedMessage(id, token, attempts, message, group))
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


def given_of(found: Sequence[Candidate], wanted: Wanted) -> list[Candidate]:
    """Those to lease: one of each group; together, up to the first that is in doubt, which is taken alone."""
    chosen = one_per_group(found)
    if wanted.together:
        doubted = (at for at, one in enumerate(chosen) if one.doubt == IN_DOUBT)
        del chosen[max(next(doubted, len(chosen)), 1) :]
    return chosen


def first_of(candidates: Collection[Candidate], limit: int) -> list[Candidate]:
    """In the order of the queue."""
    return sorted(candidates, key=lambda candidate: (candidate.rank, candidate.id))[:limit]


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
