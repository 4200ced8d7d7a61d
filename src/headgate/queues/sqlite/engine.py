"""The SQLite engine: several threads and processes on one file, one writer at a time, nobody sees it locked."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import finalize

import apsw

from headgate.clock import Clock, first_offset
from headgate.errors import (
    DatabaseClosed,
    DatabaseFull,
    DatabaseNotFound,
    DatabaseUnavailable,
    HeadgateError,
    QueueError,
    QueueOptionsError,
    SchemaTooNew,
)
from headgate.forks import call_before_fork, call_in_child, call_in_parent
from headgate.queues.engine import (
    Access,
    CommitWatch,
    Each,
    Notify,
    Operation,
    Publication,
    QueueInfo,
    Rows,
    SqlValue,
    Statement,
    Step,
    Transaction,
    Wake,
)
from headgate.queues.sql.records import Undecodable
from headgate.queues.sql.statements import check_version, migrations_of, statements_of
from headgate.queues.sqlite.files import open_file
from headgate.queues.sqlite.forks import note_inherited, refuse_inherited
from headgate.queues.sqlite.guard import check_free, keep_others_out, let_others_in
from headgate.queues.sqlite.operations import SqliteDialect, SqliteOperations
from headgate.queues.sqlite.watch import Watcher
from headgate.queues.wakers import Wakers

T = TypeVar("T")

PATIENCE_S: Final = 60.0  # how long to wait for another process's write transaction
_LASTING: Final = ("FULL", "EXTRA")  # where a commit waits for the disk
_READING: Final = ("SELECT", "EXPLAIN", "WITH")
_LONGEST_LOG: Final = 16_000_000  # bytes that the WAL may keep once it could be emptied
_NOBODY: Final[frozenset[int]] = frozenset()
_PUBLISH_ONE: Final = statements_of("sqlite")["publish_one"]
_LAST_START: Final = "SELECT max(offset_us) FROM headgate_clock"
# Publishers may stamp their messages with any time; hardly all of the last thousand with one to come. What they have
# together with their deliveries bounds it: a delivery is due at once or later.
_LATELY: Final = """
SELECT min(min(m.timestamp, d.visible_at)) FROM (
    SELECT message, visible_at FROM headgate_delivery ORDER BY message DESC LIMIT 1000) d
JOIN headgate_message m ON m.id = d.message
"""
_OFFSET: Final = "SELECT offset_us FROM headgate_clock WHERE boot_id = ?"


class SqliteEngine:
    """A database file. Each operation has a connection to itself; writers of one process stand in line."""

    def __init__(
        self,
        path: Path | str,
        *,
        synchronous: str = "FULL",
        clock: Clock | None = None,
        access: Access = "create",
    ) -> None:
        self.path, self._synchronous, self._access = Path(path), synchronous, access
        self._clock = clock or Clock()
        self._idle: list[_Connection] = []
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._closed = False
        self._wakers = Wakers()
        self._watcher: Watcher | None = None
        self._watched = False  # by a watcher that was closed for a fork
        self._dialect = SqliteDialect(self._clock)
        self.operations = SqliteOperations(self._dialect)
        self._dialect.looks_only = access == "look"
        check_free(self.path)
        with _our_errors(self.path):
            if access != "create":
                _check_tables(self.path, access)
            connection = self._open()
            self._let_others_in = finalize(self, let_others_in, keep_others_out(self.path))
            if access != "look":
                migrate(connection)
            self._dialect.offset_us = _offset(connection, self._clock, keep=access != "look")
        self._give_back(self._ready(connection))
        call_before_fork(self, SqliteEngine._close_before_fork)
        call_in_parent(self, SqliteEngine._watch_again)
        call_in_child(self, SqliteEngine._start_over)

    def run(self, operation: Operation[T]) -> T:
        connection = self._borrow()
        try:
            return connection.run(operation)
        except (apsw.Error, OverflowError) as problem:
            raise _ours(problem, self.path) from problem
        finally:
            self._give_back(connection)

    def publish_one(self, queue: QueueInfo, publication: Publication) -> int:
        """In a single statement, where that is enough: for one message, the steps of an operation cost too much."""
        row = self.operations.row_of_one(queue, publication)
        if row is not None:
            connection = self._borrow()
            try:
                with self._writing:
                    id = connection.insert_one(row)
                self._wakers.wake(frozenset((queue.id,)))
                return id
            except _CatalogChanged:
                pass
            except (apsw.Error, OverflowError) as problem:
                raise _ours(problem, self.path) from problem
            finally:
                self._give_back(connection)
        [id] = self.run(self.operations.publish(queue, [publication]))
        return id

    def watch(self, wake: Wake) -> CommitWatch:
        with self._lock:
            if self._closed:
                raise _closed(self.path)
            if self._watcher is None:
                self._watcher = Watcher(self.path, self._open, self._wakers)
        return self._wakers.add(wake)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.close()
        self._close_idle()
        self._let_others_in()

    # -- fork, see sqlite_forks --

    def _close_before_fork(self) -> None:
        with self._lock:
            watcher, self._watcher = self._watcher, None
            self._watched = watcher is not None
        if watcher is not None:
            watcher.close()
        self._close_idle()

    def _watch_again(self) -> None:
        with self._lock:
            if self._watched and self._watcher is None and not self._closed:
                self._watcher = Watcher(self.path, self._open, self._wakers)
        if self._watched:
            self._wakers.wake(None)  # for what nobody watched meanwhile

    def _start_over(self) -> None:
        """In a forked child: with connections of its own, and nobody of the parent's to wake."""
        self._idle, self._wakers = [], Wakers()
        self._lock, self._writing = threading.Lock(), threading.Lock()
        note_inherited(self.path)

    def _borrow(self) -> _Connection:
        """A connection that nobody else uses meanwhile."""
        if self._closed:
            raise _closed(self.path)
        try:
            return self._idle.pop()
        except IndexError:
            return self._ready(self._open())

    def _ready(self, connection: apsw.Connection) -> _Connection:
        return _Connection(connection, self._writing, self._wakers, self._synchronous)

    def _give_back(self, connection: _Connection) -> None:
        if not connection.is_clean():  # closing rolls back
            connection.close()
            return
        self._idle.append(connection)
        if self._closed:  # meanwhile
            self._close_idle()

    def _close_idle(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _open(self) -> apsw.Connection:
        refuse_inherited(self.path)
        with _our_errors(self.path):
            connection = open_file(self.path, self._access)
            # Plans must not depend on values: else each new value has its statement prepared again.
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
            connection.set_busy_handler(_waiting())
            if self._access == "look":
                return connection
            _patiently(lambda: connection.pragma("journal_mode", "wal"))
            connection.pragma("synchronous", self._synchronous)
            connection.pragma("journal_size_limit", _LONGEST_LOG)
            return connection


class _CatalogChanged(Exception):
    """What was to be stored by a remembered catalog is not."""


class _Connection:
    """A connection that runs one operation after the other."""

    def __init__(
        self,
        connection: apsw.Connection,
        writing: threading.Lock,
        wakers: Wakers,
        synchronous: str,
    ) -> None:
        self._connection, self._synchronous = connection, synchronous
        self._cursor = connection.cursor()
        connection.create_scalar_function("noted", self._note, 1)
        self._noted = 0
        self._writing, self._wakers = writing, wakers
        self._busy = self._hurries = False
        self._notified = self._announced = _NOBODY

    def run(self, operation: Operation[T]) -> T:
        self._busy = True
        try:
            result = self._to_end(operation)
            self._busy = False
            return result
        except Exception:
            self._busy = False
            raise
        finally:
            operation.close()
            if self._hurries or self._connection.in_transaction:
                self._abandon()
            if self._notified:
                notified, self._notified = self._notified, _NOBODY
                self._wakers.wake(notified)

    def insert_one(self, row: tuple[SqlValue, ...]) -> int:
        """A message with its only delivery; its id."""
        self._busy = True
        self._cursor.execute(_PUBLISH_ONE, row)
        self._busy = False
        return self._noted

    def is_clean(self) -> bool:
        """Whether the next operation finds it as it should be: this one was not interrupted, by Ctrl-C or the like."""
        return not self._busy and not self._hurries and not self._connection.in_transaction

    def close(self) -> None:
        self._connection.close(True)  # also with a statement that was interrupted

    def _note(self, *given: Any) -> int:
        """The SQL function noted(id)."""
        id: int | None = given[0]
        if id is None:
            raise _CatalogChanged
        self._noted = id
        return id

    def _to_end(self, operation: Operation[T]) -> T:
        advance = self._advance
        try:
            step = next(operation)
            while True:
                if step is Transaction.WRITE or step is Transaction.LEASE:
                    step = self._write(operation, step)
                else:
                    step = advance(operation, step)
        except StopIteration as end:
            result: T = end.value
            return result

    def _advance(self, operation: Operation[T], step: Step) -> Step:
        """Do a step, and give its rows to the operation; its next step."""
        try:
            rows = self._take(step)
        except UnicodeDecodeError as problem:  # what was read is no text; nothing else happened
            return operation.throw(Undecodable(f"a stored text is not UTF-8: {problem}"))
        return operation.send(rows)

    def _write(self, operation: Operation[T], step: Step) -> Step:
        """A write transaction, from its first step to its last; the step after it.

        The lock is held by `with` and nothing else: an interruption (Ctrl-C), whenever it comes, releases it.
        """
        with self._writing:
            try:
                while step is not Transaction.COMMIT:
                    step = self._advance(operation, step)
                self._commit()
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
        return operation.send(())

    def _abandon(self) -> None:
        """Roll back what was not committed."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        self._announced = _NOBODY
        self._slow_down()

    def _take(self, step: Step) -> Rows:
        # Asked in the order of how often they come: here every step of every operation passes.
        if isinstance(step, Statement):
            return self._execute(step.text, step.params)
        if isinstance(step, Each):
            return self._execute_each(step.text, step.rows)
        if isinstance(step, Notify):
            self._announce(step.queues)
        elif step is Transaction.COMMIT:
            self._commit()
        else:
            self._begin(step)
        return ()

    def _announce(self, queues: tuple[int, ...]) -> None:
        if self._connection.in_transaction:
            self._announced = self._announced.union(queues)
        else:
            self._notified = self._notified.union(queues)

    def _begin(self, step: Transaction) -> None:
        if step is Transaction.LEASE:
            self._hurry()
        self._connection.execute("BEGIN" if step is Transaction.READ else "BEGIN IMMEDIATE")

    def _commit(self) -> None:
        self._connection.execute("COMMIT")
        self._notified, self._announced = self._notified | self._announced, _NOBODY
        self._slow_down()

    def _hurry(self) -> None:
        """The next commit does not wait for the disk; the one after it that does takes it along."""
        if self._synchronous.upper() in _LASTING:
            self._hurries = True
            self._connection.execute("PRAGMA synchronous = NORMAL")

    def _slow_down(self) -> None:
        if self._hurries:
            self._connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            self._hurries = False

    def _execute(self, text: str, params: tuple[SqlValue, ...]) -> Rows:
        if list in map(type, params):
            params = _bound(params)
        if self._connection.in_transaction or text.startswith(_READING):
            return self._cursor.execute(text, params).fetchall()
        with self._writing:
            return self._cursor.execute(text, params).fetchall()

    def _execute_each(self, text: str, rows: tuple[tuple[SqlValue, ...], ...]) -> Rows:
        if self._connection.in_transaction:
            return self._cursor.executemany(text, rows).fetchall()
        with self._writing:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                found = self._cursor.executemany(text, rows).fetchall()
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
        return found


def _bound(params: tuple[SqlValue, ...]) -> tuple[SqlValue, ...]:
    """Lists as the JSON that the statements take apart."""
    return tuple(json.dumps(value) if isinstance(value, list) else value for value in params)


# ---- opening -------------------------------------------------------------------------------------------


def migrate(connection: apsw.Connection) -> None:
    """Bring the tables up to date; whoever comes second finds it done."""
    wanted = migrations_of("sqlite")
    if _version(connection) == wanted[-1][0]:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS headgate_migration (version INTEGER PRIMARY KEY)"
        )
        version = _version(connection)
        if version > wanted[-1][0]:
            raise SchemaTooNew(
                f"the tables are of version {version}, this Headgate knows {wanted[-1][0]}; upgrade it"
            )
        for number, text in wanted:
            if number > version:
                connection.execute(text)
                connection.execute("INSERT INTO headgate_migration VALUES (?)", (number,))
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _check_tables(path: Path, access: Access) -> None:
    """Refuse a database without queues, and to look at tables that other versions of Headgate made."""
    with closing(open_file(path, "look")) as connection:
        connection.set_busy_handler(_waiting())
        version, newest = _version(connection), migrations_of("sqlite")[-1][0]
    if not version:
        raise DatabaseNotFound(
            f"{path} holds no queues; check the URL, or make the first one: "
            f"headgate queue create NAME --db sqlite:///{path}"
        )
    if access == "look":
        check_version(version, newest, str(path))


def _version(connection: apsw.Connection) -> int:
    if not connection.table_exists("main", "headgate_migration"):
        return 0
    return _number(connection, "SELECT coalesce(max(version), 0) FROM headgate_migration") or 0


def _offset(connection: apsw.Connection, clock: Clock, *, keep: bool = True) -> int:
    """The offset everyone uses since this start of the machine; the first one who may `keep` it decides.

    Whoever held a lease before it is gone, so their leases end.
    """
    boot = clock.boot_id()
    known = _number(connection, _OFFSET, boot)
    if known is not None:
        return known
    if not keep:
        return _first_offset(connection, clock)
    connection.execute("BEGIN IMMEDIATE")
    try:
        known = _number(connection, _OFFSET, boot)
        if known is None:
            known = _first_offset(connection, clock)
            connection.execute("INSERT INTO headgate_clock VALUES (?, ?)", (boot, known))
            ended = clock.elapsed_us() + known
            connection.execute(
                "UPDATE headgate_delivery SET visible_at = ? WHERE state = 2", (ended,)
            )
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    return known


def _first_offset(connection: apsw.Connection, clock: Clock) -> int:
    """The offset for this start of the machine, by all that is known to be past."""
    past = (_number(connection, query) or 0 for query in (_LAST_START, _LATELY))
    return first_offset(clock, *past)


def _number(connection: apsw.Connection, query: str, *params: str) -> int | None:
    """The integer it finds, or None."""
    for (value,) in connection.execute(query, params).fetchall():
        assert value is None or isinstance(value, int)
        return value
    return None


# ---- waiting and failing -------------------------------------------------------------------------------


def _waiting() -> Callable[[int], bool]:
    """A busy handler: short naps of random length, so that nobody starves; gives up after a minute."""
    since = 0.0

    def nap(attempt: int) -> bool:
        nonlocal since
        if attempt == 0:
            since = time.monotonic()
        time.sleep(random.uniform(0.0002, min(0.001 * (attempt + 1), 0.01)))
        return time.monotonic() - since < PATIENCE_S

    return nap


def _patiently(act: Callable[[], object]) -> None:
    """Try again while it is busy: some pragmas never ask the busy handler."""
    nap, attempt = _waiting(), 0
    while True:
        try:
            act()
            return
        except apsw.BusyError:
            if not nap(attempt):
                raise
            attempt += 1


@contextmanager
def _our_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except apsw.Error as problem:
        raise _ours(problem, path) from problem


def _ours(problem: apsw.Error | OverflowError, path: Path) -> HeadgateError:
    """The same trouble, in the words of Headgate."""
    if isinstance(problem, OverflowError):
        return QueueOptionsError(f"{path}: a number has more than 64 bits: {problem}")
    if isinstance(problem, apsw.FullError):
        return DatabaseFull(
            f"{path}: the disk is full; what was confirmed is safe, make room and try again"
        )
    if isinstance(problem, apsw.CantOpenError):
        return DatabaseUnavailable(
            f"{path}: {problem}; is its directory there, and may it be written?"
        )
    if isinstance(problem, apsw.ReadOnlyError):
        return DatabaseUnavailable(
            f"{path}: {problem}; it was opened to look at it, or this user may not write the file or its directory"
        )
    if isinstance(problem, apsw.BusyError | apsw.LockedError | apsw.IOError):
        return DatabaseUnavailable(f"{path}: {problem}; try again")
    return QueueError(f"{path}: {problem}")


def _closed(path: Path) -> HeadgateError:
    return DatabaseClosed(f"{path} was closed; connect again")
