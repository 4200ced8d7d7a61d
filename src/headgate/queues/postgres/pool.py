"""Pools of connections: idle ones are kept for the next operation.

Not psycopg_pool, because of what it does differently:

- It connects in worker threads and retries there: a caller would learn neither that the server refuses nor why (a wrong
  password, a pooler in between), but get a PoolTimeout after a while.
- An interruption (Ctrl-C) between taking a connection and the `with` block loses the connection, and its place in the
  pool, for good.
- It has four threads, which a forked child lacks.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from queue import Empty, SimpleQueue
from typing import Final
from weakref import WeakSet

from headgate.errors import DatabaseClosed
from headgate.forks import call_in_child, keep_for_ever
from headgate.queues.database_url import PostgresTarget
from headgate.queues.postgres.connection import (
    AsyncPostgresConnection,
    PostgresConnection,
    is_alive,
    is_idle,
    open_async_connection,
)

_CLOSED: Final = "the database was closed; connect again"
_LOST_AFTER_S: Final = 0.1  # between two checks for loans that were lost


class Loan:
    """The right to use one connection. It exists as long as a frame refers to it."""


class Pool:
    """Idle connections, the one used last first. At most `most` are in use; later callers wait.

    An interruption may come between any two lines. So the loans are not counted but referred to weakly: one that an
    interruption has lost is collected, and no longer counts.
    """

    def __init__(self, open: Callable[[], PostgresConnection], most: int) -> None:
        self._open, self._most = open, most
        self._closed = False
        self._start_empty()
        call_in_child(self, Pool._start_over)

    def _start_empty(self) -> None:
        self._idle: list[PostgresConnection] = []
        self._loans: WeakSet[Loan] = WeakSet()
        self._returns: SimpleQueue[None] = SimpleQueue()
        self._lock = threading.Lock()

    def _start_over(self) -> None:
        """In a forked child: to close an inherited connection would end it for the parent."""
        keep_for_ever(self._idle)
        self._start_empty()

    @contextmanager
    def connection(self) -> Iterator[PostgresConnection]:
        """A connection for the caller alone."""
        loan = self._wait_for_loan()
        try:
            connection = self._take()
            try:
                yield connection
            finally:
                self._give_back(connection)
        finally:
            self._loans.discard(loan)
            if self._returns.empty():
                self._returns.put(None)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _wait_for_loan(self) -> Loan:
        while True:
            with self._lock:
                if len(self._loans) < self._most:
                    loan = Loan()
                    self._loans.add(loan)
                    return loan
            try:
                self._returns.get(timeout=_LOST_AFTER_S)
            except Empty:
                continue

    def _take(self) -> PostgresConnection:
        while True:
            with self._lock:
                if self._closed:
                    raise DatabaseClosed(_CLOSED)
                if not self._idle:
                    break
                connection = self._idle.pop()
            if is_alive(connection):
                return connection
            connection.close()
        return self._open()

    def _give_back(self, connection: PostgresConnection) -> None:
        with self._lock:
            if not self._closed and is_idle(connection):
                self._idle.append(connection)
                return
        connection.close()


class AsyncPool:
    """As Pool, for asyncio."""

    def __init__(self, target: PostgresTarget, most: int) -> None:
        self._target, self._free = target, asyncio.Semaphore(most)
        self._idle: list[AsyncPostgresConnection] = []
        self._closed = False
        call_in_child(self, AsyncPool._start_over)

    def _start_over(self) -> None:
        """In a forked child: to close an inherited connection would end it for the parent."""
        keep_for_ever(self._idle)
        self._idle = []

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncPostgresConnection]:
        """A connection for the caller alone."""
        async with self._free:
            connection = await self._take()
            try:
                yield connection
            finally:
                # One whose rollback was cancelled as well still runs a statement: it cannot be used again.
                if self._closed or not is_idle(connection):
                    await connection.close()
                else:
                    self._idle.append(connection)

    async def close(self) -> None:
        self._closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    async def _take(self) -> AsyncPostgresConnection:
        if self._closed:
            raise DatabaseClosed(_CLOSED)
        while self._idle:
            connection = self._idle.pop()
            if is_alive(connection):
                return connection
            await connection.close()
        return await open_async_connection(self._target)
