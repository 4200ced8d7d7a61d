"""What differs between the SQL databases: the text of the statements, and a few answers."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from headgate.clock import now_us
from headgate.filters import TRUE, And, Filter, joined
from headgate.filters.compile.sql import Layout, Sql, SqlDialect, all_of, compile_sql
from headgate.queues.engine import Each, SqlValue, Statement
from headgate.queues.sql.planning import Branch, Probe, ranged_header
from headgate.queues.sql.records import columns_of
from headgate.queues.sql.statements import statements_of

# `d` is the delivery, `m` the message, in every statement that has a gap for a filter. `rank` is minus the
# priority: so the order of a queue ascends in both columns, and a position in it can be compared as a row.
ON_DELIVERY: Final = Layout(headers="d.keys", priority="(-d.rank)")
ON_MESSAGE: Final = Layout(
    "m.headers", "m.properties", "m.topic", "m.priority", "m.timestamp", "m.message_id", "m.filter_value", "m.key"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Condition:
    """A branch as SQL. `residual`, if any, is for Python to check on the message."""

    where: Sql
    needs_message: bool
    scans: bool = False  # reads what is READY until enough match, instead of looking matches up
    residual: Filter | None = None
    reasons: tuple[str, ...] = ()
    probe: Probe | None = None
    ranged: str | None = None  # an indexed header that must lie in a range


class Dialect(ABC):
    """One database's way of saying things."""

    name: SqlDialect

    def __init__(self, *, wall_us: Callable[[], int] = now_us) -> None:
        self._statements = statements_of(self.name)
        self.wall_us = wall_us  # what UTC() in a filter is
        self.looks_only = False  # nothing may be written, not even what would be on the way

    @abstractmethod
    def now_us(self) -> int | None:
        """The time for `now` parameters; None where the database looks at its own clock."""

    @abstractmethod
    def timestamp_us(self) -> int | None:
        """The time a message is stamped with; None where the database does it."""

    def numbered(self, sql: Sql, first_parameter: int) -> Sql:
        """A compiled condition with its placeholders numbered; most dialects' are."""
        return sql

    def hint(self, probe: Probe, first_parameter: int) -> Sql | None:
        """A condition that the probe implies and the index answers, where the filter's own condition is none."""
        return None

    def index_hint(self, condition: Condition) -> str:
        """For candidates: which index to use, where the database does not find out by itself."""
        return ""

    @abstractmethod
    def index_name(self, header: str) -> str:
        """Of the index on a declared header, whose name is plain, see `is_plain_name`."""

    def raw_columns(self, alias: str) -> str:
        """The columns of a message in a form that can always be read, see records.salvage."""
        return columns_of(alias)

    def text(self, name: str, **gaps: str) -> str:
        """The named statement with its gaps filled."""
        text = self._statements[name]
        for gap, fragment in gaps.items():
            text = text.replace("{" + gap + "}", fragment)
        return text

    def statement(self, name: str, *params: SqlValue, **gaps: str) -> Statement:
        return Statement(self.text(name, **gaps), params)

    def each(self, name: str, rows: Iterable[tuple[SqlValue, ...]]) -> Each:
        return Each(self.text(name), tuple(rows))

    def condition(self, branch: Branch, first_parameter: int) -> Condition:
        """The branch as SQL, its placeholders numbered from `first_parameter` on."""
        parts: list[Sql] = []
        if branch.probe is not None:
            hint = self.hint(branch.probe, first_parameter)
            parts += [] if hint is None else [hint]
        plans = []
        for tree, layout in ((branch.on_delivery, ON_DELIVERY), (branch.on_message, ON_MESSAGE)):
            first = first_parameter + sum(len(part.params) for part in parts)
            plan = compile_sql(
                tree, self.name, first_parameter=first, layout=layout, now_us=self.wall_us()
            )
            plans.append(plan)
            parts.append(self.numbered(plan.where, first))
        residual = [plan.residual for plan in plans if plan.residual is not None]
        return Condition(
            all_of(parts),
            bool(residual) or branch.on_message != TRUE,
            branch.probe is None and (branch.on_delivery, branch.on_message) != (TRUE, TRUE),
            joined(And, residual) if residual else None,
            tuple(reason for plan in plans for reason in plan.reasons),
            branch.probe,
            ranged_header(branch),
        )

    @abstractmethod
    def placeholder(self, number: int) -> str:
        """The nth parameter."""

    def shifted(self, sql: Sql, by: int) -> Sql:
        """The condition with all its placeholders moved up."""
        mark = re.escape(self.placeholder(0)[:-1])
        moved = re.sub(rf"{mark}(\d+)\b", lambda hit: self.placeholder(int(hit[1]) + by), sql.text)
        return Sql(moved, sql.params)
