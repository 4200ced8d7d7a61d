"""Exchanges of type x-delayed-message: messages wait for their time, in the store."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from headgate.testing import Broker

DELAYED = {"x-delayed-type": "direct"}


@contextmanager
def channel_of(broker) -> Iterator[pika.channel.Channel]:
    with closing(pika.BlockingConnection(pika.URLParameters(broker.url))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def declare(channel) -> None:
    channel.exchange_declare("later", "x-delayed-message", durable=True, arguments=DELAYED)
    channel.queue_declare("q", durable=True)
    channel.queue_bind("q", "later", "k")


def publish(channel, body: bytes, delay: object = None) -> None:
    headers = {} if delay is None else {"x-delay": delay}
    properties = pika.BasicProperties(headers=headers, delivery_mode=2)
    channel.basic_publish("later", "k", body, properties)


def take(channel, count: int) -> list[bytes]:
    found = []
    for method, _, body in channel.consume("q", inactivity_timeout=20):
        assert method is not None, f"only {found} came"
        channel.basic_ack(method.delivery_tag)
        found.append(body)
        if len(found) == count:
            channel.cancel()
            return found
    return found


@pytest.mark.parametrize("delay", [2**63 - 1, 2**62])
def test_a_delay_beyond_all_times_does_not_keep_the_store_from_committing(tmp_path, delay):
    with Broker(tmp_path / "data") as broker, channel_of(broker) as channel:
        declare(channel)
        publish(channel, b"never", delay)
        publish(channel, b"now")  # which is confirmed
        assert take(channel, 1) == [b"now"]


@pytest.mark.parametrize("delay", [-(2**63), True, "1000"])
def test_a_delay_that_is_none_delays_nothing(broker, delay):
    with channel_of(broker) as channel:
        declare(channel)
        publish(channel, b"now", delay)
        assert take(channel, 1) == [b"now"]


def test_messages_come_when_they_are_due_and_in_their_order(broker):
    with channel_of(broker) as channel:
        declare(channel)
        begin = time.monotonic()
        for body, delay in ((b"c", 400), (b"b", 200), (b"b2", 200), (b"now", None), (b"past", -5)):
            publish(channel, body, delay)
        found = take(channel, 5)
        assert sorted(found[:2]) == [b"now", b"past"]
        assert found[2:] == [b"b", b"b2", b"c"]
        assert time.monotonic() - begin >= 0.4


def test_the_header_of_a_message_that_came_is_negative(broker):
    with channel_of(broker) as channel:
        declare(channel)
        publish(channel, b"m", 30)
        for method, properties, _ in channel.consume("q", inactivity_timeout=20):
            assert method is not None
            assert properties.headers == {"x-delay": -30}
            break


def test_delays_survive_a_restart(tmp_path):
    with Broker(tmp_path) as broker, channel_of(broker) as channel:
        declare(channel)
        for number in range(200):
            publish(channel, b"%d" % number, 300_000 - number)
        publish(channel, b"soon", 1_500)
    with Broker(tmp_path) as broker, channel_of(broker) as channel:
        assert take(channel, 1) == [b"soon"]
        assert channel.queue_declare("q", passive=True).method.message_count == 0


def test_a_delayed_exchange_needs_the_type_by_which_it_routes(broker):
    for arguments in (None, {"x-delayed-type": "none"}, {"x-delayed-type": "x-delayed-message"}):
        with channel_of(broker) as channel, pytest.raises(ChannelClosedByBroker, match="406"):
            channel.exchange_declare("later", "x-delayed-message", arguments=arguments)
    with channel_of(broker) as channel:
        declare(channel)
        with pytest.raises(ChannelClosedByBroker, match="inequivalent arg 'x-delayed-type'"):
            channel.exchange_declare(
                "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "topic"}
            )


def test_copies_of_a_delayed_message_are_delayed(broker):
    with channel_of(broker) as channel:
        declare(channel)
        channel.queue_declare("copy")
        channel.queue_bind("copy", "later", "other")
        headers = {"x-delay": 100, "BCC": ["other"]}
        channel.basic_publish("later", "k", b"m", pika.BasicProperties(headers=headers))
        assert channel.basic_get("copy")[0] is None
        assert take(channel, 1) == [b"m"]
        _, properties, body = channel.basic_get("copy", auto_ack=True)
        assert (body, properties.headers) == (b"m", {"x-delay": -100})


def test_a_dead_letter_can_be_delayed(broker):
    with channel_of(broker) as channel:
        declare(channel)
        arguments = {"x-dead-letter-exchange": "later", "x-dead-letter-routing-key": "k"}
        channel.queue_declare("work", arguments=arguments)
        headers = pika.BasicProperties(headers={"x-delay": 200})
        channel.basic_publish("", "work", b"m", headers)
        begin = time.monotonic()
        method, _, _ = channel.basic_get("work")
        channel.basic_nack(method.delivery_tag, requeue=False)
        assert take(channel, 1) == [b"m"]
        assert time.monotonic() - begin >= 0.2


def test_messages_are_late_by_less_than_a_tenth_of_a_second(tmp_path):
    late = []
    with Broker(tmp_path) as broker, channel_of(broker) as channel:
        declare(channel)
        fast = channel.connection.channel()
        for number in range(300):
            delay = 100 + (number * 37) % 1_500
            due = time.time() + delay / 1000
            properties = pika.BasicProperties(headers={"x-delay": delay}, delivery_mode=2)
            fast.basic_publish("later", "k", repr(due).encode(), properties)
        for method, _, body in channel.consume("q", auto_ack=True, inactivity_timeout=20):
            assert method is not None
            late.append(time.time() - float(body))
            if len(late) == 300:
                break
    late.sort()
    assert late[0] > -0.01
    assert late[len(late) // 2] < 0.1  # the machine of a test may be busy: the bench asks for more
