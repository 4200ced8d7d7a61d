"""Connections to PostgreSQL: how they are set up, kept for the next operation, and what their errors mean."""

from __future__ import annotations

import select
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, NamedTuple, assert_never
from weakref import WeakSet

from headgate.errors import (
    DatabaseClosed,
    DatabaseFull,
    DatabaseUnavailable,
    MissingExtra,
    QueueError,
    QueueOptionsError,
)
from headgate.forks import call_in_child, keep_for_ever
from headgate.queues.engine import Each, Notify, Statement, Step, Transaction
from headgate.queues.postgres.target import Target

if TYPE_CHECKING:
    import psycopg

    from headgate.queues.postgres.cursors import AsyncKeepingConnection, KeepingConnection

# Claims must read the queue's indexes in order and stop early. The planner, guessing from statistics that lag behind
# a queue's churn, would now and then rather sort or read everything: these connections are ours alone, so we
# may forbid it. A statement is planned once, for all values: planning a claim takes longer than a claim, and left to
# itself, PostgreSQL plans each of them again once it has seen the queue nearly empty.
SESSION: Final = {
    "application_name": "headgate",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    # Where a role begins with another level, claims that meet would fail instead of passing each other by.
    "default_transaction_isolation": "read committed",
    "plan_cache_mode": "force_generic_plan",
}
_LOST_S: Final = 0.1  # after which a connection that nobody returned is noticed
_TRANSACTIONS: Final = {
    Transaction.READ: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    Transaction.WRITE: "BEGIN",
    Transaction.LEASE: "BEGIN; SET LOCAL synchronous_commit = off",
    Transaction.COMMIT: "COMMIT",
}


_BACKEND: Final = "SELECT pg_backend_pid()"
_KEEPALIVES: Final = {
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}


class Loan:
    """That somebody has a connection."""


class Conflict(QueueError):
    """Another transaction was faster; the operation was rolled back and may be tried again."""


class Query(NamedTuple):
    """A step, as psycopg takes it. Without parameters it may be a script of several statements."""

    text: str
    params: tuple[Any, ...] = ()


def query_of(step: Step) -> Query | None:
    """None when there is nothing to ask."""
    match step:
        case Statement(text=text, params=params):
            return Query(text, params)
        case Each(text=text, rows=rows):
            return Query(text, tuple(map(list, zip(*rows, strict=True)))) if rows else None
        case Transaction():
            return Query(_TRANSACTIONS[step])
        case Notify():
            return None  # the statements themselves notify, in their own transaction
        case _:
            assert_never(step)


def psycopg_module() -> Any:
    """psycopg, or the pip line that installs it."""
    try:
        import psycopg
    except ImportError as missing:
        raise MissingExtra("postgres", "a queue on PostgreSQL") from missing
    return psycopg


def open_connection(target: Target, settings: dict[str, str] = SESSION) -> KeepingConnection:
    """An autocommit connection whose names are looked up in the target's schema first."""
    module = psycopg_module()
    from headgate.queues.postgres.cursors import KeepingConnection

    with translated(None):
        connection = KeepingConnection.connect(
            target.url,
            autocommit=True,
            cursor_factory=module.RawCursor,
            **keepalives(target.url),
        )
        try:
            [(pid,)] = connection.execute(_BACKEND, prepare=False).fetchall()
            check_pooler(target, connection.info.backend_pid, pid)
            connection.execute(*set_up(target, settings), prepare=False)
        except BaseException:
            connection.close()
            raise
    prepare(connection)
    return connection


async def open_async_connection(
    target: Target, settings: dict[str, str] = SESSION
) -> AsyncKeepingConnection:
    """The same, awaited."""
    module = psycopg_module()
    from headgate.queues.postgres.cursors import AsyncKeepingConnection

    with translated(None):
        connection = await AsyncKeepingConnection.connect(
            target.url,
            autocommit=True,
            cursor_factory=module.AsyncRawCursor,
            **keepalives(target.url),
        )
        try:
            [(pid,)] = await (await connection.execute(_BACKEND, prepare=False)).fetchall()
            check_pooler(target, connection.info.backend_pid, pid)
            await connection.execute(*set_up(target, settings), prepare=False)
        except BaseException:
            await connection.close()
            raise
    prepare(connection)
    return connection


def keepalives(url: str) -> dict[str, Any]:
    """What finds out that the other end is gone within a minute or so, where the URL does not say otherwise: nobody
    reads for ever from a connection that a firewall or a crash cut."""
    given = psycopg_module().conninfo.conninfo_to_dict(url)
    return {name: value for name, value in _KEEPALIVES.items() if name not in given}


def check_pooler(target: Target, told_pid: int, pid: int) -> None:
    """Refuse a pooler that gives statements of one client to different server connections, before anything is set there:
    our settings would stay behind in other applications' sessions, and our prepared statements and notifications be lost.

    Directly connected, the server told us the process it answers from.
    """
    if told_pid == pid or target.has_session_pooler:
        return
    raise QueueOptionsError(
        "there is a connection pooler such as PgBouncer between Headgate and PostgreSQL. In transaction or statement mode "
        "it cannot be used: connect to the server itself, or to a pool in session mode, and say so with ?pooler=session "
        "in the URL. Headgate keeps a pool of its own, see most_connections"
    )


def set_up(target: Target, settings: dict[str, str]) -> tuple[str, tuple[Any, ...]]:
    """The statement that makes a connection ours."""
    named = {"search_path": target.search_path, **settings}
    text = "SELECT set_config(n, v, false) FROM unnest($1::text[], $2::text[]) AS s (n, v)"
    return text, (list(named), list(named.values()))


def prepare(connection: psycopg.Connection | psycopg.AsyncConnection) -> None:
    """Every statement is prepared the first time, and ints are always int8, so that one plan serves all values.

    JSON stays text: who reads it knows what to do with it.
    """
    from psycopg.types.numeric import Int8BinaryDumper
    from psycopg.types.string import TextLoader

    from headgate.queues.postgres.arrays import ListDumper

    class JsonbText(TextLoader):
        """In its binary form a version stands before the text."""

        format = psycopg_module().pq.Format.BINARY

        def load(self, data: Any) -> str | bytes:
            return bytes(data[1:]).decode()

    adapters = connection.adapters
    adapters.register_dumper(int, Int8BinaryDumper)
    adapters.register_dumper(list, ListDumper)
    adapters.register_loader("jsonb", TextLoader)
    adapters.register_loader("jsonb", JsonbText)
    connection.prepare_threshold = 0


@contextmanager
def translated(
    connection: psycopg.Connection | psycopg.AsyncConnection | None,
) -> Iterator[None]:
    """psycopg's errors as ours."""
    psycopg = psycopg_module()
    try:
        yield
    except psycopg.errors.DiskFull as problem:
        raise DatabaseFull(
            f"PostgreSQL has no room left ({problem}); nothing of this was stored: make room and try again"
        ) from problem
    except (
        psycopg.errors.UniqueViolation,
        psycopg.errors.SerializationFailure,
        psycopg.errors.DeadlockDetected,
    ) as problem:
        raise Conflict(f"another transaction was faster: {problem}") from problem
    except psycopg.errors.InsufficientPrivilege as problem:
        raise QueueOptionsError(
            f"the role may not do this: {str(problem).strip()}; to make the tables it needs CREATE on the database once, "
            "or a schema of its own; to use them, what another role that made them GRANTs it"
        ) from problem
    except (psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable) as problem:
        raise DatabaseUnavailable(
            f"PostgreSQL ended the statement: {str(problem).strip()}; nothing of it was done, and it may be tried again; "
            "see statement_timeout and lock_timeout of the role and the database"
        ) from problem
    except (struct.error, OverflowError) as problem:
        raise QueueOptionsError(f"a number has more than 64 bits: {problem}") from problem
    except (psycopg.OperationalError, psycopg.InterfaceError) as problem:
        lost = connection is not None and connection.closed
        known = "; whether the last statement was done is not known" if lost else ""
        raise DatabaseUnavailable(
            f"PostgreSQL cannot be reached: {str(problem).strip()}{known}"
        ) from problem
    except psycopg.Error as problem:
        raise QueueError(f"PostgreSQL refuses: {str(problem).strip()}") from problem


def is_alive(connection: psycopg.Connection | psycopg.AsyncConnection) -> bool:
    """Whether an idle connection can still be used, as far as one can tell without asking the server."""
    if connection.closed or connection.broken:
        return False
    # Nobody talks to an idle connection, except to say that it is over.
    watch = select.poll()
    watch.register(connection.fileno(), select.POLLIN)
    return not watch.poll(0)


def is_idle(connection: psycopg.Connection | psycopg.AsyncConnection) -> bool:
    """Whether it is open and has nothing under way: no statement, no transaction."""
    status = psycopg_module().pq.TransactionStatus
    return not connection.closed and connection.info.transaction_status == status.IDLE


def is_in_transaction(connection: psycopg.Connection | psycopg.AsyncConnection) -> bool:
    """Whether it can be asked to roll back: it is not in the middle of a statement."""
    status = psycopg_module().pq.TransactionStatus
    known = (status.INTRANS, status.INERROR)
    return not connection.closed and connection.info.transaction_status in known


class Pool:
    """Idle connections, the one used last first. At most `most` are lent; whoever comes later waits.

    An interruption (Ctrl-C) may come between any two lines. So what is lent is not counted but looked at: a connection
    that was lost on its way is collected, and is lent no longer.
    """

    def __init__(self, open: Callable[[], KeepingConnection], most: int) -> None:
        self._open, self._most = open, most
        self._closed = False
        self._start_empty()
        call_in_child(self, Pool._start_over)

    def _start_empty(self) -> None:
        self._idle: list[KeepingConnection] = []
        self._lent: WeakSet[Loan] = WeakSet()
        self._returns: SimpleQueue[None] = SimpleQueue()
        self._lock = threading.Lock()

    def _start_over(self) -> None:
        """In a forked child: the server knows one partner, and to close a connection here would end it there."""
        keep_for_ever(self._idle)
        self._start_empty()

    @contextmanager
    def connection(self) -> Iterator[KeepingConnection]:
        loan = self._borrow()
        try:
            connection = self._take()
            try:
                yield connection
            finally:
                self._give_back(connection)
        finally:
            self._lent.discard(loan)
            if self._returns.empty():
                self._returns.put(None)

    def _borrow(self) -> Loan:
        """Wait until one more may be lent."""
        while True:
            with self._lock:
                if len(self._lent) < self._most:
                    loan = Loan()
                    self._lent.add(loan)
                    return loan
            try:
                self._returns.get(timeout=_LOST_S)
            except Empty:
                continue

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take(self) -> KeepingConnection:
        while True:
            with self._lock:
                if self._closed:
                    raise DatabaseClosed("the database was closed; connect again")
                if not self._idle:
                    break
                connection = self._idle.pop()
            if is_alive(connection):
                return connection
            connection.close()
        return self._open()

    def _give_back(self, connection: KeepingConnection) -> None:
        with self._lock:
            if not self._closed and is_idle(connection):
                self._idle.append(connection)
                return
        connection.close()
