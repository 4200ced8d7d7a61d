"""The catalog of queues is kept up to date by reading what has changed, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from headgate.message import Message
from headgate.queues.database import Database
from headgate.queues.engine import Operation, Publication, Statement
from headgate.queues.sql.catalog import CatalogCache, QueueCatalog
from headgate.queues.sql.operations import publish_once
from tests.conformance.queue_behaviour.base import payloads


def counted(operation: Operation[Any], texts: list[str]) -> Operation[Any]:
    """Run the operation, and note its statements."""
    reply = None
    try:
        while True:
            step = operation.send(reply)
            if isinstance(step, Statement):
                texts.append(step.text)
            reply = yield step
    except StopIteration as end:
        return end.value


def read(db: Database) -> tuple[QueueCatalog, list[str]]:
    """The catalog, and the statements that read it."""
    texts: list[str] = []
    catalog = db.engine.run(counted(db.engine.operations.catalog.read(), texts))
    return catalog, texts


def fresh(db: Database) -> QueueCatalog:
    """The catalog read as a whole."""
    return db.engine.run(CatalogCache(db.engine.operations.dialect).read())


def test_a_change_elsewhere_is_read_without_all_other_queues(pair):
    one, two = pair
    for n in range(5):
        one.subscription(f"s{n}", f"x = {n}")
    whole = two.engine.operations.dialect.text("catalog")
    assert whole in read(two)[1]
    one.subscription("new", "x = 7")
    one.find("s1").delete()
    one.find("s2").pause()
    catalog, texts = read(two)
    assert len(texts) == 2
    assert whole not in texts
    assert catalog.by_id == fresh(one).by_id
    assert read(two)[1] == texts[:1]


def test_too_many_changes_are_read_as_a_whole(pair):
    one, two = pair
    queue = one.queue("q")
    read(two)
    table = (
        "headgate_catalog_change"
        if two.engine.operations.dialect.name == "sqlite"
        else "catalog_change"
    )
    queue.pause()
    one.engine.run(iterate(Statement(f"DELETE FROM {table}")))
    queue.resume()
    queue.pause()
    catalog, texts = read(two)
    assert len(texts) == 3
    assert catalog.find("q").paused


def iterate(step: Any) -> Operation[Any]:
    return (yield step)


def test_changed_catalogs_answer_as_fresh_ones(pair, seed):
    """After any changes, made by either, both deliver to the same subscriptions as one that reads everything."""
    rng, names = Random(seed), [f"s{n}" for n in range(6)]
    for _ in range(60):
        db, name = rng.choice(pair), rng.choice(names)
        known = {queue.name for queue in db.queues()}
        if name not in known or rng.random() < 0.6:
            db.subscription(name, f"x = {rng.randrange(3)}")
        else:
            db.delete(name)
        asked = rng.choice(pair)  # the other one sometimes has several changes to catch up with
        catalog, expected = read(asked)[0], fresh(asked)
        assert (catalog.by_id, catalog.by_name) == (expected.by_id, expected.by_name)
        assert catalog.has_subscriptions == expected.has_subscriptions
        for value in range(3):
            message = Message(headers={"x": value})
            assert catalog.matching_subscriptions(message, None) == expected.matching_subscriptions(
                message, None
            )


def test_an_old_catalog_that_is_asked_first_does_not_hide_a_later_subscription(pair):
    one, two = pair
    one.subscription("old", "x = 1")
    before, _ = read(two)
    one.subscription("new", "x = 1")
    after, _ = read(two)
    message = Message(headers={"x": 1})
    assert [info.name for info in before.matching_subscriptions(message, None)] == ["old"]
    assert [info.name for info in after.matching_subscriptions(message, None)] == ["old", "new"]


def test_the_catalog_of_a_transaction_that_was_rolled_back_is_forgotten(pair):
    """It had the version that the next change of another program gets."""
    one, two = pair
    queue = one.queue("q")

    def slices() -> Iterator[list[Publication]]:
        yield [
            Publication(Message(b"a"), ttl_us=1_000_000)
        ]  # the first with a time to live changes the queue
        raise Interrupted

    with pytest.raises(Interrupted):
        publish_once(one.engine, "q", "source", 1, slices)
    copies = two.subscription("copies", pattern="#")
    for _ in range(2):
        queue.publish(b"b")
    assert payloads(copies.claim(9)) == [b"b", b"b"]


class Interrupted(Exception):
    pass
