"""Consumers that browse a queue with `x-browse`: they see what is there and what comes, and take nothing."""

from __future__ import annotations

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from headgate.testing import Broker
from tests.patience import wait_until


def publish(channel, bodies: range, queue: str = "orders", **properties: object) -> None:
    for number in bodies:
        headers = {"even": number % 2 == 0}
        given = pika.BasicProperties(headers=headers, delivery_mode=2, **properties)
        channel.basic_publish("", queue, b"%d" % number, given)


def browse(channel, got: list, queue: str = "orders", **arguments: object) -> str:
    """Begin to browse; what comes is appended to a list as (body, redelivered)."""
    return channel.basic_consume(
        queue,
        lambda _, method, __, body: got.append((int(body), method.redelivered)),
        auto_ack=True,
        arguments={"x-browse": True, **arguments},
    )


def wait_for(connection, got: list, count: int) -> list[int]:
    while len(got) < count:
        connection.process_data_events(10)
    return [body for body, _ in got]


def ready(channel, queue: str = "orders") -> int:
    return channel.queue_declare(queue, passive=True).method.message_count


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_it_sees_what_is_there_then_what_comes_and_takes_nothing(channel, connection, kind):
    channel.queue_declare("orders", durable=True, arguments={"x-queue-type": kind})
    publish(channel, range(600))
    all_of_them: list = []
    even: list = []
    tag = browse(channel, all_of_them)
    browse(channel, even, **{"x-filter": "even"})
    assert wait_for(connection, all_of_them, 600) == list(range(600))
    assert wait_for(connection, even, 300) == list(range(0, 600, 2))
    publish(channel, range(600, 604))
    assert wait_for(connection, all_of_them, 604)[600:] == [600, 601, 602, 603]
    assert wait_for(connection, even, 302)[300:] == [600, 602]
    channel.basic_cancel(tag)
    assert channel.queue_declare("orders", passive=True).method.consumer_count == 0
    assert ready(channel) == 604


def test_messages_of_several_priorities_come_as_they_were_published(channel, connection):
    channel.queue_declare("orders", durable=True, arguments={"x-max-priority": 3})
    for number in range(12):
        publish(channel, range(number, number + 1), priority=number % 4)
    got: list = []
    browse(channel, got)
    assert wait_for(connection, got, 12) == list(range(12))
    publish(channel, range(12, 14), priority=1)
    assert wait_for(connection, got, 14)[12:] == [12, 13]


def test_others_consume_meanwhile(channel, connection):
    channel.queue_declare("orders")
    got: list = []
    browse(channel, got)
    taken: list[int] = []
    channel.basic_consume("orders", lambda *a: taken.append(int(a[3])), auto_ack=True)
    publish(channel, range(50))
    while len(taken) < 50:
        connection.process_data_events(10)
    assert wait_for(connection, got, 50) == list(range(50))
    assert ready(channel) == 0


def test_what_another_consumer_holds_is_passed_over_and_keeps_its_flag(channel, connection):
    channel.queue_declare("orders")
    publish(channel, range(5))
    held = [channel.basic_get("orders")[0].delivery_tag for _ in range(2)]
    got: list = []
    tag = browse(channel, got)
    assert wait_for(connection, got, 3) == [2, 3, 4]
    channel.basic_cancel(tag)
    channel.basic_nack(held[0], requeue=True)
    again: list = []
    browse(channel, again)
    wait_for(connection, again, 4)
    assert again == [(0, True), (2, False), (3, False), (4, False)]


def test_it_does_not_keep_a_queue_and_ends_with_it(channel, connection):
    channel.queue_declare("short", auto_delete=True)
    got: list = []
    browse(channel, got, "short")
    consumer = channel.basic_consume("short", lambda *_: None, auto_ack=True)
    cancelled: list = []
    channel.add_on_cancel_callback(cancelled.append)
    channel.basic_cancel(consumer)
    while not cancelled:
        connection.process_data_events(10)
    with pytest.raises(ChannelClosedByBroker, match="404"):
        ready(channel, "short")


@pytest.mark.parametrize(
    ("arguments", "exclusive"), [({"x-single-active-consumer": True}, False), ({}, True)]
)
def test_prefetch_and_the_only_consumer_of_a_queue_do_not_keep_browsers_out(
    channel, connection, arguments, exclusive
):
    channel.basic_qos(prefetch_count=1)
    channel.queue_declare("orders", arguments=arguments)
    channel.basic_consume("orders", lambda *_: None, exclusive=exclusive)
    publish(channel, range(5))
    wait_until(lambda: ready(channel) == 4)  # the first is with its consumer
    got: list = []
    browse(channel, got)
    assert wait_for(connection, got, 4) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("arguments", "given", "problem"),
    [
        ({"x-browse": True}, {"exclusive": True, "auto_ack": True}, "cannot be exclusive"),
        ({"x-browse": True}, {}, "set no_ack"),
        ({"x-browse": "yes"}, {"auto_ack": True}, "is no boolean"),
        ({"x-browse": True, "x-filter": "a >"}, {"auto_ack": True}, "x-filter"),
    ],
)
def test_what_does_not_go_together_is_refused(channel, arguments, given, problem):
    channel.queue_declare("orders")
    with pytest.raises(ChannelClosedByBroker, match=problem):
        channel.basic_consume("orders", lambda *_: None, arguments=arguments, **given)


def test_messages_on_disk_are_seen_in_order_and_stay_there(tmp_path):
    with Broker(tmp_path, page_out_after=100) as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("orders", durable=True)
            publish(channel, range(700))
            got: list = []
            even: list = []
            browse(channel, got)
            browse(channel, even, **{"x-filter": "even"})
            assert wait_for(connection, got, 700) == list(range(700))
            assert wait_for(connection, even, 350) == list(range(0, 700, 2))
            assert ready(channel) == 700
    with Broker(tmp_path, page_out_after=100) as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            after: list = []
            browse(connection.channel(), after, **{"x-filter": "even"})
            wait_for(connection, after, 350)
            assert after == [(number, False) for number in range(0, 700, 2)]
