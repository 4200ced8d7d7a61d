"""Messages that are left out of the one row of a claim, which might become too large for a value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headgate.queues.database import connect
from headgate.queues.engine import Statement
from headgate.queues.postgres import claim as postgres_claim
from headgate.queues.postgres.claim import left_out, reply_of
from headgate.queues.queue import Queue
from headgate.queues.sql.lease import ClaimRequest
from headgate.queues.sql.search import Search

LIMIT = 10
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
        yield db.queue("orders")


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
    search = Search(orders.info, operations.planner.plan(orders.info, None))
    claim = operations.claimer.statement(search, ClaimRequest(LIMIT, 0, False))
    reply = reply_of(run(orders, claim))
    assert sorted(reply.ids) == [first, second]
    assert left_out(reply) == [first]
    again = orders.claim(LIMIT)
    assert [(one.id, one.attempts) for one in again] == [(first, 2), (second, 2)]
    assert "x" * 5_000 in str(again[0].message)
    assert again[1].message.payload == b"second"
