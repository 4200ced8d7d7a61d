"""PostgreSQL as others have set it up: roles, time limits, isolation levels, poolers."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from headgate.errors import DatabaseUnavailable, QueueOptionsError
from headgate.queues.contract import Operation, Statement
from headgate.queues.database import connect

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
