"""What SQLite must be told: which index to use. It keeps no statistics unless asked, and then they are old.

Where a filter could be looked up in several ways, the values are counted, up to a bound, and the rarest are taken. Where
a header must lie in a range, matches are either few, then they are fetched and sorted, or many, then reading the queue in
its order meets them soon.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Sequence
from typing import Final

from headgate.clock import Clock
from headgate.filters import Filter
from headgate.filters.compile.sql import NEVER, Layout, Sql, index_expression
from headgate.filters.compile.sql import Dialect as DialectName
from headgate.message import Scalar
from headgate.queues.engine import (
    ClaimedMessage,
    Operation,
    Publication,
    QueueInfo,
    SqlValue,
    Statement,
)
from headgate.queues.sql.claim import Wanted
from headgate.queues.sql.dialect import Condition, Dialect
from headgate.queues.sql.operations import SqlOperations
from headgate.queues.sql.planning import Branch, Probe, choices_of
from headgate.queues.sql.publish import delivery_row
from headgate.queues.sql.records import Undecodable, claimed_of, columns_of, raw_columns_of, row_of
from headgate.queues.sql.search import Candidate, Search

FEW: Final = 500  # matches of a range that are fetched and sorted
MOST_COUNTED: Final = 20_000
_COUNT_LASTS_S: Final = 10.0
_MOST_COUNTS: Final = 10_000
_UPPER: Final = re.compile("[A-Z]")
_DELIVERY: Final = Layout(headers="d.keys")


class SqliteDialect(Dialect):
    name: DialectName = "sqlite"

    def __init__(self, clock: Clock) -> None:
        super().__init__(wall_us=clock.wall_us)
        self._clock = clock
        self.offset_us = 0

    def now_us(self) -> int:
        return self._clock.elapsed_us() + self.offset_us

    def timestamp_us(self) -> int:
        return self._clock.wall_us()

    def numbered(self, sql: Sql, first_parameter: int) -> Sql:
        before, *after = sql.text.split("?")  # values are bound: no other ? can be in it
        pieces = [f"?{number}{text}" for number, text in enumerate(after, first_parameter)]
        return Sql(before + "".join(pieces), sql.params)

    def hint(self, probe: Probe, first_parameter: int) -> Sql | None:
        # Said even where the filter says so itself, for the index must be usable whatever becomes of the filter.
        return Sql(f"{key_expression(probe.header)} = ?{first_parameter}", (_key(probe.value),))

    def index_hint(self, condition: Condition) -> str:
        if condition.where == NEVER:
            return ""
        probe = condition.probe
        index = "headgate_delivery_ready" if probe is None else self.index_name(probe.header)
        return f'INDEXED BY "{index}"'

    def index_name(self, header: str) -> str:
        # SQLite does not tell upper from lower case in names.
        folded = _UPPER.sub(lambda hit: "^" + hit[0].lower(), header)
        return f"headgate_filter_{folded}"

    def raw_columns(self, alias: str) -> str:
        return raw_columns_of(alias)

    def placeholder(self, number: int) -> str:
        return f"?{number}"


class SqliteOperations(SqlOperations):
    def __init__(self, dialect: Dialect) -> None:
        super().__init__(dialect)
        self._counts: dict[tuple[int, str, type, Scalar], tuple[int, float]] = {}
        self._lease_one = dialect.text("lease_one", columns=columns_of("m"))

    def row_of_one(self, queue: QueueInfo, publication: Publication) -> tuple[SqlValue, ...] | None:
        """What publish_one takes, by the catalog as it is remembered; None where one statement is not enough."""
        catalog = self._catalog
        target = catalog.get(queue.name)
        if target is None or catalog.has_subscriptions or publication.dedup_key is not None:
            return None
        row = row_of(publication.message, self.dialect.timestamp_us())
        _, *delivery = delivery_row(0, target, publication, self.dialect.now_us())
        return (*row, *delivery, catalog.version)

    def plan(
        self, queue: QueueInfo, filter: Filter | None, skip: Collection[int] = ()
    ) -> Operation[Search]:
        first = self.search(queue, filter, skip)
        if filter is None or first.conditions[0].probe is None:
            return first
        ways = choices_of(filter, queue.indexed)
        if len(ways) == 1:
            return first
        costs = []
        for branches in ways:
            costs.append((yield from self._count_all(queue, branches)))
        best = costs.index(min(costs))
        return first if not best else Search(queue, self.conditions(ways[best]), first.skip)

    def _count_all(self, queue: QueueInfo, branches: Sequence[Branch]) -> Operation[int]:
        total = 0
        for branch in branches:
            assert branch.probe is not None
            total += yield from self._count(queue, branch.probe)
        return total

    def _count(self, queue: QueueInfo, probe: Probe) -> Operation[int]:
        """How many are READY with that value, up to a bound; remembered for a while, for it only decides the way."""
        key = (queue.id, probe.header, type(probe.value), probe.value)
        count, at = self._counts.get(key, (0, float("-inf")))
        if time.monotonic() - at < _COUNT_LASTS_S:
            return count
        statement = self.dialect.statement(
            "how_many",
            queue.id,
            MOST_COUNTED,
            _key(probe.value),
            expression=key_expression(probe.header),
        )
        count = int((yield statement)[0][0])
        if len(self._counts) >= _MOST_COUNTS:
            self._counts.clear()
        self._counts[key] = (count, time.monotonic())
        return count

    def remembers(self, search: Search) -> bool:
        """Not where an index tells that nothing lies in the range."""
        return super().remembers(search) and search.conditions[0].ranged is None

    def _candidates(self, search: Search, limit: int) -> Operation[list[Candidate]]:
        [condition, *others] = search.conditions
        if not others and condition.ranged is not None and condition.scans:
            found = yield from self._all_if_few(search, condition)
            if found is not None and condition.residual is None:
                return found[:limit]
            if found == []:
                return []
        return (yield from super()._candidates(search, limit))

    def _lease(
        self, queue: QueueInfo, candidates: Sequence[Candidate], wanted: Wanted
    ) -> Operation[list[ClaimedMessage]]:
        if len(candidates) != 1:
            return (yield from super()._lease(queue, candidates, wanted))
        [candidate], now = candidates, self.dialect.now_us()
        named = (queue.id, candidate.id)
        try:
            rows = yield Statement(self._lease_one, (*named, now, wanted.lease_us, *named))
            return [claimed_of(row) for row in rows]
        except Undecodable:
            return (yield from self.sort_out(queue, [candidate.id]))

    def _all_if_few(
        self, search: Search, condition: Condition
    ) -> Operation[list[Candidate] | None]:
        """Everything in the range, in order, unless it is too much."""
        params: list[SqlValue] = [search.queue.id, FEW, *condition.where.params]
        join = " " + self.dialect.text("candidate_join") if condition.needs_message else ""
        text = self.dialect.text("some", where=condition.where.text, join=join)
        rows = yield Statement(text, tuple(params))
        if len(rows) >= FEW:
            return None
        found = [Candidate(*row) for row in rows if row[0] not in search.skip]
        return sorted(found, key=lambda candidate: (candidate.rank, candidate.id))


def _key(value: Scalar) -> Scalar:
    """What the index holds of it: of booleans 0 and 1."""
    return int(value) if isinstance(value, bool) else value


def key_expression(header: str) -> str:
    """What is indexed of a declared header, in the words of filters."""
    return index_expression("sqlite", header, _DELIVERY)
