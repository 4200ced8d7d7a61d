"""Acks on PostgreSQL while other transactions write."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from headgate.errors import StaleLease
from headgate.queues.database import Database, connect
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
