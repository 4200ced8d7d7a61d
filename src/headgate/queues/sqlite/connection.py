"""One apsw connection: it runs operations, waits while the file is busy, and translates errors."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import apsw

from headgate.errors import (
    DatabaseFull,
    DatabaseUnavailable,
    HeadgateError,
    QueueError,
    QueueOptionsError,
)
from headgate.queues.engine import (
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
from headgate.queues.wakers import Wakers

T = TypeVar("T")

BUSY_TIMEOUT_S: Final = 60.0  # how long to wait for another process's write transaction
_WAITS_FOR_DISK: Final = ("FULL", "EXTRA")  # levels of `synchronous`
_READS: Final = ("SELECT", "EXPLAIN", "WITH")
_NONE: Final[frozenset[int]] = frozenset()
_PUBLISH_ONE: Final = statements_of("sqlite")["publish_one"]


class CatalogChanged(Exception):
    """The message was not stored, because its receivers were chosen by an old catalog."""


class _KeptId:
    """The SQL function keep_id(id).

    It does not refer to the connection: one that is lost, by an interruption after an interruption, must be closed at once, or
    its transaction would hold up all others.
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
    """Runs one operation after the other. `write_lock` is shared by the connections of a process."""

    def __init__(
        self,
        connection: apsw.Connection,
        write_lock: threading.Lock,
        wakers: Wakers,
        synchronous: str,
    ) -> None:
        self._connection, self._synchronous = connection, synchronous
        self._waits_for_disk = synchronous.upper() in _WAITS_FOR_DISK
        self._open_cursor()
        self._kept = _KeptId()
        connection.create_scalar_function("keep_id", self._kept, 1)
        self._write_lock, self._wakers = write_lock, wakers
        self._is_busy = self._is_relaxed = False
        self._notified = _NONE  # queues to wake: their changes are committed
        self._announced = _NONE  # queues to wake if the current transaction commits

    def run(self, operation: Operation[T]) -> T:
        self._is_busy = True
        try:
            result = self._run(operation)
            self._is_busy = False
            return result
        except Exception:
            self._is_busy = False
            raise
        finally:
            operation.close()
            if self._is_relaxed or self._connection.in_transaction:  # it was interrupted
                self._roll_back()
                self._wait_for_disk_again()
            if self._notified:
                notified, self._notified = self._notified, _NONE
                self._wakers.wake(notified)

    def insert_one(self, row: tuple[SqlValue, ...]) -> int:
        """Store a message with its only delivery; return its id."""
        self._is_busy = True
        self._sql(_PUBLISH_ONE, row)
        self._is_busy = False
        return self._kept.id

    def is_clean(self) -> bool:
        """Whether the next operation can use it: the last one was not interrupted, by Ctrl-C or the like."""
        return not (self._is_busy or self._is_relaxed or self._connection.in_transaction)

    def close(self) -> None:
        self._connection.close(True)  # also with a statement that was interrupted

    def _open_cursor(self) -> None:
        self._cursor = self._connection.cursor()
        self._sql = self._cursor.execute

    def _run(self, operation: Operation[T]) -> T:
        """Run to the end; the exceptions of a step are raised in the operation."""
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
                # While rows were fetched; nothing was changed.
                except UnicodeDecodeError as problem:
                    self._open_cursor()  # the old one insists on the rest of its statements
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
        with self._write_lock:
            if mode is TransactionMode.LEASE and self._waits_for_disk:
                self._is_relaxed = True
                self._sql("PRAGMA synchronous = NORMAL")
            try:
                return self._run_between("BEGIN IMMEDIATE", body)
            finally:
                self._wait_for_disk_again()

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

    def _wait_for_disk_again(self) -> None:
        """End a LEASE transaction: later commits wait for the disk, and write what this one has not."""
        if self._is_relaxed:
            self._sql(f"PRAGMA synchronous = {self._synchronous}")
            self._is_relaxed = False

    def _execute(self, text: str, params: tuple[SqlValue, ...]) -> Rows:
        if list in map(type, params):
            params = _lists_as_json(params)
        if self._connection.in_transaction or text.startswith(_READS):
            return self._sql(text, params).fetchall()
        with self._write_lock:
            return self._sql(text, params).fetchall()

    def _execute_each(self, text: str, rows: tuple[tuple[SqlValue, ...], ...]) -> Rows:
        if self._connection.in_transaction:
            return self._cursor.executemany(text, rows).fetchall()
        if len(rows) == 1:
            return self._execute(text, rows[0])
        with self._write_lock:
            try:
                self._sql("BEGIN IMMEDIATE")
                found = self._cursor.executemany(text, rows).fetchall()
                self._sql("COMMIT")
            finally:
                self._roll_back()
        return found


def _lists_as_json(params: tuple[SqlValue, ...]) -> tuple[SqlValue, ...]:
    """Lists as JSON, which the statements read by json_each."""
    return tuple(json.dumps(value) if isinstance(value, list) else value for value in params)


# ---- a busy file ---------------------------------------------------------------------------------------


def busy_handler() -> Callable[[int], bool]:
    """A busy handler that sleeps for random times, for a minute at most.

    They are short at first, about as long as a commit, so that the file is seldom free while all wait; and random, so that
    no process starves.
    """
    since = 0.0

    def sleep(attempt: int) -> bool:
        nonlocal since
        if attempt == 0:
            since = time.monotonic()
        time.sleep(random.uniform(0.0001, min(0.0003 + 0.00003 * attempt, 0.01)))
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
