"""The SQLite engine: clocks, locks, files, plans."""

import errno
import gc
import json
import os
import queue as queues
import re
import sqlite3
import subprocess
import sys
import threading
import time
import weakref
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import apsw
import pytest

from headgate.errors import (
    DatabaseFull,
    DatabaseUnavailable,
    QueueError,
    QueueNotFound,
    QueueOptionsError,
    SchemaTooNew,
    StaleLease,
)
from headgate.filters.parser import parse
from headgate.message import Message
from headgate.queues.database import connect
from headgate.queues.database_url import sqlite_path
from headgate.queues.engine import (
    Outcome,
    Publication,
    Receipt,
    State,
    Statement,
    Transaction,
    TransactionMode,
)
from headgate.queues.queue import Queue
from headgate.queues.sql import search as search_module
from headgate.queues.sql.dialect import migrations_of, split_statements, statements_of
from headgate.queues.sql.search import Search
from headgate.queues.sqlite import connection as sqlite_connection
from headgate.queues.sqlite import schema
from headgate.queues.sqlite.engine import SqliteEngine
from headgate.queues.sqlite.file import LogFile, open_file
from headgate.queues.sqlite.schema import migrate
from headgate.testing import ManualClock
from tests.steps import before_transaction, watched

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/queues.db"


@pytest.fixture
def db(url):
    with connect(url) as database:
        yield database


@pytest.fixture
def orders(db):
    return db.queue("orders", filter_headers=["type", "region"])


# ---- time ----------------------------------------------------------------------------------------------


def test_setting_the_clock_forward_frees_no_lease(url):
    time = ManualClock()
    with connect(url, clock=time.clock) as db:
        queue = db.queue("q")
        queue.publish(b"a")
        [held] = queue.claim(lease=30 * SECOND)
        time.set_wall_clock(24 * HOUR)
        assert queue.claim() == []
        held.ack()


def test_setting_the_clock_back_loses_no_lease(url):
    time = ManualClock()
    with connect(url, clock=time.clock) as db:
        queue = db.queue("q")
        queue.publish(b"a")
        queue.claim(lease=30 * SECOND)
        time.set_wall_clock(-24 * HOUR)
        time.advance(30 * SECOND)
        assert len(queue.claim()) == 1


def test_a_process_that_starts_after_the_clock_was_set_agrees_with_the_others(url):
    time = ManualClock()
    with connect(url, clock=time.clock) as db:
        db.queue("q").publish(b"a")
        db.queue("q").claim(lease=30 * SECOND)
        time.set_wall_clock(24 * HOUR)
        with connect(url, clock=time.clock) as other:
            assert other.queue("q").claim() == []
            time.advance(30 * SECOND)
            assert len(other.queue("q").claim()) == 1


def test_after_a_restart_of_the_machine_the_leases_of_before_are_over(url):
    time = ManualClock()
    with connect(url, clock=time.clock) as db:
        db.queue("q").publish(b"a")
        db.queue("q").publish(b"b", delay=HOUR)
        db.queue("q").claim(lease=HOUR)
    time.restart_machine()
    with connect(url, clock=time.clock) as db:
        [again] = db.queue("q").claim(5)
        assert (again.message.payload, again.attempts) == (b"a", 2)
        time.advance(HOUR)
        assert b"b" in [d.message.payload for d in db.queue("q").claim(5)]


def test_after_a_restart_with_a_wrong_clock_time_does_not_run_backwards(url):
    time = ManualClock()
    with connect(url, clock=time.clock) as db:
        db.queue("q").publish(b"a", delay=30 * SECOND)
    time.restart_machine()
    time.set_wall_clock(-24 * HOUR)
    with connect(url, clock=time.clock) as db:
        time.advance(30 * SECOND)
        assert len(db.queue("q").claim()) == 1


# ---- many at once --------------------------------------------------------------------------------------

WORK = """
import sys
from headgate.queues.database import connect
with connect(sys.argv[1]) as db:
    queue = db.queue("orders")
    name = sys.argv[2]
    print("ready", flush=True)
    sys.stdin.readline()
    for at in range(40):
        queue.publish(f"{name}-{at}".encode())
    taken = []
    while found := queue.claim(3):
        taken += [delivery.message.payload.decode() for delivery in found]
        for delivery in found:
            delivery.ack()
    print(*taken)
"""


def test_processes_that_publish_and_claim_at_once_never_see_it_locked_and_share_without_loss(url):
    with connect(url) as db:
        queue = db.queue("orders")
        workers = [
            subprocess.Popen(
                [sys.executable, "-c", WORK, url, name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for name in "abc"
        ]
        for worker in workers:
            assert worker.stdout.readline() == "ready\n"
        outputs = [worker.communicate("go\n", timeout=120) for worker in workers]
        assert [errors for _, errors in outputs] == ["", "", ""]
        taken = [name for output, _ in outputs for name in output.split()]
        taken += [delivery.message.payload.decode() for delivery in queue.claim(200)]
    assert sorted(taken) == sorted(f"{name}-{at}" for name in "abc" for at in range(40))


def test_threads_that_publish_and_claim_at_once_share_without_loss(orders):
    taken: queues.Queue[bytes] = queues.Queue()

    def work(name: int) -> None:
        for at in range(30):
            orders.publish(b"%d-%d" % (name, at))
            for delivery in orders.claim(2):
                taken.put(delivery.message.payload)
                delivery.ack()

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [taken.get() for _ in range(taken.qsize())] + [
        d.message.payload for d in orders.claim(200)
    ]
    assert sorted(found) == sorted(b"%d-%d" % (name, at) for name in range(4) for at in range(30))


def test_threads_that_publish_at_once_learn_the_ids_of_their_own_messages(orders):
    published: queues.Queue[tuple[int, bytes]] = queues.Queue()

    def work(name: int) -> None:
        for at in range(30):
            payload = b"%d-%d" % (name, at)
            published.put((orders.publish(payload), payload))

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [(each.id, each.message.payload) for each in orders.browse()]
    assert found == sorted(published.get() for _ in range(120))


# ---- one message ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("publish", [Queue.publish, lambda queue, body: queue.publish_many([body])])
def test_one_message_is_one_statement(db, publish):
    queue, statements = db.queue("orders"), []
    queue.publish(b"first, which reads the catalog")
    for connection in db.engine._idle:
        connection._connection.exec_trace = lambda _, text, __: statements.append(text) or True
    publish(queue, b"second")
    assert statements == [statements_of("sqlite")["publish_one"]]


def test_one_message_published_by_an_old_catalog_reaches_a_new_subscription(db, url):
    queue = db.queue("orders")
    queue.publish(b"before")
    with connect(url) as other:
        audit = other.subscription("audit", pattern="#")
        id = queue.publish(b"after")
        assert [(d.id, d.message.payload) for d in audit.claim(5)] == [(id, b"after")]
    assert [d.message.payload for d in queue.claim(5)] == [b"before", b"after"]


def test_one_message_published_by_an_old_catalog_has_the_new_filter_headers(db, url):
    queue = db.queue("orders")
    queue.publish(b"before", headers={"region": "EU"})
    with connect(url) as other:
        same = other.queue("orders", filter_headers=["region"])
        queue.publish(b"after", headers={"region": "EU"})
        found = same.claim(5, filter="region = 'EU'")
    assert [d.message.payload for d in found] == [b"before", b"after"]


def test_one_message_to_a_queue_that_was_dropped_elsewhere_is_refused(db, url):
    queue = db.queue("orders")
    queue.publish(b"before")
    with connect(url) as other:
        other.delete("orders")
    with pytest.raises(QueueNotFound):
        queue.publish(b"after")


@pytest.mark.parametrize("count", [1, 10])
@pytest.mark.parametrize("filter", [None, "type = 'new'"])
def test_messages_are_acked_and_claimed_by_five_statements(orders, db, count, filter):
    orders.publish_many(Message(b"%d" % n, headers={"type": "new"}) for n in range(4 * count))
    held, statements = [], []
    for _ in range(3):  # the first claims also look for busy groups
        held = orders.ack_and_claim(held, count, filter=filter)
    for connection in db.engine._idle:
        connection._connection.exec_trace = lambda _, text, __: statements.append(text) or True
    held = orders.ack_and_claim(held, count, filter=filter)
    assert [int(d.message.payload) for d in held] == list(range(3 * count, 4 * count))
    verbs = [text.split()[0] for text in statements]
    assert verbs == ["BEGIN", "DELETE", "SELECT", "UPDATE", "COMMIT"]


def test_messages_with_different_tokens_are_acked_together(orders):
    orders.publish_many([b"a", b"b", b"c"])
    orders.claim()[0].release()
    held = orders.claim(3)
    assert sorted(d.token for d in held) == [1, 1, 2]
    assert orders.ack_and_claim(held, 3) == []
    assert [d.settled for d in held] == ["acked"] * 3
    assert not list(orders.browse())


def test_when_one_of_several_acks_fails_the_others_are_done(orders):
    orders.publish_many([b"a", b"b", b"c", b"d"])
    held = orders.claim(3)
    orders.delivery(held[1].id, held[1].token).ack()
    with pytest.raises(StaleLease):
        orders.ack_and_claim(held, 3)
    assert [d.settled for d in held] == ["acked", None, "acked"]
    assert [d.message.payload for d in orders.claim(3)] == [b"d"]


def test_claiming_one_by_one_prepares_nothing_twice(db):
    queue, held = db.queue("orders"), []
    queue.publish_many([b""] * 300)

    def claim(count):
        nonlocal held
        for _ in range(count):
            held = queue.ack_and_claim(held)

    claim(100)
    [connection] = db.engine._idle
    misses = connection._connection.cache_stats()["misses"]
    claim(200)
    assert connection._connection.cache_stats()["misses"] == misses


def test_one_message_that_an_old_catalog_acks_is_archived(db, url):
    queue = db.queue("orders")
    queue.publish_many([b"first", b"second"])
    held = queue.claim()
    with connect(url) as other:
        other.queue("orders", archive=True)
    assert [d.message.payload for d in queue.ack_and_claim(held)] == [b"second"]
    assert [each.message.payload for each in queue.archived()] == [b"first"]


def test_one_message_is_not_claimed_by_an_old_catalog_after_a_pause(db, url):
    queue = db.queue("orders")
    queue.publish_many([b"first", b"second"])
    held = queue.claim()
    with connect(url) as other:
        other.queue("orders").pause()
    assert queue.ack_and_claim(held) == []
    assert [d.settled for d in held] == ["acked"]


def test_of_several_values_the_first_message_is_claimed(db):
    queue = db.queue("orders", filter_headers=["type"])
    queue.publish_many(Message(b"", headers={"type": type}) for type in ("b", "c", "a"))
    found = [queue.claim(filter="type IN ('a', 'b', 'c')")[0] for _ in range(3)]
    assert [d.message.headers["type"] for d in found] == ["b", "c", "a"]


def test_an_id_is_never_given_twice_even_when_the_last_message_is_gone(db):
    queue = db.queue("orders")
    first = queue.publish(b"a")
    queue.claim()[0].ack()
    assert queue.publish(b"b") > first


def test_databases_opened_at_the_same_moment_are_made_once(tmp_path):
    opened: queues.Queue[object] = queues.Queue()

    def open_it() -> None:
        try:
            SqliteEngine(tmp_path / "new.db").close()
            opened.put(None)
        except Exception as problem:
            opened.put(problem)

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [opened.get() for _ in threads] == [None] * 8


def test_the_log_of_writes_stays_bounded(orders, tmp_path):
    for _ in range(60):
        orders.publish_many(Message(b"x" * 1000) for _ in range(100))
        for delivery in orders.claim(1):
            delivery.ack()
    assert os.path.getsize(tmp_path / "queues.db-wal") < 12_000_000


# ---- failing -------------------------------------------------------------------------------------------


def test_a_full_disk_is_an_error_and_loses_nothing_confirmed(url, monkeypatch):
    open_it = SqliteEngine._open

    def open_small(engine: SqliteEngine) -> apsw.Connection:
        connection = open_it(engine)
        connection.pragma("max_page_count", 60)
        return connection

    monkeypatch.setattr(SqliteEngine, "_open", open_small)
    with connect(url) as db:
        queue = db.queue("q")
        confirmed: list[int] = []
        with pytest.raises(DatabaseFull, match="full"):
            confirmed.extend(iter(lambda: queue.publish(b"x" * 1000), None))
        assert [standing.id for standing in queue.browse()] == confirmed
        for delivery in queue.claim(5):
            delivery.ack()


def test_a_publish_that_fails_in_the_middle_leaves_nothing(orders):
    with pytest.raises(Exception, match="boom"):
        orders.publish_many(_failing())
    assert orders.stats().ready == 0


def _stored(tmp_path) -> list[int]:
    with closing(apsw.Connection(str(tmp_path / "queues.db"))) as other:
        return [id for (id,) in other.execute("SELECT id FROM headgate_message ORDER BY id")]


def test_messages_go_with_the_last_delivery_of_their_block(db, orders, tmp_path):
    orders.publish_many([b""] * 15)  # two blocks: 1 to 7, 8 to 15
    first, *others = orders.claim(15)
    for delivery in others[6:-1]:
        delivery.ack()
    assert _stored(tmp_path) == list(range(1, 16))
    others[-1].ack()
    assert _stored(tmp_path) == list(range(1, 8))
    for delivery in others[:6]:
        delivery.ack()
    assert _stored(tmp_path) == list(range(1, 8))
    # What is done is only stored, nowhere to be seen.
    assert len(list(orders.browse())) == 1
    late = db.subscription("late", "TRUE", start="first")
    assert late.stats().ready == 1
    first.ack()
    late.claim()[0].ack()
    assert _stored(tmp_path) == []


def test_a_long_message_goes_with_its_own_last_delivery(db, orders, tmp_path):
    everything = db.subscription("everything", "TRUE")
    for payload in (b"x" * 2_001, b"", b"x" * 2_000):
        orders.publish(payload)
    for queue in (orders, everything):
        assert _stored(tmp_path) == [1, 2, 3]
        for delivery in queue.claim(3)[::2]:
            delivery.ack()
    assert _stored(tmp_path) == [2, 3]


def test_a_single_publish_that_fails_in_the_middle_leaves_nothing_and_the_next_one_works(
    orders, tmp_path
):
    other = apsw.Connection(str(tmp_path / "queues.db"))
    other.execute(
        "CREATE TRIGGER refuse BEFORE INSERT ON headgate_delivery BEGIN SELECT RAISE(ABORT, 'boom'); END"
    )
    with pytest.raises(QueueError, match="boom"):
        orders.publish(b"a")
    assert other.execute("SELECT count(*) FROM headgate_message").get == 0
    other.execute("DROP TRIGGER refuse")
    other.close()
    orders.publish(b"b")
    assert [standing.message.payload for standing in orders.browse()] == [b"b"]


def test_a_publisher_does_not_use_an_old_catalog_after_another_process_changed_it(url, orders):
    orders.publish(b"before", topic="news")
    with connect(url) as other:
        subscription = other.subscription("s", pattern="news")
        other.queue("orders", filter_headers=["colour"])
        orders.publish(b"after", topic="news", headers={"colour": "red"})
        assert [d.message.payload for d in subscription.claim(9)] == [b"after"]
        [found] = other.queue("orders").claim(9, filter="colour = 'red'")
        assert found.message.payload == b"after"


def _failing():
    yield b"a"
    raise RuntimeError("boom")


def test_a_directory_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DatabaseUnavailable, match=r"nowhere/q\.db"):
        connect(f"sqlite:///{tmp_path}/nowhere/q.db")


def test_tables_of_a_newer_headgate_are_refused(url, orders, tmp_path):
    connection = apsw.Connection(str(tmp_path / "queues.db"))
    connection.execute("INSERT INTO headgate_migration VALUES (9999)")
    connection.close()
    with pytest.raises(SchemaTooNew, match="9999"):
        connect(url)


def test_migrating_twice_changes_nothing(tmp_path):
    connection = apsw.Connection(str(tmp_path / "m.db"))
    migrate(connection)
    before = connection.execute("SELECT sql FROM sqlite_schema ORDER BY name").fetchall()
    migrate(connection)
    assert connection.execute("SELECT sql FROM sqlite_schema ORDER BY name").fetchall() == before
    connection.close()


def test_an_application_may_have_its_own_tables_in_the_same_file(tmp_path, url):
    connection = apsw.Connection(str(tmp_path / "queues.db"))
    connection.execute("CREATE TABLE message (id INTEGER); CREATE TABLE queue (id INTEGER)")
    connection.close()
    with connect(url) as db:
        db.queue("q").publish(b"a")
        assert len(db.queue("q").claim()) == 1


# ---- plans ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filter", "index"),
    [
        ("TRUE", "headgate_delivery_ready"),
        ("type = 'a'", "headgate_filter_type"),
        ("type = 5", "headgate_filter_type"),
        ("type = TRUE", "headgate_filter_type"),
        ("type IN ('a', 'b')", "headgate_filter_type"),
        ("type = 'a' OR region = 'EU'", "headgate_filter_region"),
        ("region <> 'EU'", "headgate_delivery_ready"),
        ("size = 3", "headgate_delivery_ready"),
    ],
)
def test_a_claim_uses_an_index_in_the_order_of_the_queue_and_never_sorts(orders, filter, index):
    plan = "\n".join(orders.index_advise(filter).plan)
    assert index in plan
    assert "TEMP B-TREE" not in plan
    assert "SCAN d" not in plan


def test_of_two_headers_the_rarer_value_is_looked_up(orders):
    orders.publish_many(
        Message(b"", headers={"type": "rare" if at == 7 else "t", "region": "EU"})
        for at in range(50)
    )
    assert "headgate_filter_type" in orders.index_advise("region = 'EU' AND type = 'rare'").plan[0]
    assert "headgate_filter_region" in orders.index_advise("region = 'US' AND type = 't'").plan[0]


def test_advice_names_the_headers_to_declare_until_they_are_declared(orders):
    advice = orders.index_advise("size = 3 AND tenant IN ('a', 'b')")
    assert (advice.scans, advice.suggestions) == (True, ("size",))
    orders.index_add("size")
    advice = orders.index_advise("size = 3 AND tenant IN ('a', 'b')")
    assert (advice.scans, advice.suggestions) == (False, ())


def test_a_consumer_whose_claims_read_everything_says_so(orders, caplog):
    with orders.consumer(print, filter="tenant = 'a'"):
        pass
    assert "tenant" in caplog.text


# ---- the statements ------------------------------------------------------------------------------------


def test_statements_have_names_and_no_comments():
    text = (
        "-- about\n-- name: one\n-- Why.\nSELECT 1;\n\n-- name: two\nSELECT\n    -- Why.\n    2\n"
    )
    assert split_statements(text) == {"one": "SELECT 1", "two": "SELECT\n    2"}


def test_every_statement_without_gaps_can_be_prepared(orders, tmp_path):
    connection = apsw.Connection(str(tmp_path / "queues.db"))
    connection.create_scalar_function("keep_id", lambda id: id, 1)
    for text in statements_of("sqlite").values():
        if "{" not in text and text.startswith(("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")):
            count = max(map(int, re.findall(r"\?(\d+)", text)), default=0)
            connection.execute("EXPLAIN " + text, (None,) * count)
    connection.close()


def test_an_error_at_which_sqlite_rolls_back_by_itself_is_the_one_that_is_raised(monkeypatch):
    failing = (
        "CREATE TABLE t (n UNIQUE); INSERT INTO t VALUES (1); INSERT OR ROLLBACK INTO t VALUES (1)"
    )
    monkeypatch.setattr(schema, "migrations_of", lambda name: [(1, failing)])
    with closing(apsw.Connection(":memory:")) as connection, pytest.raises(apsw.ConstraintError):
        migrate(connection)


def test_migrations_are_numbered_without_a_gap():
    numbers = [number for number, _ in migrations_of("sqlite")]
    assert numbers == list(range(1, len(numbers) + 1))


def test_json_of_headers_keeps_its_numbers_through_the_door(orders, tmp_path):
    numbers = {"a": 0.1 + 0.2, "b": 1e300, "c": 2**62, "d": -0.0}
    code = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('INSERT INTO inbox (queue, headers) VALUES (?, ?)', ('orders', sys.argv[2])); c.commit()"
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "queues.db"), json.dumps(numbers)], check=True
    )
    [delivery] = orders.claim()
    assert {name: repr(value) for name, value in delivery.message.headers.items()} == {
        name: repr(value) for name, value in numbers.items()
    }


# ---- how lasting ---------------------------------------------------------------------------------------


@pytest.fixture
def syncs(monkeypatch):
    """The names of the files that were synced, in turn."""
    synced, sync = [], os.fdatasync

    def note(descriptor):
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", note)
    return synced


def test_only_a_claim_does_not_wait_for_the_disk(orders, syncs):
    def synced_by(act):
        syncs.clear()
        return act(), syncs[:]

    log = ["queues.db-wal"]
    assert synced_by(lambda: orders.publish(b"a"))[1] == log
    assert synced_by(lambda: orders.publish_many([b"b", b"c", b"d"]))[1] == log
    [a], synced = synced_by(orders.claim)
    assert synced == []
    assert synced_by(a.ack)[1] == log
    [b], synced = synced_by(orders.claim)
    [c], synced = synced_by(lambda: orders.ack_and_claim([b]))
    assert synced == log
    assert synced_by(lambda: c.nack(SECOND))[1] == log
    assert synced_by(lambda: orders.claim(2))[1] == []
    assert synced_by(orders.stats)[1] == []
    assert synced_by(orders.purge)[1] == log


def test_a_repeated_message_is_confirmed_once_the_first_is_on_the_disk(orders, url, syncs):
    first = orders.publish(b"a", dedup_key="a")
    with connect(url) as other:
        syncs.clear()
        assert other.queue("orders").publish(b"a", dedup_key="a") == first
        assert syncs == ["queues.db-wal"]


def test_a_claim_that_fails_leaves_nothing_to_sync(tmp_path, syncs):
    def failing():
        yield Transaction(TransactionMode.LEASE, lambda: _rows(Statement("SELECT nonsense")))

    with closing(SqliteEngine(tmp_path / "q.db")) as engine:
        with pytest.raises(QueueError, match="nonsense"):
            engine.run(failing())
        assert syncs == []


@pytest.mark.parametrize("level", ["NORMAL", "OFF"])
def test_nothing_is_synced_at_a_lower_level(tmp_path, syncs, level):
    with connect(f"sqlite:///{tmp_path}/queues.db", synchronous=level) as db:
        queue = db.queue("q")
        queue.publish(b"a")
        [delivery] = queue.claim()
        delivery.ack()
    assert syncs == []


def test_a_log_that_could_not_be_synced_is_copied_into_the_database(orders, monkeypatch, tmp_path):
    def fail(descriptor):
        raise OSError(5, "Input/output error")

    orders.publish(b"a")
    with monkeypatch.context() as failing:
        failing.setattr(os, "fdatasync", fail)
        orders.publish(b"b")
    with closing(
        apsw.Connection(
            f"{(tmp_path / 'queues.db').as_uri()}?immutable=1",
            flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
        )
    ) as alone:
        assert alone.execute("SELECT payload FROM headgate_message").fetchall() == [
            (b"a",),
            (b"b",),
        ]


def test_a_message_is_stored_safely_while_the_process_can_open_no_more_files(url, monkeypatch):
    opened = os.open

    def refuse(path, *args):
        if str(path).endswith("-wal"):
            raise OSError(errno.EMFILE, "Too many open files")
        return opened(path, *args)

    stored = []
    with connect(url) as db:
        queue = db.queue("q")
        monkeypatch.setattr(LogFile, "store", lambda *_: stored.append(1))
        db.engine._close_idle()
        monkeypatch.setattr(os, "open", refuse)
        queue.publish(b"a")
    assert stored == [1]


def test_a_connection_that_an_interruption_has_lost_leaves_no_descriptor_open(db, orders):
    orders.publish(b"a")
    log = db.engine.path.with_name("queues.db-wal")
    db.engine._turns.close()
    db.engine._idle.clear()
    gc.collect()
    opened = [file.readlink() for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
    assert log not in [Path(str(file).removesuffix(" (deleted)")) for file in opened]


def test_an_older_handle_sets_members_of_a_busy_group_aside(db, orders):
    db.delete("orders")
    publications = [Publication(Message(b""), group="busy") for _ in range(150)]
    db.queue("orders").publish_many(publications)
    for _ in range(5):
        orders.claim()
    with closing(apsw.Connection(str(db.engine.path))) as other:
        query = "SELECT count(*) FROM headgate_delivery WHERE aside = 1"
        assert other.execute(query).fetchall() == [(149,)]


def test_a_change_is_not_confirmed_while_the_log_cannot_be_stored(orders, monkeypatch):
    def fail(*_, **__):
        raise OSError(5, "Input/output error")

    def refuse(*_, **__):
        raise apsw.IOError("disk I/O error")

    with monkeypatch.context() as failing:
        failing.setattr(os, "fdatasync", fail)
        failing.setattr(LogFile, "store", refuse)
        with pytest.raises(DatabaseUnavailable, match="disk I/O error"):
            orders.publish(b"a")
        with pytest.raises(DatabaseUnavailable, match="disk I/O error"):
            orders.publish_many([b"b"])
    orders.publish(b"c")
    assert [each.message.payload for each in orders.peek(10)] == [b"a", b"b", b"c"]


def test_a_filter_that_matches_nothing_scans_only_new_messages(db, orders):
    """The second scan begins after the last message of the first."""
    filter = parse("kind = 'y'")
    memory = db.engine.operations.scan_memory
    orders.publish_many(Message(b"", headers={"kind": "x"}) for _ in range(50))
    assert orders.claim(filter=filter) == []
    record = memory.record(orders.info, filter)
    assert (record.upto, record.matches) == (50, ())
    orders.publish(b"a", headers={"kind": "y"})
    assert len(orders.claim(filter=filter)) == 1
    record = memory.record(orders.info, filter)
    assert (record.upto, record.matches) == (51, (51,))


def test_a_filter_on_an_empty_queue_reads_the_messages_of_others_once(db, orders):
    filter = parse("kind = 'y'")
    others = db.queue("others")
    others.publish_many([b""] * 50)
    for _ in range(2):
        assert orders.claim(filter=filter) == []
        assert db.engine.operations.scan_memory.record(orders.info, filter).upto == 50
        others.purge()
    orders.publish(b"", headers={"kind": "y"})
    assert len(orders.claim(filter=filter)) == 1


def test_messages_that_did_not_match_are_not_read_again(db, orders):
    """The second search asks only about the matches and what is new, also where that comes first."""
    filter = parse("kind = 'y'")
    orders.publish_many(Message(b"", headers={"kind": "xy"[n % 5 == 4]}) for n in range(50))
    operations = db.engine.operations
    search = Search(orders.info, operations.planner.plan(orders.info, filter))
    asked = []

    def found():
        operation = operations.scan_memory.find(search, 3)
        try:
            step = next(operation)
            while True:
                if "json_each(?2) k" in step.text:
                    asked.append(step.params[1])
                step = operation.send((yield step))
        except StopIteration as end:
            return [each.id for each in end.value]

    assert db.engine.run(found()) == [5, 10, 15]
    orders.publish(b"", headers={"kind": "y"}, priority=9)
    assert db.engine.run(found()) == [51, 5, 10]
    assert asked == [list(range(1, 51)), [51, *range(5, 51, 5)]]


def test_a_claim_reads_about_as_far_as_the_last_one_had_to(db, orders, monkeypatch):
    """Ten of the first 3,600 messages match, and all after 10,000; those that were claimed are given back."""
    orders.publish_many(
        Message(headers={"kind": n % 360 == 359 or n > 10_000}) for n in range(11_000)
    )
    pages, run = [], db.engine.run

    def count(operation):
        page = db.engine.operations.dialect.text("ready_page", part="d.aside = 0")
        return run(
            watched(operation, lambda step: pages.append(step[1][1]) if step[0] == page else 0)
        )

    monkeypatch.setattr(db.engine, "run", count)
    for _ in range(3):
        pages.clear()
        claimed = orders.claim(10, filter="kind = TRUE")
        assert len(claimed) == 10
        for delivery in claimed:
            delivery.release()
    [size] = pages
    assert 3_600 <= size <= 4_200


def test_ready_messages_are_read_in_the_order_of_the_queue(orders):
    """The pages hold two priorities; the more urgent messages are the later ones."""
    orders.publish_many(
        Message(headers={"kind": n % 50 == 0, "n": n}, priority=n // 1_000) for n in range(2_000)
    )
    found = [d.message.headers["n"] for d in orders.claim(40, filter="kind = TRUE")]
    assert found == [*range(1_000, 2_000, 50), *range(0, 1_000, 50)]
    late = [Message(headers={"kind": True, "n": n}, priority=n) for n in (3, 1, 2)]
    orders.publish_many(late)
    assert [d.message.headers["n"] for d in orders.claim(3, filter="kind = TRUE")] == [3, 2, 1]


def test_a_filter_is_planned_once_whatever_the_number_of_claims_and_queues(db, monkeypatch):
    planned = []
    for name in ("branches_of", "choices_of"):
        original = getattr(search_module, name)

        def count(*args, original=original, name=name):
            planned.append(name)
            return original(*args)

        monkeypatch.setattr(search_module, name, count)
    filter = parse("type IN ('a', 'b') AND region = 'EU' AND n > 5")
    for name in ("first", "second"):
        queue = db.queue(name, filter_headers=["type", "region"])
        queue.publish(b"", headers={"type": "a", "region": "EU", "n": 1})
        for _ in range(3):
            assert queue.claim(filter=filter) == []
    assert planned == ["branches_of", "choices_of"]


@pytest.mark.parametrize(("filter", "pages"), [("kind = 'y'", 1), ("kind LIKE 'x%'", 3)])
def test_browsing_reads_as_many_pages_as_its_matches_fill(db, orders, filter, pages):
    orders.publish_many(Message(b"", headers={"kind": "x"}) for _ in range(250))
    read: list[Statement] = []

    def count(operation):
        reply = None
        while True:
            try:
                statement = operation.send(reply)
            except StopIteration:
                return
            if isinstance(statement, Statement) and "headgate_message" in statement.text:
                read.append(statement)
            reply = yield statement

    db.engine.run(count(db.engine.operations.browse(orders.info, 300, filter=parse(filter))))
    assert len(read) == 1
    read.clear()
    for after in (0, 100, 200)[:pages]:
        browse = db.engine.operations.browse(orders.info, 100, after=after, filter=parse(filter))
        db.engine.run(count(browse))
    assert len(read) == pages


def test_deliveries_are_scanned_by_their_key_and_not_sorted(db, orders):
    operations = db.engine.operations
    search = Search(orders.info, operations.planner.plan(orders.info, parse("kind = 'y'")))
    statement = operations.scan_memory.page_statement(search, 5)
    explained = Statement(f"EXPLAIN QUERY PLAN {statement.text}", statement.params)
    plan = "\n".join(str(row[-1]) for row in db.engine.run(_rows(explained)))
    assert "headgate_delivery USING PRIMARY KEY (message>?)" in plan
    assert "TEMP B-TREE" not in plan


def _rows(statement):
    return (yield statement)


def test_acks_of_a_claim_are_done_although_a_queue_is_created_before_its_second_transaction(url):
    time = ManualClock()
    with connect(url, clock=time.clock) as db, connect(url, clock=time.clock) as other:
        queue = db.queue("q", max_attempts=1)
        queue.publish_many([b"a", b"dead as soon as its lease ends"])
        [held] = queue.claim(lease=HOUR)
        queue.claim(lease=SECOND)
        time.advance(SECOND)
        receipt = Receipt(held.id, held.token)
        claim = db.engine.operations.claim(queue.info, 1, 30_000_000, acks=[receipt])

        def create():
            other.queue("new")
            other.queue("q").publish(b"b")

        claimed, outcomes = db.engine.run(watched(claim, before_transaction(create, 2)))
        assert [each.message.payload for each in claimed] == [b"b"]
        assert outcomes == [Outcome.DONE]
        assert {info.name for info in other.queues()} == {"q", "new"}


@pytest.mark.parametrize(
    ("name", "gaps"),
    [
        ("delete_deliveries", {}),
        ("purge_waiting", {}),
        *(("purge_state", {"state": str(int(state))}) for state in State),
        ("prune", {}),
        ("requeue", {}),
        ("delete_expired", {}),
    ],
)
def test_what_deletes_and_requeues_in_bulk_reads_no_other_queues(db, orders, name, gaps):
    text = db.engine.operations.dialect.text(name, **gaps)
    count = max(map(int, re.findall(r"\?(\d+)", text)))
    rows = db.engine.run(_rows(Statement(f"EXPLAIN QUERY PLAN {text}", (1,) * count)))
    assert not [row[-1] for row in rows if re.match("SCAN (?!json_each)", row[-1])]


# ---- another SQLite library in the same process -----------------------------------------------------------


@pytest.mark.parametrize("spell", ["{}", "file:{}", "file:{}?mode=ro"])
def test_the_standard_library_is_kept_from_a_file_that_is_open_here(db, url, spell):
    path = sqlite_path(url)
    with pytest.raises(QueueOptionsError, match="two SQLite libraries"):
        sqlite3.connect(spell.format(path), uri=True)
    other = path.with_name("link.db")
    other.symlink_to(path)
    with pytest.raises(QueueOptionsError, match="two SQLite libraries"):
        sqlite3.connect(other)
    db.queue("q").publish(b"a")
    sqlite3.connect(path.with_name("other.db")).close()
    sqlite3.connect(":memory:").close()
    db.close()
    with closing(sqlite3.connect(path)) as afterwards:
        assert afterwards.execute("SELECT count(*) FROM headgate_message").fetchall() == [(1,)]


def test_a_file_that_the_standard_library_has_open_here_is_refused(url):
    path = sqlite_path(url)
    connect(url).close()
    with closing(sqlite3.connect(path)) as theirs:
        theirs.execute("SELECT * FROM headgate_queue")
        with pytest.raises(QueueOptionsError, match="two SQLite libraries"):
            connect(url)
    with path.open("rb"), connect(url) as db, connect(url) as again:
        db.queue("q").publish(b"a")
        assert len(again.queue("q").claim()) == 1


def test_a_connection_that_is_lost_in_a_transaction_is_closed_at_once(tmp_path):
    """As when Ctrl-C comes twice, the second time while the first is dealt with."""
    with connect(f"sqlite:///{tmp_path / 'q.db'}") as db:
        db.queue("orders").publish(b"a")
        engine = db.engine
        lost = engine._borrow()
        lost._sql("BEGIN IMMEDIATE")
        watched = weakref.ref(lost._connection)
        del lost
        assert watched() is None
        db.queue("orders").publish(b"b")


def test_a_new_queue_is_not_compared_with_the_names_of_all_others(db, monkeypatch):
    def nearest(*args: object) -> str:
        raise AssertionError("a message that nobody reads")

    monkeypatch.setattr("headgate.queues.sql.catalog.nearest", nearest)
    db.queue("new")
    db.subscription("new subscription", "TRUE", filter_headers=["a"])


def test_looking_at_a_file_that_another_has_to_itself_for_a_moment_waits(tmp_path):
    path = tmp_path / "q.db"
    with connect(f"sqlite:///{path}") as db:
        db.queue("orders").publish(b"a")
    holder = apsw.Connection(str(path))
    holder.pragma("locking_mode", "exclusive")
    holder.execute("BEGIN EXCLUSIVE")
    ending = threading.Timer(0.2, holder.close)
    ending.start()
    open_file(path, "look").close()  # raised BusyError at once
    ending.join()


def test_others_write_between_the_transactions_of_a_long_operation(db, monkeypatch):
    other = db.queue("other")
    db.queue("orders").publish_many([b""] * 1_200)
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        writer = threading.Thread(target=other.publish, args=(b"",))
        writer.start()
        writer.join(10)
        assert not writer.is_alive()

    monkeypatch.setattr(sqlite_connection, "_LONG_S", 0.0)
    # Not `time.sleep` itself, which other threads call, too.
    patched = SimpleNamespace(sleep=pause, perf_counter=time.perf_counter)
    monkeypatch.setattr(sqlite_connection, "time", patched)
    db.subscription("early", "TRUE", start="first")
    assert len(pauses) >= 3  # a page of the backlog has 500 messages
    assert other.stats().ready == len(pauses)
