"""SQLite's dialect, and the choice of an index, which SQLite leaves to its caller.

SQLite keeps no statistics unless it is asked to, and then they are old. So each statement names its index: where a
filter can be looked up in several indexes, the deliveries with each value are counted, up to a bound, and the rarest
are looked up.
"""

from __future__ import annotations

import re
import time
from typing import Final

from headgate.clock import Clock
from headgate.filters import Filter
from headgate.filters.compile.sql import NEVER, Layout, Sql, SqlDialect, index_expression
from headgate.message import Scalar
from headgate.queues.engine import Operation, QueueInfo
from headgate.queues.sql.dialect import ClaimCondition, InRange, QueueDialect
from headgate.queues.sql.message_rows import raw_columns_of
from headgate.queues.sql.plan import Branch, Probe, ranged_header
from headgate.queues.sql.search import ClaimPlan, Planner

_MOST_COUNTED: Final = 20_000
_COUNT_VALID_S: Final = 10.0
_MOST_COUNTS: Final = 10_000
_UPPER: Final = re.compile("[A-Z]")
_DELIVERY: Final = Layout(headers="d.keys")


class SqliteDialect(QueueDialect):
    name: SqlDialect = "sqlite"

    def __init__(self, clock: Clock) -> None:
        super().__init__(wall_us=clock.wall_us)
        self._elapsed_us = clock.elapsed_us
        self.offset_us = 0

    def now_us(self) -> int:
        return self._elapsed_us() + self.offset_us

    def timestamp_us(self) -> int:
        return self.wall_us()

    def number_placeholders(self, sql: Sql, first_parameter: int) -> Sql:
        before, *after = sql.text.split("?")  # values are bound: no other ? can be in it
        pieces = [f"?{number}{text}" for number, text in enumerate(after, first_parameter)]
        return Sql(before + "".join(pieces), sql.params)

    def hint(self, probe: Probe, first_parameter: int) -> Sql | None:
        # Even if the filter has this condition itself: it may be compiled to a form that the index does not answer.
        return Sql(f"{key_expression(probe.header)} = ?{first_parameter}", (_key(probe.value),))

    def range_of(self, branch: Branch, where: Sql) -> InRange | None:
        header = ranged_header(branch)
        return None if header is None else InRange(header, where)

    def index_hint(self, condition: ClaimCondition) -> str:
        if condition.where == NEVER:
            return ""
        probe = condition.probe
        index = "headgate_delivery_ready" if probe is None else self.index_name(probe.header)
        return f'INDEXED BY "{index}"'

    def index_name(self, header: str) -> str:
        # SQLite does not distinguish upper and lower case in names.
        folded = _UPPER.sub(lambda hit: "^" + hit[0].lower(), header)
        return f"headgate_filter_{folded}"

    def raw_columns(self, alias: str) -> str:
        return raw_columns_of(alias)

    def placeholder(self, number: int) -> str:
        return f"?{number}"


class IndexChoice:
    """Chooses among the indexes that answer a filter."""

    def __init__(self, dialect: QueueDialect, planner: Planner) -> None:
        self._dialect, self._planner = dialect, planner
        # How many are READY with a value, and when they were counted.
        self._counts: dict[tuple[int, str, type, Scalar], tuple[int, float]] = {}

    def only_plan(self, queue: QueueInfo, filter: Filter | None) -> ClaimPlan | None:
        """The plan of the filter; None if there are several to choose from."""
        plan = self._planner.plan(queue, filter)
        if filter is None or plan.conditions[0].probe is None:
            return plan
        return plan if len(self._planner.choices(queue, filter)) == 1 else None

    def choose(self, queue: QueueInfo, filter: Filter | None) -> Operation[ClaimPlan]:
        """The plan whose lookups find the fewest deliveries."""
        plan = self.only_plan(queue, filter)
        if plan is not None or filter is None:
            return plan or self._planner.plan(queue, filter)
        choices = self._planner.choices(queue, filter)
        costs = []
        for choice in choices:
            count = 0
            for condition in choice.conditions:
                assert condition.probe is not None
                count += yield from self._count(queue, condition.probe)
            costs.append(count)
        return choices[costs.index(min(costs))]

    def _count(self, queue: QueueInfo, probe: Probe) -> Operation[int]:
        """How many deliveries are READY with that value, up to a bound; a count is valid for some seconds."""
        key = (queue.id, probe.header, type(probe.value), probe.value)
        count, at = self._counts.get(key, (0, float("-inf")))
        if time.monotonic() - at < _COUNT_VALID_S:
            return count
        rows = yield self._dialect.statement(
            "count_key",
            queue.id,
            _MOST_COUNTED,
            _key(probe.value),
            expression=key_expression(probe.header),
        )
        count = int(rows[0][0])
        if len(self._counts) >= _MOST_COUNTS:
            self._counts.clear()
        self._counts[key] = (count, time.monotonic())
        return count


def _key(value: Scalar) -> Scalar:
    """What the index holds of a value: 0 and 1 for booleans."""
    return int(value) if isinstance(value, bool) else value


def key_expression(header: str) -> str:
    """The expression that is indexed for a declared header, as filters write it."""
    return index_expression("sqlite", header, _DELIVERY)
