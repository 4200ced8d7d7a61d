"""A cached cursor returns the same rows as a new one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from headgate.queues.database_url import postgres_target
from headgate.queues.postgres.connection import (
    PostgresConnection,
    PostgresQuery,
    open_async_connection,
    open_connection,
)

ECHO = "SELECT $1::bigint, $2::text[]"


@pytest.fixture
def connection(postgres_url: str) -> Iterator[PostgresConnection]:
    with open_connection(postgres_target(postgres_url)) as opened:
        yield opened


@pytest.mark.postgres
def test_a_repeated_statement_takes_other_values_and_types(connection):
    for number, texts in [(1, ["a"]), (2, ["b", None]), (None, []), (3, [None]), (4, None)]:
        again = ECHO[:7] + ECHO[7:]  # equal, and not the same object
        assert connection.ask(PostgresQuery(again, (number, texts))) == [(number, texts)]


@pytest.mark.postgres
def test_a_statement_without_rows_returns_none(connection):
    connection.execute("CREATE TEMPORARY TABLE t (n bigint)")
    for n in range(3):
        assert connection.ask(PostgresQuery("INSERT INTO t VALUES ($1::bigint)", (n,))) == []
    assert connection.ask(PostgresQuery("SELECT n FROM t WHERE n > $1 ORDER BY n", (0,))) == [
        (1,),
        (2,),
    ]
    assert connection.ask(PostgresQuery("SELECT n FROM t WHERE n > $1", (5,))) == []


@pytest.mark.postgres
def test_a_cursor_can_be_used_again_after_an_error(connection):
    divide = "SELECT 10 / $1::bigint"
    assert connection.ask(PostgresQuery(divide, (2,))) == [(5,)]
    with pytest.raises(psycopg.errors.DivisionByZero):
        connection.ask(PostgresQuery(divide, (0,)))
    assert connection.ask(PostgresQuery(divide, (5,))) == [(2,)]


@pytest.mark.postgres
def test_there_may_be_more_statements_than_cached_cursors(connection):
    for n in [*range(100), *range(100)]:
        assert connection.ask(PostgresQuery(f"SELECT {n} + $1::bigint", (1,))) == [(n + 1,)]


@pytest.mark.postgres
def test_the_asyncio_connection_caches_cursors_as_well(postgres_url):
    async def echoes() -> list[object]:
        connection = await open_async_connection(postgres_target(postgres_url))
        async with connection:
            return [await connection.ask(PostgresQuery(ECHO, (n, [str(n)]))) for n in range(3)]

    assert asyncio.run(echoes()) == [[(n, [str(n)])] for n in range(3)]
