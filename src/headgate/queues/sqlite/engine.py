"""The SQLite engine: several threads and processes use one file, and one of them writes at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar
from weakref import finalize

import apsw

from headgate.clock import Clock
from headgate.errors import DatabaseClosed, HeadgateError
from headgate.filters import Filter
from headgate.forks import call_before_fork, call_in_child, call_in_parent
from headgate.queues.engine import (
    Access,
    ClaimRequest,
    Claims,
    CommitWatch,
    Operation,
    Publication,
    QueueInfo,
    Receipt,
    Wake,
)
from headgate.queues.sql.catalog import CatalogCache
from headgate.queues.sql.claim import claim_mode
from headgate.queues.sqlite.connection import (
    TRANSLATED,
    CatalogChanged,
    SqliteConnection,
    busy_handler,
    retry_while_busy,
    translate,
    translate_errors,
)
from headgate.queues.sqlite.dialect import SqliteDialect
from headgate.queues.sqlite.file import (
    check_free,
    lock_out_sqlite3,
    log_to_sync,
    note_inherited,
    open_file,
    readmit_sqlite3,
    refuse_inherited,
)
from headgate.queues.sqlite.operations import SqliteClaimer, SqlitePublisher, sqlite_operations
from headgate.queues.sqlite.schema import check_tables, clock_offset, migrate
from headgate.queues.sqlite.watch import Watcher
from headgate.queues.sqlite.write_turns import WriteTurns
from headgate.queues.wakers import Waiter, Wakers

T = TypeVar("T")

_LONGEST_LOG: Final = 16_000_000  # bytes of the WAL that are kept after a checkpoint


class SqliteEngine:
    """The queues in one database file. Each operation has a connection to itself; the writers of one process share a lock."""

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
        self._idle: list[SqliteConnection] = []
        self._lock, self._write_lock = threading.Lock(), threading.Lock()
        self._turns = WriteTurns(self.path)
        self._closed = False
        self._wakers = Wakers()
        self._watcher: Watcher | None = None
        self._was_watching = False  # before a fork
        dialect = SqliteDialect(self._clock)
        dialect.is_read_only = access == "look"
        catalog = CatalogCache(dialect)
        self._publisher = SqlitePublisher(dialect, catalog)
        self.operations = sqlite_operations(dialect, catalog, self._publisher)
        claimer = self.operations.claimer
        assert isinstance(claimer, SqliteClaimer)
        self._claimer = claimer
        dialect.offset_us = self._open_first()
        finalize(self, self._turns.close).atexit = False
        call_before_fork(self, SqliteEngine._close_before_fork)
        call_in_parent(self, SqliteEngine._watch_again)
        call_in_child(self, SqliteEngine._start_over)

    def _open_first(self) -> int:
        """Open the file, migrate its tables, and return the offset of its clock."""
        check_free(self.path)
        is_read_only = self._access == "look"
        with translate_errors(self.path):
            if self._access != "create":
                check_tables(self.path, self._access)
            connection = self._open()
            self._readmit_sqlite3 = finalize(self, readmit_sqlite3, lock_out_sqlite3(self.path))
            if not is_read_only:
                migrate(connection)
            offset_us = clock_offset(connection, self._clock, is_read_only=is_read_only)
        self._give_back(self._wrap(connection))
        return offset_us

    def run(self, operation: Operation[T]) -> T:
        connection = self._borrow()
        try:
            return connection.run(operation)
        except TRANSLATED as problem:
            raise translate(problem, self.path) from problem
        finally:
            self._give_back(connection)

    def publish_one(self, queue: QueueInfo, publication: Publication) -> int:
        """Publish a message and return its id; where one statement is enough, without the slower steps of an operation."""
        row = self._publisher.row_of_one(queue, publication)
        if row is not None:
            connection = self._borrow()
            try:
                id = connection.insert_one(row)
                self._wakers.wake(frozenset((self.operations.last_known(queue).id,)))
                return id
            except CatalogChanged:
                pass
            except TRANSLATED as problem:
                raise translate(problem, self.path) from problem
            finally:
                self._give_back(connection)
        [id] = self.run(self.operations.publish(queue, [publication]))
        return id

    def claim(
        self,
        queue: QueueInfo,
        request: ClaimRequest,
        filter: Filter | None,
        acks: Sequence[Receipt],
    ) -> Claims:
        """Claim messages after acks; where few statements are enough, without the slower steps of an operation."""
        claim = self._claimer.plain_claim(queue, request, filter, acks)
        if claim is not None:
            known = self.operations.last_known(queue)
            if filter is None and self._claimer.groups.is_time_to_look(known):
                self.run(self._claimer.groups.set_aside(known))
            connection = self._borrow()
            try:
                claims = connection.claim(claim, claim_mode(acks))
            except TRANSLATED as problem:
                raise translate(problem, self.path) from problem
            finally:
                self._give_back(connection)
            if claims is not None:
                return claims
        return self.run(request.operation(self.operations, queue, filter, acks))

    def watch(self, wake: Wake) -> CommitWatch:
        self._start_watcher()
        return self._wakers.add(wake)

    def join(
        self, line: Hashable, queue_id: Callable[[], int], wake: Callable[[], object]
    ) -> Waiter:
        self._start_watcher()
        return self._wakers.join(line, queue_id, wake)

    def _start_watcher(self) -> None:
        with self._lock:
            if self._closed:
                raise self._closed_error()
            if self._watcher is None:
                self._watcher = Watcher(self.path, self._open, self._wakers)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.close()
        self._close_idle()
        if self._write_lock.acquire(
            blocking=False
        ):  # otherwise the log is closed with the engine's end
            self._turns.close()
            self._write_lock.release()
        self._readmit_sqlite3()

    def _between_turns(self, act: Callable[[], None]) -> None:
        """Call `act` unless a thread has a turn to write."""
        if self._write_lock.acquire(blocking=False):
            act()
            self._write_lock.release()

    # -- fork, see sqlite.file --

    def _close_before_fork(self) -> None:
        with self._lock:
            watcher, self._watcher = self._watcher, None
            self._was_watching = watcher is not None
        if watcher is not None:
            watcher.close()
        self._close_idle()
        self._between_turns(self._turns.let_go)

    def _watch_again(self) -> None:
        with self._lock:
            if self._was_watching and self._watcher is None and not self._closed:
                self._watcher = Watcher(self.path, self._open, self._wakers)
        if self._was_watching:
            self._wakers.wake(None)  # for commits during the fork

    def _start_over(self) -> None:
        """In a forked child, begin without the idle connections and the consumers of the parent."""
        self._idle, self._wakers = [], Wakers()
        self._lock, self._write_lock = threading.Lock(), threading.Lock()
        self._turns.leave_to_parent()
        note_inherited(self.path)

    # -- connections --

    def _borrow(self) -> SqliteConnection:
        """Take an idle connection, or open one; no other thread uses it until it is given back."""
        if self._closed:
            raise self._closed_error()
        try:
            return self._idle.pop()
        except IndexError:
            return self._wrap(self._open())

    def _give_back(self, connection: SqliteConnection) -> None:
        if not connection.is_clean():  # closing rolls back
            connection.close()
            return
        self._idle.append(connection)
        if self._closed:  # while the operation ran
            self._close_idle()

    def _wrap(self, connection: apsw.Connection) -> SqliteConnection:
        log = None if self._access == "look" else log_to_sync(connection, self._synchronous)
        return SqliteConnection(connection, self._write_lock, self._turns, self._wakers, log)

    def _close_idle(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _open(self) -> apsw.Connection:
        refuse_inherited(self.path)
        with translate_errors(self.path):
            connection = open_file(self.path, self._access)
            # Plans must not depend on values: otherwise each new value has its statement prepared again.
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
            connection.set_busy_handler(busy_handler())
            if self._access == "look":
                return connection
            retry_while_busy(lambda: connection.pragma("journal_mode", "wal"))
            connection.pragma("synchronous", self._synchronous)
            connection.pragma("journal_size_limit", _LONGEST_LOG)
            return connection

    def _closed_error(self) -> HeadgateError:
        return DatabaseClosed(f"{self.path} was closed; connect again")
