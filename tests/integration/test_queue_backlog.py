"""A subscription that starts with the first stored message gets them in pages, and nobody waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from headgate.filters import parse
from headgate.message import Message
from headgate.queues.database import Database, connect
from headgate.queues.engine import Operation, Publication, Statement, Transaction
from headgate.queues.sql import backlog
from headgate.queues.sql.message_rows import columns_of
from headgate.testing import ManualClock
from tests.patience import PATIENCE

PAGE = 10
EU = "region = 'EU'"


@pytest.fixture
def time() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def db(
    request: pytest.FixtureRequest,
    time: ManualClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Database]:
    monkeypatch.setattr(backlog, "_AT_ONCE", PAGE)
    if request.param == "sqlite":
        with connect(f"sqlite:///{tmp_path}/q.db", clock=time.clock) as database:
            yield database
        return
    schema = request.getfixturevalue("postgres_schema")
    url = request.getfixturevalue("postgres_url")
    with connect(url, schema=schema, clock=time.clock) as database:
        yield database


class Killed(Exception):
    pass


def between_transactions(operation: Operation[Any], act: Callable[[int], None]) -> Operation[Any]:
    """Run the operation, and call `act` with the number of the transaction before each."""
    number, reply = 0, None
    try:
        while True:
            step = operation.send(reply)
            if isinstance(step, Transaction):
                act(number)
                number += 1
            reply = yield step
    except StopIteration as end:
        return end.value


def subscribe(db: Database, act: Callable[[int], None], **options: Any) -> None:
    operation = db.engine.operations.subscribe("early", parse(EU), start="first", **options)
    db.engine.run(between_transactions(operation, act))


def fill(db: Database, count: int, name: str = "orders") -> None:
    regions = ("EU", "US")
    db.queue(name).publish_many(
        Message(b"%d" % n, headers={"region": regions[n % 2]}) for n in range(count)
    )


def claimed(db: Database) -> list[bytes]:
    return [d.message.payload for d in db.find("early").claim(1000)]


def test_the_number_of_transactions_grows_with_the_messages_and_not_faster(db):
    counts = {}
    for size in (10, 40, 160):
        fill(db, size)
        transactions: list[int] = []
        subscribe(db, transactions.append)
        counts[size] = len(transactions)
        assert db.find("early").stats().ready == size // 2
        for name in ("early", "orders"):
            db.find(name).delete()
    # The one that creates it, one for each page, one that finds no more.
    assert counts == {size: 2 + size // PAGE for size in counts}


def test_publishers_do_not_wait_between_pages_and_each_message_comes_once(db):
    fill(db, 60)

    def publish(number: int) -> None:
        if number:
            db.find("orders").publish(b"new %d" % number, headers={"region": "EU"})

    subscribe(db, publish)
    found = claimed(db)
    assert found[:30] == [b"%d" % n for n in range(0, 60, 2)]
    assert found[30:] == [b"new %d" % n for n in range(1, 8)]


def test_another_consumer_continues_after_a_crash(db, time):
    fill(db, 60)

    def kill(number: int) -> None:
        if number == 3:
            raise Killed

    with pytest.raises(Killed):
        subscribe(db, kill)
    assert claimed(db) == [b"%d" % n for n in range(0, 20, 2)]  # somebody may be at work on it
    time.advance(timedelta(seconds=11))
    found: list[bytes] = []
    while more := claimed(db):
        found += more
    assert found == [b"%d" % n for n in range(20, 60, 2)]


def test_a_waiting_consumer_continues_after_a_crash_without_polling(db, time, monkeypatch):
    monkeypatch.setattr(backlog, "_LEASE_US", 1_000)
    fill(db, 5 * PAGE)

    def kill(number: int) -> None:
        if number == 1:
            raise Killed

    with pytest.raises(Killed):
        subscribe(db, kill)
    subscription, seen = db.find("early"), SimpleQueue()
    assert subscription.claim() == []
    with subscription.consumer(lambda d: seen.put(d.message.payload), mode="notify"):
        time.advance(timedelta(seconds=1))
        found = [seen.get(timeout=PATIENCE) for _ in range(5 * PAGE // 2)]
    assert sorted(map(int, found)) == list(range(0, 5 * PAGE, 2))


def test_subscribing_again_after_a_crash_delivers_the_rest_at_once(db):
    fill(db, 60)

    def kill(number: int) -> None:
        if number == 3:
            raise Killed

    with pytest.raises(Killed):
        subscribe(db, kill)
    db.subscription("early", EU, start="first")
    assert claimed(db) == [b"%d" % n for n in range(0, 60, 2)]


def test_a_message_acked_before_its_page_is_not_delivered_and_one_acked_after_it_is(db):
    fill(db, 60)
    leased = db.find("orders").claim(60)

    def ack(number: int) -> None:
        if number == 3:  # two pages are delivered
            for delivery in leased:
                delivery.ack()

    subscribe(db, ack)
    assert claimed(db) == [b"%d" % n for n in range(0, 20, 2)]


def test_a_subscription_deleted_meanwhile_gets_nothing_more(db):
    fill(db, 60)

    def delete(number: int) -> None:
        if number == 3:
            db.find("early").delete()

    subscribe(db, delete)
    assert [info.name for info in db.queues()] == ["orders"]
    assert sum(1 for _ in db.find("orders").browse()) == 60


def test_only_the_messages_of_the_source_are_delivered(db):
    for name in ("orders", "others", "orders", "more"):
        fill(db, 30, name)
    subscribe(db, lambda _: None, source="orders")
    assert claimed(db) == [b"%d" % n for n in range(0, 30, 2)] * 2


def test_messages_of_other_queues_are_not_read_for_the_subscription_to_one(db):
    for name in ("others", "orders", "others"):
        fill(db, 3 * PAGE, name)
    read: list[Any] = []
    operation = db.engine.operations.subscribe("early", parse(EU), start="first", source="orders")
    page = db.engine.operations.dialect.text("backlog_page", columns=columns_of("m"))
    db.engine.run(noting_rows(operation, page, read.extend))
    assert len(read) <= 3 * PAGE + 9  # one of each page says how far it goes
    assert claimed(db) == [b"%d" % n for n in range(0, 3 * PAGE, 2)]


def noting_rows(
    operation: Operation[Any], text: str, note: Callable[[Any], None]
) -> Operation[Any]:
    """Run the operation, and show the rows of the statement with that text."""
    reply = None
    try:
        while True:
            step = operation.send(reply)
            if isinstance(step, Transaction):
                body = step.body
                step = Transaction(step.mode, lambda body=body: noting_rows(body(), text, note))
            reply = yield step
            if isinstance(step, Statement) and step.text == text:
                note(reply)
    except StopIteration as end:
        return end.value


def test_a_message_of_several_queues_is_delivered_once_with_its_group(db):
    db.queue("orders")
    db.subscription("also", EU)
    publication = Publication(Message(b"one", headers={"region": "EU"}), group="g")
    db.find("orders").publish_many([publication])
    subscribe(db, lambda _: None)
    [delivery] = db.find("early").claim(10)
    assert (delivery.message.payload, delivery.group) == (b"one", "g")
    delivery.ack()
    for name in ("orders", "also"):
        [other] = db.find(name).claim(10)
        other.ack()
    if db.engine.operations.dialect.name == "postgres":
        return  # swept with the next shared message
    rows = db.engine.run(_rows("SELECT count(*) FROM headgate_message"))
    assert rows[0][0] == 0


def _rows(text: str) -> Operation[Any]:
    return (yield Statement(text))
