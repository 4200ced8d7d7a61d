"""Filters answered by a SQL database: questions become rows, filters become a few large statements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, TypeAlias

import apsw

from headgate.check.engines import Question
from headgate.clock import now_us
from headgate.filters import Filter
from headgate.filters.compile import compile_predicate
from headgate.filters.compile.sql import Layout, Sql, SqlDialect, compile_sql, headers_json
from headgate.message import Message

# The values of a message in the order of Layout's columns.
CheckMessage: TypeAlias = tuple[str, str, str, int, int | None, str | None, str | None, str | None]

FILTERS_A_STATEMENT: Final = 100
LONGEST_STATEMENT: Final = 300_000  # characters
MOST_PARAMETERS: Final = 15_000
_MESSAGE: Final = Layout.of("m")


@dataclass(frozen=True, slots=True)
class Tables:
    """Distinct messages and filters, and for each question the numbers of its filter and message."""

    messages: tuple[CheckMessage, ...]
    filters: tuple[Filter, ...]
    questions: tuple[tuple[int, int, int], ...]  # number, filter, message


class QuestionTables(Protocol):
    """The tables `message` and `question` of one database."""

    def fill(self, tables: Tables) -> None:
        """Replace their content."""

    def select(self, statement: Sql) -> Iterable[int]:
        """Return the numbers that a statement selects."""

    def close(self) -> None:
        """Close the connection."""


class SqlCheck:
    """Filters answered by a database: its tables are filled once for each call, then queried in bulk."""

    def __init__(
        self, dialect: SqlDialect, tables: QuestionTables, clock: Callable[[], int] = now_us
    ) -> None:
        self.name = self._dialect = dialect
        self._tables, self._clock = tables, clock

    def answer(self, questions: Sequence[Question]) -> list[bool]:
        """Answer the questions, in their order; Python checks what SQL could not decide."""
        tables, found, residuals = self._query(questions)
        return [
            number in found and _passes(residuals[asked], questions[number].message)
            for number, asked, _ in tables.questions
        ]

    def candidates(self, questions: Sequence[Question]) -> list[bool]:
        """Answer the questions with SQL alone, which may let too many messages through."""
        tables, found, _ = self._query(questions)
        return [number in found for number, _, _ in tables.questions]

    def _query(self, questions: Sequence[Question]) -> tuple[Tables, set[int], list[Filter | None]]:
        tables, moment = tabulate(questions), self._clock()
        residuals: list[Filter | None] = []
        found: set[int] = set()
        self._tables.fill(tables)
        for statement, rest in write_statements(tables.filters, self._dialect, moment):
            found.update(self._tables.select(statement))
            residuals += rest
        return tables, found, residuals

    def close(self) -> None:
        self._tables.close()

    def __enter__(self) -> SqlCheck:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _passes(residual: Filter | None, message: Message) -> bool:
    return residual is None or compile_predicate(residual)(message)


def tabulate(questions: Sequence[Question]) -> Tables:
    """Number the messages and filters of the questions, each once."""
    messages: dict[CheckMessage, int] = {}
    filters: dict[Filter, int] = {}
    rows = tuple(
        (
            number,
            filters.setdefault(question.filter, len(filters)),
            messages.setdefault(message_row(question.message), len(messages)),
        )
        for number, question in enumerate(questions)
    )
    return Tables(tuple(messages), tuple(filters), rows)


def message_row(message: Message) -> CheckMessage:
    """Make the row of a message in the table `message`."""
    return (
        headers_json(message.headers),
        headers_json(message.properties),
        message.topic,
        message.priority,
        message.timestamp,
        message.id,
        message.filter_value,
        message.key,
    )


def write_statements(
    filters: Iterable[Filter], dialect: SqlDialect, moment_us: int
) -> Iterator[tuple[Sql, list[Filter | None]]]:
    """Write statements that select the numbers of the questions that may match, with the residuals of their filters."""
    branches: list[Sql] = []
    residuals: list[Filter | None] = []
    size = params = 0
    for number, filter in enumerate(filters):
        plan = compile_sql(
            filter, dialect, first_parameter=params + 1, layout=_MESSAGE, now_us=moment_us
        )
        branches.append(_branch(number, plan.where))
        residuals.append(plan.residual)
        size, params = size + len(branches[-1].text), params + len(plan.where.params)
        full = len(branches) == FILTERS_A_STATEMENT
        if full or size > LONGEST_STATEMENT or params > MOST_PARAMETERS:
            yield _union(branches), residuals
            branches, residuals, size, params = [], [], 0, 0
    if branches:
        yield _union(branches), residuals


def _branch(filter_number: int, where: Sql) -> Sql:
    return Sql(
        "SELECT q.number FROM question AS q CROSS JOIN message AS m "
        f"WHERE q.filter = {filter_number} AND m.number = q.message AND ({where.text})",
        where.params,
    )


def _union(branches: list[Sql]) -> Sql:
    text = "\nUNION ALL ".join(branch.text for branch in branches)
    return Sql(text, tuple(value for branch in branches for value in branch.params))


# ---- SQLite ------------------------------------------------------------------------------------------

_SCHEMA: Final = """
CREATE TABLE message (
    number INTEGER PRIMARY KEY,
    headers TEXT NOT NULL,
    properties TEXT NOT NULL,
    topic TEXT NOT NULL,
    priority INTEGER NOT NULL,
    timestamp INTEGER,
    id TEXT,
    filter_value TEXT,
    key TEXT
);
CREATE TABLE question (number INTEGER PRIMARY KEY, filter INTEGER NOT NULL, message INTEGER NOT NULL);
CREATE INDEX question_filter ON question (filter);
"""


class _SqliteTables:
    """The tables in a SQLite database in memory."""

    def __init__(self) -> None:
        self._connection = apsw.Connection(":memory:")
        self._connection.execute(_SCHEMA)

    def fill(self, tables: Tables) -> None:
        with self._connection as connection:
            connection.execute("DELETE FROM message; DELETE FROM question")
            connection.executemany(
                "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                ((number, *row) for number, row in enumerate(tables.messages)),
            )
            connection.executemany("INSERT INTO question VALUES (?, ?, ?)", tables.questions)

    def select(self, statement: Sql) -> Iterable[int]:
        return (row[0] for row in self._connection.execute(statement.text, statement.params))

    def close(self) -> None:
        self._connection.close()


def open_sqlite(*, clock: Callable[[], int] = now_us) -> SqlCheck:
    """Open the engine that answers with SQLite, in memory."""
    return SqlCheck("sqlite", _SqliteTables(), clock)
