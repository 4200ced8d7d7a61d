"""Acks on PostgreSQL while other transactions write."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest

from headgate.errors import StaleLease
from headgate.filters import parse
from headgate.queues.database import Database, connect
from headgate.queues.engine import (
    Operation,
    Outcome,
    Receipt,
    Statement,
    Transaction,
    TransactionMode,
    run_inline,
)
from headgate.queues.queue import Queue

pytestmark = pytest.mark.postgres

PATIENCE_S = 20
_WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'headgate' "
    "AND wait_event_type = 'Lock'"
)


@pytest.fixture
def db(postgres_url: str, postgres_schema: str) -> Iterator[Database]:
    with connect(postgres_url, schema=postgres_schema) as database:
        yield database


@pytest.fixture
def kept(db: Database) -> Queue:
    return db.queue("kept", archive=True)


@pytest.fixture
def other(postgres_url: str, postgres_schema: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_url) as connection:
        connection.execute(f"SET search_path = {postgres_schema}")
        yield connection


def wait_until_a_statement_waits_for_a_lock(url: str) -> None:
    until = time.monotonic() + PATIENCE_S
    with psycopg.connect(url, autocommit=True) as watcher:
        while watcher.execute(_WAITING).fetchone() == (0,):
            assert time.monotonic() < until
            time.sleep(0.01)


def archived(queue: Queue) -> list[bytes]:
    return [standing.message.payload for standing in queue.archived()]


def test_a_lease_that_ends_while_its_ack_is_under_way_leaves_nothing_in_the_archive(
    kept, other, postgres_url
):
    kept.publish(b"a")
    [stale] = kept.claim()
    problems: list[BaseException] = []

    def ack() -> None:
        try:
            stale.ack()
        except StaleLease as problem:
            problems.append(problem)

    other.execute("UPDATE delivery SET token = token + 1")  # another claims it at this moment
    acking = threading.Thread(target=ack)
    acking.start()
    wait_until_a_statement_waits_for_a_lock(postgres_url)
    other.commit()
    acking.join(PATIENCE_S)
    assert [type(problem) for problem in problems] == [StaleLease]
    assert archived(kept) == []
    kept.delivery(stale.id, stale.token + 1).ack()
    assert archived(kept) == [b"a"]


def test_an_ack_under_a_rate_waits_for_the_disk_also_when_its_claim_is_tried_again(db):
    """The first statement acks and finds a message that is due; the next one claims it."""
    queue = db.queue("q")
    queue.publish_many([b"a", b"b"])
    held, _ = queue.claim(1), queue.claim(1, lease=timedelta(microseconds=1))
    queue.limit_rate(9, timedelta(seconds=1))
    levels: list[str] = []
    receipts = [Receipt(each.id, each.token) for each in held]
    claim = db.engine.operations.claim(queue.info, 1, 30_000_000, acks=receipts)
    claimed, outcomes = db.engine.run(noting_levels(claim, levels))
    assert ([each.attempts for each in claimed], outcomes) == ([2], [Outcome.DONE])
    assert levels == ["on"]


@pytest.mark.parametrize("filter", [None, "type = 't'", "type LIKE 't%'", "other = 't'"])
def test_a_claim_without_acks_does_not_wait_for_the_disk(db, filter):
    queue = db.queue("q", filter_headers=["type"])
    queue.publish(b"a", headers={"type": "t", "other": "t"})
    wanted = None if filter is None else parse(filter)

    def claim() -> Operation[Any]:
        return run_inline(db.engine.operations.claim(queue.info, 1, 30_000_000, filter=wanted))

    def in_transaction() -> Operation[Any]:
        return (yield Transaction(TransactionMode.WRITE, claim))

    levels: list[str] = []
    claimed, _ = db.engine.run(noting_levels(in_transaction(), levels))
    assert (len(claimed), levels) == (1, ["off"])


def noting_levels(operation: Operation[Any], levels: list[str]) -> Operation[Any]:
    """Run the operation, and note how lasting the commits of its transactions are."""

    def noting(body: Callable[[], Operation[Any]]) -> Operation[Any]:
        result = yield from body()
        [(level,)] = yield Statement("SELECT current_setting('synchronous_commit')")
        levels.append(level)
        return result

    reply = None
    try:
        while True:
            step = operation.send(reply)
            if isinstance(step, Transaction):
                step = Transaction(step.mode, partial(noting, step.body))
            reply = yield step
    except StopIteration as end:
        return end.value


def test_a_message_that_an_older_version_archived_without_an_ack_can_be_acked(kept, other):
    kept.publish_many([b"a", b"b"])
    first, second = kept.claim(2)
    for held in (first, second):
        other.execute(
            "SELECT keep_acked(%s, 1, %s::bigint[], '{1}', '{NULL}')", (kept.info.id, [held.id])
        )
    other.commit()
    first.ack()
    assert kept.ack_and_claim([second]) == []
    assert archived(kept) == [b"a", b"b"]
