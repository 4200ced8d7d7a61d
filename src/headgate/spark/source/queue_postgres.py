"""Reading PostgreSQL through ADBC: its rows never are Python objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headgate.errors import (
    DatabaseUnavailable,
    HeadgateError,
    MissingExtra,
    NoQueues,
    QueueError,
    QueueOptionsError,
)
from headgate.queues import PostgresTarget, SqlValue, postgres_target
from headgate.queues.postgres import SESSION, PostgresDialect

if TYPE_CHECKING:
    from adbc_driver_manager.dbapi import Connection

_NO_TABLES: Final = ("42P01", "3F000")
_NOT_ALLOWED: Final = "42501"


class PostgresRows:
    def __init__(self, connection: Connection) -> None:
        self.dialect = PostgresDialect()
        self._connection = connection

    def batches(
        self, text: str, params: Sequence[SqlValue], names: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        with self._connection.cursor() as cursor:
            cursor.execute(text, parameters=list(params) or None)
            for batch in cursor.fetch_record_batch():
                arrays = [_plain(array) for array in batch.columns]
                yield pa.RecordBatch.from_arrays(arrays, names=list(names))


def _plain(array: pa.Array) -> pa.Array:
    """JSON is a type of its own there; to us it is text."""
    return array.storage if isinstance(array, pa.ExtensionArray) else array


@contextmanager
def postgres_rows(url: str) -> Iterator[PostgresRows]:
    """A connection to the database, its names looked up in the schema the URL says."""
    manager, connect = _driver()
    target = postgres_target(url)
    try:
        connection = connect(target.url, autocommit=True)
    except manager.Error as problem:
        raise DatabaseUnavailable(f"PostgreSQL cannot be reached: {_said(problem)}") from problem
    try:
        with connection:
            _set_up(connection, target)
            yield PostgresRows(connection)
    except manager.Error as problem:
        raise _ours(problem, target) from problem


def _driver() -> tuple[Any, Any]:
    try:
        import adbc_driver_manager
        from adbc_driver_postgresql.dbapi import connect
    except ImportError as missing:
        raise MissingExtra("spark", "reading a queue on PostgreSQL with Spark") from missing
    return adbc_driver_manager, connect


def _set_up(connection: Connection, target: PostgresTarget) -> None:
    """As the connections of queues are: the indexes are read in order, whatever the statistics say."""
    settings = {"search_path": target.search_path, **SESSION}
    numbers = range(1, 2 * len(settings), 2)
    calls = ", ".join(f"set_config(${n}, ${n + 1}, false)" for n in numbers)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {calls}", parameters=[text for pair in settings.items() for text in pair]
        )
        cursor.fetchall()


def _ours(problem: Any, target: PostgresTarget) -> HeadgateError:
    """The same trouble, in the words of Headgate."""
    if problem.sqlstate in _NO_TABLES:
        return NoQueues(
            f"the database holds no queues in schema {target.schema!r}; publish to one first, or name the "
            "schema in the URL: postgresql://host/database?schema=name"
        )
    if problem.sqlstate == _NOT_ALLOWED:
        return QueueOptionsError(
            f"the role may not read here: {_said(problem)}; it needs USAGE on schema {target.schema!r} and "
            "SELECT on its tables"
        )
    return QueueError(f"PostgreSQL refuses: {_said(problem)}")


def _said(problem: Exception) -> str:
    """What the server said, without the driver's own words around it."""
    return str(problem).removeprefix("IO: [libpq] ").partition("\n\nQuery was:")[0].strip()
