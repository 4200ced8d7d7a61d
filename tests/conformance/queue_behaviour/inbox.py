"""Publishing with plain SQL, from any other program: INSERT INTO inbox."""

from __future__ import annotations

import pytest

from headgate.message import OPAQUE
from headgate.queues.engine import State
from tests.conformance.queue_behaviour.base import QueueFixtures, payloads
from tests.patience import PATIENCE


class InboxBehaviour(QueueFixtures):
    """Plain SQL from any other program. The fixture `door` runs a statement on a connection of another library, and commits unless told otherwise."""

    def test_an_insert_into_the_inbox_is_a_publish(self, orders, door):
        door(
            "INSERT INTO inbox (queue, topic, headers, payload, priority) VALUES ('orders', 'orders.eu', "
            """'{"type": "created", "n": 5, "f": 0.1, "b": true, "list": [1], "gone": null}', 'hello', 3)"""
        )
        [delivery] = orders.claim(filter="type = 'created' AND n = 5")
        message = delivery.message
        assert (message.payload, message.topic, message.priority) == (b"hello", "orders.eu", 3)
        assert message.headers == {"type": "created", "n": 5, "f": 0.1, "b": True, "list": OPAQUE}
        delivery.ack()
        assert list(orders.browse()) == []

    def test_an_insert_needs_only_the_name_of_the_queue(self, orders, door):
        door("INSERT INTO inbox (queue) VALUES ('orders')")
        [delivery] = orders.claim()
        assert (delivery.message.payload, delivery.message.topic) == (b"", "orders")

    def test_an_insert_of_several_rows_publishes_several_messages(self, orders, door):
        door("INSERT INTO inbox (queue, payload) VALUES ('orders', 'a'), ('orders', 'b')")
        assert payloads(orders.claim(5)) == [b"a", b"b"]

    def test_an_insert_takes_delay_group_and_dedup_key(self, orders, door):
        door("INSERT INTO inbox (queue, payload, delay) VALUES ('orders', 'later', 60)")
        assert orders.claim() == []
        insert = "INSERT INTO inbox (queue, payload, group_key, dedup_key) VALUES ('orders', '{}', 'g', '{}')"
        for name, key in (("a", "1"), ("again", "1"), ("b", "2")):
            door(insert.format(name, key))
        assert payloads(orders.claim(5)) == [b"a"]

    @pytest.mark.parametrize(
        "row",
        [
            "('nowhere', '{}', 0)",
            "('orders', '[1]', 0)",
            "('orders', '{}', 256)",
        ],
    )
    def test_an_insert_that_cannot_be_published_is_refused(self, orders, door, row):
        with pytest.raises(Exception, match="headgate"):
            door(f"INSERT INTO inbox (queue, headers, priority) VALUES {row}")
        assert list(orders.browse()) == []

    def test_a_consumer_is_woken_by_an_insert(self, orders, door, seen):
        with orders.consumer(lambda d: seen.put(d.message.payload), mode="notify"):
            for name in ("a", "b"):
                door(f"INSERT INTO inbox (queue, payload) VALUES ('orders', '{name}')")
                assert seen.get(timeout=PATIENCE) == name.encode()

    def test_subscriptions_and_callbacks_get_inserted_messages(self, db, orders, door, seen):
        eu = db.subscription("eu", "region = 'EU'")
        db.add_callback("orders", lambda m: seen.put(m.payload), id="s")
        for region in ("EU", "US"):
            door(
                "INSERT INTO inbox (queue, headers, payload) "
                f"""VALUES ('orders', '{{"region": "{region}"}}', '{region}')"""
            )
        assert [seen.get(timeout=PATIENCE) for _ in range(2)] == [b"EU", b"US"]
        assert payloads(eu.claim(5)) == [b"EU"]
        assert payloads(orders.claim(5)) == [b"EU", b"US"]

    def test_an_inserted_message_that_was_acked_before_it_was_routed_reaches_subscriptions(
        self, db, orders, door
    ):
        everything = db.subscription("all", pattern="#")
        door("INSERT INTO inbox (queue, payload) VALUES ('orders', 'a')")
        orders.claim()[0].ack()
        assert payloads(everything.claim()) == [b"a"]

    def test_an_inserted_message_whose_queue_is_deleted_reaches_subscriptions(
        self, db, orders, door
    ):
        everything = db.subscription("everything", pattern="#")
        door("INSERT INTO inbox (queue, payload) VALUES ('orders', 'a')")
        db.delete("orders")
        assert payloads(everything.claim(5)) == [b"a"]

    def test_a_subscription_does_not_get_what_was_inserted_before_it_was_made_or_changed(
        self, db, orders, door
    ):
        db.subscription("changed", pattern="nothing")
        door("INSERT INTO inbox (queue, payload) VALUES ('orders', 'before')")
        later = db.subscription("later", pattern="#")
        door("INSERT INTO inbox (queue, payload) VALUES ('orders', 'between')")
        changed = db.subscription("changed", pattern="#")
        door("INSERT INTO inbox (queue, payload) VALUES ('orders', 'after')")
        assert payloads(later.claim(5)) == [b"between", b"after"]
        assert payloads(changed.claim(5)) == [b"after"]

    def test_an_insert_that_was_rolled_back_reaches_no_consumer_and_no_callback(
        self, db, orders, door, seen
    ):
        db.add_callback("#", lambda m: seen.put(m.payload), id="s")
        door("INSERT INTO inbox (queue, payload) VALUES ('orders', 'undone')", commit=False)
        orders.publish(b"done")
        assert seen.get(timeout=PATIENCE) == b"done"
        assert payloads(orders.claim(5)) == [b"done"]

    def test_the_inbox_shows_the_messages_that_wait(self, orders, door):
        orders.publish(b"a", headers={"n": 1}, priority=2)
        assert door("SELECT queue, topic, priority FROM inbox") == [("orders", "orders", 2)]

    def test_an_inserted_delay_and_group_hold_for_subscriptions(self, db, orders, door):
        everything = db.subscription("all", pattern="#")
        door(
            "INSERT INTO inbox (queue, payload, group_key, delay) VALUES "
            "('orders', 'a', 'g', 0), ('orders', 'b', 'g', 0), ('orders', 'later', NULL, 600)"
        )
        [first] = everything.claim(5)
        assert (first.message.payload, first.group) == (b"a", "g")
        assert [s.message.payload for s in everything.browse(State.DELAYED)] == [b"later"]

    @pytest.mark.parametrize(
        ("columns", "values", "problem"),
        [
            ("headers", """'{"n": 9223372036854775808}'""", "a number in headers must be"),
            ("headers", """'{"n": -9223372036854775809}'""", "a number in headers must be"),
            ("headers", f"""'{{"n": {"7" * 5000}}}'""", "a number in headers must be"),
            ("headers", """'{"n": 1e400}'""", "a number in headers must be"),
            ("headers", """'{"a\\u0007b": 1}'""", "names of headers"),
            ("headers", f"""'{{"{"é" * 128}": 1}}'""", "names of headers"),
            ("topic", f"'{'é' * 128}'", "topic must be text"),
            ("group_key", "''", "must be text that is not empty"),
            ("dedup_key", "''", "must be text that is not empty"),
            ("delay", "31536000001", "delay must be a number of seconds"),
            ("delay", "-1", "delay must be a number of seconds"),
        ],
    )
    def test_an_insert_that_an_engine_cannot_store_or_compare_is_refused_in_the_same_words(
        self, orders, door, columns, values, problem
    ):
        with pytest.raises(Exception, match=f"headgate: .*{problem}|headgate: {problem}"):
            door(f"INSERT INTO inbox (queue, {columns}) VALUES ('orders', {values})")
        assert list(orders.browse()) == []

    @pytest.mark.parametrize("text", [r"\ud800", r"\udc00x", r"\u0000", r"a\u0000"])
    def test_inserted_text_that_an_engine_cannot_store_is_refused(self, orders, door, text):
        with pytest.raises(Exception, match=r"headgate: text must|nicode"):
            door(f"""INSERT INTO inbox (queue, headers) VALUES ('orders', '{{"h": "{text}"}}')""")
        assert list(orders.browse()) == []

    def test_inserted_headers_are_delivered_unchanged(self, orders, door):
        headers = (
            '{"least": -9223372036854775808, "most": 9223372036854775807, "f": 0.30000000000000004, "big": 1e300,'
            ' "text": "é\\u00e9😀\\ud83d\\ude00", "": "\\u007f\\u0001", "twice": 1, "twice": 2.5, "b": false}'
        )
        door(f"INSERT INTO inbox (queue, topic, headers) VALUES ('orders', 'é.😀', '{headers}')")
        [delivery] = orders.claim()
        assert delivery.message.topic == "é.😀"
        assert delivery.message.headers == {
            "least": -(2**63),
            "most": 2**63 - 1,
            "f": 0.30000000000000004,
            "big": 1e300,
            "text": "éé😀😀",
            "": "\x7f\x01",
            "twice": 2.5,
            "b": False,
        }
