"""Claims: messages that are too large for their one row, and groups that two claims want at the same moment."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg import sql

from headgate.filters.parser import parse
from headgate.message import Message
from headgate.queues.database import connect
from headgate.queues.engine import Publication, Statement
from headgate.queues.postgres import claim as postgres_claim
from headgate.queues.postgres.claim import left_out, reply_of
from headgate.queues.postgres.connection import PostgresConnection
from headgate.queues.queue import Queue
from headgate.queues.sql import search
from headgate.queues.sql.lease import ClaimRequest
from headgate.queues.sql.search import Search
from tests.patience import wait_until

LIMIT = 10
PATIENCE = 20
BIG = {
    "topic": "repeat('x', 5000)",
    "message_id": "repeat('x', 5000)",
    "filter_value": "repeat('x', 5000)",
    "key": "repeat('x', 5000)",
    "payload": "convert_to(repeat('x', 5000), 'UTF8')",
    "headers": "jsonb_build_object('h', repeat('x', 5000))",  # which compress well
    "properties": "jsonb_build_object('p', repeat('x', 5000))",
}


@pytest.fixture
def orders(
    postgres_url: str, postgres_schema: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Queue]:
    monkeypatch.setattr(postgres_claim, "MOST_BYTES", LIMIT * 4_000)
    with connect(postgres_url, schema=postgres_schema) as db:
        yield db.queue("orders", filter_headers=["type"])


def run(orders: Queue, statement: Statement) -> Any:
    def asked() -> Any:
        return (yield statement)

    return orders._engine.run(asked())


@pytest.mark.postgres
@pytest.mark.parametrize(("column", "value"), BIG.items(), ids=BIG)
def test_a_large_message_is_left_out_of_the_reply_and_fetched(orders, column, value):
    first, second = orders.publish(b"first"), orders.publish(b"second")
    run(orders, Statement(f"UPDATE message SET {column} = {value} WHERE id = $1", (first,)))
    operations = orders._engine.operations
    found = Search(orders.info, operations.planner.plan(orders.info, None))
    claim = operations.claimer.statement(found, ClaimRequest(LIMIT, 0, False))
    reply = reply_of(run(orders, claim))
    assert sorted(reply.ids) == [first, second]
    assert left_out(reply) == [first]
    again = orders.claim(LIMIT)
    assert [(one.id, one.attempts) for one in again] == [(first, 2), (second, 2)]
    assert "x" * 5_000 in str(again[0].message)
    assert again[1].message.payload == b"second"


LOCK = "SELECT 1 FROM delivery WHERE message = %s FOR UPDATE"
LEASE = "UPDATE delivery SET state = 2, attempts = 1 WHERE message = %s"


@pytest.fixture
def elsewhere(postgres_url: str, postgres_schema: str) -> Iterator[psycopg.Connection[Any]]:
    """Another connection to the same tables, in a transaction."""
    with psycopg.connect(postgres_url) as connection:
        connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(postgres_schema)))
        yield connection


@pytest.mark.postgres
@pytest.mark.parametrize("work", [LOCK, LEASE], ids=["locked", "leased"])
@pytest.mark.parametrize(
    ("filter", "skip"),
    [(None, ()), (None, (0,)), ("type = 't'", ()), ("type LIKE 't%'", ()), ("other = 't'", ())],
)
def test_a_claim_takes_no_member_of_a_group_whose_first_another_claim_takes_at_this_moment(
    orders, elsewhere, work, filter, skip
):
    """Whether that claim commits or not."""
    many = [
        Publication(Message(b"", headers={"type": "t", "other": "t"}), group=group)
        for group in [*"aaaaab", None]
    ]
    first, *_, other, alone = orders.publish_many(many)
    elsewhere.execute(work, (first,))
    claim = partial(orders._engine.operations.claim, orders.info, lease_us=30_000_000, skip=skip)
    wanted = None if filter is None else parse(filter)

    def ids_of(limit: int) -> list[int]:
        claimed, _ = orders._engine.run(claim(limit=limit, filter=wanted))
        return [each.id for each in claimed]

    with ThreadPoolExecutor(1) as threads:
        found = [threads.submit(ids_of, limit) for limit in (1, 7, 7)]
        try:
            assert [each.result(timeout=PATIENCE) for each in found] == [[other], [alone], []]
        finally:
            elsewhere.rollback()
    assert ids_of(7) == [first]
    assert ids_of(7) == []


@pytest.mark.postgres
@pytest.mark.parametrize("filter", ["other = 't'", "type LIKE 't%'", "type <> 'u'"])
def test_a_claim_that_finds_enough_among_the_first_is_one_statement(orders, filter, monkeypatch):
    many = [Message(b"%d" % at, headers={"type": "t", "other": "t"}) for at in range(4)]
    orders.publish_many(many)
    [first] = orders.claim(1, filter=filter)  # prepares the connection
    asked = []
    ask = PostgresConnection.ask
    monkeypatch.setattr(
        PostgresConnection, "ask", lambda self, query: asked.append(query.text) or ask(self, query)
    )
    found = orders.ack_and_claim([first], 2, filter=filter)
    assert [one.message.payload for one in found] == [b"1", b"2"]
    assert len(asked) == 1
    assert [one.message.payload for one in orders.claim(2, filter=filter)] == [b"3"]


@pytest.mark.postgres
def test_a_claim_finds_what_is_due_or_not_among_the_first(orders, monkeypatch):
    monkeypatch.setattr(search, "_LOOKED_AT", 2)
    monkeypatch.setattr(search, "_LOOKED_AT_PER_CANDIDATE", 1)
    orders.publish_many([Message(b"no")] * 5)
    orders.publish(b"yes", headers={"other": "t"})
    [held] = orders.claim(1, filter="other = 't'")
    held.nack(timedelta(microseconds=1))
    wait_until(lambda: bool(orders.claim(1, filter="other = 't'")))
    assert orders.claim(1, filter="other = 't'") == []
