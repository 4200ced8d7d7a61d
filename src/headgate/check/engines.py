"""The engines that answer filters, by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, NamedTuple, Protocol

from headgate.columns import BatchColumns, shred_messages
from headgate.errors import HeadgateError
from headgate.filters import Filter
from headgate.filters.compile import compile_predicate
from headgate.filters.compile.arrow import compile_mask
from headgate.message import Message

LOCAL: Final = ("python", "arrow", "sqlite")  # need nothing but the library itself
ENGINES: Final = (*LOCAL, "postgres", "spark")
ROWS_PER_BATCH: Final = 4096


class Question(NamedTuple):
    """Does this message match this filter?"""

    filter: Filter
    message: Message


class CheckEngine(Protocol):
    """Answers many questions at once; a context manager when it holds a connection or a session."""

    @property
    def name(self) -> str: ...

    def answer(self, questions: Sequence[Question]) -> list[bool]:
        """Answer the questions, in their order."""
        ...


def unknown_engine(name: str) -> HeadgateError:
    """Make the error for a name that no engine has."""
    return HeadgateError(f"there is no engine {name!r}; there are {', '.join(ENGINES)} and all")


def open_engine(
    name: str, *, postgres_url: str | None = None
) -> AbstractContextManager[CheckEngine]:
    """Open the engine of that name, with its server or session, until the block ends."""
    # The other engines import a database driver or Spark: only the one that is used is loaded.
    match name:
        case "python":
            return nullcontext(PythonCheck())
        case "arrow":
            return nullcontext(ArrowCheck())
        case "sqlite":
            from headgate.check.sql import open_sqlite

            return open_sqlite()
        case "postgres":
            from headgate.check.postgres import open_postgres

            return open_postgres(postgres_url)
        case "spark":
            from headgate.check.spark import SparkCheck

            return SparkCheck()
        case _:
            raise unknown_engine(name)


class PythonCheck:
    """Filters answered by compiled Python functions."""

    name = "python"

    def answer(self, questions: Sequence[Question]) -> list[bool]:
        """Answer the questions, in their order."""
        return [compile_predicate(question.filter)(question.message) for question in questions]


class ArrowCheck:
    """Filters answered by Arrow: messages become record batches, and every filter one mask for each batch."""

    name = "arrow"

    def answer(self, questions: Sequence[Question]) -> list[bool]:
        """Answer the questions, in their order."""
        # A message is often asked about many times. Messages cannot be hashed, but they have an identity.
        messages = {id(question.message): question.message for question in questions}
        rows = {identity: row for row, identity in enumerate(messages)}
        batches = _make_batches(list(messages.values()))
        answers = [False] * len(questions)
        for (node, number), asked in _by_filter_and_batch(questions, rows).items():
            mask = compile_mask(node)(batches[number])
            for at, row in asked:
                answers[at] = bool(mask[row])
        return answers


def _make_batches(messages: list[Message]) -> list[BatchColumns]:
    starts = range(0, len(messages), ROWS_PER_BATCH)
    return [
        BatchColumns(shred_messages(messages[start : start + ROWS_PER_BATCH])) for start in starts
    ]


def _by_filter_and_batch(
    questions: Sequence[Question], rows: dict[int, int]
) -> dict[tuple[Filter, int], list[tuple[int, int]]]:
    """Group the questions by filter and batch: pairs of the question's number and its row in the batch."""
    asked: dict[tuple[Filter, int], list[tuple[int, int]]] = defaultdict(list)
    for at, question in enumerate(questions):
        batch, row = divmod(rows[id(question.message)], ROWS_PER_BATCH)
        asked[question.filter, batch].append((at, row))
    return asked
