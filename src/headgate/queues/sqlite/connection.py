"""One apsw connection: it runs operations, waits while the file is busy, and translates errors."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import apsw

from headgate.errors import (
    DatabaseFull,
    DatabaseUnavailable,
    HeadgateError,
    QueueError,
    QueueOptionsError,
)
from headgate.queues.engine import (
    Claims,
    ForEach,
    Notify,
    Operation,
    Rows,
    SqlValue,
    Statement,
    Step,
    Transaction,
    TransactionMode,
)
from headgate.queues.sql.dialect import statements_of
from headgate.queues.sql.message_rows import Undecodable
from headgate.queues.sqlite.file import LogFile
from headgate.queues.sqlite.write_turns import WriteTurns
from headgate.queues.wakers import Wakers

T = TypeVar("T")
RunStatement: TypeAlias = Callable[[str, tuple[SqlValue, ...]], apsw.Cursor]  # runs a statement

BUSY_TIMEOUT_S: Final = 60.0  # how long to wait for another process's write transaction
# An operation of several transactions that has held the lock for so long leaves it alone for a moment: threads that wait for
# a lock, and processes that wait for a file, rarely get it from one that takes it again at once.
_LONG_S: Final = 0.005
_PAUSE_S: Final = 0.001
_READS: Final = ("SELECT", "EXPLAIN", "WITH")
_NONE: Final[frozenset[int]] = frozenset()
_PUBLISH_ONE: Final = statements_of("sqlite")["publish_one"]


class CatalogChanged(Exception):
    """The message was not stored, because its receivers were chosen by an old catalog."""


class _KeptId:
    """The SQL function keep_id(id), by which publish_one tells the id of its message.

    It does not refer to the connection: a connection that is lost, by a second interruption, must be collected and so
    closed at once, or its transaction would block all others.
    """

    def __init__(self) -> None:
        self.id = 0

    def __call__(self, *args: Any) -> int:
        id: int | None = args[0]
        if id is None:
            raise CatalogChanged
        self.id = id
        return id


class SqliteConnection:
    """Runs one operation after the other. `write_lock` and `turns` are shared by the connections of a process.

    SQLite never waits for the disk at a commit. An operation that changed anything but leases syncs the log once, at its
    end: no other connection has to wait for that, and the commits of several are synced together.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        write_lock: threading.Lock,
        turns: WriteTurns,
        wakers: Wakers,
        log: LogFile | None,
    ) -> None:
        """`log` is synced at the end of an operation; None where a confirmed change may be lost in a power cut."""
        self._connection, self._log = connection, log
        self._open_cursor()
        self._kept = _KeptId()
        connection.create_scalar_function("keep_id", self._kept, 1)
        self._write_lock, self._turns, self._wakers = write_lock, turns, wakers
        self._is_busy = False
        self._held_s = 0.0  # how long the current operation has held the lock since its last pause
        self._is_unsynced = False  # whether something was committed that has to last
        self._notified = _NONE  # queues to wake: their changes are committed
        self._announced = _NONE  # queues to wake if the current transaction commits

    def run(self, operation: Operation[T]) -> T:
        self._is_busy, self._held_s = True, 0.0
        try:
            result = self._run(operation)
            self._is_busy = False
            if self._is_unsynced:
                self._sync_log()
            return result
        except Exception:
            self._is_busy = False
            raise
        finally:
            operation.close()
            if self._connection.in_transaction:  # it was interrupted
                self._roll_back()
            if self._notified:
                notified, self._notified = self._notified, _NONE
                self._wakers.wake(notified)

    def insert_one(self, row: tuple[SqlValue, ...]) -> int:
        """Store a message with its only delivery; return its id."""
        self._is_busy = True
        with self._write_lock, self._turns:
            self._sql(_PUBLISH_ONE, row)
        id, self._is_unsynced = self._kept.id, True
        self._is_busy = False
        self._sync_log()
        return id

    def claim(
        self, claim: Callable[[RunStatement], Claims | None], mode: TransactionMode
    ) -> Claims | None:
        """Run `claim`, which runs statements, in a transaction; roll back if it returns None."""
        self._is_busy = True
        with self._write_lock, self._turns:
            try:
                self._sql("BEGIN IMMEDIATE")
                claims = claim(self._sql)
                self._sql("ROLLBACK" if claims is None else "COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._roll_back()
        self._is_unsynced |= claims is not None and mode is TransactionMode.WRITE
        self._is_busy = False
        if self._is_unsynced:
            self._sync_log()
        return claims

    def is_clean(self) -> bool:
        """Whether the next operation can use the connection: the last one was not interrupted, by Ctrl-C or the like."""
        return not (self._is_busy or self._connection.in_transaction)

    def close(self) -> None:
        self._connection.close(True)  # also with a statement that was interrupted
        if self._log is not None:
            self._log.close()

    def _open_cursor(self) -> None:
        self._cursor = self._connection.cursor()
        self._sql = self._cursor.execute

    def _run(self, operation: Operation[T]) -> T:
        """Run an operation to its end and return its result; the exception of a step is raised in the operation."""
        send = operation.send
        try:
            step = send(None)
            while True:
                try:
                    # The most frequent step first: every step of every operation comes here.
                    if isinstance(step, Statement):
                        reply: Any = self._execute(*step)
                    else:
                        reply = self._take(step)
                # A text of a row could not be decoded; the statements before that row have run.
                except UnicodeDecodeError as problem:
                    self._open_cursor()  # the old one must run the rest of its statements first
                    error = Undecodable(f"a stored text is not UTF-8: {problem}")
                    step = operation.throw(error)
                except Exception as problem:
                    step = operation.throw(problem)
                else:
                    step = send(reply)
        except StopIteration as end:
            result: T = end.value
            return result

    def _take(self, step: Step) -> Any:
        if isinstance(step, Transaction):
            return self._run_transaction(*step)
        if isinstance(step, ForEach):
            return self._execute_each(*step)
        if isinstance(step, Notify):
            if self._connection.in_transaction:
                self._announced = self._announced.union(step.queues)
            else:
                self._notified = self._notified.union(step.queues)
        return ()

    def _run_transaction(self, mode: TransactionMode, body: Callable[[], Operation[T]]) -> T:
        """Run the body in a transaction. A write transaction holds the lock by `with`, so that an interruption releases it."""
        if mode is TransactionMode.READ:
            return self._run_between("BEGIN", body)
        if self._held_s > _LONG_S:
            time.sleep(_PAUSE_S)
            self._held_s = 0.0
        with self._write_lock, self._turns:
            began = time.perf_counter()
            result = self._run_between("BEGIN IMMEDIATE", body)
            self._held_s += time.perf_counter() - began
        # Also when nothing was changed: it may have found a message stored whose publisher still waits for the disk.
        self._is_unsynced |= mode is TransactionMode.WRITE
        return result

    def _run_between(self, begin: str, body: Callable[[], Operation[T]]) -> T:
        try:
            self._sql(begin)
            result = self._run(body())
            self._sql("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._roll_back()
        if self._announced:
            self._notified, self._announced = self._notified | self._announced, _NONE
        return result

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        self._announced = _NONE

    def _execute(self, text: str, params: tuple[SqlValue, ...]) -> Rows:
        if list in map(type, params):
            params = _lists_as_json(params)
        if self._connection.in_transaction or text.startswith(_READS):
            return self._sql(text, params).fetchall()
        with self._write_lock, self._turns:
            before = self._connection.total_changes()
            found = self._sql(text, params).fetchall()
            self._is_unsynced |= self._connection.total_changes() != before
            return found

    def _execute_each(self, text: str, rows: tuple[tuple[SqlValue, ...], ...]) -> Rows:
        if self._connection.in_transaction:
            return self._cursor.executemany(text, rows).fetchall()
        if len(rows) == 1:
            return self._execute(text, rows[0])
        with self._write_lock, self._turns:
            try:
                self._sql("BEGIN IMMEDIATE")
                found = self._cursor.executemany(text, rows).fetchall()
                self._sql("COMMIT")
            finally:
                self._roll_back()
        self._is_unsynced = True
        return found

    def _sync_log(self) -> None:
        """Wait until everything that this connection has committed is on disk."""
        if self._log is not None:
            self._log.sync(self._connection)
        self._is_unsynced = False


def _lists_as_json(params: tuple[SqlValue, ...]) -> tuple[SqlValue, ...]:
    """The parameters with each list as JSON text, which the statements read by json_each."""
    return tuple(json.dumps(value) if isinstance(value, list) else value for value in params)


# ---- a busy file ---------------------------------------------------------------------------------------


def busy_handler() -> Callable[[int], bool]:
    """A busy handler that sleeps for random times, for a minute at most.

    Each sleep is several times as long as a commit, so that waiting connections do not hold up the one that writes; and
    random, so that no process starves.
    """
    since = 0.0

    def sleep(attempt: int) -> bool:
        nonlocal since
        if attempt == 0:
            since = time.monotonic()
        time.sleep(random.uniform(0.0003, min(0.001 + 0.0001 * attempt, 0.01)))
        return time.monotonic() - since < BUSY_TIMEOUT_S

    return sleep


def retry_while_busy(act: Callable[[], object]) -> None:
    """Try again while the file is busy: some pragmas do not call the busy handler."""
    sleep, attempt = busy_handler(), 0
    while True:
        try:
            act()
            return
        except apsw.BusyError:
            if not sleep(attempt):
                raise
            attempt += 1


# ---- errors --------------------------------------------------------------------------------------------


TRANSLATED: Final = (apsw.Error, OverflowError)


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Raise Headgate's errors instead of apsw's."""
    try:
        yield
    except TRANSLATED as problem:
        raise translate(problem, path) from problem


def translate(problem: apsw.Error | OverflowError, path: Path) -> HeadgateError:
    """Return Headgate's error for an error of apsw."""
    if isinstance(problem, OverflowError):
        return QueueOptionsError(f"{path}: a number has more than 64 bits: {problem}")
    if isinstance(problem, apsw.FullError):
        return DatabaseFull(
            f"{path}: the disk is full; confirmed messages are safe; free some space and try again"
        )
    if isinstance(problem, apsw.CantOpenError):
        return DatabaseUnavailable(
            f"{path}: {problem}; check that its directory exists and can be written"
        )
    if isinstance(problem, apsw.ReadOnlyError):
        return DatabaseUnavailable(
            f"{path}: {problem}; it was opened with access='look', or this user may not write the file or its directory"
        )
    if isinstance(problem, apsw.BusyError | apsw.LockedError | apsw.IOError):
        return DatabaseUnavailable(f"{path}: {problem}; try again")
    return QueueError(f"{path}: {problem}")
