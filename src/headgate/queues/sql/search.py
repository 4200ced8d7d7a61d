"""The search of a claim: a filter becomes a plan, a plan finds the first candidates in the order of the queue."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias, TypeVar

from headgate.filters import Filter, depends_on_time
from headgate.filters.compile import compile_predicate
from headgate.filters.compile.sql import Sql, all_of
from headgate.queues.engine import Operation, QueueInfo, Row, SqlValue, Statement
from headgate.queues.sql.dialect import ClaimCondition, InRange, KeyRange, QueueDialect
from headgate.queues.sql.message_rows import filterable_columns_of, message_of
from headgate.queues.sql.plan import MOST_BRANCHES, Branch, branches_of, choices_of

IN_DOUBT: Final = 2  # a delivery that may have stopped its consumer, see 0006_doubt.sql
FIRST_GAP: Final = 3  # the first parameter of a condition: after the queue and the limit
CACHE_SIZE: Final = 256
_MOST_NAMED: Final = 1_000  # skipped ids that are named in a query
_PAGE: Final = 500  # rows that Python filters at a time, at first
_LONGEST_PAGE: Final = 5_000
_BRANCHES_AT_ONCE: Final = 50
# How many READY deliveries a claim looks at in their order, before it scans: enough where one message in 200 matches.
_LOOKED_AT: Final = 2_000
_LOOKED_AT_PER_CANDIDATE: Final = 200
_FEW_IN_RANGE: Final = 500  # matches of a range that are fetched and sorted

K = TypeVar("K")
V = TypeVar("V")


class Candidate(NamedTuple):
    """A READY delivery that matches."""

    id: int
    rank: int
    group: str | None
    doubt: int = 0


class RejectedIds(Collection[int]):
    """Ids that a consumer's claims skip, however many.

    Few ids are named in the query. With many, a claim reads the READY deliveries, skips the rejected ones itself, and
    keeps its position: the next claim continues from there. It starts again at the beginning when it finds nothing after
    that position, or when it has found more candidates since the beginning than there are rejected ids.
    """

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self._ids = set(ids)
        self._resume: tuple[int, int] | None = None
        self._read = 0

    def __contains__(self, id: object) -> bool:
        return id in self._ids

    def __iter__(self) -> Iterator[int]:
        return iter(tuple(self._ids))  # other threads may add to them meanwhile

    def __len__(self) -> int:
        return len(self._ids)

    def update(self, ids: Iterable[int]) -> None:
        self._ids.update(ids)

    def forget_all_but(self, seen: Collection[int]) -> None:
        """Forget all ids but those in `seen`, the only ones that a claim met among all READY deliveries, if they are many.

        The forgotten ones were consumed, or are leased or delayed and will at worst be rejected once more.
        """
        if len(self._ids) > 2 * len(seen) + _MOST_NAMED:
            self._ids = set(seen)

    @property
    def resume(self) -> tuple[int, int] | None:
        """The rank and id after which the next claim starts; None: at the beginning."""
        return self._resume if self._read <= len(self._ids) else None

    def advance(self, candidates: Sequence[Candidate]) -> None:
        """Continue after these candidates the next time."""
        self._read = self._read + len(candidates) if self.resume is not None else 0
        self._resume = (candidates[-1].rank, candidates[-1].id) if candidates else None


Skip: TypeAlias = tuple[int, ...] | RejectedIds


def skip_of(ids: Collection[int]) -> Skip:
    """Few ids as a tuple, which is named in the query, many as RejectedIds."""
    if len(ids) <= _MOST_NAMED:
        return tuple(ids)
    return ids if isinstance(ids, RejectedIds) else RejectedIds(ids)


# ---- filter → plan -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ClaimPlan:
    """A filter as conditions, one for each branch, and as the statements that answer those without a residual."""

    filter: Filter | None
    conditions: tuple[ClaimCondition, ...]
    # The text of each SELECT, and its parameters after queue and limit.
    selects: tuple[tuple[str, tuple[SqlValue, ...]], ...]
    scans: bool  # whether it reads messages, or deliveries that do not match
    keeps_scans: bool  # whether ScanMemory keeps what it has scanned


class Search(NamedTuple):
    """A plan for one queue, and the ids to skip."""

    queue: QueueInfo
    plan: ClaimPlan
    skip: Skip = ()
    # Whether it sees members of groups that were set aside, even without a filter.
    with_aside: bool = False
    tried_groups: frozenset[str] = frozenset()  # whose first member could not be leased
    has_looked: bool = False  # whether too few of the first READY deliveries match

    @property
    def scans(self) -> bool:
        return self.plan.scans or isinstance(self.skip, RejectedIds)

    def without(self, tried: Sequence[Candidate], candidates: Sequence[Candidate]) -> Search:
        """The search that skips what could not be leased, and those of the candidates that are in its groups."""
        groups = self.tried_groups | {each.group for each in tried if each.group is not None}
        ids = {each.id for each in tried}
        ids |= {each.id for each in candidates if each.group in groups}
        return self._replace(skip=skip_of((*self.skip, *ids)), tried_groups=groups)


_PlanKey: TypeAlias = tuple[bool, tuple[str, ...], Filter | None]


class Planner:
    """Turns filters into plans, and keeps them: all queues of one kind with the same indexed headers share a plan."""

    def __init__(self, dialect: QueueDialect) -> None:
        self._dialect = dialect
        self._plans: dict[_PlanKey, ClaimPlan] = {}
        self._choices: dict[_PlanKey, tuple[ClaimPlan, ...]] = {}

    def plan(self, queue: QueueInfo, filter: Filter | None) -> ClaimPlan:
        """The plan of a claim on this queue."""
        key = (queue.kind == "queue", queue.indexed, filter)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plan_branches(queue, filter, branches_of(filter, queue.indexed))
            if filter is None or not depends_on_time(filter):
                keep(self._plans, key, plan)
        return plan

    def choices(self, queue: QueueInfo, filter: Filter) -> tuple[ClaimPlan, ...]:
        """A plan for each set of lookups that answers the filter; the first is `plan`."""
        key = (queue.kind == "queue", queue.indexed, filter)
        plans = self._choices.get(key)
        if plans is None:
            _, *others = choices_of(filter, queue.indexed)
            more = (self._plan_branches(queue, filter, branches) for branches in others)
            plans = (self.plan(queue, filter), *more)
            if not depends_on_time(filter):
                keep(self._choices, key, plans)
        return plans

    def choose(self, queue: QueueInfo, filter: Filter | None) -> Operation[ClaimPlan]:
        """The plan, as an operation: for databases that choose among their indexes themselves."""
        return self.plan(queue, filter)
        yield

    def _plan_branches(
        self, queue: QueueInfo, filter: Filter | None, branches: Sequence[Branch]
    ) -> ClaimPlan:
        """The plan with these branches, which together match what the filter matches."""
        conditions = tuple(self._dialect.condition(branch, FIRST_GAP) for branch in branches)
        [first, *others] = conditions
        scans_alone = not others and first.scans and first.residual is None and first.ranged is None
        is_lasting = filter is not None and not depends_on_time(filter) and queue.kind == "queue"
        return ClaimPlan(
            filter,
            conditions,
            tuple(_selects(self._dialect, conditions)),
            any(condition.needs_message or condition.scans for condition in conditions),
            is_lasting and scans_alone,
        )


def keep(known: dict[K, V], key: K, value: V) -> None:
    """Keep the value, and not too many others."""
    if len(known) >= CACHE_SIZE:
        known.clear()
    known[key] = value


# ---- plan → candidates ---------------------------------------------------------------------------------


class Candidates:
    """Finds the candidates of a search."""

    def __init__(self, dialect: QueueDialect) -> None:
        self._dialect = dialect

    def find(self, search: Search, limit: int) -> Operation[list[Candidate]]:
        """The first candidates in the order of the queue."""
        queue, plan, skip = search.queue, search.plan, search.skip
        if isinstance(skip, RejectedIds):
            return (yield from self._find_unrejected(search, skip, limit))
        selects = plan.selects
        if skip or search.with_aside:
            selects = tuple(_selects(self._dialect, plan.conditions, skip, with_aside=True))
        if len(plan.conditions) == 1:
            [condition] = plan.conditions
            if condition.ranged is not None and condition.scans:
                found = yield from self._find_in_range(search, condition, condition.ranged, limit)
                if found is not None and (condition.residual is None or not found):
                    return found[:limit]
            if condition.residual is None:
                [(text, params)] = selects
                rows = yield Statement(text, (queue.id, limit, *params))
                candidates = [Candidate(*row) for row in rows]
                return _first(candidates, limit) if condition.in_order else candidates
        return (yield from self._merge(search, selects, limit))

    def look(self, search: Search, limit: int) -> Operation[list[Candidate]]:
        """The first candidates among the first READY deliveries, with a plan of one condition that scans."""
        [condition] = search.plan.conditions
        params: list[SqlValue] = [search.queue.id, limit, *condition.where.params]
        skip = search.skip if isinstance(search.skip, tuple) else ()
        where = _skipping(self._dialect, condition.where.text, params, skip)
        text = first_candidates(self._dialect, condition, where, looked_at(limit))
        rows = yield Statement(text, tuple(params))
        return [Candidate(*row) for row in rows]

    def _merge(
        self, search: Search, selects: Sequence[tuple[str, tuple[SqlValue, ...]]], limit: int
    ) -> Operation[list[Candidate]]:
        """The first candidates of all branches: of the statements, and of the conditions that Python completes."""
        candidates: set[Candidate] = set()
        for text, params in selects:
            rows = yield Statement(text, (search.queue.id, limit, *params))
            candidates.update(Candidate(*row) for row in rows)
        for condition in search.plan.conditions:
            if condition.residual is not None:
                candidates.update((yield from self._find_by_page(search, condition, limit)))
        return _first(candidates, limit)

    def _find_unrejected(
        self, search: Search, rejected: RejectedIds, limit: int
    ) -> Operation[list[Candidate]]:
        """The first candidates that are not rejected, after the position of the last claim; else from the beginning."""
        candidates: set[Candidate] = set()
        for after in dict.fromkeys((rejected.resume, None)):
            met: set[int] = set()
            for condition in search.plan.conditions:
                page = self._find_by_page(search, condition, limit, after, met)
                candidates.update((yield from page))
            if candidates:
                break
        else:
            rejected.forget_all_but(met)
        first = _first(candidates, limit)
        rejected.advance(first)
        return first

    def _find_by_page(
        self,
        search: Search,
        condition: ClaimCondition,
        limit: int,
        after: tuple[int, int] | None = None,
        rejected: set[int] | None = None,
    ) -> Operation[list[Candidate]]:
        """Find candidates by reading page by page, after a rank and id, and deciding in Python; add skipped ids to `rejected`."""
        candidates: list[Candidate] = []
        for part in parts_of(self._dialect, condition, with_aside=True):
            candidates += yield from self._find_in_part(search, part, limit, after, rejected)
        return _first(candidates, limit)

    def _find_in_part(
        self,
        search: Search,
        condition: ClaimCondition,
        limit: int,
        after: tuple[int, int] | None,
        rejected: set[int] | None,
    ) -> Operation[list[Candidate]]:
        matches = self._row_predicate(search, condition)
        candidates: list[Candidate] = []
        size = _PAGE if condition.residual is not None else limit * 2
        while len(candidates) < limit:
            rows = yield self._page_statement(search, condition, after, size)
            candidates += [Candidate(*row[:4]) for row in rows if matches(row)]
            if rejected is not None:
                rejected.update(row[0] for row in rows if row[0] in search.skip)
            if len(rows) < size:
                break
            after, size = (rows[-1][1], rows[-1][0]), max(size, min(size * 2, _LONGEST_PAGE))
        return candidates[:limit]

    def _row_predicate(self, search: Search, condition: ClaimCondition) -> Callable[[Row], bool]:
        """The function that tells whether a row of a page is a candidate."""
        skip = search.skip if isinstance(search.skip, RejectedIds) else ()
        if condition.residual is None:
            return lambda row: row[0] not in skip
        matches = compile_predicate(condition.residual, self._dialect.wall_us)
        return lambda row: row[0] not in skip and matches(message_of((*row[4:], b"")))

    def _page_statement(
        self,
        search: Search,
        condition: ClaimCondition,
        after: tuple[int, int] | None,
        size: int,
    ) -> Statement:
        params: list[SqlValue] = [search.queue.id, size, *condition.where.params]
        where = condition.where.text
        if after is not None:
            rank, message = (_bind(self._dialect, params, value) for value in after)
            where += " AND " + self._dialect.text("after_position", rank=rank, message=message)
        skip = search.skip if isinstance(search.skip, tuple) else ()
        columns = "" if condition.residual is None else ", " + filterable_columns_of("m")
        text = _select(self._dialect, where, params, skip, condition, columns)
        return Statement(text, tuple(params))

    def _find_in_range(
        self, search: Search, condition: ClaimCondition, ranged: InRange, limit: int
    ) -> Operation[list[Candidate] | None]:
        """The first deliveries in the range, sorted; None if its index does not help: the range is too wide."""
        if ranged.keys is not None:
            looked = [] if search.has_looked else (yield from self.look(search, limit))
            if len(looked) >= limit:
                return looked
            by_key = yield from self._find_by_key(search, condition, ranged, ranged.keys, limit)
            if by_key is not None:
                return by_key
        return (yield from self._find_few_in_range(search, condition, ranged))

    def _find_by_key(
        self,
        search: Search,
        condition: ClaimCondition,
        ranged: InRange,
        keys: KeyRange,
        limit: int,
    ) -> Operation[list[Candidate] | None]:
        """The first deliveries of each key in the range; None if there are too many keys."""
        params: list[SqlValue] = [search.queue.id, limit, *ranged.where.params]
        gaps = _key_gaps(self._dialect, params, keys)
        where = _skipping(self._dialect, ranged.where.text, params, search.skip)
        text = self._dialect.text(
            "range_by_key", where=where, join=join_of(self._dialect, condition), **gaps
        )
        text = text.replace("{most}", str(MOST_BRANCHES))
        [(count, *_), *rows] = yield Statement(text, tuple(params))
        return None if count >= MOST_BRANCHES else _first([Candidate(*row) for row in rows], limit)

    def _find_few_in_range(
        self, search: Search, condition: ClaimCondition, ranged: InRange
    ) -> Operation[list[Candidate] | None]:
        """All deliveries in the range, sorted; None if they are too many to sort."""
        params: list[SqlValue] = [search.queue.id, _FEW_IN_RANGE, *ranged.where.params]
        where = ranged.where.text
        if ranged.keys is not None:
            gaps = _key_gaps(self._dialect, params, ranged.keys)
            where = self._dialect.text("key_range", **gaps) + " AND " + where
        text = self._dialect.text(
            "range_candidates", where=where, join=join_of(self._dialect, condition)
        )
        rows = yield Statement(text, tuple(params))
        if len(rows) >= _FEW_IN_RANGE:
            return None
        candidates = [Candidate(*row) for row in rows if row[0] not in search.skip]
        return _first(candidates, _FEW_IN_RANGE)


def choose(candidates: Sequence[Candidate], *, together: bool) -> list[Candidate]:
    """The candidates to lease: one of each group; together, those before the first in doubt, or that one alone."""
    chosen = one_per_group(candidates)
    if together:
        doubted = (at for at, each in enumerate(chosen) if each.doubt == IN_DOUBT)
        del chosen[max(next(doubted, len(chosen)), 1) :]
    return chosen


def one_per_group(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The first candidate of each group, and all without a group."""
    groups: set[str] = set()
    chosen = []
    for candidate in candidates:
        if candidate.group is None:
            chosen.append(candidate)
        elif candidate.group not in groups:
            groups.add(candidate.group)
            chosen.append(candidate)
    return chosen


def _first(candidates: Collection[Candidate], limit: int) -> list[Candidate]:
    """The first candidates in the order of the queue."""
    return sorted(candidates, key=lambda candidate: (candidate.rank, candidate.id))[:limit]


def parts_of(
    dialect: QueueDialect, condition: ClaimCondition, *, with_aside: bool = False
) -> tuple[ClaimCondition, ...]:
    """The condition, if it reads in the order of the queue, as one for deliveries that are not set aside and one for those
    that are; a claim without a filter needs only the first."""
    if not condition.in_order:
        return (condition,)
    names = ("not_aside", "aside") if with_aside or condition.is_filter else ("not_aside",)
    wheres = (all_of((condition.where, Sql(dialect.text(name)))) for name in names)
    return tuple(replace(condition, where=where) for where in wheres)


def merged_select(
    dialect: QueueDialect,
    conditions: Sequence[ClaimCondition],
    skip: tuple[int, ...] = (),
    *,
    with_aside: bool = False,
) -> tuple[str, tuple[SqlValue, ...]]:
    """One SELECT, or one for each part of each condition, joined by UNION ALL, each with the limit; and its parameters."""
    params: list[SqlValue] = [None, None]  # the queue and the limit
    texts = []
    for condition in (
        part for each in conditions for part in parts_of(dialect, each, with_aside=with_aside)
    ):
        where = dialect.shifted(condition.where, len(params) + 1 - FIRST_GAP)
        params += where.params
        texts.append(_select(dialect, where.text, params, skip, condition))
    union = " UNION ALL ".join(f"SELECT * FROM ({text}) AS b" for text in texts)
    return texts[0] if len(texts) == 1 else union, tuple(params[2:])


def _selects(
    dialect: QueueDialect,
    conditions: Sequence[ClaimCondition],
    skip: tuple[int, ...] = (),
    *,
    with_aside: bool = False,
) -> Iterator[tuple[str, tuple[SqlValue, ...]]]:
    """The statements for the conditions without a residual, fifty conditions in each."""
    exact = [condition for condition in conditions if condition.residual is None]
    for at in range(0, len(exact), _BRANCHES_AT_ONCE):
        some = exact[at : at + _BRANCHES_AT_ONCE]
        yield merged_select(dialect, some, skip, with_aside=with_aside)


def _select(
    dialect: QueueDialect,
    where: str,
    params: list[SqlValue],
    skip: tuple[int, ...],
    condition: ClaimCondition,
    columns: str = "",
) -> str:
    gaps = _gaps(dialect, condition, _skipping(dialect, where, params, skip))
    return dialect.text("candidates", columns=columns, **gaps)


def first_candidates(
    dialect: QueueDialect, condition: ClaimCondition, where: str, most: int
) -> str:
    """The text that finds candidates among the first `most` READY deliveries."""
    return dialect.text("first_candidates", most=str(most), **_gaps(dialect, condition, where))


def looked_at(limit: int) -> int:
    """How many READY deliveries a claim looks at before it scans."""
    return max(_LOOKED_AT, limit * _LOOKED_AT_PER_CANDIDATE)


def _gaps(dialect: QueueDialect, condition: ClaimCondition, where: str) -> dict[str, str]:
    join, index = join_of(dialect, condition), dialect.index_hint(condition)
    return {"where": where, "join": join, "index": index}


def _skipping(dialect: QueueDialect, where: str, params: list[SqlValue], skip: Skip) -> str:
    """The condition without the deliveries to skip, whose ids are added to `params`."""
    if not skip:
        return where
    return f"{where} AND {dialect.text('not_skipped', ids=_bind(dialect, params, list(skip)))}"


def join_of(dialect: QueueDialect, condition: ClaimCondition) -> str:
    return " " + dialect.text("candidate_join") if condition.needs_message else ""


def _key_gaps(dialect: QueueDialect, params: list[SqlValue], keys: KeyRange) -> dict[str, str]:
    first, end = (_bind(dialect, params, key) for key in (keys.first, keys.end))
    return {"key": keys.expression, "first": first, "end": end}


def _bind(dialect: QueueDialect, params: list[SqlValue], value: SqlValue) -> str:
    params.append(value)
    return dialect.placeholder(len(params))
