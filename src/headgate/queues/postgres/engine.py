"""The PostgreSQL engine, at once or awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from headgate.clock import Clock
from headgate.errors import DatabaseClosed
from headgate.forks import call_in_child, keep_for_ever
from headgate.queues.engine import (
    Access,
    CommitWatch,
    Operation,
    Publication,
    QueueInfo,
    Rows,
    Step,
    Wake,
)
from headgate.queues.postgres.connections import (
    Pool,
    is_alive,
    is_idle,
    is_in_transaction,
    open_async_connection,
    open_connection,
    psycopg_module,
    query_of,
    translated,
)
from headgate.queues.postgres.dialect import PostgresDialect
from headgate.queues.postgres.listener import Listener
from headgate.queues.postgres.migrations import prepare
from headgate.queues.postgres.operations import PostgresOperations
from headgate.queues.postgres.target import target_of

if TYPE_CHECKING:
    from headgate.queues.postgres.cursors import AsyncKeepingConnection, KeepingConnection

T = TypeVar("T")

MOST_CONNECTIONS: Final = 32


class PostgresEngine:
    """Queues in one schema of one database. Each operation has a connection to itself."""

    def __init__(
        self,
        url: str,
        *,
        schema: str | None = None,
        most_connections: int = MOST_CONNECTIONS,
        clock: Clock | None = None,
        access: Access = "create",
    ) -> None:
        """A clock takes the place of the server's: for tests."""
        self.target = target_of(url, schema)
        self.operations = PostgresOperations(PostgresDialect(clock, looks_only=access == "look"))
        self._pool = Pool(lambda: open_connection(self.target), most_connections)
        self._listener = Listener(self.target)
        try:
            self.run(prepare(self.target, access))
        except BaseException:
            self.close()
            raise

    def run(self, operation: Operation[T]) -> T:
        with self._pool.connection() as connection:
            try:
                return _run_to_end(operation, connection)
            finally:
                try:
                    operation.close()
                except (
                    RuntimeError
                ):  # interrupted twice, it had a lock to release: that goes with the connection
                    connection.close()

    def publish_one(self, queue: QueueInfo, publication: Publication) -> int:
        [id] = self.run(self.operations.publish(queue, [publication]))
        return id

    def watch(self, wake: Wake) -> CommitWatch:
        return self._listener.add(wake)

    def close(self) -> None:
        self._pool.close()
        self._listener.close()


def _run_to_end(operation: Operation[T], connection: KeepingConnection) -> T:
    """What fails is thrown back into the operation, which may go on; its transaction has been rolled back.

    So is an interruption: a lock that outlives transactions is to be released all the same.
    """
    try:
        step = next(operation)
        while True:
            try:
                rows = _reply(connection, step)
            except BaseException as problem:
                _roll_back(connection)
                step = operation.throw(problem)
            else:
                step = operation.send(rows)
    except StopIteration as end:
        result: T = end.value
        return result
    except BaseException:
        _roll_back(connection)
        raise


def _reply(connection: KeepingConnection, step: Step) -> Rows:
    query = query_of(step)
    if query is None:
        return ()
    with translated(connection):
        if query.params:
            return connection.ask(*query)
        cursor = connection.execute(query.text, prepare=False)
        return cursor.fetchall() if cursor.description is not None else []


def _roll_back(connection: KeepingConnection) -> None:
    """Where a statement was interrupted in the middle, or rolling back is, the connection is closed: that rolls back."""
    try:
        if is_in_transaction(connection):
            connection.execute("ROLLBACK")
    except psycopg_module().Error:  # why it was to be rolled back is what the caller is told
        connection.close()
    finally:
        if not is_idle(connection):
            connection.close()


class AsyncPostgresEngine:
    """The same, awaited: native asyncio, no threads but the listener's."""

    def __init__(
        self,
        url: str,
        *,
        schema: str | None = None,
        most_connections: int = MOST_CONNECTIONS,
        clock: Clock | None = None,
        access: Access = "create",
    ) -> None:
        self.target, self._access = target_of(url, schema), access
        self.operations = PostgresOperations(PostgresDialect(clock, looks_only=access == "look"))
        self._free = asyncio.Semaphore(most_connections)
        self._idle: list[AsyncKeepingConnection] = []
        self._listener = Listener(self.target)
        self._closed = False
        call_in_child(self, AsyncPostgresEngine._start_over)

    def _start_over(self) -> None:
        """In a forked child: to close a connection here would end it for the parent."""
        keep_for_ever(self._idle)
        self._idle = []

    async def open(self) -> AsyncPostgresEngine:
        """Bring the tables up to date, or find out that they are."""
        try:
            await self.run(prepare(self.target, self._access))
        except BaseException:
            await self.close()
            raise
        return self

    async def run(self, operation: Operation[T]) -> T:
        async with self._connection() as connection:
            try:
                return await _run_awaited(operation, connection)
            finally:
                try:
                    operation.close()
                except (
                    RuntimeError
                ):  # cancelled twice, it had a lock to release: that goes with the connection
                    await connection.close()

    async def publish_one(self, queue: QueueInfo, publication: Publication) -> int:
        [id] = await self.run(self.operations.publish(queue, [publication]))
        return id

    def watch(self, wake: Wake) -> CommitWatch:
        """`wake` is called from another thread."""
        return self._listener.add(wake)

    async def close(self) -> None:
        self._closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()
        await asyncio.get_running_loop().run_in_executor(None, self._listener.close)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[AsyncKeepingConnection]:
        async with self._free:
            connection = await self._take()
            try:
                yield connection
            finally:
                # One whose rollback was cancelled too is still at work: nobody else may have it.
                if self._closed or not is_idle(connection):
                    await connection.close()
                else:
                    self._idle.append(connection)

    async def _take(self) -> AsyncKeepingConnection:
        if self._closed:
            raise DatabaseClosed("the database was closed; connect again")
        while self._idle:
            connection = self._idle.pop()
            if is_alive(connection):
                return connection
            await connection.close()
        return await open_async_connection(self.target)


async def _run_awaited(operation: Operation[T], connection: AsyncKeepingConnection) -> T:
    try:
        step = next(operation)
        while True:
            try:
                rows = await _reply_awaited(connection, step)
            except BaseException as problem:
                await _roll_back_awaited(connection)
                step = operation.throw(problem)
            else:
                step = operation.send(rows)
    except StopIteration as end:
        result: T = end.value
        return result
    except BaseException:  # also when the caller's task is cancelled
        await _roll_back_awaited(connection)
        raise


async def _reply_awaited(connection: AsyncKeepingConnection, step: Step) -> Rows:
    query = query_of(step)
    if query is None:
        return ()
    with translated(connection):
        if query.params:
            return await connection.ask(*query)
        cursor = await connection.execute(query.text, prepare=False)
        return await cursor.fetchall() if cursor.description is not None else []


async def _roll_back_awaited(connection: AsyncKeepingConnection) -> None:
    try:
        if is_in_transaction(connection):
            await connection.execute("ROLLBACK")
    except psycopg_module().Error:
        await connection.close()
    finally:
        if not is_idle(connection):
            await connection.close()
