"""What other programs write into a SQLite file: refused at the door, and what is there already stops nobody."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import apsw
import pytest

from headgate.queues.database import Database, connect
from headgate.queues.engine import State
from headgate.queues.queue import Queue
from headgate.queues.sql.dialect import migrations_of
from headgate.testing import ManualClock

LATIN_1 = "CAST(x'636166e9' AS TEXT)"


@pytest.fixture
def path(tmp_path) -> str:
    return f"{tmp_path}/queues.db"


@pytest.fixture
def db(path) -> Iterator[Database]:
    with connect(f"sqlite:///{path}?synchronous=OFF") as database:
        yield database


@pytest.fixture
def orders(db) -> Queue:
    return db.queue("orders", filter_headers=["type"])


@pytest.fixture
def shell(orders, path) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(path)  # another one of the same library
    yield connection
    connection.close()


def insert_past_the_door(
    shell: apsw.Connection, *, topic: str = "'t'", headers: str = "'{}'", payload: str = "bad"
) -> None:
    """A message as the unchecked door of older versions stored it; topic and headers are SQL."""
    [(id,)] = shell.execute(
        "INSERT INTO headgate_message (id, topic, headers, properties, priority, timestamp, payload) "
        f"SELECT id, {topic}, {headers}, '{{}}', 0, 1, CAST('{payload}' AS BLOB) "
        "FROM headgate_next_message RETURNING id"
    ).fetchall()
    shell.execute(
        "INSERT INTO headgate_delivery (message, queue, state, rank, visible_at) VALUES (?, 1, 0, 0, 0)",
        (id,),
    )


UNREADABLE = [
    {"topic": LATIN_1},
    {"topic": "x'ff00'"},
    {"topic": "'a' || char(0)"},
    {"headers": "CAST(x'7b2268223a2022e9227d' AS TEXT)"},
    {"headers": f"""'{{"n": {"7" * 5000}}}'"""},
    {"headers": """'{"n": 9223372036854775808}'"""},
    {"headers": """'{"n": 1e400}'"""},
    {"headers": r"""'{"h": "\ud800"}'"""},
    {"headers": r"""'{"h": "\u0000"}'"""},
    {"headers": "'no document'"},
    {"headers": "'[1]'"},
]


@pytest.mark.parametrize("bad", UNREADABLE, ids=lambda bad: str(bad)[:40])
@pytest.mark.parametrize("limit", [1, 10])
def test_an_undecodable_message_becomes_a_dead_letter_and_the_others_are_claimed(
    orders, shell, bad, limit, caplog
):
    insert_past_the_door(shell, **bad)
    orders.publish(b"good", headers={"type": "created"})
    with caplog.at_level(logging.WARNING):
        assert [d.message.payload for d in orders.claim(limit)] == [b"good"]
    [dead] = orders.dead()
    assert (dead.message.payload, dead.state) == (b"bad", State.DEAD)
    assert "topic" in dead.reason or "headers" in dead.reason
    assert "becomes a dead letter" in caplog.text


@pytest.mark.parametrize("bad", UNREADABLE, ids=lambda bad: str(bad)[:40])
@pytest.mark.parametrize("rate", [None, 100], ids=["no limit", "limited"])
def test_an_ack_is_done_once_where_the_next_message_is_undecodable(orders, shell, bad, rate):
    orders.limit_rate(rate)  # which claims in a transaction around the claim
    orders.publish(b"first")
    held = orders.claim()
    insert_past_the_door(shell, **bad)
    orders.publish(b"good", headers={"type": "created"})
    assert [d.message.payload for d in orders.ack_and_claim(held)] == [b"good"]
    assert sorted(d.message.payload for d in orders.browse()) == [b"bad", b"good"]


@pytest.mark.parametrize("bad", UNREADABLE[:-2], ids=lambda bad: str(bad)[:40])
def test_an_undecodable_message_is_browsed_and_not_routed_to_subscriptions(db, orders, shell, bad):
    insert_past_the_door(shell, **bad)
    orders.publish(b"good", headers={"type": "created"})
    assert [s.message.payload for s in orders.browse()] == [b"bad", b"good"]
    assert [s.message.payload for s in orders.browse(filter="type = 'created'")] == [b"good"]
    assert [s.message.payload for s in orders.peek()] == [b"bad", b"good"]
    everything = db.subscription("all", pattern="#", start="first")
    shell.execute(
        "INSERT INTO headgate_unrouted (message, queue) SELECT id, 1 FROM headgate_message"
    )
    assert [d.message.payload for d in everything.claim(10)] == [b"good"]


@pytest.mark.parametrize("bad", UNREADABLE[-2:], ids=lambda bad: str(bad)[:40])
def test_a_message_without_a_document_does_not_stop_browsing_with_a_filter(orders, shell, bad):
    insert_past_the_door(shell, **bad)
    orders.publish(b"good", headers={"type": "created"})
    assert [s.message.payload for s in orders.browse(filter="type = 'created'")] == [b"good"]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("topic", LATIN_1),
        ("topic", "CAST(x'bf' AS TEXT)"),  # a byte that goes on with nothing
        ("topic", "CAST(x'e08280' AS TEXT)"),  # longer than need be
        ("topic", "CAST(x'eda080' AS TEXT)"),
        ("topic", "CAST(x'f4908080' AS TEXT)"),
        ("topic", "'a' || char(0) || 'b'"),
        ("topic", "x'6162'"),
        ("headers", "CAST(x'7b2268223a2022e9227d' AS TEXT)"),
        ("headers", "CAST(x'7b22e9223a20317d' AS TEXT)"),
        ("headers", "CAST('{}' AS BLOB)"),
        ("group_key", LATIN_1),
        ("group_key", "x'61'"),
        ("dedup_key", LATIN_1),
        (
            "headers",
            "CAST(CAST('{\"h\": \"' || printf('%.1000c', 'x') || 'é' AS BLOB) || x'e9227d' AS TEXT)",
        ),
    ],
)
def test_text_that_is_none_does_not_come_through_the_door(orders, shell, column, value):
    with pytest.raises(apsw.ConstraintError, match=r"headgate: .* must be"):
        shell.execute(f"INSERT INTO inbox (queue, {column}) VALUES ('orders', {value})")
    assert list(orders.browse()) == []


@pytest.mark.parametrize("code", [0x80, 0x7FF, 0x800, 0xFFFD, 0xFFFE, 0xFFFF, 0x10000, 0x10FFFF])
def test_every_kind_of_character_comes_through_the_door(orders, shell, code):
    shell.execute("INSERT INTO inbox (queue, topic) VALUES ('orders', ?)", (f"a{chr(code)}b",))
    assert [d.message.topic for d in orders.claim()] == [f"a{chr(code)}b"]


def test_a_long_text_is_looked_at_in_a_moment(orders, shell):
    long = "é" * 100_000
    began = time.thread_time()  # of CPU: a look at every pair of characters would take minutes
    shell.execute(
        "INSERT INTO inbox (queue, headers) VALUES ('orders', json_object('h', ?))", (long,)
    )
    assert time.thread_time() - began < 10
    assert [d.message.headers for d in orders.claim()] == [{"h": long}]


def test_a_message_that_the_old_door_let_in_is_a_dead_letter_after_the_migration(path):
    with closing(apsw.Connection(path)) as shell:
        shell.execute("CREATE TABLE headgate_migration (version INTEGER PRIMARY KEY)")
        for number, text in migrations_of("sqlite"):
            if number < 5:
                shell.execute(text)
                shell.execute("INSERT INTO headgate_migration VALUES (?)", (number,))
        shell.execute("INSERT INTO headgate_queue (name) VALUES ('orders')")
        shell.execute(
            "INSERT INTO inbox (queue, payload, topic, group_key) VALUES "
            f"('orders', 'a', 't', {LATIN_1}), ('orders', 'b', {LATIN_1}, NULL), ('orders', 'c', 't', 'é')"
        )
    with connect(f"sqlite:///{path}") as db:
        orders = db.queue("orders")
        assert [(d.message.payload, d.group) for d in orders.claim(5)] == [(b"c", "é")]
        first, second = orders.dead()
        assert (first.message.payload, first.reason) == (b"a", "the group is not text in UTF-8")
        assert (second.message.payload, second.message.topic) == (b"b", "caf\\xe9")
        assert "the topic is not UTF-8" in second.reason


# ---- time --------------------------------------------------------------------------------------------------


def test_a_message_from_the_future_makes_nothing_due_when_the_machine_starts_again(path):
    url, clock = f"sqlite:///{path}", ManualClock()
    future = clock.wall_us + 10 * 365 * 86_400_000_000
    with connect(url, clock=clock.clock) as db:
        queue = db.queue("q")
        queue.publish(b"delayed", delay=timedelta(hours=1))
        queue.publish(b"stamped", timestamp=future)
        queue.publish(b"both", timestamp=future, delay=timedelta(hours=1))
    clock.restart_machine()
    with connect(url, clock=clock.clock) as db:
        assert [d.message.payload for d in db.queue("q").claim(5)] == [b"stamped"]
        clock.advance(timedelta(hours=1))
        assert {d.message.payload for d in db.queue("q").claim(5)} >= {b"delayed", b"both"}
