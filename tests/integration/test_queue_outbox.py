"""The outbox: messages are published with the caller's own transaction or not at all, and moved exactly once."""

from __future__ import annotations

import asyncio
import itertools
import queue as queues
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import timedelta
from typing import Any

import apsw
import psycopg
import pytest
import sqlalchemy

from headgate import aio
from headgate.errors import DatabaseUnavailable, QueueOptionsError
from headgate.message import Message
from headgate.queues import Database, Publication, Queue, Relay, connect
from headgate.queues.outbox_table import COLUMNS, entry_values, inserter
from tests.conformance import blocking_aio
from tests.patience import PATIENCE

# A connection of the caller's, in a transaction that is committed when the block ends, and rolled back when it fails.
Begin = Callable[[], AbstractContextManager[Any]]


@pytest.fixture
def sqlite_db(tmp_path) -> Iterator[Database]:
    with connect(f"sqlite:///{tmp_path}/queues.db?synchronous=OFF") as db:
        yield db


@pytest.fixture
def postgres_db(postgres_url: str, postgres_schema: str) -> Iterator[Database]:
    with connect(postgres_url, schema=postgres_schema) as db:
        yield db


class OutboxBehaviour:
    @pytest.fixture
    def relay(self, db: Database) -> Callable[[], Relay]:
        return db.relay

    @pytest.fixture
    def orders(self, db: Database) -> Queue:
        return db.queue("orders", filter_headers=["type", "region"])

    @pytest.fixture
    def seen(self) -> queues.Queue[bytes]:
        return queues.Queue()

    def test_a_committed_message_is_published(self, db, orders, begin, relay):
        with begin() as connection:
            db.outbox(connection).publish(
                "orders",
                b"\x00body",
                headers={"type": "created", "n": 1, "f": 1.0},
                priority=3,
                id="m",
            )
        assert relay().run_once() == 1
        [delivery] = orders.claim(5, filter="type = 'created' AND n = 1")
        message = delivery.message
        assert (message.payload, message.topic, message.priority) == (b"\x00body", "orders", 3)
        assert (message.headers, message.id) == ({"type": "created", "n": 1, "f": 1.0}, "m")
        assert isinstance(message.headers["f"], float)

    def test_a_message_that_was_rolled_back_is_never_published(self, db, orders, begin, relay):
        def fail() -> None:
            with begin() as connection:
                db.outbox(connection).publish("orders", b"a")
                1 / 0

        with pytest.raises(ZeroDivisionError):
            fail()
        assert relay().run_once() == 0
        assert orders.claim() == []

    def test_a_message_that_is_not_committed_yet_is_not_moved(self, db, orders, begin, relay):
        with begin() as connection:
            db.outbox(connection).publish("orders", b"a")
            assert orders.peek() == []
        relay().run_once()
        assert len(orders.claim()) == 1

    def test_a_running_relay_is_woken_by_the_commit(self, db, orders, begin, relay, seen):
        with relay(), orders.consumer(lambda d: seen.put(d.message.payload), mode="notify"):
            for name in (b"a", b"b", b"c"):
                with begin() as connection:
                    db.outbox(connection).publish("orders", name)
                assert seen.get(timeout=PATIENCE) == name

    def test_a_message_for_an_unknown_queue_is_parked_and_the_others_are_moved(
        self, db, orders, begin, relay
    ):
        with begin() as connection:
            outbox = db.outbox(connection)
            outbox.publish("nowhere", b"a")
            outbox.publish("orders", b"b")
        assert relay().waiting() == 2
        assert relay().run_once() == 2
        assert [d.message.payload for d in orders.claim(5)] == [b"b"]
        assert relay().run_once() == 0
        assert relay().waiting() == 0

    def test_a_row_that_is_no_valid_message_is_kept_and_the_others_are_moved(
        self, db, orders, begin, relay, seen, caplog
    ):
        wrong = {
            "headers": "[1]",
            "priority": -1,
            "topic": "x" * 300,
            "queue": "",
            "dedup_key": "",
            "grp": "",
            "delay_us": 2**62,
        }
        with relay(), orders.consumer(lambda d: seen.put(d.message.payload)):
            with begin() as connection:
                for column, value in wrong.items():
                    values = list(entry_values("orders", Publication(Message(b"bad", "orders"))))
                    values[COLUMNS.index(column)] = value
                    inserter(db.engine, connection)(tuple(values))
                db.outbox(connection).publish("orders", b"good")
            assert seen.get(timeout=PATIENCE) == b"good"
            with begin() as connection:
                db.outbox(connection).publish("orders", b"later")
            assert seen.get(timeout=PATIENCE) == b"later"
        assert caplog.text.count("cannot be published and is kept") == len(wrong)
        assert relay().run_once() == 0

    def test_parked_entries_are_logged_and_listed_and_moved_when_they_are_retried(
        self, db, orders, begin, relay, seen, caplog
    ):
        with begin() as connection:
            keys = [db.outbox(connection).publish("nowhere", b"%d" % n) for n in range(2)]
        relay().run_once()
        assert "2 entries for 'nowhere' are parked" in caplog.text
        first, second = relay().parked()
        assert [first.delivery_key, second.delivery_key] == keys
        assert (first.queue, first.topic) == ("nowhere", "nowhere")
        assert "there is no queue" in first.problem
        nowhere = db.queue("nowhere")
        assert relay().retry([first.id]) == 1
        relay().run_once()
        assert [d.message.payload for d in nowhere.claim(5)] == [b"0"]
        with relay() as running, nowhere.consumer(lambda d: seen.put(d.message.payload)):
            assert running.retry() == 1
            assert seen.get(timeout=PATIENCE) == b"1"
        assert relay().parked() == []

    def test_a_message_for_a_subscription_is_parked(self, db, orders, begin, relay):
        db.subscription("eu", "region = 'EU'")
        with begin() as connection:
            db.outbox(connection).publish("eu", b"a")
        relay().run_once()
        assert ["is a subscription" in parked.problem for parked in relay().parked()] == [True]

    def test_two_relays_move_everything_once(self, db, orders, begin, relay, seen):
        with begin() as connection:
            outbox = db.outbox(connection)
            for at in range(300):
                outbox.publish("orders", b"%d" % at)
        with relay(), relay(), orders.consumer(lambda d: seen.put(d.message.payload)):
            found = sorted(seen.get(timeout=PATIENCE) for _ in range(300))
        assert found == sorted(b"%d" % at for at in range(300))
        assert seen.empty()

    # Seed 000's tests of its outbox, by name.

    @pytest.fixture
    def events(self, db: Database, orders: Queue, begin: Begin, relay) -> Queue:
        with begin() as connection:
            outbox = db.outbox(connection)
            for type, region in itertools.product(("created", "shipped"), ("EU", "US", "APAC")):
                outbox.publish(
                    "orders", f"{type}-{region}".encode(), headers={"type": type, "region": region}
                )
            outbox.publish("orders", b"bare")
        relay().run_once()
        return orders

    def found(self, orders: Queue, filter: str) -> set[bytes]:
        return {delivery.message.payload for delivery in orders.claim(50, filter=filter)}

    def test_outbox_server_side_filter_equals(self, events):
        wanted = {b"created-EU", b"created-US", b"created-APAC"}
        assert self.found(events, "type = 'created'") == wanted

    def test_outbox_server_side_filter_in(self, events):
        wanted = {b"created-EU", b"shipped-EU", b"created-US", b"shipped-US"}
        assert self.found(events, "region IN ('EU', 'US')") == wanted

    def test_outbox_server_side_filter_and(self, events):
        assert self.found(events, "type = 'shipped' AND region = 'US'") == {b"shipped-US"}

    def test_outbox_server_side_filter_missing_header(self, events):
        assert self.found(events, "type = 'x' OR type <> 'created'") == {
            b"shipped-EU",
            b"shipped-US",
            b"shipped-APAC",
        }


class SqliteOutboxBehaviour(OutboxBehaviour):
    """SQLite stores anything in any column."""

    @pytest.mark.parametrize(
        "column", ["delivery_key", "queue", "topic", "dedup_key", "grp", "key"]
    )
    @pytest.mark.parametrize("written", ["x'61'", "CAST(x'61ff' AS TEXT)"])
    def test_a_row_whose_text_is_not_utf_8_is_kept_and_the_others_are_moved(
        self, db, orders, begin, relay, column, written
    ):
        with begin() as connection:
            db.outbox(connection).publish("orders", b"bad")
            change = f"UPDATE headgate_outbox SET {column} = {written}"
            is_alchemy = hasattr(connection, "exec_driver_sql")
            (connection.exec_driver_sql if is_alchemy else connection.execute)(change)
            db.outbox(connection).publish("orders", b"good")
        relay().run_once()
        assert [d.message.payload for d in orders.claim(5)] == [b"good"]
        assert len(relay().parked()) == 1
        assert relay().run_once() == 0


class TestApsw(SqliteOutboxBehaviour):
    @pytest.fixture
    def db(self, sqlite_db: Database) -> Database:
        return sqlite_db

    @pytest.fixture
    def begin(self, tmp_path) -> Begin:
        @contextmanager
        def connected() -> Iterator[Any]:
            connection = apsw.Connection(str(tmp_path / "queues.db"))
            connection.set_busy_timeout(30_000)
            with closing(connection), connection:
                yield connection

        return connected

    def test_another_file_is_refused(self, db, tmp_path):
        with closing(apsw.Connection(str(tmp_path / "app.db"))) as connection:
            with pytest.raises(QueueOptionsError, match=r"app\.db is not"):
                db.outbox(connection)


class FileOutboxBehaviour(SqliteOutboxBehaviour):
    """The outbox is in the application's own file."""

    @pytest.fixture
    def db(self, sqlite_db: Database) -> Database:
        return sqlite_db

    @pytest.fixture
    def relay(self, db: Database, tmp_path) -> Callable[[], Relay]:
        return lambda: db.relay(tmp_path / "app.db")

    def test_a_file_that_is_not_there_is_named_and_not_made(self, db, tmp_path):
        with pytest.raises(DatabaseUnavailable, match="there is no such file"):
            db.relay(tmp_path / "misspelt.db").run_once()
        assert [path.name for path in tmp_path.iterdir() if "misspelt" in path.name] == []

    def test_several_relays_move_everything_once_without_a_dedup_window(self, db, begin, relay):
        hasty = db.queue("hasty", dedup_window=timedelta())
        with begin() as connection:
            outbox = db.outbox(connection)
            for at in range(1000):
                outbox.publish("hasty", b"%d" % at)
        relays = [relay() for _ in range(3)]

        def run(relay: Relay) -> None:
            for _ in range(20):
                relay.run_once()

        threads = [threading.Thread(target=run, args=(each,)) for each in relays]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        relays[0].run_once()
        assert hasty.stats().ready == 1000

    def test_an_entry_is_moved_once_even_when_its_relay_was_killed_in_between(
        self, db, orders, begin, relay
    ):
        with begin() as connection:
            key = db.outbox(connection).publish("orders", b"a")
        orders.publish(b"a", dedup_key=f"outbox:{key}")  # a relay published it, and died
        assert relay().run_once() == 1
        assert [d.message.payload for d in orders.claim(5)] == [b"a"]
        assert relay().run_once() == 0


class TestStdlibSqlite3(FileOutboxBehaviour):
    @pytest.fixture
    def begin(self, tmp_path) -> Begin:
        @contextmanager
        def connected() -> Iterator[Any]:
            with (
                closing(sqlite3.connect(tmp_path / "app.db", timeout=30)) as connection,
                connection,
            ):
                yield connection

        return connected


class TestAsyncRelayOfAFile(FileOutboxBehaviour):
    """The asyncio API reads the application's file in a thread."""

    @pytest.fixture
    def db(self, tmp_path) -> Iterator[Database]:
        with blocking_aio.connect(f"sqlite:///{tmp_path}/queues.db?synchronous=OFF") as db:
            yield db

    @pytest.fixture
    def begin(self, tmp_path) -> Begin:
        @contextmanager
        def connected() -> Iterator[Any]:
            file = tmp_path / "app.db"
            opened = sqlite3.connect(file, timeout=30, check_same_thread=False)  # the loop's thread
            with closing(opened) as connection, connection:
                yield connection

        return connected


class TestSqlAlchemyOnSqlite(FileOutboxBehaviour):
    @pytest.fixture
    def begin(self, tmp_path) -> Iterator[Begin]:
        engine = sqlalchemy.create_engine(
            f"sqlite:///{tmp_path}/app.db", connect_args={"timeout": 30}
        )
        yield engine.begin
        engine.dispose()


@pytest.mark.postgres
class TestPsycopg(OutboxBehaviour):
    @pytest.fixture
    def db(self, postgres_db: Database) -> Database:
        return postgres_db

    @pytest.fixture
    def begin(self, postgres_url: str) -> Begin:
        return lambda: psycopg.connect(postgres_url, cursor_factory=psycopg.ClientCursor)


@pytest.mark.postgres
class TestSqlAlchemyOnPostgres(OutboxBehaviour):
    @pytest.fixture
    def db(self, postgres_db: Database) -> Database:
        return postgres_db

    @pytest.fixture
    def begin(self, postgres_url: str) -> Iterator[Begin]:
        url = "postgresql+psycopg" + postgres_url.removeprefix("postgresql")
        engine = sqlalchemy.create_engine(url)
        yield engine.begin
        engine.dispose()


@pytest.mark.postgres
def test_an_asyncio_transaction_has_an_outbox(postgres_url: str, postgres_db: Database):
    schema = postgres_db.engine.target.schema

    async def publish_and_claim() -> list[bytes]:
        async with await aio.connect(postgres_url, schema=schema) as db:
            orders = await db.queue("orders")
            async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
                await db.outbox(connection).publish("orders", b"a")
            async with db.relay():
                while not (found := await orders.claim(5)):
                    await asyncio.sleep(0)
            return [delivery.message.payload for delivery in found]

    assert asyncio.run(asyncio.wait_for(publish_and_claim(), PATIENCE)) == [b"a"]


def test_a_connection_of_an_unknown_library_is_refused(sqlite_db: Database):
    with pytest.raises(QueueOptionsError, match="psycopg, sqlite3, apsw or SQLAlchemy"):
        sqlite_db.outbox(object())


def test_there_is_no_outbox_in_memory():
    with connect("memory:") as db, pytest.raises(QueueOptionsError, match="memory"):
        db.relay()


def test_a_sqlite3_connection_to_the_file_of_the_queues_is_refused(sqlite_db: Database, tmp_path):
    class Known(sqlite3.Connection):
        """Says it is connected to the queues' file, without opening it."""

        def execute(self, statement: str, *params: Any) -> Any:
            return [(0, "main", str(tmp_path / "queues.db"))]

    with closing(sqlite3.connect(":memory:", factory=Known)) as connection:
        with pytest.raises(QueueOptionsError, match="two SQLite libraries"):
            sqlite_db.outbox(connection)
