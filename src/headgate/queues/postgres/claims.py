"""A claim on PostgreSQL: one statement, and its answer one row, in which leases and messages stand by column."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import repeat
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from headgate.queues.engine import (
    ClaimedMessage,
    QueueInfo,
    Receipt,
    Row,
    Rows,
    SqlValue,
    Statement,
)
from headgate.queues.postgres.dialect import merged
from headgate.queues.postgres.publishing import PostgresPublishing
from headgate.queues.sql.claim import Wanted, remember
from headgate.queues.sql.dialect import Condition, Dialect
from headgate.queues.sql.publish import rank_in
from headgate.queues.sql.records import MESSAGE_COLUMNS, messages_of
from headgate.queues.sql.search import FIRST_GAP, Search

# What all messages of one answer may have; a single one, this divided by how many were asked for. A value in PostgreSQL
# ends at eight times as much.
MOST_BYTES: Final = 128 * 1024 * 1024
_FIRST_FREE: Final = 9  # the first parameter of a claim that is not the same in all of them
_JSON: Final = ("headers", "properties")
_PRIORITY: Final = MESSAGE_COLUMNS.index("priority")
_ID: Final = itemgetter(0)

_Shape: TypeAlias = tuple[tuple[Condition, ...], bool, int]  # the conditions, does it skip, reach


class PostgresClaims(PostgresPublishing):
    """How a claim is asked for."""

    def __init__(self, dialect: Dialect) -> None:
        super().__init__(dialect)
        self._claims: dict[_Shape, tuple[str, list[SqlValue]]] = {}

    def claim_statement(
        self,
        search: Search,
        wanted: Wanted,
        acks: Sequence[Receipt] = (),
        *,
        reach: int = 1,
        waits: bool = True,
    ) -> Statement:
        """The whole claim, where every term is answered next to the delivery. If it waits, it takes nothing while
        something is due, which must be promoted first."""
        shape = (search.conditions, bool(search.skip), reach)
        known = self._claims.get(shape)
        if known is None:
            known = self._claim_text(*shape)
            remember(self._claims, shape, known)
        text, values = known
        skipped = [list(search.skip)] if search.skip else []
        now = self.dialect.now_us()
        limit, lease_us, together = wanted
        first = (search.queue.id, limit, lease_us, now, *by_column(acks), together, waits)
        return Statement(text, (*first, *skipped, *values))

    def _claim_text(
        self, conditions: Sequence[Condition], skips: bool, reach: int
    ) -> tuple[str, list[SqlValue]]:
        """Its text, and the values of its conditions, which come last."""
        free, first = self.dialect.text("free"), _FIRST_FREE
        if skips:
            ids = self.dialect.placeholder(first)
            free, first = f"{free} AND {self.dialect.text('not_skipped', ids=ids)}", first + 1
        if len(conditions) == 1:
            candidates, values = self._in_order(conditions[0], free, first)
        else:
            candidates, values = self._merged(conditions, free, first, reach)
        gaps = {"candidates": candidates, "columns": arrays_of("m"), "most_bytes": str(MOST_BYTES)}
        return self.dialect.text("claim", **gaps), values

    def _in_order(self, condition: Condition, free: str, first: int) -> tuple[str, list[SqlValue]]:
        where = self.dialect.shifted(condition.where, first - FIRST_GAP)
        text = self.dialect.text("locked_candidates", where=where.text, free=free)
        return text, list(where.params)

    def _merged(
        self, conditions: Sequence[Condition], free: str, first: int, reach: int
    ) -> tuple[str, list[SqlValue]]:
        branches, arrays = merged(self.dialect, conditions, free, first)
        text = self.dialect.text("merged_candidates", branches=branches)
        return text.replace("{reach}", str(reach)), arrays


class Answer(NamedTuple):
    """What `claim` returns."""

    version: int  # of the catalog
    due: bool  # something must be promoted first; then nothing was claimed
    found: int  # how many candidates there were
    acked: list[int] | None  # None: all
    kept: None  # by the archive, which answers nothing
    token: int  # of all that was leased
    ids: list[int]
    attempts: list[int]
    groups: list[str | None]
    columns: Sequence[list[Any]]  # id and MESSAGE_COLUMNS of the messages that came along


def answer_of(rows: Rows) -> Answer:
    [(version, due, found, acked, kept, token, ids, attempts, groups, *columns)] = rows
    leases = (ids or [], attempts or [], groups or [])  # nothing, put together, is NULL
    came = [column or [] for column in columns]
    return Answer(version, due, found, acked, kept, token, *leases, came)


@cache
def arrays_of(alias: str) -> str:
    """MESSAGE_COLUMNS, each as an array."""
    casts = ("::text" if column in _JSON else "" for column in MESSAGE_COLUMNS)
    named = zip(MESSAGE_COLUMNS, casts, strict=True)
    return ", ".join(f"array_agg({alias}.{column}{cast})" for column, cast in named)


def left_out(answer: Answer) -> list[int]:
    """What is leased, and too big to come along."""
    came = answer.columns[0]
    return [] if len(came) == len(answer.ids) else list(set(answer.ids).difference(came))


def claimed_of_answer(
    answer: Answer, queue: QueueInfo, fetched: Sequence[Row] = ()
) -> list[ClaimedMessage]:
    """In the order of the queue; `fetched` are the rows of what was left out."""
    ids, *columns = _with(answer.columns, fetched)
    if not ids:
        return []
    attempts, groups = _leases(answer, ids)
    made = map(ClaimedMessage, ids, repeat(answer.token), attempts, messages_of(columns), groups)
    claimed = sorted(made, key=_ID)
    if len(set(columns[_PRIORITY])) > 1:
        claimed.sort(key=lambda one: rank_in(queue, one.message))
    return claimed


def _with(columns: Sequence[list[Any]], rows: Sequence[Row]) -> Sequence[list[Any]]:
    """The columns, with the rows below them."""
    if not rows:
        return columns
    return [[*column, *more] for column, more in zip(columns, zip(*rows, strict=True), strict=True)]


def _leases(answer: Answer, ids: list[int]) -> tuple[Sequence[int], Sequence[str | None]]:
    """Attempts and groups of these, in their order."""
    if ids == answer.ids:
        return answer.attempts, answer.groups
    places = {id: at for at, id in enumerate(answer.ids)}
    order = [places[id] for id in ids]
    return [answer.attempts[at] for at in order], [answer.groups[at] for at in order]


def by_column(receipts: Sequence[Receipt]) -> tuple[list[int], list[int]]:
    """Their ids in ascending order, and their tokens: one, where all have the same."""
    given = sorted(receipts)
    ids, tokens = [receipt.id for receipt in given], [receipt.token for receipt in given]
    return ids, tokens[:1] if len(set(tokens)) == 1 else tokens
