"""Looking at queues on PostgreSQL makes no schema, and needs no more than SELECT."""

from __future__ import annotations

import asyncio
from urllib.parse import quote
from uuid import uuid4

import psycopg
import pytest

from headgate import aio
from headgate.cli.app import run
from headgate.errors import DatabaseNotFound, HeadgateError
from headgate.queues.database import connect

pytestmark = pytest.mark.postgres

LOOKING = (
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


@pytest.fixture
def schema() -> str:
    return f"looking_{uuid4().hex[:12]}"


def in_schema(url: str, schema: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}schema={schema}"


@pytest.mark.parametrize("command", [*LOOKING, ["queue", "publish", "orders", "x"]])
def test_a_slip_in_the_url_makes_no_schema(postgres_url, schema, capsys, command):
    assert run([*command, "--db", in_schema(postgres_url, schema)]) == 2
    assert f"no queues in schema '{schema}'" in capsys.readouterr().err
    with psycopg.connect(postgres_url) as connection:
        found = connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", (schema,))
        assert found.fetchall() == []


def test_asyncio_makes_no_schema_either(postgres_url, schema):
    async def look() -> None:
        await aio.connect(in_schema(postgres_url, schema), access="look")

    with pytest.raises(DatabaseNotFound):
        asyncio.run(look())


def test_who_may_only_read_can_look_at_everything(postgres_url, schema):
    url = in_schema(postgres_url, schema)
    with connect(url) as db:
        orders = db.queue("orders", filter_headers=["type"])
        db.subscription("paid", "type = 'paid'")
        orders.publish(b"x", headers={"type": "paid"})
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {schema} LOGIN PASSWORD 'x'")
        connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO {schema}")
        connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {schema}")
    try:
        reader = f"{url}&options={quote(f'-c role={schema}')}"
        for command in LOOKING:
            assert run([*command, "--db", reader]) == 0
        with connect(reader, access="look") as db, pytest.raises(HeadgateError, match="permission"):
            db.find("orders").publish(b"y")
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA {schema} CASCADE")
            connection.execute(f"DROP OWNED BY {schema}")
            connection.execute(f"DROP ROLE {schema}")
