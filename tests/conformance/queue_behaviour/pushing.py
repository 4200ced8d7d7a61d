"""Callbacks for what is published."""

from __future__ import annotations

import queue as queues

import pytest

from headgate.filters.parser import parse
from headgate.message import Message
from headgate.queues.engine import State
from tests.conformance.queue_behaviour.surroundings import (
    PATIENCE,
    SECOND,
    Surroundings,
    wait_until,
)


class PushBehaviour(Surroundings):
    """Seed 001's testing list: same instance, patterns, errors, management, shutdown; see also DoorBehaviour."""

    def test_a_subscriber_is_called_for_what_matches(self, db, orders):
        seen: queues.Queue[Message] = queues.Queue()
        assert db.subscribe("orders.*.#", seen.put, id="audit")
        orders.publish(b"no")
        orders.publish(b"yes", topic="orders.eu.new", headers={"n": 1})
        message = seen.get(timeout=PATIENCE)
        assert (message.payload, message.topic, message.headers) == (
            b"yes",
            "orders.eu.new",
            {"n": 1},
        )

    @pytest.mark.parametrize(
        ("pattern", "topic", "wanted"),
        [
            ("orders.#", "orders", True),
            ("orders.*", "orders", False),
            ("orders.*", "orders.a", True),
            ("orders.*", "orders.a.b", False),
            ("#", "", True),
            ("*", "", False),
            ("orders.*.x", "orders.a.x", True),
            ("orders.+", "orders.a", False),
        ],
    )  # fmt: skip
    def test_wildcards(self, db, orders, pattern, topic, wanted):
        seen: queues.Queue[bytes] = queues.Queue()
        db.subscribe(pattern, lambda m: seen.put(m.payload), id="s")
        db.subscribe("end", lambda m: seen.put(m.payload), id="s")
        orders.publish(b"tested", topic=topic)
        orders.publish(b"end", topic="end")
        found = {seen.get(timeout=PATIENCE)}
        if wanted:
            found.add(seen.get(timeout=PATIENCE))
        assert found == ({b"tested", b"end"} if wanted else {b"end"})

    def test_what_was_published_before_is_not_told(self, db, orders):
        seen: queues.Queue[bytes] = queues.Queue()
        orders.publish(b"before")
        db.subscribe("#", lambda m: seen.put(m.payload), id="s")
        orders.publish(b"after")
        assert seen.get(timeout=PATIENCE) == b"after"

    def test_nothing_is_missed_because_somebody_acked_first(self, db, orders):
        seen: queues.Queue[bytes] = queues.Queue()
        db.subscribe("#", lambda m: seen.put(m.payload), id="s")
        names = [b"%d" % at for at in range(100)]
        for name in names:
            orders.publish(name)
            orders.claim()[0].ack()
        assert [seen.get(timeout=PATIENCE) for _ in names] == names

    def test_messages_are_told_in_the_order_of_publishing(self, db, orders):
        seen: queues.Queue[bytes] = queues.Queue()
        db.subscribe("#", lambda m: seen.put(m.payload), id="s")
        orders.publish_many(Message(b"%d" % at, priority=at % 7) for at in range(50))
        assert [seen.get(timeout=PATIENCE) for _ in range(50)] == [b"%d" % at for at in range(50)]

    def test_a_publish_from_another_connection_is_told(self, connect, db, orders):
        seen: queues.Queue[bytes] = queues.Queue()
        db.subscribe("orders", lambda m: seen.put(m.payload), id="s")
        with connect() as elsewhere:
            elsewhere.queue("orders").publish(b"a")
        assert seen.get(timeout=PATIENCE) == b"a"

    def test_a_subscriber_that_fails_hurts_nobody(self, db, orders, caplog):
        seen: queues.Queue[bytes] = queues.Queue()

        def fail(message: Message) -> None:
            seen.put(b"failing")
            raise RuntimeError("broken subscriber")

        db.subscribe("#", fail, id="bad")
        db.subscribe("#", lambda m: seen.put(m.payload), id="good")
        for name in (b"a", b"b"):
            orders.publish(name)
            assert {seen.get(timeout=PATIENCE), seen.get(timeout=PATIENCE)} == {b"failing", name}

    def test_a_subscriber_that_hangs_hurts_nobody(self, db, orders):
        seen: queues.Queue[bytes] = queues.Queue()
        forever: queues.Queue[None] = queues.Queue()
        db.subscribe("#", lambda m: forever.get(), id="hanging")
        db.subscribe("#", lambda m: seen.put(m.payload), id="good")
        orders.publish_many([b"a"] * 1_500)
        assert [seen.get(timeout=PATIENCE) for _ in range(1_500)] == [b"a"] * 1_500
        db.unsubscribe_all("hanging")
        forever.put(None)

    def test_closing_tells_everything_that_was_published(self, connect, orders):
        seen: queues.Queue[bytes] = queues.Queue()
        names = [b"%d" % at for at in range(300)]
        with connect() as elsewhere:
            elsewhere.subscribe("#", lambda m: seen.put(m.payload), id="a")
            elsewhere.subscribe("orders", lambda m: seen.put(m.payload), id="b")
            orders.publish_many(names)
        assert sorted(seen.get_nowait() for _ in range(600)) == sorted(names * 2)
        assert seen.empty()

    def test_a_message_is_acked_when_the_callback_has_returned(self, db, orders):
        begun: queues.Queue[None] = queues.Queue()
        go_on: queues.Queue[None] = queues.Queue()

        def slow(message: Message) -> None:
            begun.put(None)
            go_on.get(timeout=PATIENCE)

        def waiting() -> list[tuple[bytes, State]]:
            pushes = [info for info in db.engine.run(operations.queues()) if info.kind == "push"]
            found = [one for push in pushes for one in db.engine.run(operations.browse(push, 10))]
            return [(one.message.payload, one.state) for one in found]

        seen: queues.Queue[bytes] = queues.Queue()
        operations = db.engine.operations
        db.subscribe("#", slow, id="slow")
        db.subscribe("#", lambda m: seen.put(m.payload), id="quick")
        for name in (b"a", b"b"):
            orders.publish(name)
            assert seen.get(timeout=PATIENCE) == name
        begun.get(timeout=PATIENCE)
        assert (b"a", State.LEASED) in waiting()
        go_on.put(None)
        go_on.put(None)
        wait_until(lambda: waiting() == [])

    def test_a_process_that_was_stopped_for_a_while_is_told_everything(self, db, orders, time):
        seen: queues.Queue[bytes] = queues.Queue()
        db.subscribe("#", lambda m: seen.put(m.payload), id="s")
        names = [b"%d" % at for at in range(22)]
        for name in names:
            time.advance(66 * SECOND)  # nobody has renewed anything
            db.engine.run(db.engine.operations.route())  # others tidy up
            orders.publish(name)
        assert [seen.get(timeout=PATIENCE) for _ in names] == names

    def test_a_subscriber_that_would_end_its_thread_is_called_again(self, db, orders, caplog):
        seen: queues.Queue[bytes] = queues.Queue()

        def end(message: Message) -> None:
            seen.put(message.payload)
            raise SystemExit("enough")

        db.subscribe("#", end, id="s")
        for name in (b"a", b"b"):
            orders.publish(name)
            assert seen.get(timeout=PATIENCE) == name

    def test_subscriptions_are_managed_by_pattern_and_id(self, db, orders):
        seen: queues.Queue[str] = queues.Queue()
        tell = {id: lambda m, id=id: seen.put(id) for id in "ab"}
        assert db.subscribe("x", tell["a"], id="a")
        assert not db.subscribe("x", tell["a"], id="a")
        assert db.subscribe("y", tell["a"], id="a")
        assert db.subscribe("x", tell["b"], id="b")
        assert db.unsubscribe("x", "a")
        assert not db.unsubscribe("x", "a")
        orders.publish(b"", topic="x")
        assert seen.get(timeout=PATIENCE) == "b"
        orders.publish(b"", topic="y")
        assert seen.get(timeout=PATIENCE) == "a"
        assert db.unsubscribe_all("a") == 1
        assert db.unsubscribe_all("a") == 0
        orders.publish(b"", topic="y")
        orders.publish(b"", topic="x")
        assert seen.get(timeout=PATIENCE) == "b"

    def test_closing_leaves_nothing_behind(self, connect, orders, db):
        with connect() as elsewhere:
            elsewhere.subscribe("#", print, id="s")
            infos = db.engine.run(db.engine.operations.queues())
            assert [info.kind for info in infos if info.name != "orders"] == ["push"]
        infos = db.engine.run(db.engine.operations.queues())
        assert [info.name for info in infos] == ["orders"]
        orders.publish(b"a")
        orders.claim()[0].ack()

    def test_subscribers_of_a_process_that_died_are_forgotten(self, db, orders, time):
        operations = db.engine.operations
        db.engine.run(operations.subscribe("push-dead", parse("TRUE"), lease_us=60_000_000))
        orders.publish(b"a")
        time.advance(30 * SECOND)
        assert db.engine.run(operations.keep_alive("push-dead", 60_000_000))
        time.advance(59 * SECOND)
        db.engine.run(operations.route())
        assert len(db.engine.run(operations.queues())) == 2
        time.advance(SECOND)
        db.engine.run(operations.route())
        assert [info.name for info in db.engine.run(operations.queues())] == ["orders"]
        assert not db.engine.run(operations.keep_alive("push-dead", 60_000_000))
