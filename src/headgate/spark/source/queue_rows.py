"""Connections that only read a queue's database and return rows as Arrow batches: SQLite through APSW, the library that
queues use too, since two SQLite libraries in one process lose data; PostgreSQL through ADBC, without Python objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from headgate.errors import (
    DatabaseUnavailable,
    HeadgateError,
    MissingExtra,
    NoQueues,
    QueueError,
    QueueNotFound,
    QueueOptionsError,
    SchemaTooNew,
    SparkOptionsError,
)
from headgate.pipelines import QueuePlace
from headgate.queues import PostgresTarget, SqlValue, postgres_target
from headgate.queues.postgres import SESSION, PostgresDialect
from headgate.queues.sql import QueueDialect, migrations_of

if TYPE_CHECKING:
    import apsw
    from adbc_driver_manager.dbapi import Connection

_BUSY_TIMEOUT_MS: Final = 60_000
_INTS: Final = ("offset", "_turn", "priority", "timestamp", "_state", "_attempts")
_NO_TABLES: Final = ("42P01", "3F000")
_NOT_ALLOWED: Final = "42501"


class QueueRows(Protocol):
    """Reads rows of a database. Each statement is a transaction of its own: no vacuum or checkpoint waits for Spark."""

    @property
    def dialect(self) -> QueueDialect: ...

    def batches(
        self, text: str, params: Sequence[SqlValue], names: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Run a SELECT; its columns get these names."""
        ...


def open_rows(place: QueuePlace) -> AbstractContextManager[QueueRows]:
    """Open the database of a place for reading; nothing is created or migrated."""
    return postgres_rows(place.url) if place.file is None else sqlite_rows(place.file)


def select_column(rows: QueueRows, name: str, *params: SqlValue, **gaps: str) -> pa.Array:
    """Run a named statement that selects one column of numbers, and return that column."""
    batches = rows.batches(rows.dialect.text(name, **gaps), params, ["offset"])
    return pa.concat_arrays([pa.array([], pa.int64()), *(batch.column(0) for batch in batches)])


def select_keys(
    rows: QueueRows, name: str, params: Sequence[SqlValue], names: Sequence[str], **gaps: str
) -> list[tuple[int, ...]]:
    """Run a named statement that selects columns of numbers, and return its rows as tuples."""
    batches = rows.batches(rows.dialect.text(name, **gaps), params, names)
    return [
        key
        for batch in batches
        for key in zip(*map(pa.Array.to_pylist, batch.columns), strict=True)
    ]


def refuse_older(rows: QueueRows, version: int) -> None:
    """Refuse tables older than this version."""
    found = select_column(rows, "tables_version")[0].as_py()
    if found < version:
        raise SparkOptionsError(
            f"the tables have version {found}, and following an archive needs version {version}; publish or claim once "
            "with this Headgate to migrate them"
        )


def refuse_newer(rows: QueueRows) -> None:
    """Refuse tables that a newer Headgate made."""
    known = migrations_of(rows.dialect.name)[-1][0]
    version = select_column(rows, "tables_version")[0].as_py()
    if version > known:
        raise SchemaTooNew(
            f"the tables have version {version}, and this Headgate knows versions up to {known}; upgrade Headgate"
        )


def queue_id(rows: QueueRows, name: str) -> int:
    """The number of a queue or subscription; refuses tables that a newer Headgate made."""
    refuse_newer(rows)
    ids = select_column(rows, "queue_named", name)
    if not len(ids):
        raise QueueNotFound(name)
    number: int = ids[0].as_py()
    return number


# ---- SQLite ------------------------------------------------------------------------------------------


class SqliteRows:
    """Rows of a SQLite database."""

    def __init__(self, connection: apsw.Connection) -> None:
        from headgate.clock import Clock
        from headgate.queues.sqlite import SqliteDialect

        self.dialect = SqliteDialect(Clock())
        self._connection = connection

    def batches(
        self, text: str, params: Sequence[SqlValue], names: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        rows = self._connection.execute(text, tuple(params)).fetchall()
        columns = zip(*rows, strict=True) if rows else ([] for _ in names)
        arrays = [pa.array(c, _sqlite_type(n)) for n, c in zip(names, columns, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names=list(names))


def _sqlite_type(name: str) -> pa.DataType:
    """The type of a column; SQLite itself does not report it."""
    return pa.int64() if name in _INTS else pa.binary() if name == "payload" else pa.string()


@contextmanager
def sqlite_rows(file: Path) -> Iterator[SqliteRows]:
    """Connect to a SQLite file, which must exist."""
    import apsw

    from headgate.queues.sqlite import open_file

    if not file.is_file():
        raise SparkOptionsError(
            f"there is no database {file}; it must be a file that the driver and all executors can read"
        )
    try:
        connection = open_file(file, "look")
        try:
            connection.set_busy_timeout(_BUSY_TIMEOUT_MS)
            if not connection.table_exists("main", "headgate_queue"):
                raise NoQueues(f"{file} holds no queues; publish to one first")
            yield SqliteRows(connection)
        finally:
            connection.close()
    except (apsw.BusyError, apsw.CantOpenError, apsw.IOError) as problem:
        raise DatabaseUnavailable(f"{file}: {problem}") from problem
    except apsw.Error as problem:
        raise QueueError(f"{file}: {problem}") from problem


# ---- PostgreSQL --------------------------------------------------------------------------------------


class PostgresRows:
    """Rows of a PostgreSQL database."""

    def __init__(self, connection: Connection) -> None:
        self.dialect = PostgresDialect()
        self._connection = connection

    def batches(
        self, text: str, params: Sequence[SqlValue], names: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        with self._connection.cursor() as cursor:
            cursor.execute(text, parameters=list(params) or None)
            for batch in cursor.fetch_record_batch():
                arrays = [_storage_array(array) for array in batch.columns]
                yield pa.RecordBatch.from_arrays(arrays, names=list(names))


def _storage_array(array: pa.Array) -> pa.Array:
    """The array without its extension type: ADBC has one for JSON, which is text here."""
    return array.storage if isinstance(array, pa.ExtensionArray) else array


@contextmanager
def postgres_rows(url: str) -> Iterator[PostgresRows]:
    """Connect to a PostgreSQL database, with the URL's schema as search path."""
    manager, connect = _load_driver()
    target = postgres_target(url)
    try:
        connection = connect(target.url, autocommit=True)
    except manager.Error as problem:
        raise DatabaseUnavailable(
            f"PostgreSQL cannot be reached: {_server_message(problem)}"
        ) from problem
    try:
        with connection:
            _configure(connection, target)
            yield PostgresRows(connection)
    except manager.Error as problem:
        raise _translate_error(problem, target) from problem


def _load_driver() -> tuple[Any, Any]:
    try:
        import adbc_driver_manager
        from adbc_driver_postgresql.dbapi import connect
    except ImportError as missing:
        raise MissingExtra("spark", "reading a queue on PostgreSQL with Spark") from missing
    return adbc_driver_manager, connect


def _configure(connection: Connection, target: PostgresTarget) -> None:
    """Set the settings that connections of queues have: indexes are read in order, whatever the statistics say."""
    settings = {"search_path": target.search_path, **SESSION}
    numbers = range(1, 2 * len(settings), 2)
    calls = ", ".join(f"set_config(${n}, ${n + 1}, false)" for n in numbers)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {calls}", parameters=[text for pair in settings.items() for text in pair]
        )
        cursor.fetchall()


def _translate_error(problem: Any, target: PostgresTarget) -> HeadgateError:
    """Translate the driver's error to one of Headgate."""
    if problem.sqlstate in _NO_TABLES:
        return NoQueues(
            f"the database holds no queues in schema {target.schema!r}; publish to one first, or name the "
            "schema in the URL: postgresql://host/database?schema=name"
        )
    if problem.sqlstate == _NOT_ALLOWED:
        return QueueOptionsError(
            f"the role may not read here: {_server_message(problem)}; it needs USAGE on schema {target.schema!r} and "
            "SELECT on its tables"
        )
    return QueueError(f"PostgreSQL refuses: {_server_message(problem)}")


def _server_message(problem: Exception) -> str:
    """The server's message, without the driver's text around it."""
    return str(problem).removeprefix("IO: [libpq] ").partition("\n\nQuery was:")[0].strip()
