"""PostgreSQL as others have set it up: roles, time limits, isolation levels, poolers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from headgate import aio
from headgate.errors import DatabaseUnavailable, QueueOptionsError
from headgate.queues.database import connect
from headgate.queues.engine import Operation, Statement
from headgate.queues.postgres.connection import keepalives
from tests.integration.fake_pooler import FakePooler

pytestmark = pytest.mark.postgres

SCHEMA = "neighbours"
ROLE = "neighbour"


@pytest.fixture
def admin(postgres_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {ROLE} LOGIN")
        yield connection
        connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
        connection.execute(f"DROP OWNED BY {ROLE}")
        connection.execute(f"DROP ROLE {ROLE}")


@pytest.fixture
def role_url(admin: psycopg.Connection, postgres_url: str) -> str:
    """The same database, as somebody who may not do much."""
    return postgres_url.replace("postgres:@", f"{ROLE}:@")


def asked(text: str) -> Operation[object]:
    return (yield Statement(text))


def test_a_role_that_may_not_use_the_schema_is_told_what_to_grant(postgres_url, role_url):
    connect(postgres_url, schema=SCHEMA).close()
    with pytest.raises(QueueOptionsError, match=f'GRANT USAGE ON SCHEMA "{SCHEMA}" TO "{ROLE}"'):
        connect(role_url, schema=SCHEMA)


def test_a_role_that_may_not_use_a_table_is_told_which(postgres_url, role_url, admin):
    with connect(postgres_url, schema=SCHEMA) as db:
        db.queue("orders")
    admin.execute(f"GRANT USAGE ON SCHEMA {SCHEMA} TO {ROLE}")
    admin.execute(f"GRANT SELECT ON {SCHEMA}.migration TO {ROLE}")
    with connect(role_url, schema=SCHEMA) as db, pytest.raises(QueueOptionsError, match="GRANT"):
        db.queue("orders")


@pytest.mark.parametrize("setting", ["statement_timeout", "lock_timeout"])
def test_a_time_limit_is_called_one(postgres_url, admin, setting):
    with connect(postgres_url, schema=SCHEMA) as db:
        db.queue("orders")
        with psycopg.connect(postgres_url) as other:
            other.execute(f"LOCK TABLE {SCHEMA}.queue")
            db.engine.run(asked(f"SET {setting} = '50ms'"))
            with pytest.raises(DatabaseUnavailable, match=setting) as caught:
                db.engine.run(asked(f"SELECT count(*) FROM {SCHEMA}.queue"))
        assert "cannot be reached" not in str(caught.value)
        assert db.queue("orders").name == "orders"


@pytest.fixture
def pooled_url(postgres_url: str, admin: psycopg.Connection) -> Iterator[str]:
    host = parse_qs(urlsplit(postgres_url).query)["host"][0]
    [(port,)] = admin.execute("SHOW port").fetchall()
    pooler = FakePooler(f"{host}/.s.PGSQL.{port}")
    yield (
        f"postgresql://postgres@127.0.0.1:{pooler.port}/postgres"
        f"?sslmode=disable&gssencmode=disable&schema={SCHEMA}"
    )
    pooler.close()


def test_a_pooler_is_refused_before_anything_is_set_in_its_sessions(pooled_url):
    with pytest.raises(QueueOptionsError, match="pool in session mode"):
        connect(pooled_url)
    with pytest.raises(QueueOptionsError, match="pool in session mode"):
        asyncio.run(aio.connect(pooled_url))


def test_a_pooler_in_session_mode_is_used_if_the_url_says_so(pooled_url):
    with connect(f"{pooled_url}&pooler=session") as db:
        orders = db.queue("orders")
        orders.publish(b"a")
        assert [d.message.payload for d in orders.claim()] == [b"a"]


def test_another_pooler_mode_is_refused(postgres_url):
    with pytest.raises(QueueOptionsError, match="pooler is session"):
        connect(f"{postgres_url}&pooler=transaction")


def test_a_role_that_begins_serializable_claims_without_failures(role_url, admin):
    admin.execute(f"GRANT CREATE ON DATABASE postgres TO {ROLE}")
    admin.execute(f"ALTER ROLE {ROLE} SET default_transaction_isolation = 'serializable'")
    with connect(role_url, schema=SCHEMA) as db:
        orders = db.queue("orders", archive=True)
        orders.publish_many([b"%d" % n for n in range(400)])
        [(level,)] = db.engine.run(asked("SHOW transaction_isolation"))
        assert level == "read committed"
        seen: list[bytes] = []

        def work() -> None:
            held = orders.claim(5)
            while held:
                seen.extend(each.message.payload for each in held)
                held = orders.ack_and_claim(held, 5)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(seen) == len(set(seen)) == 400


def test_connections_that_are_cut_are_found_out_unless_the_url_says_otherwise():
    assert keepalives("postgresql://host/db")["keepalives_idle"] == 30
    assert "keepalives_idle" not in keepalives("postgresql://host/db?keepalives_idle=5")
    assert "tcp_user_timeout" in keepalives("postgresql://host/db?keepalives_idle=5")
