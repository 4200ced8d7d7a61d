"""Redelivery: delayed retries of quorum queues, what counts as a delivery, deliveries that are not acknowledged in time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import pika
import pytest
from pika.exceptions import AMQPError, ChannelClosedByBroker

from headgate.broker.redelivery import WAITING
from headgate.testing import Broker
from tests.patience import PATIENCE


@contextmanager
def channel_of(broker) -> Iterator[pika.channel.Channel]:
    with closing(pika.BlockingConnection(pika.URLParameters(broker.url))) as connection:
        yield connection.channel()


def declare(channel, **arguments: object) -> None:
    named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    channel.queue_declare("q", durable=True, arguments={"x-queue-type": "quorum", **named})
    properties = pika.BasicProperties(delivery_mode=2)
    channel.confirm_delivery()
    channel.basic_publish("", "q", b"m", properties)


def next_of(channel) -> tuple[int, dict]:
    """The tag and the headers of the next message, as soon as there is one."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        method, properties, _ = channel.basic_get("q")
        if method is not None:
            return method.delivery_tag, properties.headers or {}
    raise AssertionError("nothing was delivered")


SETTLE = {
    "reject": lambda channel, tag: channel.basic_reject(tag, requeue=True),
    "nack": lambda channel, tag: channel.basic_nack(tag, requeue=True),
}


@pytest.mark.parametrize(("kind", "delayed"), [("failed", "reject"), ("returned", "nack")])
def test_a_retry_is_delayed_where_its_type_says_so(broker, kind, delayed):
    with channel_of(broker) as channel:
        declare(channel, delayed_retry_type=kind, delayed_retry_min=300, delayed_retry_max=700)
        tag, _ = next_of(channel)
        for least in (0.3, 0.6, 0.7):  # 300 ms for each time it came back, at most 700
            begin = time.monotonic()
            SETTLE[delayed](channel, tag)
            tag, _ = next_of(channel)
            assert time.monotonic() - begin >= least - 0.01  # the broker counts milliseconds


@pytest.mark.parametrize(("kind", "at_once"), [("failed", "nack"), ("returned", "reject")])
def test_a_retry_is_delivered_at_once_where_its_type_says_so(broker, kind, at_once):
    with channel_of(broker) as channel:
        declare(channel, delayed_retry_type=kind, delayed_retry_min=3_600_000)
        tag, _ = next_of(channel)
        SETTLE[at_once](channel, tag)
        next_of(channel)


def test_a_restart_does_not_shorten_the_delay_of_a_retry(tmp_path):
    with Broker(tmp_path) as broker, channel_of(broker) as channel:
        declare(channel, delayed_retry_type="all", delayed_retry_min=1_500)
        declare(channel, delayed_retry_type="all", delayed_retry_min=1_500)
        tag, _ = next_of(channel)
        begin = time.monotonic()
        channel.basic_nack(tag, requeue=True)
        assert channel.queue_declare("q", passive=True).method.message_count == 1
    with Broker(tmp_path) as broker, channel_of(broker) as channel:
        assert channel.queue_declare("q", passive=True).method.message_count == 1
        channel.basic_ack(next_of(channel)[0])
        tag, headers = next_of(channel)
        assert time.monotonic() - begin >= 1.49  # the broker counts milliseconds
        assert headers["x-delivery-count"] == 1
        channel.basic_ack(tag)
    with Broker(tmp_path) as broker, channel_of(broker) as channel:
        assert channel.queue_declare("q", passive=True).method.message_count == 0
        assert not [kind for kind, _ in broker.broker.store.read().definitions if kind == WAITING]


def test_a_retry_of_a_queue_that_was_deleted_is_forgotten(tmp_path):
    with Broker(tmp_path) as broker, channel_of(broker) as channel:
        declare(channel, delayed_retry_type="all", delayed_retry_min=3_600_000)
        channel.basic_nack(next_of(channel)[0], requeue=True)
        channel.queue_delete("q")
    with Broker(tmp_path):
        pass
    with Broker(tmp_path) as broker:
        assert not [kind for kind, _ in broker.broker.store.read().definitions if kind == WAITING]


def test_after_a_crash_a_queue_holds_no_more_than_its_limit(served):
    limits = {"x-max-length": 3, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    lasting = pika.BasicProperties(delivery_mode=2)
    connection = served.connect()
    channel = connection.channel()
    channel.queue_declare("dead", durable=True)
    channel.queue_declare("q", durable=True, arguments=limits)
    channel.confirm_delivery()
    for number in range(6):
        channel.basic_publish("", "q", b"%d" % number, lasting)
        if number < 3:
            channel.basic_get("q")
    served.kill()
    with suppress(AMQPError):
        connection.close()
    served.start()
    with served.connect() as connection:
        channel = connection.channel()
        for queue, wanted in (("q", [b"3", b"4", b"5"]), ("dead", [b"0", b"1", b"2"])):
            assert channel.queue_declare(queue, passive=True).method.message_count == 3
            assert [channel.basic_get(queue)[2] for _ in range(3)] == wanted


@pytest.mark.parametrize(("version", "counted"), [("4.0.5", 1), ("4.3.0", None)])
def test_what_is_only_given_back_counts_before_rabbitmq_4_3(version, counted):
    with Broker(version=version) as broker, channel_of(broker) as channel:
        declare(channel)
        tag, _ = next_of(channel)
        channel.basic_nack(tag, requeue=True)
        tag, headers = next_of(channel)
        assert headers.get("x-delivery-count") == counted
        channel.basic_reject(tag, requeue=True)
        _, headers = next_of(channel)
        assert headers["x-delivery-count"] == (counted or 0) + 1


@pytest.mark.parametrize(
    ("settings", "queue", "consumer"),
    [
        ({"consumer_timeout": "300ms"}, {}, {}),
        ({}, {"x-consumer-timeout": 300}, {}),
        ({}, {"x-consumer-timeout": 60_000}, {"x-consumer-timeout": 300}),
    ],
)
def test_a_channel_that_does_not_acknowledge_in_time_is_closed(settings, queue, consumer):
    with Broker(**settings) as broker, channel_of(broker) as channel:
        channel.queue_declare("q", arguments=queue)
        channel.basic_publish("", "q", b"m")
        begin = time.monotonic()
        with pytest.raises(ChannelClosedByBroker) as caught:
            for _ in channel.consume("q", inactivity_timeout=20, arguments=consumer):
                pass
        assert 0.29 <= time.monotonic() - begin < 10
        assert caught.value.reply_code == 406
        assert caught.value.reply_text == (
            "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 300 ms. "
            "This timeout value can be configured, see consumers doc guide to learn more"
        )
        with channel_of(broker) as other:
            method, _, body = other.basic_get("q", auto_ack=True)
            assert (method.redelivered, body) == (True, b"m")


def test_a_consumer_that_acknowledges_is_never_timed_out():
    with Broker(consumer_timeout="2s") as broker, channel_of(broker) as channel:
        channel.queue_declare("q")
        end = time.monotonic() + 5
        while time.monotonic() < end:
            channel.basic_publish("", "q", b"m")
            tag, _ = next_of(channel)
            channel.connection.process_data_events(0.1)
            channel.basic_ack(tag)
        assert channel.is_open
