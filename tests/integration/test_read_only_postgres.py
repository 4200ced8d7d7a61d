"""Commands that only read create no schema on PostgreSQL, and need no right but SELECT."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import psycopg
import pytest

from headgate import aio
from headgate.cli.app import run
from headgate.errors import DatabaseNotFound, HeadgateError
from headgate.queues import connect

pytestmark = pytest.mark.postgres

READING = (
    ["queue", "ls"],
    ["queue", "info", "orders"],
    ["queue", "stats", "orders"],
    ["queue", "peek", "orders"],
    ["queue", "peek", "paid"],
    ["queue", "browse", "orders"],
    ["queue", "browse", "paid"],
    ["queue", "dead", "ls", "orders"],
    ["queue", "index", "advise", "orders", "type = 'paid'"],
    ["sub", "ls"],
)


def in_schema(url: str, schema: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}schema={schema}"


@pytest.mark.parametrize("command", [*READING, ["queue", "publish", "orders", "x"]])
def test_a_typing_error_in_the_url_creates_no_schema(
    postgres_url, postgres_schema, capsys, command
):
    assert run([*command, "--db", in_schema(postgres_url, postgres_schema)]) == 2
    assert f"no queues in schema '{postgres_schema}'" in capsys.readouterr().err
    with psycopg.connect(postgres_url) as connection:
        found = connection.execute(
            "SELECT FROM pg_namespace WHERE nspname = %s", (postgres_schema,)
        )
        assert found.fetchall() == []


def test_asyncio_with_a_typing_error_in_the_url_creates_no_schema(postgres_url, postgres_schema):
    async def look() -> None:
        await aio.connect(in_schema(postgres_url, postgres_schema), access="look")

    with pytest.raises(DatabaseNotFound):
        asyncio.run(look())


def test_a_role_that_may_only_select_can_run_every_reading_command(postgres_url, postgres_schema):
    url = in_schema(postgres_url, postgres_schema)
    with connect(url) as db:
        orders = db.queue("orders", filter_headers=["type"])
        db.subscription("paid", "type = 'paid'")
        orders.publish(b"x", headers={"type": "paid"})
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {postgres_schema} LOGIN PASSWORD 'x'")
        connection.execute(f"GRANT USAGE ON SCHEMA {postgres_schema} TO {postgres_schema}")
        connection.execute(
            f"GRANT SELECT ON ALL TABLES IN SCHEMA {postgres_schema} TO {postgres_schema}"
        )
    try:
        reader = f"{url}&options={quote(f'-c role={postgres_schema}')}"
        for command in READING:
            assert run([*command, "--db", reader]) == 0
        with connect(reader, access="look") as db, pytest.raises(HeadgateError, match="permission"):
            db.find("orders").publish(b"y")
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(f"DROP OWNED BY {postgres_schema}")
            connection.execute(f"DROP ROLE {postgres_schema}")
