"""Counters of queues, exchanges, channels and connections, as clients make them rise."""

import pika
import pytest

from headgate.amqp import AmqpCodec
from headgate.broker import Broker, Statistics
from headgate.broker.statistics import (
    CHANNEL_COUNTERS,
    EXCHANGE_COUNTERS,
    QUEUE_COUNTERS,
    QUEUE_GAUGES,
)
from headgate.store import InMemoryStore
from headgate.testing import Broker as RunningBroker


@pytest.fixture
def counted():
    """A running broker; `counted(name)` reads its statistics as dicts."""
    with RunningBroker() as running:
        connection = pika.BlockingConnection(pika.URLParameters(running.url))
        yield running, connection
        connection.close()


def of_queue(running, name):
    def read():
        running.broker.statistics.refresh()
        queue = running.broker.vhosts["/"].queues[name]
        names = QUEUE_COUNTERS + QUEUE_GAUGES
        return dict(zip(names, running.broker.statistics.queues[queue].counts, strict=True))

    return running.call(read)


def of_exchange(running, name):
    def read():
        running.broker.statistics.refresh()
        counts = running.broker.statistics.exchanges["/", name].counts
        return dict(zip(EXCHANGE_COUNTERS, counts, strict=True))

    return running.call(read)


def of_channels(running):
    def read():
        statistics = running.broker.statistics
        statistics.refresh()
        return [
            dict(zip(CHANNEL_COUNTERS, s.counts, strict=True)) for s in statistics.channels.values()
        ]

    return running.call(read)


def test_what_enters_and_leaves_a_queue_is_counted(counted):
    running, connection = counted
    channel = connection.channel()
    channel.queue_declare("orders")
    channel.confirm_delivery()
    for number in range(10):
        channel.basic_publish("", "orders", b"order %d" % number)
    counts = of_queue(running, "orders")
    assert (counts["publish"], counts["messages_ready"]) == (10, 10)
    assert counts["message_bytes_ready"] == 70
    got = [channel.basic_get("orders")[0] for _ in range(4)]
    channel.basic_ack(got[0].delivery_tag)
    channel.basic_nack(got[1].delivery_tag, requeue=True)
    channel.basic_reject(got[2].delivery_tag, requeue=False)
    channel.basic_get("orders", auto_ack=True)
    counts = of_queue(running, "orders")
    assert (counts["get"], counts["get_no_ack"], counts["ack"]) == (4, 1, 1)
    assert (counts["messages_unacknowledged"], counts["messages_ready"]) == (1, 6)
    assert counts["redeliver"] == 1
    [of_channel] = of_channels(running)
    assert (of_channel["publish"], of_channel["confirm"], of_channel["ack"]) == (10, 10, 1)


def test_consumed_messages_are_counted_with_and_without_acknowledgement(counted):
    running, connection = counted
    channel = connection.channel()
    channel.queue_declare("a")
    channel.queue_declare("b")
    for name in "ab":
        for _ in range(5):
            channel.basic_publish("", name, b"x")
    for method, _, _ in channel.consume("a"):
        channel.basic_ack(method.delivery_tag)
        if method.delivery_tag == 5:
            break
    channel.cancel()
    for method, _, _ in channel.consume("b", auto_ack=True):
        if method.delivery_tag == 10:
            break
    channel.cancel()
    one, other = of_queue(running, "a"), of_queue(running, "b")
    assert (one["deliver"], one["ack"], one["deliver_no_ack"]) == (5, 5, 0)
    assert (other["deliver"], other["ack"], other["deliver_no_ack"]) == (0, 0, 5)


def test_what_an_exchange_gets_and_passes_on_is_counted(counted):
    running, connection = counted
    channel = connection.channel()
    for name in "ab":
        channel.queue_declare(name)
        channel.queue_bind(name, "amq.fanout")
    channel.basic_publish("amq.fanout", "", b"x")
    channel.basic_publish("amq.direct", "nowhere", b"x")
    channel.queue_bind("a", "amq.headers", arguments={"n": 1})
    properties = pika.BasicProperties(headers={"n": 1})
    channel.basic_publish("amq.headers", "", b"x", properties)
    channel.queue_declare("a")
    assert of_exchange(running, "amq.fanout")["publish_out"] == 2
    direct = of_exchange(running, "amq.direct")
    assert (direct["publish_in"], direct["publish_out"], direct["drop_unroutable"]) == (1, 0, 1)
    assert of_exchange(running, "amq.headers")["publish_out"] == 1


def test_what_a_deleted_exchange_counted_stays_in_the_sum_and_nothing_else_of_it(counted):
    running, connection = counted
    channel = connection.channel()
    for number in range(20):
        channel.exchange_declare(f"passing-{number}", "fanout")
        channel.basic_publish(f"passing-{number}", "", b"x")
        channel.exchange_delete(f"passing-{number}")

    def read():
        running.broker.statistics.refresh()
        return running.broker.statistics.vhosts["/"].counts[0], len(list(running.broker.vhosts["/"].traffic))  # fmt: skip

    assert running.call(read) == (20, 1)


def test_connections_are_known_while_they_are_open(counted):
    running, _ = counted
    [opened] = running.call(lambda: list(running.broker.connections.values()))
    assert (opened.user, opened.vhost, opened.protocol) == ("guest", "/", "AMQP 0-9-1")
    assert opened.port == running.port
    other = pika.BlockingConnection(pika.URLParameters(running.url))
    assert len(running.call(lambda: list(running.broker.connections))) == 2
    other.close()
    while len(running.call(lambda: list(running.broker.connections))) == 2:
        pass


def test_rates_are_of_the_time_between_two_samples():
    time = [100.0]
    broker = Broker(InMemoryStore(lambda call: call()), AmqpCodec(), lambda *_: None)
    statistics = Statistics(broker, lambda: time[0])
    queue = broker.vhosts["/"].declare_queue("q")
    statistics.sample()
    queue.traffic.get_empty += 50
    broker.changed.add(queue)
    time[0] += 5
    statistics.sample()
    place = QUEUE_COUNTERS.index("get_empty")
    assert statistics.queues[queue].rates[place] == 10.0
    time[0] += 5
    statistics.sample()
    assert statistics.queues[queue].rates[place] == 0.0
    broker.vhosts["/"].delete_queue(queue)
    statistics.sample()
    assert queue not in statistics.queues
    assert statistics.vhosts["/"].counts[4 + place] == 50
