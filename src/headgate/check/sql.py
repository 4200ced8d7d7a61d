"""What the two SQL engines have in common: questions become rows, filters become a few large statements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeAlias

from headgate.check.engine import Question
from headgate.clock import now_us
from headgate.filters import Filter
from headgate.filters.compile import compile_predicate
from headgate.filters.compile.sql import Layout, Sql, SqlDialect, compile_sql, headers_json
from headgate.message import Message

MessageRow: TypeAlias = tuple[
    str, str, str, int, int | None, str | None, str | None, str | None
]  # in the order of Layout's columns

FILTERS_A_STATEMENT: Final = 100
LONGEST_STATEMENT: Final = 300_000  # characters
MOST_PARAMETERS: Final = 15_000
_MESSAGE: Final = Layout.of("m")


@dataclass(frozen=True, slots=True)
class Tables:
    """Distinct messages and filters, and for each question which of them it is about."""

    messages: tuple[MessageRow, ...]
    filters: tuple[Filter, ...]
    questions: tuple[tuple[int, int, int], ...]  # number, filter, message


class SqlEngine(ABC):
    """An engine with a connection: tables are filled once a call, then asked in bulk."""

    name: str
    dialect: SqlDialect

    def __init__(self, *, clock: Callable[[], int] = now_us) -> None:
        self._clock = clock

    def answer(self, questions: Sequence[Question]) -> list[bool]:
        tables, moment = tabulate(questions), self._clock()
        residuals: list[Filter | None] = []
        found: set[int] = set()
        self.fill(tables)
        for statement, left in statements(tables.filters, self.dialect, moment):
            found.update(self.select(statement))
            residuals += left
        return [
            number in found and self.passes(residuals[asked], questions[number].message)
            for number, asked, _ in tables.questions
        ]

    def passes(self, residual: Filter | None, message: Message) -> bool:
        """What SQL could not decide."""
        return residual is None or compile_predicate(residual)(message)

    @abstractmethod
    def fill(self, tables: Tables) -> None:
        """Replace the content of the tables `message` and `question`."""

    @abstractmethod
    def select(self, statement: Sql) -> Iterable[int]:
        """The numbers the statement returns."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def tabulate(questions: Sequence[Question]) -> Tables:
    """Every message and every filter once, however often it is asked about."""
    messages: dict[MessageRow, int] = {}
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


def message_row(message: Message) -> MessageRow:
    """The message as its row in the table `message`."""
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


def statements(
    filters: Iterable[Filter], dialect: SqlDialect, moment_us: int
) -> Iterator[tuple[Sql, list[Filter | None]]]:
    """Statements that return the numbers of the questions that may match, with the residuals of their filters."""
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
