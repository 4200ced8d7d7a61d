"""The PostgreSQL engine, sync and asyncio.

Both run the queries that `_queries` makes of an operation: it begins, commits, rolls back and repeats transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar

from headgate.clock import Clock
from headgate.errors import QueueError
from headgate.filters import Filter
from headgate.queues.database_url import postgres_target
from headgate.queues.engine import (
    Access,
    ClaimRequest,
    Claims,
    CommitWatch,
    Operation,
    Publication,
    QueueInfo,
    Receipt,
    Transaction,
    TransactionConflict,
    TransactionMode,
    Wake,
)
from headgate.queues.postgres.connection import (
    BEGIN,
    COMMIT,
    ROLLBACK,
    TRANSLATED,
    AnyConnection,
    PostgresQuery,
    is_idle,
    is_in_transaction,
    open_connection,
    query_of,
    translate,
)
from headgate.queues.postgres.dialect import PostgresDialect
from headgate.queues.postgres.listener import Listener
from headgate.queues.postgres.migrations import prepare
from headgate.queues.postgres.operations import postgres_operations
from headgate.queues.postgres.pool import AsyncPool, Pool
from headgate.queues.wakers import Waiter

T = TypeVar("T")
Queries: TypeAlias = Generator[PostgresQuery, Any, T]

MOST_CONNECTIONS: Final = 32
_MOST_ATTEMPTS: Final = 20


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
        self.target = postgres_target(url, schema)
        self.operations = postgres_operations(PostgresDialect(clock, is_read_only=access == "look"))
        self._pool = Pool(lambda: open_connection(self.target), most_connections)
        self._listener = Listener(self.target)
        try:
            self.run(prepare(self.target, access))
        except BaseException:
            self.close()
            raise

    def run(self, operation: Operation[T]) -> T:
        with self._pool.connection() as connection:
            queries = _queries(operation, connection)
            try:
                query = next(queries)
                while True:
                    try:
                        rows = connection.ask(query)
                    except BaseException as problem:
                        if _is_unusable(connection):
                            connection.close()
                        query = queries.throw(_translate_error(problem, connection))
                    else:
                        query = queries.send(rows)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                if not _close(queries, operation):
                    connection.close()

    def publish_one(self, queue: QueueInfo, publication: Publication) -> int:
        [id] = self.run(self.operations.publish(queue, [publication]))
        return id

    def claim(
        self,
        queue: QueueInfo,
        request: ClaimRequest,
        filter: Filter | None,
        acks: Sequence[Receipt],
    ) -> Claims:
        return self.run(request.operation(self.operations, queue, filter, acks))

    def watch(self, wake: Wake) -> CommitWatch:
        return self._listener.add(wake)

    def join(
        self, line: Hashable, queue_id: Callable[[], int], wake: Callable[[], object]
    ) -> Waiter:
        return self._listener.join(line, queue_id, wake)

    def close(self) -> None:
        self._pool.close()
        self._listener.close()


class AsyncPostgresEngine:
    """Queues in one schema of one database, for asyncio: without threads, except the listener's."""

    def __init__(
        self,
        url: str,
        *,
        schema: str | None = None,
        most_connections: int = MOST_CONNECTIONS,
        clock: Clock | None = None,
        access: Access = "create",
    ) -> None:
        self.target, self._access = postgres_target(url, schema), access
        self.operations = postgres_operations(PostgresDialect(clock, is_read_only=access == "look"))
        self._pool = AsyncPool(self.target, most_connections)
        self._listener = Listener(self.target)

    async def open(self) -> AsyncPostgresEngine:
        """Bring the tables up to date, or check that they are."""
        try:
            await self.run(prepare(self.target, self._access))
        except BaseException:
            await self.close()
            raise
        return self

    async def run(self, operation: Operation[T]) -> T:
        async with self._pool.connection() as connection:
            queries = _queries(operation, connection)
            try:
                query = next(queries)
                while True:
                    try:
                        rows = await connection.ask(query)
                    except BaseException as problem:  # also when the task is cancelled
                        if _is_unusable(connection):
                            await connection.close()
                        query = queries.throw(_translate_error(problem, connection))
                    else:
                        query = queries.send(rows)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                if not _close(queries, operation):
                    await connection.close()

    async def publish_one(self, queue: QueueInfo, publication: Publication) -> int:
        [id] = await self.run(self.operations.publish(queue, [publication]))
        return id

    async def claim(
        self,
        queue: QueueInfo,
        request: ClaimRequest,
        filter: Filter | None,
        acks: Sequence[Receipt],
    ) -> Claims:
        return await self.run(request.operation(self.operations, queue, filter, acks))

    def watch(self, wake: Wake) -> CommitWatch:
        """`wake` is called from another thread."""
        return self._listener.add(wake)

    def join(
        self, line: Hashable, queue_id: Callable[[], int], wake: Callable[[], object]
    ) -> Waiter:
        return self._listener.join(line, queue_id, wake)

    async def close(self) -> None:
        await self._pool.close()
        await asyncio.get_running_loop().run_in_executor(None, self._listener.close)


# ---- operations as queries -----------------------------------------------------------------------------


def _queries(operation: Operation[T], connection: AnyConnection) -> Queries[T]:
    """The queries of an operation. An exception is raised in the operation, also an interruption: an operation that
    holds a lock beyond its transaction can release it."""
    try:
        step = next(operation)
        while True:
            try:
                if isinstance(step, Transaction):
                    reply = yield from _retry_transaction(step.mode, step.body, connection)
                elif (query := query_of(step)) is not None:
                    reply = yield from _retry_query(query, connection)
                else:
                    reply = ()
            except BaseException as problem:
                step = operation.throw(problem)
            else:
                step = operation.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result


def _retry_query(query: PostgresQuery, connection: AnyConnection) -> Queries[Any]:
    """Run a query; after a conflict with another transaction run it again, unless it is part of a transaction.

    A query without parameters is not repeated: it may build an index, whose remains must be dropped first.
    """
    for _ in range(_MOST_ATTEMPTS):
        try:
            return (yield query)
        except TransactionConflict:
            if not query.params or is_in_transaction(connection):
                raise
    return (yield query)


def _retry_transaction(
    mode: TransactionMode, body: Callable[[], Operation[T]], connection: AnyConnection
) -> Queries[T]:
    """Run a transaction; after a conflict with another one, by which it was rolled back, run it again."""
    for _ in range(_MOST_ATTEMPTS):
        try:
            return (yield from _run_transaction(mode, body(), connection))
        except TransactionConflict:
            continue
    return (yield from _run_transaction(mode, body(), connection))


def _run_transaction(
    mode: TransactionMode, operation: Operation[T], connection: AnyConnection
) -> Queries[T]:
    try:
        yield BEGIN[mode]
        result = yield from _queries(operation, connection)
        yield COMMIT
        return result
    except GeneratorExit:
        raise
    except BaseException:
        if is_in_transaction(connection):
            with suppress(QueueError):  # the caller gets the error that came first
                yield ROLLBACK
        raise


def _is_unusable(connection: AnyConnection) -> bool:
    """Whether a statement was interrupted, so that only closing ends it."""
    return not is_idle(connection) and not is_in_transaction(connection)


def _translate_error(problem: BaseException, connection: AnyConnection) -> BaseException:
    if not isinstance(problem, TRANSLATED):
        return problem
    error = translate(problem, connection)
    error.__cause__ = problem
    return error


def _close(queries: Queries[Any], operation: Operation[Any]) -> bool:
    """Close both. False if the operation was interrupted twice and still has to release a lock: then the connection must be
    closed, and the server releases it."""
    try:
        queries.close()
        operation.close()
    except RuntimeError:
        return False
    return True
