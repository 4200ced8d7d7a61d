"""Exchanges that take one binding for each message, as a RabbitMQ client declares and uses them."""

from __future__ import annotations

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from headgate.routing import Topology


def bind_queues(channel, type, arguments=None):
    channel.exchange_declare("x", type, arguments=arguments)
    for queue, weight in (("a", "1"), ("b", "2"), ("c", "1")):
        channel.queue_declare(queue)
        channel.queue_bind(queue, "x", weight)


def counts(channel):
    return {
        queue: channel.queue_declare(queue, passive=True).method.message_count
        for queue in ("a", "b", "c")
    }


@pytest.mark.parametrize(
    ("type", "arguments"),
    [
        ("x-consistent-hash", None),
        ("x-consistent-hash", {"hash-header": "customer"}),
        ("x-consistent-hash", {"hash-property": "message_id"}),
        ("x-modulus-hash", None),
        ("x-random", None),
    ],
)
def test_each_message_reaches_one_queue_and_all_get_their_share(channel, type, arguments):
    bind_queues(channel, type, arguments)
    channel.confirm_delivery()
    for n in range(300):
        properties = pika.BasicProperties(message_id=f"m{n}", headers={"customer": n})
        channel.basic_publish("x", f"key-{n}", b"", properties, mandatory=True)
    found = counts(channel)
    assert sum(found.values()) == 300
    assert min(found.values()) > 40
    if type == "x-consistent-hash":
        assert found["b"] > 100


def test_a_hash_leads_where_a_topology_says(channel):
    bind_queues(channel, "x-consistent-hash")
    topology = Topology()
    topology.declare_exchange("x", "x-consistent-hash")
    for queue, weight in (("a", "1"), ("b", "2"), ("c", "1")):
        topology.declare_queue(queue)
        topology.bind("x", queue=queue, key=weight)
    for n in range(30):
        channel.basic_publish("x", f"key-{n}", b"")
        (wanted,) = topology.route("x", (f"key-{n}", {})).queues
        assert channel.basic_get(wanted, auto_ack=True)[0] is not None


def test_a_local_random_exchange_draws_among_classic_queues_without_a_key(connection):
    channel = connection.channel()
    channel.exchange_declare("x", "x-local-random")
    for queue in "abc":
        channel.queue_declare(queue)
        channel.queue_bind(queue, "x", "")
    for _ in range(300):
        channel.basic_publish("x", "any", b"")
    assert min(counts(channel).values()) > 40
    channel.queue_declare("quorum", durable=True, arguments={"x-queue-type": "quorum"})
    for queue, key, said in (
        ("a", "k", "Non empty binding 'k' key not permitted"),
        ("quorum", "", "Queue type rabbit_quorum_queue not valid for this exchange type"),
    ):
        with pytest.raises(ChannelClosedByBroker, match=f"406, .*{said}"):
            connection.channel().queue_bind(queue, "x", key)
    with pytest.raises(ChannelClosedByBroker, match=r"406, .*Destination not found"):
        connection.channel().exchange_bind("amq.fanout", "x")


def test_a_random_exchange_draws_for_each_message_with_one_key(channel):
    bind_queues(channel, "x-random")
    for _ in range(300):
        channel.basic_publish("x", "same", b"")
    assert min(counts(channel).values()) > 40


@pytest.mark.parametrize("key", ["", "heavy", "0", "-1"])
def test_a_binding_key_that_is_no_weight_closes_the_channel(channel, key):
    channel.exchange_declare("x", "x-consistent-hash")
    channel.queue_declare("a")
    with pytest.raises(ChannelClosedByBroker) as closed:
        channel.queue_bind("a", "x", key)
    assert closed.value.reply_code == 406


def test_two_things_to_hash_close_the_channel(channel):
    with pytest.raises(ChannelClosedByBroker) as closed:
        channel.exchange_declare(
            "x",
            "x-consistent-hash",
            arguments={"hash-header": "a", "hash-property": "message_id"},
        )
    assert closed.value.reply_code == 406
