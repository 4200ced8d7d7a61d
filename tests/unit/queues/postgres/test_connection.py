"""How steps become queries."""

import pytest

pytest.importorskip("psycopg")

from headgate.queues.engine import ForEach, Notify, Statement, TransactionMode
from headgate.queues.postgres.connection import BEGIN, PostgresQuery, query_of


def test_a_step_for_every_row_is_one_statement_with_an_array_per_column():
    assert query_of(ForEach("x", ((1, "a"), (2, "b")))) == PostgresQuery("x", ([1, 2], ["a", "b"]))
    assert query_of(ForEach("x", ())) is None


def test_a_notify_step_has_no_query():
    assert query_of(Notify((1,))) is None


def test_a_reading_transaction_is_one_snapshot():
    assert "REPEATABLE READ" in BEGIN[TransactionMode.READ].text
    assert query_of(Statement("SELECT 1")) == PostgresQuery("SELECT 1")
