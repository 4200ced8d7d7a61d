"""Which database and which schema a URL names, and how steps become queries."""

from __future__ import annotations

import pytest

from headgate.errors import QueueOptionsError
from headgate.queues.engine import Each, Notify, Statement, Transaction
from headgate.queues.postgres.connections import Query, query_of
from headgate.queues.postgres.target import target_of
from headgate.queues.sql.statements import migrations_of, statements_of


@pytest.mark.parametrize(
    ("url", "schema", "wanted"),
    [
        ("postgresql://h/d", None, ("postgresql://h/d", "headgate")),
        ("postgresql://h/d", "mine", ("postgresql://h/d", "mine")),
        ("postgresql://h/d?schema=mine", None, ("postgresql://h/d", "mine")),
        ("postgresql://u@/d?host=/tmp/x&schema=a", None, ("postgresql://u@/d?host=/tmp/x", "a")),
        ("postgresql://h/d?schema=a", "b", ("postgresql://h/d", "b")),
        (
            "postgresql://h/d?schema=a&options=-c%20role%3Dx",
            None,
            ("postgresql://h/d?options=-c%20role%3Dx", "a"),
        ),
    ],
)
def test_the_schema_is_an_option_or_part_of_the_url(url, schema, wanted):
    target = target_of(url, schema)
    assert (target.url, target.schema) == wanted


@pytest.mark.parametrize("schema", ["1a", "a b", 'a"; DROP', "A", "x" * 41, "ü"])
def test_a_schema_that_would_have_to_be_quoted_is_refused(schema):
    with pytest.raises(QueueOptionsError, match="schema"):
        target_of("postgresql://h/d", schema)


def test_a_step_for_every_row_is_one_statement_with_an_array_per_column():
    assert query_of(Each("x", ((1, "a"), (2, "b")))) == Query("x", ([1, 2], ["a", "b"]))
    assert query_of(Each("x", ())) is None


def test_notifications_need_no_query_of_their_own():
    assert query_of(Notify((1,))) is None


def test_a_reading_transaction_is_one_snapshot():
    assert "REPEATABLE READ" in query_of(Transaction.READ).text
    assert query_of(Statement("SELECT 1")) == Query("SELECT 1")


def test_both_dialects_have_the_same_migrations():
    numbers = [number for number, _ in migrations_of("postgres")]
    assert numbers == [number for number, _ in migrations_of("sqlite")]
    assert numbers == list(range(1, len(numbers) + 1))


def test_no_statement_of_postgres_names_a_schema():
    assert not [
        name
        for name, text in statements_of("postgres").items()
        if "headgate." in text.replace("'headgate.", "")
    ]
