"""Publishing: what is stored, delayed, deduplicated and refused."""

from __future__ import annotations

import pytest

from headgate.errors import InvalidMessage
from headgate.message import OPAQUE, Message
from headgate.queues.engine import Publication
from tests.conformance.queue_behaviour.base import MINUTE, SECOND, QueueFixtures, payloads


class PublishBehaviour(QueueFixtures):
    def test_a_message_is_delivered_with_all_its_fields(self, orders):
        headers = {
            "type": "created",
            "n": 5,
            "price": 1.5,
            "big": 2**62,
            "tiny": 5e-324,
            "yes": True,
            "list": OPAQUE,
        }
        orders.publish(
            b"\x00\xff payload",
            topic="orders.eu",
            headers={**headers, "absent": None},
            priority=7,
            id="m-1",
            key="k",
            filter_value="f",
            timestamp=1_600_000_000_000_001,
            correlation_id="c",
        )
        [delivery] = orders.claim()
        message = delivery.message
        assert message.payload == b"\x00\xff payload"
        assert message.headers == headers
        assert {name: type(value) for name, value in message.headers.items()} == {
            name: type(value) for name, value in headers.items()
        }
        assert (message.topic, message.priority, message.id) == ("orders.eu", 7, "m-1")
        assert (message.key, message.filter_value) == ("k", "f")
        assert message.timestamp == 1_600_000_000_000_001
        assert message.correlation_id == "c"

    def test_headers_and_payloads_can_be_reused_after_publishing(self, orders):
        headers, buffer = {}, bytearray(1)
        for i in range(3):
            headers["n"], buffer[0] = i, i
            orders.publish(buffer, headers=headers)
            orders.publish_many([Message(memoryview(buffer), headers=headers)])
        headers["n"], buffer[0] = 9, 9
        stored = [(d.message.headers["n"], d.message.payload) for d in orders.claim(9)]
        assert stored == [(n, bytes([n])) for n in (0, 0, 1, 1, 2, 2)]

    def test_changes_to_a_claimed_message_are_not_seen_by_the_next_consumer(self, orders):
        orders.publish(b"a", headers={"n": 1})
        [delivery] = orders.claim()
        delivery.message.headers["n"] = 2
        delivery.release()
        assert [d.message.headers for d in orders.claim()] == [{"n": 1}]

    def test_the_topic_is_by_default_the_name_of_the_queue(self, orders):
        orders.publish(b"a")
        orders.publish(b"b", topic="")
        assert [d.message.topic for d in orders.claim(2)] == ["orders", ""]

    def test_ids_ascend_and_are_never_used_again(self, orders):
        first = orders.publish(b"a")
        orders.claim()[0].ack()
        assert orders.publish(b"b") > first

    def test_a_batch_is_published_whole_or_not_at_all(self, orders):
        with pytest.raises(InvalidMessage):
            orders.publish_many([b"a", Message(b"b", headers={"n": float("nan")})])
        assert orders.peek() == []
        assert len(orders.publish_many([b"a", Message(b"b"), Publication(Message(b"c"))])) == 3

    def test_an_invalid_message_is_refused_with_the_field_named(self, orders):
        with pytest.raises(InvalidMessage, match="priority"):
            orders.publish(b"", priority=256)

    def test_a_delayed_message_waits(self, orders, time):
        orders.publish(b"later", delay=30 * SECOND)
        assert orders.claim() == []
        time.advance(29 * SECOND)
        assert orders.claim() == []
        time.advance(SECOND)
        assert payloads(orders.claim()) == [b"later"]

    def test_a_dedup_key_is_published_once_within_its_window(self, db, time):
        queue = db.queue("once", dedup_window=MINUTE)
        first = queue.publish(b"a", dedup_key="k")
        assert queue.publish(b"b", dedup_key="k") == first
        assert queue.publish_many([Publication(Message(b"c"), dedup_key="k")] * 2) == [first, first]
        [delivery] = queue.claim(10)
        assert delivery.message.payload == b"a"
        delivery.ack()
        time.advance(MINUTE)
        again = queue.publish(b"d", dedup_key="k")
        assert again > first
        assert payloads(queue.claim(10)) == [b"d"]

    def test_a_dedup_key_is_remembered_after_the_message_is_acked(self, orders):
        first = orders.publish(b"a", dedup_key="k")
        orders.claim()[0].ack()
        assert orders.publish(b"b", dedup_key="k") == first
        assert orders.claim() == []

    def test_a_dedup_key_twice_in_one_batch_is_one_message(self, orders):
        batch = [
            Publication(Message(b"a"), dedup_key="k"),
            Publication(Message(b"b"), dedup_key="k"),
        ]
        ids = orders.publish_many(batch)
        assert ids[0] == ids[1]
        assert payloads(orders.claim(10)) == [b"a"]

    def test_the_same_dedup_key_in_another_queue_is_another_message(self, db, orders):
        other = db.queue("other")
        orders.publish(b"a", dedup_key="k")
        other.publish(b"b", dedup_key="k")
        assert payloads(other.claim()) == [b"b"]
