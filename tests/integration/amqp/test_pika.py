"""pika, over a real socket: what a user does on the first day, and what must survive a restart."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from decimal import Decimal

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, NackError, UnroutableError

from headgate.testing import Broker

PERSISTENT = pika.BasicProperties(delivery_mode=2)


def connect(broker: Broker) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(broker.url))


def drain(channel, queue: str) -> list[bytes]:
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(got[2])
    return found


def test_messages_are_consumed_in_order_and_acknowledged(channel):
    channel.queue_declare("orders")
    for number in range(100):
        channel.basic_publish("", "orders", b"%d" % number)
    channel.basic_qos(prefetch_count=10)
    found = []
    for method, _, body in channel.consume("orders", inactivity_timeout=5):
        found.append(int(body))
        channel.basic_ack(method.delivery_tag)
        if len(found) == 100:
            break
    channel.cancel()
    assert found == list(range(100))
    assert channel.queue_declare("orders", passive=True).method.message_count == 0


def test_confirms_returns_and_refusals_reach_the_publisher(channel):
    channel.queue_declare("short", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.confirm_delivery()
    channel.basic_publish("", "short", b"1", mandatory=True)
    with pytest.raises(NackError):
        channel.basic_publish("", "short", b"2")
    with pytest.raises(UnroutableError):
        channel.basic_publish("", "nowhere", b"3", mandatory=True)
    assert drain(channel, "short") == [b"1"]


def test_a_message_of_many_frames_arrives_whole(channel):
    body = bytes(range(256)) * 4096
    channel.queue_declare("large")
    channel.basic_publish("", "large", body)
    channel.basic_publish("", "large", b"")
    assert drain(channel, "large") == [body, b""]


def test_requeued_messages_go_back_to_where_they_stood(channel):
    channel.queue_declare("orders")
    for number in range(6):
        channel.basic_publish("", "orders", b"%d" % number)
    tags = [channel.basic_get("orders")[0].delivery_tag for _ in range(4)]
    channel.basic_nack(tags[3], requeue=True)
    channel.basic_nack(tags[1], requeue=True)
    channel.basic_ack(tags[0])
    got = [channel.basic_get("orders", auto_ack=True) for _ in range(4)]
    assert [(body, method.redelivered) for method, _, body in got] == [
        (b"1", True),
        (b"3", True),
        (b"4", False),
        (b"5", False),
    ]


def test_consumers_take_turns(broker):
    with connect(broker) as one, connect(broker) as other, connect(broker) as publisher:
        publishing = publisher.channel()
        publishing.queue_declare("work")
        taken: dict[int, list[bytes]] = {0: [], 1: []}
        for number, connection in enumerate((one, other)):
            channel = connection.channel()
            channel.basic_consume(
                "work",
                lambda ch, method, _, body, number=number: (
                    taken[number].append(body),
                    ch.basic_ack(method.delivery_tag),
                ),
            )
        for number in range(40):
            publishing.basic_publish("", "work", b"%d" % number)
        while sum(map(len, taken.values())) < 40:
            one.process_data_events(0.05)
            other.process_data_events(0.05)
        assert min(map(len, taken.values())) >= 15


def test_what_a_headers_table_can_hold_comes_back_as_it_was(channel):
    headers = {
        "text": "ä",
        "int": 2**40,
        "bool": True,
        "none": None,
        "list": [1, "a", [None]],
        "table": {"deep": {"deeper": 1}},
        "time": datetime(2026, 11, 18, tzinfo=UTC),
        "decimal": Decimal("1.25"),
    }
    properties = pika.BasicProperties(
        content_type="text/plain", headers=headers, correlation_id="c", reply_to="r", message_id="m",
        timestamp=1_700_000_000, type="t", app_id="a", priority=3,
    )  # fmt: skip
    channel.queue_declare("any")
    channel.basic_publish("", "any", b"x", properties)
    _, found, _ = channel.basic_get("any", auto_ack=True)
    assert found.headers == headers
    assert {**vars(found), "headers": None} == {**vars(properties), "headers": None}


def test_a_reply_finds_its_way_without_a_queue(broker):
    with connect(broker) as client, connect(broker) as server:
        asking, answering = client.channel(), server.channel()
        answers: list[bytes] = []
        asking.basic_consume(
            "amq.rabbitmq.reply-to", lambda *given: answers.append(given[3]), auto_ack=True
        )
        answering.queue_declare("questions")
        asking.basic_publish(
            "", "questions", b"?", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to")
        )
        asking.queue_declare("questions", passive=True)  # the broker has seen the publish
        _, properties, _ = answering.basic_get("questions", auto_ack=True)
        answering.basic_publish("", properties.reply_to, b"!")
        while not answers:
            client.process_data_events(0.05)
        assert answers == [b"!"]


def test_a_transaction_is_all_or_nothing(channel, connection):
    channel.queue_declare("tx")
    channel.tx_select()
    channel.basic_publish("", "tx", b"taken back")
    channel.tx_rollback()
    channel.basic_publish("", "tx", b"1")
    channel.basic_publish("", "tx", b"2")
    other = connection.channel()
    assert other.queue_declare("tx", passive=True).method.message_count == 0
    channel.tx_commit()
    assert drain(other, "tx") == [b"1", b"2"]


def test_an_expired_message_becomes_a_dead_letter_with_its_history(channel):
    channel.queue_declare("dead")
    channel.queue_declare("short", arguments={"x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})  # fmt: skip
    channel.basic_publish("", "short", b"late", pika.BasicProperties(expiration="60000"))
    (method, properties, body) = next(channel.consume("dead", inactivity_timeout=5))
    assert body == b"late"
    (death,) = properties.headers["x-death"]
    assert (death["queue"], death["reason"], death["count"]) == ("short", "expired", 1)
    assert properties.expiration is None
    channel.basic_ack(method.delivery_tag)


def test_a_queue_that_is_not_used_expires(channel):
    channel.queue_declare("brief", arguments={"x-expires": 1})
    is_there, waiting = True, threading.Event()
    deadline = time.monotonic() + 30
    while is_there and time.monotonic() < deadline:
        waiting.wait(0.01)
        try:
            with channel.connection.channel() as looking:
                looking.queue_declare("brief", passive=True)
        except ChannelClosedByBroker:
            is_there = False
    assert not is_there


class TestAfterARestart:
    def test_durable_things_are_there_and_others_are_not(self, tmp_path):
        with Broker(tmp_path) as broker, connect(broker) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.exchange_declare("events", "topic", durable=True)
            channel.exchange_declare("passing", "topic")
            for name, durable in (("kept", True), ("lost", False)):
                channel.queue_declare(name, durable=durable)
                channel.queue_bind(name, "events", f"{name}.#")
            channel.basic_publish("events", "kept.a", b"persistent", PERSISTENT)
            channel.basic_publish("events", "kept.b", b"transient")
            channel.basic_publish(
                "events", "lost.a", b"persistent, in a queue that is not", PERSISTENT
            )
        with Broker(tmp_path) as broker, connect(broker) as connection:
            channel = connection.channel()
            channel.exchange_declare("events", passive=True)
            assert channel.queue_declare("kept", passive=True).method.message_count == 1
            method, _, body = channel.basic_get("kept", auto_ack=True)
            assert (method.routing_key, method.exchange, body) == (
                "kept.a",
                "events",
                b"persistent",
            )
            channel.basic_publish("events", "kept.c", b"bound as before")
            assert drain(channel, "kept") == [b"bound as before"]
            for check in (
                lambda channel: channel.queue_declare("lost", passive=True),
                lambda channel: channel.exchange_declare("passing", passive=True),
            ):
                with pytest.raises(ChannelClosedByBroker, match="404"):
                    check(connection.channel())

    def test_what_was_acknowledged_does_not_come_back_and_what_was_delivered_is_flagged(
        self, tmp_path
    ):
        with Broker(tmp_path) as broker, connect(broker) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("q", durable=True)
            for number in range(5):
                channel.basic_publish("", "q", b"%d" % number, PERSISTENT)
            tags = [channel.basic_get("q")[0].delivery_tag for _ in range(3)]
            channel.basic_ack(tags[1])
        with Broker(tmp_path) as broker, connect(broker) as connection:
            channel = connection.channel()
            got = [channel.basic_get("q", auto_ack=True) for _ in range(4)]
            assert [body for _, _, body in got] == [b"0", b"2", b"3", b"4"]
            assert [method.redelivered for method, _, _ in got] == [True, True, False, False]

    def test_one_body_in_many_queues_is_there_for_each(self, tmp_path):
        names = [f"q{number}" for number in range(5)]
        with Broker(tmp_path) as broker, connect(broker) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for name in names:
                channel.queue_declare(name, durable=True)
                channel.queue_bind(name, "amq.fanout")
            for number in range(10):
                channel.basic_publish("amq.fanout", "", b"%d" % number * 1000, PERSISTENT)
            assert drain(channel, "q0")
        with Broker(tmp_path) as broker, connect(broker) as connection:
            channel = connection.channel()
            expected = [b"%d" % number * 1000 for number in range(10)]
            assert [drain(channel, name) for name in names] == [[], *[expected] * 4]

    def test_priorities_and_returns_are_remembered(self, tmp_path):
        with Broker(tmp_path) as broker, connect(broker) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("p", durable=True, arguments={"x-max-priority": 5})
            channel.queue_declare("q", durable=True, arguments={"x-queue-type": "quorum"})
            for priority in (1, 5, 3):
                properties = pika.BasicProperties(delivery_mode=2, priority=priority)
                channel.basic_publish("", "p", b"%d" % priority, properties)
            channel.basic_publish("", "q", b"x", PERSISTENT)
            for _ in range(3):
                channel.basic_reject(channel.basic_get("q")[0].delivery_tag, requeue=True)
        with Broker(tmp_path) as broker, connect(broker) as connection:
            channel = connection.channel()
            assert drain(channel, "p") == [b"5", b"3", b"1"]
            _, properties, _ = channel.basic_get("q", auto_ack=True)
            assert properties.headers == {"x-delivery-count": 3}
