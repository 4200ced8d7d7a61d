"""Policies on both SQL databases, while other programs change the same queues."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.message import Message
from headgate.queues import Publication, RateLimit, State
from headgate.queues.database import Database, connect
from headgate.queues.engine import Operation, Statement
from headgate.queues.policies import EXPIRING, LIMITED
from tests.conformance.queue_behaviour.base import MINUTE
from tests.steps import before, before_transaction, watched


def rows(db: Database, text: str) -> Any:
    def ask() -> Operation[Any]:
        return (yield Statement(text))

    return db.engine.run(ask())


TABLES = {
    "sqlite": {"unique": "headgate_unique", "result": "headgate_result"},
    "postgres": {"unique": "unique_key", "result": "result"},
}


@pytest.mark.parametrize("kept", ["unique", "result"])
def test_what_is_kept_of_messages_that_are_done_is_forgotten_behind_any_number_of_pending_ones(
    pair, kept
):
    db, _ = pair
    queue = db.queue("q")

    def publish(n: int, **options: Any) -> None:
        wish = {"unique": f"k{n}"} if kept == "unique" else {"result": True}
        queue.publish(b"", **wish, **options)

    for n in range(30):
        publish(n, delay=MINUTE)
    for n in range(30, 230):
        publish(n)
        queue.purge(State.READY)
    table = TABLES[db.engine.operations.dialect.name][kept]
    [(count,)] = rows(db, f"SELECT count(*) FROM {table}")
    assert 30 <= count <= 130


def test_a_unique_key_that_no_message_got_is_forgotten(pair):
    db, _ = pair
    queue = db.queue("q")
    first = queue.publish(b"", dedup_key="d")
    assert queue.publish(b"", dedup_key="d", unique="u") == first
    queue.publish(b"", unique="other")
    table = TABLES[db.engine.operations.dialect.name]["unique"]
    assert rows(db, f"SELECT key FROM {table}") == [("other",)]


@pytest.mark.postgres
def test_a_new_rate_keeps_a_policy_that_another_program_adds_at_this_moment(
    postgres_url, postgres_schema
):
    with (
        connect(postgres_url, schema=postgres_schema) as one,
        connect(postgres_url, schema=postgres_schema) as two,
    ):
        queue, operations = one.queue("q"), one.engine.operations
        publish = before(one, "set_policy", lambda: two.find("q").publish(b"a", ttl=MINUTE))
        limit = RateLimit(5, 1_000_000)
        one.engine.run(watched(operations.set_rate(queue.info, limit), publish))
        assert one.find("q").info.policies == LIMITED | EXPIRING
        one.find("q").limit_rate(None)
        assert one.find("q").info.policies == EXPIRING


def test_a_subscription_created_while_the_first_time_to_live_is_published_expires_it(
    pair, manual_clock
):
    one, two = pair
    queue, operations = one.queue("q"), one.engine.operations
    publication = Publication(Message(b"a"), ttl_us=60_000_000)
    subscribe = before_transaction(lambda: two.subscription("copies", pattern="#"))
    one.engine.run(watched(operations.publish(queue.info, [publication]), subscribe))
    copies = two.find("copies")
    assert [s.message.payload for s in copies.browse()] == [b"a"]
    manual_clock.advance(MINUTE)
    assert copies.claim() == []
    assert list(copies.browse()) == []
