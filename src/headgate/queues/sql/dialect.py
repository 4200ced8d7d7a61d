"""What differs between the SQL databases: the texts of the statements, and a few expressions.

Statements have names and are read from the .sql files of a dialect:

    -- name: ack
    -- Why it is written this way.
    DELETE FROM …

A statement may have named gaps, `{where}`, that are filled with fragments of SQL, never with values.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Final

from headgate.clock import now_us
from headgate.errors import QueueError, SchemaTooNew
from headgate.filters import TRUE, And, Filter, join_terms
from headgate.filters.compile.sql import Layout, Sql, SqlDialect, all_of, compile_sql
from headgate.queues.engine import ForEach, SqlValue, Statement
from headgate.queues.sql.message_rows import columns_of
from headgate.queues.sql.plan import Branch, Probe

_NAME: Final = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT: Final = re.compile(r"^\s*--.*\n?", re.MULTILINE)
_MIGRATION: Final = re.compile(r"(\d{4})_\w+\.sql")

# `d` is the delivery, `m` the message, in every statement that has a gap for a filter. `rank` is minus the
# priority: so the order of a queue ascends in both columns, and a position in it can be compared as a row.
ON_DELIVERY: Final = Layout(headers="d.keys", priority="(-d.rank)")
ON_MESSAGE: Final = Layout(
    "m.headers", "m.properties", "m.topic", "m.priority", "m.timestamp", "m.message_id", "m.filter_value", "m.key"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class KeyRange:
    """A range of keys in the index on a declared header, without its `end`; `expression` is the key of a delivery `d`."""

    expression: str
    first: str
    end: str


@dataclass(frozen=True, slots=True)
class InRange:
    """A range of an indexed header that holds all that match; `where` is the exact condition."""

    header: str
    where: Sql
    keys: KeyRange | None = None  # set if the index cannot answer `where` itself


@dataclass(frozen=True, slots=True)
class ClaimCondition:
    """A branch of a claim's filter as SQL. `residual`, if any, is for Python to check on the message."""

    where: Sql
    needs_message: bool
    scans: bool = False  # reads READY deliveries in order until enough match, instead of a lookup
    residual: Filter | None = None
    reasons: tuple[str, ...] = ()  # why the residual is not in the SQL
    probe: Probe | None = None
    ranged: InRange | None = None
    in_order: bool = False  # reads the index in the order of the queue

    @property
    def is_filter(self) -> bool:
        """Whether there may be deliveries that do not match."""
        return self.scans or self.probe is not None


class QueueDialect(ABC):
    """The statements of one database, and how it writes placeholders, index hints and conditions."""

    name: SqlDialect

    def __init__(self, *, wall_us: Callable[[], int] = now_us) -> None:
        self._statements = statements_of(self.name)
        self.wall_us = wall_us  # the value of UTC() in a filter
        self.is_read_only = False

    @abstractmethod
    def now_us(self) -> int | None:
        """The time for `now` parameters; None where the database uses its own clock."""

    @abstractmethod
    def timestamp_us(self) -> int | None:
        """The timestamp of a new message; None where the database sets it."""

    def number_placeholders(self, sql: Sql, first_parameter: int) -> Sql:
        """Number the placeholders of a compiled condition."""
        return sql

    def hint(self, probe: Probe, first_parameter: int) -> Sql | None:
        """A condition that the probe implies and the index answers, where the filter's own condition does not."""
        return None

    @abstractmethod
    def range_of(self, branch: Branch, where: Sql) -> InRange | None:
        """The range of an indexed header to which the branch is restricted, if there is one."""

    def index_hint(self, condition: ClaimCondition) -> str:
        """The index that candidates are to be read from, where the planner does not find it by itself."""
        return ""

    @abstractmethod
    def index_name(self, header: str) -> str:
        """The name of the index on a declared header, whose name is plain, see `is_plain_name`."""

    def raw_columns(self, alias: str) -> str:
        """The columns of a message in a form that can always be read, see message_rows.salvage."""
        return columns_of(alias)

    @abstractmethod
    def placeholder(self, number: int) -> str:
        """The nth parameter."""

    def has(self, name: str) -> bool:
        """Whether the dialect has a statement of that name."""
        return name in self._statements

    def text(self, name: str, **gaps: str) -> str:
        """The named statement with its gaps filled."""
        text = self._statements[name]
        for gap, fragment in gaps.items():
            text = text.replace("{" + gap + "}", fragment)
        return text

    def statement(self, name: str, *params: SqlValue, **gaps: str) -> Statement:
        return Statement(self.text(name, **gaps) if gaps else self._statements[name], params)

    def for_each(self, name: str, rows: Iterable[tuple[SqlValue, ...]]) -> ForEach:
        return ForEach(self._statements[name], tuple(rows))

    def condition(self, branch: Branch, first_parameter: int) -> ClaimCondition:
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
            parts.append(self.number_placeholders(plan.where, first))
        residual = [plan.residual for plan in plans if plan.residual is not None]
        where = all_of(parts)
        return ClaimCondition(
            where,
            bool(residual) or branch.on_message != TRUE,
            branch.probe is None and (branch.on_delivery, branch.on_message) != (TRUE, TRUE),
            join_terms(And, residual) if residual else None,
            tuple(reason for plan in plans for reason in plan.reasons),
            branch.probe,
            self.range_of(branch, where) if branch.probe is None else None,
            branch.probe is None,
        )

    def shifted(self, sql: Sql, by: int) -> Sql:
        """The condition with all placeholder numbers increased."""
        if not by:
            return sql
        mark = re.escape(self.placeholder(0)[:-1])
        moved = re.sub(rf"{mark}(\d+)\b", lambda hit: self.placeholder(int(hit[1]) + by), sql.text)
        return Sql(moved, sql.params)


# ---- the .sql files ------------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def statements_of(dialect: SqlDialect) -> dict[str, str]:
    """Every named statement of the dialect."""
    statements: dict[str, str] = {}
    for name, text in _read_files(dialect):
        if not _MIGRATION.fullmatch(name):
            statements.update(split_statements(text))
    return statements


def migrations_of(dialect: SqlDialect) -> list[tuple[int, str]]:
    """The numbered migrations of the dialect, in order."""
    numbered = [(_MIGRATION.fullmatch(name), text) for name, text in _read_files(dialect)]
    return sorted((int(number[1]), text) for number, text in numbered if number)


def split_statements(text: str) -> dict[str, str]:
    """The statements of one file by name, without their comments."""
    parts = _NAME.split(text)
    named = zip(parts[1::2], parts[2::2], strict=True)
    return {name: _COMMENT.sub("", body).strip().rstrip(";") for name, body in named}


def _read_files(dialect: SqlDialect) -> Iterator[tuple[str, str]]:
    for file in (files("headgate.queues") / "sql" / dialect).iterdir():
        if file.name.endswith(".sql"):
            yield file.name, file.read_text(encoding="utf-8")


def check_version(version: int, newest: int, where: str) -> None:
    """Refuse to read tables of another version: a reader does not migrate them."""
    if version > newest:
        raise too_new(version, newest, where)
    if version < newest:
        raise QueueError(
            f"{where}: the tables have version {version}, and reading them needs {newest}; any program that publishes "
            "or claims with this Headgate migrates them"
        )


def too_new(version: int, newest: int, where: str) -> SchemaTooNew:
    """The error for tables that a newer Headgate has migrated."""
    return SchemaTooNew(
        f"{where}: the tables have version {version}, this Headgate knows {newest}; upgrade it"
    )
