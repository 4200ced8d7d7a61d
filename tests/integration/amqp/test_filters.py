"""Filters at the broker, over real sockets and with real clients: `x-filter` of consumers, queues and bindings."""

from __future__ import annotations

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from headgate.testing import Broker


def connect(broker: Broker) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(broker.url))


def publish(channel, queue: str, body: bytes, **headers: object) -> None:
    properties = pika.BasicProperties(headers=headers, delivery_mode=2)
    channel.basic_publish("", queue, body, properties)


def receive(channel, queue: str, count: int, filter: str | None = None, **arguments) -> list[bytes]:
    """Consume until so many messages came, acknowledge them, and cancel."""
    if filter is not None:
        arguments["x-filter"] = filter
    found = []
    for method, _, body in channel.consume(queue, inactivity_timeout=10, arguments=arguments):
        assert method is not None, f"only {found}"
        found.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(found) == count:
            break
    channel.cancel()
    return found


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_consumer_gets_what_its_filter_matches_and_the_rest_stays(channel, kind):
    channel.queue_declare("orders", durable=True, arguments={"x-queue-type": kind})
    for number in range(30):
        publish(channel, "orders", b"%d" % number, region=["EU", "US", "APAC"][number % 3])
    assert receive(channel, "orders", 10, "region = 'EU'") == [b"%d" % n for n in range(0, 30, 3)]
    assert channel.queue_declare("orders", passive=True).method.message_count == 20
    assert receive(channel, "orders", 20) == [b"%d" % n for n in range(30) if n % 3]


def test_messages_that_come_later_are_matched_as_they_come(channel, connection):
    channel.queue_declare("orders")
    got: list[bytes] = []
    channel.basic_consume("orders", lambda *a: got.append(a[3]), auto_ack=True, arguments={"x-filter": "amount > 100"})  # fmt: skip
    for amount in (50, 150, "200", True, 101):
        publish(channel, "orders", f"{amount}".encode(), amount=amount)
    while len(got) < 2:
        connection.process_data_events(1)
    assert got == [b"150", b"101"]


def test_a_queue_has_a_filter_for_consumers_without_one_and_for_gets(channel):
    channel.queue_declare("orders", arguments={"x-filter": "region = 'EU'"})
    for region in ("US", "EU", "US", "EU"):
        publish(channel, "orders", region.encode(), region=region)
    assert channel.basic_get("orders", auto_ack=True)[2] == b"EU"
    assert receive(channel, "orders", 1) == [b"EU"]
    assert channel.basic_get("orders", auto_ack=True)[0] is None
    assert receive(channel, "orders", 2, "region = 'US'") == [b"US", b"US"]


def test_a_bad_filter_is_refused_with_a_caret_under_the_mistake(connection):
    long = "region = 'EU' AND " * 30 + "amount >> 5" + " AND region = 'EU'" * 30
    for text in ("region = = 'EU'", long, "region = 'EU"):
        channel = connection.channel()
        channel.queue_declare("orders")
        with pytest.raises(ChannelClosedByBroker) as refused:
            channel.basic_consume("orders", print, arguments={"x-filter": text})
        assert refused.value.reply_code == 406
        _, shown, caret = refused.value.reply_text.split("\n")
        assert caret.strip() == "^"
        assert len(caret) - 3 <= len(shown)
    with pytest.raises(ChannelClosedByBroker) as refused:
        connection.channel().queue_declare("other", arguments={"x-filter": "a = = 1"})
    assert refused.value.reply_text.endswith("^")
    with pytest.raises(ChannelClosedByBroker) as refused:
        connection.channel().queue_bind("orders", "amq.fanout", "", {"x-filter": long})
    assert refused.value.reply_text.endswith("^")


def test_a_binding_filter_decides_what_comes_in(channel):
    channel.queue_declare("large")
    channel.queue_bind("large", "amq.topic", "orders.#", {"x-filter": "amount > 100"})
    for amount in (50, 150):
        properties = pika.BasicProperties(headers={"amount": amount})
        channel.basic_publish("amq.topic", "orders.new", b"%d" % amount, properties)
    assert receive(channel, "large", 1) == [b"150"]
    assert channel.queue_declare("large", passive=True).method.message_count == 0


def test_what_filters_left_is_there_after_a_restart_and_only_what_was_delivered_is_flagged(
    tmp_path,
):
    with Broker(tmp_path) as broker, connect(broker) as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True)
        for number in range(50):
            publish(channel, "orders", b"%d" % number, region="EU" if number % 10 == 9 else "US")
        channel.basic_qos(prefetch_count=3)
        got = []
        for method, _, body in channel.consume("orders", arguments={"x-filter": "region = 'EU'"}):
            got.append((body, method.redelivered))
            if len(got) == 3:
                break
        assert got == [(b"9", False), (b"19", False), (b"29", False)]
    with Broker(tmp_path) as broker, connect(broker) as connection:
        channel = connection.channel()
        flagged, bodies = [], []
        while (got := channel.basic_get("orders", auto_ack=True))[0] is not None:
            bodies.append(got[2])
            if got[0].redelivered:
                flagged.append(got[2])
        assert bodies == [b"%d" % number for number in range(50)]
        assert flagged == [b"9", b"19", b"29"]
