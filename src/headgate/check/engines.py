"""The engines by name."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from headgate.check.engine import Engine, Question
from headgate.errors import HeadgateError
from headgate.filters.compile import compile_predicate

LOCAL: Final = ("python", "arrow", "sqlite")  # need nothing but the library itself
ENGINES: Final = (*LOCAL, "postgres", "spark")


class PythonEngine:
    name = "python"

    def answer(self, questions: Sequence[Question]) -> list[bool]:
        return [compile_predicate(question.filter)(question.message) for question in questions]


def unknown_engine(name: str) -> HeadgateError:
    """What to say to a name that is none."""
    return HeadgateError(f"there is no engine {name!r}; there are {', '.join(ENGINES)} and all")


def open_engine(name: str, *, postgres_url: str | None = None) -> AbstractContextManager[Engine]:
    """The engine of that name, with its server or session, until the block ends."""
    # Each engine brings its own heavy import; only the one that is asked for is loaded.
    match name:
        case "python":
            return nullcontext(PythonEngine())
        case "arrow":
            from headgate.check.arrow import ArrowEngine

            return nullcontext(ArrowEngine())
        case "sqlite":
            from headgate.check.sqlite import SqliteEngine

            return SqliteEngine()
        case "postgres":
            from headgate.check.postgres import PostgresEngine

            return PostgresEngine(postgres_url)
        case "spark":
            from headgate.check.spark import SparkEngine

            return SparkEngine()
        case _:
            raise unknown_engine(name)
