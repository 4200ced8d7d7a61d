"""Processes are killed, servers fall over, connections break: nothing confirmed is lost, nothing is done twice at once."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue as queues
import resource
import subprocess
import sys
import tempfile
import threading
import time as real_time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from headgate.check.postgres import private_server, start_server
from headgate.errors import (
    DatabaseFull,
    DatabaseUnavailable,
    QueueError,
    SchemaTooNew,
    StaleLease,
)
from headgate.message import Message
from headgate.queues.database import Database, connect
from headgate.queues.engine import ClaimedMessage, Publication, State
from headgate.queues.sql.dialect import migrations_of
from headgate.queues.sql.search import RejectedIds
from headgate.testing import ManualClock

VICTIM = Path(__file__).with_name("queue_victim.py")
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
PATIENCE = 60
_numbers = itertools.count()


class Place:
    """A database, and how another process reaches it."""

    def __init__(self, url: str, **options: Any) -> None:
        self.url, self.options = url, options
        self.time = ManualClock()

    def connect(self, *, manual: bool = True) -> Database:
        clock = {"clock": self.time.clock} if manual else {}
        return connect(self.url, **self.options, **clock)

    def victim(self, action: str, argument: Any, *, manual: bool = True) -> subprocess.Popen[str]:
        now = [self.time.wall_us, self.time.elapsed_us, self.time.boot_id]
        options = {**self.options, **({"now": now} if manual else {})}
        command = [sys.executable, VICTIM, self.url, *map(json.dumps, (options, action, argument))]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        yield Place(f"sqlite:///{tmp_path}/queues.db", synchronous="OFF")
    else:
        with postgres_place(request.getfixturevalue("postgres_url")) as found:
            yield found


@contextlib.contextmanager
def postgres_place(url: str) -> Iterator[Place]:
    schema = f"faults_{next(_numbers)}"
    yield Place(url, schema=schema)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[Place]:
    with postgres_place(postgres_url) as found:
        yield found


def killed_holding(place: Place) -> tuple[int, int, int]:
    """What a process had claimed when it was killed: id, token, attempts."""
    with place.victim("hold", 30) as victim:
        held = json.loads(victim.stdout.readline())
        victim.kill()
    return tuple(held)


# ---- killed consumers ----------------------------------------------------------------------------------


def test_messages_of_a_killed_consumer_are_claimed_again_after_the_lease_and_not_before(place):
    with place.connect() as db:
        orders = db.queue("orders")
        orders.publish(b"a")
        id, token, attempts = killed_holding(place)
        assert attempts == 1
        place.time.advance(30 * SECOND - timedelta(microseconds=1))
        assert orders.claim() == []
        place.time.advance(timedelta(microseconds=1))
        [delivery] = orders.claim()
        assert (delivery.id, delivery.attempts) == (id, 2)
        dead_ones = orders.delivery(id, token)
        for settle in (dead_ones.ack, dead_ones.nack, lambda: dead_ones.extend(SECOND)):
            with pytest.raises(StaleLease):
                settle()
        delivery.ack()
        delivery.ack()
        assert list(orders.browse()) == []


def test_a_message_that_kills_every_consumer_reaches_the_dead_letters(place):
    with place.connect() as db:
        orders = db.queue("orders", max_attempts=3)
        orders.publish(b"a")
        for attempt in (1, 2, 3):
            assert killed_holding(place)[2] == attempt
            place.time.advance(31 * SECOND)
        assert orders.claim() == []
        assert [dead.attempts for dead in orders.dead()] == [3]


@pytest.mark.parametrize("face", ["consume", "consume_awaited"])
def test_one_message_that_kills_every_process_does_not_kill_its_neighbours(place, face):
    names = [str(at) for at in range(9)]
    handled: list[str] = []
    with place.connect() as db:
        orders = db.queue("orders", max_attempts=2)
        orders.publish_many([name.encode() for name in (*names, "poison")])
        for _ in range(6):
            with place.victim(face, "poison") as victim:
                handled += victim.communicate(timeout=PATIENCE)[0].split()
            if victim.returncode == 0:
                break
            assert victim.returncode == 9
            place.time.advance(31 * SECOND)
        assert [(dead.message.payload, dead.attempts) for dead in orders.dead()] == [(b"poison", 2)]
        assert list(orders.browse(state=State.READY)) == []
    assert handled.count("poison") == 3  # the first is counted for nobody
    assert all(1 <= handled.count(name) <= 2 for name in names)


def test_interruptions_leave_no_lock_and_no_connection_behind(place, full):
    with place.connect(manual=False) as db:
        db.queue("orders")
    with place.victim("interrupted", 6_000 if full else 300, manual=False) as victim:
        stuck = json.loads(victim.communicate(timeout=PATIENCE * (5 if full else 1))[0])
    assert stuck == 0


# ---- rows that another transaction has locked ---------------------------------------------------------------------


@contextlib.contextmanager
def locked(postgres: Place, which: str) -> Iterator[None]:
    """Lock deliveries in a transaction that does not end, like that of a stopped process."""
    with psycopg.connect(postgres.url) as stopped:
        stopped.execute(
            f"SELECT 1 FROM {postgres.options['schema']}.delivery WHERE {which} FOR UPDATE"
        )
        yield


def test_a_predicate_finds_a_message_behind_any_number_of_rejected_ones(place):
    seen: queues.Queue[bytes] = queues.Queue()
    rejected: list[bytes] = []

    def wants(message: Message) -> bool:
        return message.payload == b"wanted" or bool(rejected.append(message.payload))

    with place.connect() as db:
        orders = db.queue("orders")
        orders.publish_many([b"no"] * 10_500 + [b"wanted"])
        with orders.consumer(lambda d: seen.put(d.message.payload), predicate=wants, batch=100):
            assert seen.get(timeout=PATIENCE) == b"wanted"
            orders.publish(b"wanted")
            assert seen.get(timeout=PATIENCE) == b"wanted"
        assert len(rejected) == 10_500  # each of them once
        assert orders.stats().ready == 10_500


def test_rejected_messages_are_forgotten_after_another_consumer_has_consumed_them(place):
    with place.connect() as db:
        orders = db.queue("orders")
        rejected = RejectedIds(orders.publish_many([b"no"] * 3_000))

        def claim() -> list[ClaimedMessage]:
            operation = db.engine.operations.claim(orders.info, 10, 1_000_000, skip=rejected)
            return db.engine.run(operation)[0]

        assert claim() == []
        assert len(rejected) == 3_000
        db.engine.run(
            db.engine.operations.ack(orders.info, [d.receipt for d in orders.claim(2_900)])
        )
        assert claim() == []
        assert len(rejected) == 100
        assert claim() == []


@pytest.mark.postgres
def test_a_locked_due_message_does_not_stop_claims_of_others(postgres):
    with postgres.connect() as db:
        orders = db.queue("orders", filter_headers=["type"])
        orders.publish(b"held", headers={"type": "a"})
        assert len(orders.claim(lease=SECOND)) == 1
        orders.publish_many(Message(b"ready", headers={"type": "a"}) for _ in range(3))
        postgres.time.advance(MINUTE)
        with locked(postgres, "state = 2"):
            for wanted in (None, "type = 'a'", "type IN ('a', 'b')"):
                assert [d.message.payload for d in orders.claim(filter=wanted)] == [b"ready"]
            assert orders.claim() == []
        assert [d.message.payload for d in orders.claim()] == [b"held"]


@pytest.mark.postgres
def test_consumers_do_not_spin_while_a_due_message_is_locked(postgres):
    seen: queues.Queue[bytes] = queues.Queue()
    with postgres.connect() as db:
        orders = db.queue("orders")
        orders.publish(b"held")
        orders.claim(lease=SECOND)
        postgres.time.advance(MINUTE)
        with locked(postgres, "state = 2"):
            with orders.consumer(lambda d: seen.put(d.message.payload), name="c"):
                for at in range(5):
                    orders.publish(b"%d" % at)
                    assert seen.get(timeout=PATIENCE) == b"%d" % at
                threading.Event().wait(0.3)
            assert orders.stats().usage["c"].claims < 60
        with orders.consumer(lambda d: seen.put(d.message.payload), mode="notify"):
            assert seen.get(timeout=PATIENCE) == b"held"


@pytest.mark.postgres
def test_a_locked_message_is_skipped_by_a_filter_that_scans(postgres):
    with postgres.connect() as db:
        orders = db.queue("orders")
        held = orders.publish(b"held", headers={"colour": "red"})
        orders.publish(b"free", headers={"colour": "red"})
        with locked(postgres, f"message = {held}"):
            assert [d.message.payload for d in orders.claim(filter="colour = 'red'")] == [b"free"]
            assert orders.claim(filter="colour = 'red'") == []
        assert [d.message.payload for d in orders.claim(filter="colour = 'red'")] == [b"held"]


@pytest.mark.postgres
def test_a_locked_message_is_skipped_by_a_handle_that_learns_of_an_index(postgres):
    with postgres.connect() as db, postgres.connect() as other:
        orders = db.queue("orders")
        held = orders.publish(b"held", headers={"colour": "red"})
        orders.publish(b"free", headers={"colour": "red"})
        other.queue("orders", filter_headers=["colour"])
        with ThreadPoolExecutor(1) as worker, locked(postgres, f"message = {held}"):
            claiming = worker.submit(orders.claim, filter="colour = 'red'")
            assert wait([claiming], timeout=5).done  # else until the lock is gone
        assert [d.message.payload for d in claiming.result()] == [b"free"]


def test_more_can_fall_due_at_once_than_one_claim_promotes(place):
    with place.connect() as db:
        orders = db.queue("orders")
        count = 21_000
        orders.publish_many(Publication(Message(b"x"), delay_us=1_000_000) for _ in range(count))
        place.time.advance(SECOND)
        assert len(orders.claim(10)) == 10
        orders.publish(b"wanted", headers={"type": "a"})
        assert [d.message.payload for d in orders.claim(filter="type = 'a'")] == [b"wanted"]


def test_four_processes_with_different_filters_share_four_thousand_messages(place, full):
    wanted = range(16_000 if full else 4_000)
    filters = ["type = 't0'", "type IN ('t0', 't1')", "region = 'EU' OR n % 2 = 0", None]
    with place.connect(manual=False) as db:
        orders = db.queue("orders", filter_headers=["type", "region"])
        for start in range(0, len(wanted), 1_000):
            orders.publish_many(
                Message(
                    b"%d" % n,
                    headers={"type": f"t{n % 4}", "region": ("EU", "US")[n % 3 == 0], "n": n},
                    priority=n % 5,
                )
                for n in wanted[start : start + 1_000]
            )
        victims = [place.victim("compete", filter, manual=False) for filter in filters]
        found = [json.loads(victim.communicate(timeout=PATIENCE * 4)[0]) for victim in victims]
        assert sorted(itertools.chain(*found)) == list(wanted)
        assert list(orders.browse()) == []


# ---- many at once --------------------------------------------------------------------------------------


@pytest.fixture(params=["seldom", "always"])
def aside(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How often claims set members of busy groups aside."""
    if request.param == "always":
        monkeypatch.setattr("headgate.queues.sql.groups._MOST_CLAIMS_BETWEEN_LOOKS", 0)
        monkeypatch.setattr("headgate.queues.sql.groups._IN_THE_WAY", 1)


def test_the_messages_of_a_group_are_handled_in_order_among_many_consumers(place, aside):
    count, groups = 300, 3
    with place.connect(manual=False) as db:
        orders = db.queue("orders", max_attempts=1_000)
        orders.publish_many(
            Publication(Message(b"%d" % n), group=f"g{n % groups}") for n in range(count)
        )
        done: dict[str, list[int]] = {f"g{n}": [] for n in range(groups)}

        def work(number: int) -> None:
            while sum(map(len, done.values())) < count:
                for at, delivery in enumerate(orders.claim(1 + number)):
                    if (delivery.id + at + number) % 7 == 0:
                        delivery.nack() if delivery.attempts % 2 else delivery.release()
                        continue
                    done[delivery.group].append(delivery.id)
                    delivery.ack()

        with ThreadPoolExecutor(4) as threads:
            for each in [threads.submit(work, number) for number in range(4)]:
                each.result(timeout=PATIENCE)
        assert [len(ids) for ids in done.values()] == [count // groups] * groups
        for ids in done.values():
            assert ids == sorted(set(ids))
        assert orders.stats().ready == 0


def test_of_a_group_never_two_are_at_work(place, aside):
    with place.connect(manual=False) as db:
        orders = db.queue("orders", filter_headers=["half"])
        orders.publish_many(
            Publication(Message(b"%d" % n, headers={"half": f"h{n % 2}"}), group=f"g{n % 3}")
            for n in range(120)
        )
        at_work: set[str] = set()
        problems, found = [], []
        lock = threading.Lock()

        def work(filter: str | None) -> None:
            while len(found) < 120 and not problems:
                for delivery in orders.claim(4, filter=filter):
                    with lock:
                        if delivery.group in at_work:
                            problems.append(delivery)
                        at_work.add(delivery.group)
                    with lock:
                        at_work.discard(delivery.group)
                        found.append(delivery.id)
                    delivery.ack()

        with ThreadPoolExecutor(4) as threads:
            filters = [None, "half IN ('h0', 'h1')", "half = 'h0'", "half = 'h1'"]
            for done in [threads.submit(work, filter) for filter in filters]:
                done.result(timeout=PATIENCE)
        assert problems == []
        assert len(found) == len(set(found)) == 120


def test_the_same_dedup_key_from_many_at_once_is_one_message(place):
    with place.connect(manual=False) as db, ThreadPoolExecutor(8) as threads:
        orders = db.queue("orders")
        keys = [f"k{n % 5}" for n in range(80)]
        ids = list(threads.map(lambda key: orders.publish(b"", dedup_key=key), keys))
        assert len(set(ids)) == 5
        assert len({(key, id) for key, id in zip(keys, ids, strict=True)}) == 5
        assert len(orders.claim(100)) == 5


def test_a_filter_changed_while_others_publish_loses_and_repeats_nothing(place):
    with place.connect(manual=False) as db, ThreadPoolExecutor(3) as threads:
        orders = db.queue("orders")
        even = db.subscription("part", "n % 2 = 0")

        def publish(thread: int) -> list[int]:
            return [orders.publish(b"%d" % n, headers={"n": n}) for n in range(thread, 200, 2)]

        publishing = [threads.submit(publish, thread) for thread in (0, 1)]
        for filter in itertools.islice(itertools.cycle(["n >= 0", "n % 2 = 0"]), 10):
            even.set_filter(filter)
        assert len({id for done in publishing for id in done.result(timeout=PATIENCE)}) == 200
        found = [int(d.message.payload) for d in even.claim(500)]
        assert len(found) == len(set(found))
        assert set(range(0, 200, 2)) <= set(found)  # both filters want these


# ---- PostgreSQL ----------------------------------------------------------------------------------------


@pytest.mark.postgres
def test_messages_that_several_hold_go_with_the_last_of_them(postgres):
    with postgres.connect(manual=False) as db, ThreadPoolExecutor(4) as threads:
        holders = [db.queue("orders"), *(db.subscription(f"s{n}", pattern="#") for n in range(3))]
        holders[0].publish_many([b"x"] * 200)

        def take_all(holder: Any) -> None:
            while found := holder.claim(9):
                for delivery in found:
                    delivery.ack()

        list(threads.map(take_all, holders))
        holders[0].publish(b"last")
        for holder in holders:
            holder.claim()[0].ack()
        with psycopg.connect(postgres.url) as connection:
            query = f"SELECT count(*) FROM {postgres.options['schema']}.message"
            assert connection.execute(query).fetchone() <= (
                1,
            )  # who takes the last looks after the others


@pytest.mark.postgres
def test_a_notification_lost_with_its_connection_is_made_up(postgres):
    seen: queues.Queue[bytes] = queues.Queue()
    with postgres.connect(manual=False) as db:
        orders = db.queue("orders")
        with orders.consumer(lambda d: seen.put(d.message.payload), mode="notify"):
            for name in (b"a", b"b", b"c"):
                with psycopg.connect(postgres.url, autocommit=True) as connection:
                    connection.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                        "WHERE application_name = 'headgate listener'"
                    )
                orders.publish(name)
                assert seen.get(timeout=PATIENCE) == name


@pytest.mark.postgres
@pytest.mark.parametrize("payload", ["x", "-1", "9" * 50, "\u0669", '{"queue": 1}', ""])
def test_an_invalid_notification_does_not_keep_consumers_from_being_woken(postgres, payload):
    seen: queues.Queue[bytes] = queues.Queue()
    channel = f"headgate.{postgres.options['schema']}"
    with postgres.connect(manual=False) as db:
        orders = db.queue("orders")
        with orders.consumer(lambda d: seen.put(d.message.payload), mode="notify"):
            orders.publish(b"before")
            assert seen.get(timeout=PATIENCE) == b"before"
            with psycopg.connect(postgres.url, autocommit=True) as stranger:
                stranger.execute("SELECT pg_notify(%s, %s)", (channel, payload))
            orders.publish(b"after")
            assert seen.get(timeout=PATIENCE) == b"after"


@pytest.mark.postgres
def test_connections_that_broke_while_idle_are_replaced(postgres):
    with postgres.connect(manual=False) as db:
        orders = db.queue("orders")
        orders.publish(b"a")
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'headgate'"
            )
        orders.publish(b"b")
        assert len(orders.claim(5)) == 2


@pytest.mark.postgres
def test_migrations_at_the_same_moment_are_made_once(postgres):
    def open_and_close(_: int) -> None:
        postgres.connect(manual=False).close()

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(open_and_close, range(6)))
    with psycopg.connect(postgres.url) as connection:
        query = f"SELECT version FROM {postgres.options['schema']}.migration ORDER BY 1"
        made = [number for (number,) in connection.execute(query)]
    assert made == [number for number, _ in migrations_of("postgres")]


@pytest.mark.postgres
def test_tables_of_a_newer_headgate_are_refused_there_too(postgres):
    postgres.connect().close()
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"INSERT INTO {postgres.options['schema']}.migration VALUES (999)")
    with pytest.raises(SchemaTooNew, match="999"):
        postgres.connect()


@pytest.mark.postgres
def test_an_ordinary_role_is_enough_and_schemas_do_not_mix(postgres_url):
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS plain")
        connection.execute("CREATE ROLE plain LOGIN NOSUPERUSER")
        connection.execute("GRANT CREATE ON DATABASE postgres TO plain")
        url = postgres_url.replace("postgres:@", "plain:@", 1)
        with connect(url, schema="plain_a") as first, connect(f"{url}&schema=plain_b") as second:
            first.queue("orders").publish(b"a")
            assert second.queue("orders").claim() == []
            assert [d.message.payload for d in first.queue("orders").claim()] == [b"a"]
        connection.execute("DROP SCHEMA plain_a, plain_b CASCADE")
        connection.execute("DROP OWNED BY plain")
        connection.execute("DROP ROLE plain")


@pytest.mark.postgres
def test_nothing_confirmed_is_lost_when_the_server_is_killed():
    # Not below tmp_path: run by root, the server has a user of its own, and every other pytest that starts meanwhile
    # takes from others the right to enter the directory that all of them share.
    with tempfile.TemporaryDirectory(prefix="headgate-postgres-") as directory:
        server = start_server(Path(directory, "data"))
        try:
            handled, confirmed = _through_a_crash(server)
        finally:
            server.cleanup()
    assert set(confirmed) <= set(handled)
    assert len(confirmed) >= 200


def _through_a_crash(server: Any) -> tuple[list[bytes], list[bytes]]:
    handled: list[bytes] = []
    confirmed: list[bytes] = []
    with connect(server.get_uri()) as db:
        orders = db.queue("orders")
        consumer = orders.consumer(
            lambda d: handled.append(d.message.payload), threads=2, lease=2 * SECOND
        )
        with consumer:
            for batch in range(20):
                if batch == 10:
                    kill_server(server)
                    restart_server(server)
                names = [b"%d-%d" % (batch, n) for n in range(10)]
                confirmed += until_it_works(
                    lambda names=names: (orders.publish_many(names), names)[1]
                )
            wait_until(lambda: set(confirmed) <= set(handled))
    return handled, confirmed


def kill_server(server: Any) -> None:
    """As a power cut would: all of its processes at once."""
    postmaster = psutil.Process(server.get_pid())
    family = [postmaster, *postmaster.children(recursive=True)]
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(family, timeout=PATIENCE)


def restart_server(server: Any) -> None:
    (server.pgdata / "postmaster.pid").unlink(missing_ok=True)
    server.ensure_postgres_running()


def until_it_works(act: Callable[[], Any]) -> Any:
    deadline = real_time.monotonic() + PATIENCE
    while True:
        try:
            return act()
        except DatabaseUnavailable:
            if real_time.monotonic() > deadline:
                raise


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = real_time.monotonic() + PATIENCE
    while not holds():
        assert real_time.monotonic() < deadline, "it never came true"
        os.sched_yield()


@pytest.mark.postgres
def test_a_server_that_is_not_there_is_an_error_of_ours():
    with pytest.raises(QueueError, match="cannot be reached"):
        connect("postgresql://nobody@localhost:1/nothing?connect_timeout=2")


# ---- no room left --------------------------------------------------------------------------------------

MEGABYTE = 1 << 20


@contextlib.contextmanager
def server_with_room_for(size: int) -> Iterator[str]:
    """A server of its own whose files cannot grow beyond that: it inherits the limit of whoever starts it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    with contextlib.ExitStack() as opened:
        try:
            url = opened.enter_context(private_server())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        yield url


@pytest.mark.postgres
def test_files_that_cannot_grow_are_an_error_and_nothing_confirmed_is_lost():
    body, confirmed = os.urandom(MEGABYTE), []

    def publish_until_full() -> None:
        while len(confirmed) < 60:
            confirmed.append(orders.publish(body))

    with server_with_room_for(32 * MEGABYTE) as url, connect(url) as db:  # its log has files of 16
        orders = db.queue("orders")
        with pytest.raises(QueueError, match="could not extend file"):
            publish_until_full()
        assert 10 < len(confirmed) < 60
        claimed = orders.claim(100)
        assert [delivery.id for delivery in claimed] == confirmed
        assert {delivery.message.payload for delivery in claimed} == {body}
        assert orders.ack_and_claim(claimed) == []
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("VACUUM headgate.message")
        assert orders.publish(body) > confirmed[-1]


@pytest.mark.postgres
def test_a_full_disk_has_an_error_of_its_own_and_stores_nothing_of_the_batch(postgres):
    full = """
        CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE 'could not write: No space left on device' USING ERRCODE = 'disk_full'; END $$;
        CREATE TRIGGER full_disk BEFORE INSERT ON message FOR EACH ROW
        WHEN (NEW.payload = 'too much') EXECUTE FUNCTION no_room();
    """
    with postgres.connect() as db:
        orders = db.queue("orders")
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute(f"SET search_path = {postgres.options['schema']}")
            connection.execute(full)
        kept = orders.publish(b"a")
        with pytest.raises(DatabaseFull, match="no space left"):
            orders.publish_many([b"b", b"too much"])
        assert [standing.id for standing in orders.browse()] == [kept]
