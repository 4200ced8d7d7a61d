"""A process that forks while a database is open: parent and child use connections of their own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from headgate import aio
from headgate.queues import Database, connect
from headgate.queues.database_url import postgres_target
from headgate.queues.engine import Operation, Statement
from headgate.queues.outbox_file import OutboxFile
from headgate.queues.postgres.connection import open_connection
from headgate.queues.postgres.pool import Pool
from headgate.queues.sqlite.engine import SqliteEngine
from tests.forked import in_child
from tests.patience import PATIENCE

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        with connect(f"sqlite:///{tmp_path}/q.db") as opened:
            yield opened
        return
    url, schema = map(request.getfixturevalue, ("postgres_url", "postgres_schema"))
    with connect(url, schema=schema) as opened:
        yield opened


def test_a_child_and_its_parent_both_use_a_database_that_was_open_at_the_fork(
    db: Database,
) -> None:
    queue = db.queue("orders")
    queue.publish(b"before")

    def work() -> list[bytes]:
        queue.publish(b"child")
        [claimed] = queue.claim()
        claimed.ack()
        db.close()
        return [claimed.message.payload]

    assert in_child(work) == "[b'before']"
    queue.publish(b"parent")
    assert [d.message.payload for d in queue.claim(5)] == [b"child", b"parent"]


def test_a_consumer_is_still_woken_after_its_process_forked(db: Database) -> None:
    queue, called = db.queue("orders"), threading.Semaphore(0)

    with queue.consumer(lambda delivery: called.release(), poll=timedelta(hours=1)):
        queue.publish(b"first")
        assert called.acquire(timeout=PATIENCE)
        assert in_child(lambda: 1) == "1"
        with connect_again(db) as other:
            other.queue("orders").publish(b"second")
        assert called.acquire(timeout=PATIENCE)


def connect_again(db: Database) -> Database:
    """A second engine, whose commits only the watcher of the first can see."""
    engine = db.engine
    if isinstance(engine, SqliteEngine):
        return connect(f"sqlite:///{engine.path}")
    return connect(engine.target.url, schema=engine.target.schema)


def test_a_child_inherits_no_connection_of_sqlite(tmp_path: Path) -> None:
    path = f"{tmp_path}/q.db"

    def inherited() -> int:  # of this file: other tests of the process keep databases in memory
        return sum(connection.filename == path for connection in apsw.connections())

    with connect(f"sqlite:///{path}") as db:
        db.queue("orders").publish(b"x")
        assert inherited() == 1
        assert in_child(inherited) == "0"


@pytest.mark.postgres
def test_a_child_and_its_parent_use_different_connections_to_postgresql(
    postgres_url: str,
) -> None:
    pool = Pool(lambda: open_connection(postgres_target(postgres_url, None)), 2)

    def ask() -> int:
        with pool.connection() as connection:
            return connection.info.backend_pid

    own = ask()
    assert in_child(lambda: ask() != own) == "True"
    assert in_child(pool.close) == "None"
    assert ask() == own
    pool.close()


def test_a_child_refuses_a_file_that_another_thread_was_using_at_the_fork(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/q.db"
    begun, go_on = threading.Event(), threading.Event()
    with connect(url) as db:
        queue = db.queue("orders")
        other = threading.Thread(target=db.engine.run, args=(hold_connection(begun, go_on),))
        other.start()
        assert begun.wait(PATIENCE)
        for refused in (lambda: queue.publish(b"x"), lambda: connect(url)):
            said = in_child(refused)
            assert said.startswith("DatabaseUnavailable")
            assert "fork before other threads use the database" in said
        go_on.set()
        other.join()
        queue.publish(b"parent")


def hold_connection(begun: threading.Event, go_on: threading.Event) -> Operation[None]:
    yield Statement("SELECT 1")
    begun.set()
    go_on.wait(PATIENCE)


def test_an_async_database_works_in_a_child(tmp_path: Path) -> None:
    async def opened() -> aio.AsyncDatabase:
        return await aio.connect(f"sqlite:///{tmp_path}/q.db")

    async def published(db: aio.AsyncDatabase) -> int:
        queue = await db.queue("orders")
        return await asyncio.wait_for(queue.publish(b"x"), PATIENCE)

    db = asyncio.run(opened())
    asyncio.run(published(db))
    assert in_child(lambda: asyncio.run(published(db))) == "2"
    assert asyncio.run(published(db)) == 3
    asyncio.run(db.close())


def test_a_child_forked_while_a_relay_moved_entries_does_not_hold_its_lock(tmp_path: Path):
    read, write = os.pipe()
    (tmp_path / "app.db").touch()
    file = OutboxFile(tmp_path / "app.db")
    with file.lock() as is_locked:
        assert is_locked
        child = os.fork()
        if child == 0:  # which lives on, with the lock's file open
            os.read(read, 1)
            os._exit(0)
    try:
        with file.lock() as is_locked:
            assert is_locked
    finally:
        os.write(write, b"x")
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)
