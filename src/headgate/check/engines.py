"""The engines by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from headgate.check.engine import Engine, Question
from headgate.errors import HeadgateError
from headgate.filters.targets.python import predicate

LOCAL: Final = ("python", "arrow", "sqlite")  # need nothing but the library itself
ENGINES: Final = (*LOCAL, "postgres", "spark")


class PythonEngine:
    name = "python"

    def answer(self, questions: Sequence[Question]) -> list[bool]:
        return [predicate(question.filter)(question.message) for question in questions]


@contextmanager
def open_engine(name: str, *, postgres_url: str | None = None) -> Iterator[Engine]:
    """The engine of that name, with its server or session, until the block ends."""
    with _opened(name, postgres_url) as engine:
        yield engine


def _opened(name: str, postgres_url: str | None) -> AbstractContextManager[Engine]:
    # Each engine brings its own heavy import; only the one that is asked for is loaded.
    match name:
        case "python":
            return _kept(PythonEngine())
        case "arrow":
            from headgate.check.arrow import ArrowEngine

            return _kept(ArrowEngine())
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
            raise HeadgateError(
                f"there is no engine {name!r}; there are {', '.join(ENGINES)} and all"
            )


@contextmanager
def _kept(engine: Engine) -> Iterator[Engine]:
    yield engine
