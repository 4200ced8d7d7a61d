"""Connections to PostgreSQL: how they are opened, how they run a query, and what their errors mean.

A connection keeps a cursor for each statement. A cursor of psycopg learns with its first statement how to convert values,
and forgets it with the next different text: with new cursors the client needs a quarter more time.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeAlias, assert_never

from headgate.errors import (
    DatabaseFull,
    DatabaseUnavailable,
    HeadgateError,
    MissingExtra,
    QueueError,
    QueueOptionsError,
)

try:
    import psycopg
    from psycopg import errors, pq
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.rows import TupleRow
except ImportError as missing:
    raise MissingExtra("postgres", "a queue on PostgreSQL") from missing

from headgate.queues.database_url import PostgresTarget
from headgate.queues.engine import (
    ForEach,
    Notify,
    Statement,
    TransactionConflict,
    TransactionMode,
)
from headgate.queues.postgres.adapters import register_adapters
from headgate.queues.postgres.dialect import SESSION

_MOST_CURSORS: Final = 64
_BACKEND: Final = "SELECT pg_backend_pid()"
_KEEPALIVES: Final = {
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
# Between two attempts to connect to a server that has too many to accept: about eight seconds in all.
_PAUSES_S: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 3.0)


class PostgresQuery(NamedTuple):
    """A step as psycopg runs it. Without parameters it may consist of several statements."""

    text: str
    params: tuple[Any, ...] = ()


BEGIN: Final = {
    TransactionMode.READ: PostgresQuery("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),
    TransactionMode.WRITE: PostgresQuery("BEGIN"),
    TransactionMode.LEASE: PostgresQuery("BEGIN; SET LOCAL synchronous_commit = off"),
}
COMMIT: Final = PostgresQuery("COMMIT")
ROLLBACK: Final = PostgresQuery("ROLLBACK")


def query_of(step: Statement | ForEach | Notify) -> PostgresQuery | None:
    """The query of a step; None when there is nothing to run."""
    match step:
        case Statement(text=text, params=params):
            return PostgresQuery(text, params)
        case ForEach(text=text, rows=rows):
            columns = tuple(map(list, zip(*rows, strict=True)))
            return PostgresQuery(text, columns) if rows else None
        case Notify():
            return None  # the statements notify by themselves, in their transaction
        case _:
            assert_never(step)


# ---- running queries -----------------------------------------------------------------------------------


class CursorCache(dict[str, tuple[str, Any]]):
    """The cursors of one connection by the text of their statement: that text object, and the cursor."""

    def find(self, text: str, connection: Any) -> tuple[str, Any]:
        found = self.get(text)
        if found is None:
            if len(self) >= _MOST_CURSORS:
                self.clear()
            cursor = connection.cursor()
            cursor.format = pq.Format.BINARY
            found = self[text] = (text, cursor)
        return found


class PostgresConnection(psycopg.Connection[TupleRow]):
    """A connection that keeps a cursor for each statement."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._cursors = CursorCache()

    def ask(self, query: PostgresQuery) -> list[TupleRow]:
        """The rows of the query; an empty list for one that returns none."""
        if not query.params:
            cursor = self.execute(query.text, prepare=False)
            return cursor.fetchall() if cursor.description is not None else []
        text, cursor = self._cursors.find(query.text, self)
        cursor.execute(text, query.params)
        rows: list[TupleRow] = cursor.fetchall() if cursor.pgresult.nfields else []
        cursor.pgresult.clear()
        return rows

    def close(self) -> None:
        self._cursors.clear()
        super().close()


class AsyncPostgresConnection(psycopg.AsyncConnection[TupleRow]):
    """An asyncio connection that keeps a cursor for each statement."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._cursors = CursorCache()

    async def ask(self, query: PostgresQuery) -> list[TupleRow]:
        """The rows of the query; an empty list for one that returns none."""
        if not query.params:
            cursor = await self.execute(query.text, prepare=False)
            return await cursor.fetchall() if cursor.description is not None else []
        text, cursor = self._cursors.find(query.text, self)
        await cursor.execute(text, query.params)
        rows: list[TupleRow] = await cursor.fetchall() if cursor.pgresult.nfields else []
        cursor.pgresult.clear()
        return rows

    async def close(self) -> None:
        self._cursors.clear()
        await super().close()


AnyConnection: TypeAlias = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]


def is_alive(connection: AnyConnection) -> bool:
    """Whether an idle connection can still be used, as far as one can tell without a query."""
    if connection.closed or connection.broken:
        return False
    # The server sends nothing to an idle connection, except that it ends it.
    readable = select.poll()
    readable.register(connection.fileno(), select.POLLIN)
    return not readable.poll(0)


def is_idle(connection: AnyConnection) -> bool:
    """Whether it is open and runs neither a statement nor a transaction."""
    return not connection.closed and (
        connection.pgconn.transaction_status == pq.TransactionStatus.IDLE
    )


def is_in_transaction(connection: AnyConnection) -> bool:
    """Whether it can roll back: it is in a transaction, and no statement is running."""
    known = (pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR)
    return not connection.closed and connection.pgconn.transaction_status in known


# ---- opening -------------------------------------------------------------------------------------------


def open_connection(
    target: PostgresTarget, settings: dict[str, str] = SESSION
) -> PostgresConnection:
    """An autocommit connection that finds names in the target's schema first."""
    with translate_errors():
        connection = _connect(target)
        try:
            [(pid,)] = connection.execute(_BACKEND, prepare=False).fetchall()
            check_pooler(target, connection.info.backend_pid, pid)
            connection.execute(*_apply(target, settings), prepare=False)
        except BaseException:
            connection.close()
            raise
    register_adapters(connection)
    return connection


async def open_async_connection(
    target: PostgresTarget, settings: dict[str, str] = SESSION
) -> AsyncPostgresConnection:
    """An asyncio connection in autocommit that finds names in the target's schema first."""
    with translate_errors():
        connection = await _connect_async(target)
        try:
            [(pid,)] = await (await connection.execute(_BACKEND, prepare=False)).fetchall()
            check_pooler(target, connection.info.backend_pid, pid)
            await connection.execute(*_apply(target, settings), prepare=False)
        except BaseException:
            await connection.close()
            raise
    register_adapters(connection)
    return connection


def _connect(target: PostgresTarget) -> PostgresConnection:
    options = {"cursor_factory": psycopg.RawCursor, **keepalives(target.url)}
    for pause in _PAUSES_S:
        try:
            return PostgresConnection.connect(target.url, autocommit=True, **options)
        except psycopg.OperationalError as problem:
            if not is_crowded(problem):
                raise
        time.sleep(pause)
    return PostgresConnection.connect(target.url, autocommit=True, **options)


async def _connect_async(target: PostgresTarget) -> AsyncPostgresConnection:
    options = {"cursor_factory": psycopg.AsyncRawCursor, **keepalives(target.url)}
    for pause in _PAUSES_S:
        try:
            return await AsyncPostgresConnection.connect(target.url, autocommit=True, **options)
        except psycopg.OperationalError as problem:
            if not is_crowded(problem):
                raise
        await asyncio.sleep(pause)
    return await AsyncPostgresConnection.connect(target.url, autocommit=True, **options)


def is_crowded(problem: psycopg.OperationalError) -> bool:
    """Whether the server's backlog of waiting clients is full: over a Unix socket, the next client is refused at once."""
    return os.strerror(errno.EAGAIN) in str(problem)


def keepalives(url: str) -> dict[str, Any]:
    """Options, where the URL does not set them, that end a connection cut by a firewall or a crash in about a minute."""
    given = conninfo_to_dict(url)
    return {name: value for name, value in _KEEPALIVES.items() if name not in given}


def check_pooler(target: PostgresTarget, told_pid: int, pid: int) -> None:
    """Refuse a pooler that sends statements of one client to different server connections.

    Our settings would stay in the sessions of other applications, and our prepared statements and notifications would be
    lost. Without a pooler, the process id that the server tells at the start is that of the session that answers.
    """
    if told_pid == pid or target.has_session_pooler:
        return
    raise QueueOptionsError(
        "there is a connection pooler such as PgBouncer between Headgate and PostgreSQL. In transaction or statement mode "
        "it cannot be used: connect to the server itself, or to a pool in session mode, and say so with ?pooler=session "
        "in the URL. Headgate keeps a pool of its own, see most_connections"
    )


def _apply(target: PostgresTarget, settings: dict[str, str]) -> tuple[str, tuple[Any, ...]]:
    """The statement that applies the settings to a session."""
    named = {"search_path": target.search_path, **settings}
    text = "SELECT set_config(n, v, false) FROM unnest($1::text[], $2::text[]) AS s (n, v)"
    return text, (list(named), list(named.values()))


# ---- errors --------------------------------------------------------------------------------------------

TRANSLATED: Final = (psycopg.Error, struct.error, OverflowError)


@contextmanager
def translate_errors(connection: AnyConnection | None = None) -> Iterator[None]:
    """Raise Headgate's errors instead of psycopg's."""
    try:
        yield
    except TRANSLATED as problem:
        raise translate(problem, connection) from problem


def translate(problem: Exception, connection: AnyConnection | None = None) -> HeadgateError:
    """Return Headgate's error for an error of psycopg."""
    text = str(problem).strip()
    match problem:
        case errors.DiskFull():
            return DatabaseFull(
                f"PostgreSQL has no space left ({text}); nothing was stored: free some space and try again"
            )
        case errors.UniqueViolation() | errors.SerializationFailure() | errors.DeadlockDetected():
            return TransactionConflict(f"conflict with another transaction: {text}")
        case errors.InsufficientPrivilege():
            return QueueOptionsError(
                f"the role may not do this: {text}; to create the tables it needs CREATE on the database once, "
                "or a schema of its own; to use the tables of another role it needs that role's GRANT"
            )
        case errors.QueryCanceled() | errors.LockNotAvailable():
            return DatabaseUnavailable(
                f"PostgreSQL canceled the statement: {text}; nothing was changed, and it may be tried again; "
                "see statement_timeout and lock_timeout of the role and the database"
            )
        case struct.error() | OverflowError():
            return QueueOptionsError(f"a number has more than 64 bits: {text}")
        case psycopg.OperationalError() | psycopg.InterfaceError():
            is_lost = connection is not None and connection.closed
            doubt = "; whether the last statement was executed is not known" if is_lost else ""
            return DatabaseUnavailable(f"PostgreSQL cannot be reached: {text}{doubt}")
        case _:
            return QueueError(f"PostgreSQL refuses: {text}")
