"""Callbacks that are called for what is published."""

from __future__ import annotations

import queue as queues

import pytest

from headgate.filters.parser import parse
from headgate.message import Message
from headgate.queues.engine import State
from tests.conformance.queue_behaviour.base import SECOND, QueueFixtures
from tests.patience import PATIENCE, wait_until


class CallbackBehaviour(QueueFixtures):
    """Seed 001's testing list: same instance, patterns, errors, management, shutdown; see also InboxBehaviour."""

    def test_a_callback_is_called_for_messages_that_match(self, db, orders, seen):
        assert db.add_callback("orders.*.#", seen.put, id="audit")
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
    def test_a_pattern_matches_topics_by_their_words(
        self, db, orders, pattern, topic, wanted, seen
    ):
        db.add_callback(pattern, lambda m: seen.put(m.payload), id="s")
        db.add_callback("end", lambda m: seen.put(m.payload), id="s")
        orders.publish(b"tested", topic=topic)
        orders.publish(b"end", topic="end")
        found = {seen.get(timeout=PATIENCE)}
        if wanted:
            found.add(seen.get(timeout=PATIENCE))
        assert found == ({b"tested", b"end"} if wanted else {b"end"})

    def test_a_callback_is_not_called_for_what_was_published_before(self, db, orders, seen):
        orders.publish(b"before")
        db.add_callback("#", lambda m: seen.put(m.payload), id="s")
        orders.publish(b"after")
        assert seen.get(timeout=PATIENCE) == b"after"

    def test_a_callback_misses_no_message_that_was_acked_before_the_call(self, db, orders, seen):
        db.add_callback("#", lambda m: seen.put(m.payload), id="s")
        names = [b"%d" % at for at in range(100)]
        for name in names:
            orders.publish(name)
            orders.claim()[0].ack()
        assert [seen.get(timeout=PATIENCE) for _ in names] == names

    def test_a_callback_is_called_in_the_order_of_publishing(self, db, orders, seen):
        db.add_callback("#", lambda m: seen.put(m.payload), id="s")
        orders.publish_many(Message(b"%d" % at, priority=at % 7) for at in range(50))
        assert [seen.get(timeout=PATIENCE) for _ in range(50)] == [b"%d" % at for at in range(50)]

    def test_a_callback_is_called_for_a_publish_from_another_connection(
        self, connect, db, orders, seen
    ):
        db.add_callback("orders", lambda m: seen.put(m.payload), id="s")
        with connect() as elsewhere:
            elsewhere.queue("orders").publish(b"a")
        assert seen.get(timeout=PATIENCE) == b"a"

    def test_a_callback_that_fails_does_not_stop_others(self, db, orders, caplog, seen):

        def fail(message: Message) -> None:
            seen.put(b"failing")
            raise RuntimeError("broken subscriber")

        db.add_callback("#", fail, id="bad")
        db.add_callback("#", lambda m: seen.put(m.payload), id="good")
        for name in (b"a", b"b"):
            orders.publish(name)
            assert {seen.get(timeout=PATIENCE), seen.get(timeout=PATIENCE)} == {b"failing", name}

    def test_a_callback_that_hangs_does_not_stop_others(self, db, orders, seen):
        forever: queues.Queue[None] = queues.Queue()
        db.add_callback("#", lambda m: forever.get(), id="hanging")
        db.add_callback("#", lambda m: seen.put(m.payload), id="good")
        orders.publish_many([b"a"] * 1_500)
        assert [seen.get(timeout=PATIENCE) for _ in range(1_500)] == [b"a"] * 1_500
        db.delete_callbacks("hanging")
        forever.put(None)

    def test_closing_calls_callbacks_for_everything_that_was_published(self, connect, orders, seen):
        names = [b"%d" % at for at in range(300)]
        with connect() as elsewhere:
            elsewhere.add_callback("#", lambda m: seen.put(m.payload), id="a")
            elsewhere.add_callback("orders", lambda m: seen.put(m.payload), id="b")
            orders.publish_many(names)
        assert sorted(seen.get_nowait() for _ in range(600)) == sorted(names * 2)
        assert seen.empty()

    def test_a_message_is_acked_when_the_callback_has_returned(self, db, orders, seen):
        begun: queues.Queue[None] = queues.Queue()
        go_on: queues.Queue[None] = queues.Queue()

        def slow(message: Message) -> None:
            begun.put(None)
            go_on.get(timeout=PATIENCE)

        def deliveries() -> list[tuple[bytes, State]]:
            pushes = [info for info in db.engine.run(operations.queues()) if info.kind == "push"]
            found = [one for push in pushes for one in db.engine.run(operations.browse(push, 10))]
            return [(one.message.payload, one.state) for one in found]

        operations = db.engine.operations
        db.add_callback("#", slow, id="slow")
        db.add_callback("#", lambda m: seen.put(m.payload), id="quick")
        for name in (b"a", b"b"):
            orders.publish(name)
            assert seen.get(timeout=PATIENCE) == name
        begun.get(timeout=PATIENCE)
        assert (b"a", State.LEASED) in deliveries()
        go_on.put(None)
        go_on.put(None)
        wait_until(lambda: deliveries() == [])

    def test_callbacks_of_a_process_that_was_stopped_for_a_while_miss_nothing(
        self, db, orders, time, seen
    ):
        db.add_callback("#", lambda m: seen.put(m.payload), id="s")
        names = [b"%d" % at for at in range(22)]
        for name in names:
            time.advance(66 * SECOND)  # without a renewal
            db.engine.run(db.engine.operations.route())  # as other processes do
            orders.publish(name)
        assert [seen.get(timeout=PATIENCE) for _ in names] == names

    def test_a_callback_that_raises_system_exit_is_called_again(self, db, orders, caplog, seen):

        def end(message: Message) -> None:
            seen.put(message.payload)
            raise SystemExit("enough")

        db.add_callback("#", end, id="s")
        for name in (b"a", b"b"):
            orders.publish(name)
            assert seen.get(timeout=PATIENCE) == name

    def test_callbacks_are_added_and_deleted_by_pattern_and_id(self, db, orders, seen):
        tell = {id: lambda m, id=id: seen.put(id) for id in "ab"}
        assert db.add_callback("x", tell["a"], id="a")
        assert not db.add_callback("x", tell["a"], id="a")
        assert db.add_callback("y", tell["a"], id="a")
        assert db.add_callback("x", tell["b"], id="b")
        assert db.delete_callback("x", "a")
        assert not db.delete_callback("x", "a")
        orders.publish(b"", topic="x")
        assert seen.get(timeout=PATIENCE) == "b"
        orders.publish(b"", topic="y")
        assert seen.get(timeout=PATIENCE) == "a"
        assert db.delete_callbacks("a") == 1
        assert db.delete_callbacks("a") == 0
        orders.publish(b"", topic="y")
        orders.publish(b"", topic="x")
        assert seen.get(timeout=PATIENCE) == "b"

    def test_callbacks_have_the_verbs_of_seed_001_too(self, db, orders, seen):
        assert db.subscribe("orders", lambda m: seen.put(m.payload), id="s")
        orders.publish(b"a")
        assert seen.get(timeout=PATIENCE) == b"a"
        assert db.unsubscribe("orders", "s")
        assert db.unsubscribe_all("s") == 0

    def test_closing_deletes_the_subscriptions_of_callbacks(self, connect, orders, db):
        with connect() as elsewhere:
            elsewhere.add_callback("#", print, id="s")
            infos = db.engine.run(db.engine.operations.queues())
            assert [info.kind for info in infos if info.name != "orders"] == ["push"]
        infos = db.engine.run(db.engine.operations.queues())
        assert [info.name for info in infos] == ["orders"]
        orders.publish(b"a")
        orders.claim()[0].ack()

    def test_the_subscriptions_of_a_process_that_died_are_deleted(self, db, orders, time):
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
