"""headgate doctor with a running PostgreSQL server."""

from __future__ import annotations

import psycopg
import pytest

from headgate.insights import health
from headgate.insights.health import check_postgres


@pytest.mark.postgres
def test_the_check_of_a_running_server_finds_its_version(postgres_url):
    found = check_postgres(postgres_url)
    assert found.state == "fine"
    assert found.found.startswith("server ")


@pytest.mark.postgres
def test_the_check_of_a_server_names_transactions_that_are_open_for_long(postgres_url, monkeypatch):
    monkeypatch.setattr(health, "LONG_TRANSACTION_S", 0)
    with psycopg.connect(postgres_url, application_name="forgotten") as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT count(*) FROM pg_class")
        found = check_postgres(postgres_url)
    assert found.state == "weak"
    assert "(forgotten, idle in transaction)" in found.found
    assert "pg_terminate_backend" in found.advice
