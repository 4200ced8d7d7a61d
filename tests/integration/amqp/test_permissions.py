"""The permission matrix: every method with every set of permissions and tags answers as RabbitMQ 4.0.5 does.

What a method needs, and in which order it is checked, is that of RabbitMQ's rabbit_channel.erl.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import pika
import pytest
from pika.spec import Basic

from headgate.amqp.channel import Channel as AmqpChannel
from headgate.broker import User, hash_quickly
from headgate.testing import Broker

Channel = Any
RecoverAsync = Basic.RecoverAsync
KINDS = ("configure", "write", "read")
SUBSETS = [subset for size in range(4) for subset in combinations(KINDS, size)]
TAGS = ("", "administrator", "monitoring", "policymaker", "management", "impersonator", "own")

Q, X, T, AE = "queue 'q'", "exchange 'x'", "exchange 'amq.topic'", "exchange 'ae'"


def get_and(settle: Callable[[Channel, int], None]) -> Callable[[Channel], None]:
    """Settle a message; that it was got needs to be allowed, the rest does not."""

    def run(channel: Channel) -> None:
        method, _, _ = channel.basic_get("full")
        settle(channel, method.delivery_tag)
        channel.basic_qos(prefetch_count=1)  # which is answered behind it

    return run


# What each method needs, in the order in which it is asked for.
METHODS: dict[str, tuple[list[str], Callable[[Channel], Any]]] = {
    "channel.open": ([], lambda c: None),
    "channel.flow": ([], lambda c: c.flow(True)),
    "channel.close": ([], lambda c: c.close()),
    "basic.qos": ([], lambda c: c.basic_qos(prefetch_count=3)),
    "basic.recover": ([], lambda c: c.basic_recover(requeue=True)),
    "basic.recover-async": (
        [],
        lambda c: (c._impl._send_method(RecoverAsync(requeue=True)), c.basic_qos()),
    ),
    "confirm.select": ([], lambda c: c.confirm_delivery()),
    "tx.select tx.commit tx.rollback": (
        [],
        lambda c: (c.tx_select(), c.tx_commit(), c.tx_rollback()),
    ),
    "queue.declare new": ([f"configure {Q[:-1]}-new'"], lambda c: c.queue_declare("q-new")),
    "queue.declare again": ([f"configure {Q}"], lambda c: c.queue_declare("q")),
    "queue.declare passive": ([], lambda c: c.queue_declare("q", passive=True)),
    "queue.declare with dead letters": (
        ["configure queue 'q-new'", "read queue 'q-new'", f"write {AE}"],
        lambda c: c.queue_declare("q-new", arguments={"x-dead-letter-exchange": "ae"}),
    ),
    "queue.bind": ([f"write {Q}", f"read {X}"], lambda c: c.queue_bind("q", "x", "k")),
    "queue.unbind": ([f"write {Q}", f"read {X}"], lambda c: c.queue_unbind("q", "x", "k")),
    "queue.purge": ([f"read {Q}"], lambda c: c.queue_purge("q")),
    "queue.delete": (["configure queue 'gone'"], lambda c: c.queue_delete("gone")),
    "exchange.declare new": (
        ["configure exchange 'x-new'"],
        lambda c: c.exchange_declare("x-new", "fanout"),
    ),
    "exchange.declare again": (
        [f"configure {X}"],
        lambda c: c.exchange_declare("x", "direct"),
    ),
    "exchange.declare passive": ([], lambda c: c.exchange_declare("x", passive=True)),
    "exchange.declare with an alternate": (
        ["configure exchange 'x-new'", "read exchange 'x-new'", f"write {AE}"],
        lambda c: c.exchange_declare("x-new", arguments={"alternate-exchange": "ae"}),
    ),
    "exchange.bind": ([f"write {X}", f"read {AE}"], lambda c: c.exchange_bind("x", "ae", "k")),
    "exchange.unbind": ([f"write {X}", f"read {AE}"], lambda c: c.exchange_unbind("x", "ae", "k")),
    "exchange.delete": (["configure exchange 'gone'"], lambda c: c.exchange_delete("gone")),
    "basic.publish": ([f"write {X}"], lambda c: (c.basic_publish("x", "k", b""), c.basic_qos())),
    "basic.publish to a topic": (
        [f"write {T}"],
        lambda c: (c.basic_publish("amq.topic", "k", b""), c.basic_qos()),
    ),
    "basic.publish to the default exchange": (
        ["write exchange 'amq.default'"],
        lambda c: (c.basic_publish("", "nowhere", b""), c.basic_qos()),
    ),
    "basic.get": ([f"read {Q}"], lambda c: c.basic_get("q")),
    "basic.consume basic.cancel": (
        [f"read {Q}"],
        lambda c: c.basic_cancel(c.basic_consume("q", lambda *_: None)),
    ),
    "basic.consume to browse": (
        [f"read {Q}"],
        lambda c: c.basic_consume(
            "q", lambda *_: None, auto_ack=True, arguments={"x-browse": True}
        ),
    ),
    "basic.consume direct replies": (
        [],
        lambda c: c.basic_consume("amq.rabbitmq.reply-to", lambda *_: None, auto_ack=True),
    ),
    "basic.ack": (["read queue 'full'"], get_and(lambda c, tag: c.basic_ack(tag))),
    "basic.nack": (["read queue 'full'"], get_and(lambda c, tag: c.basic_nack(tag))),
    "basic.reject": (["read queue 'full'"], get_and(lambda c, tag: c.basic_reject(tag))),
}


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with Broker() as broker:
        broker.call(lambda: broker.broker.access.put_user(User("u", hash_quickly("u"))))
        yield broker


def connect(broker: Broker, user: str) -> pika.BlockingConnection:
    url = f"amqp://{user}:{user}@127.0.0.1:{broker.port}/%2F"
    return pika.BlockingConnection(pika.URLParameters(url))


def set_up(broker: Broker) -> None:
    def declare() -> None:
        vhost = broker.broker.vhosts["/"]
        list(vhost.delete_contents())
        for name in ("q", "gone", "full"):
            vhost.declare_queue(name)
        for name in ("x", "ae", "gone"):
            vhost.declare_exchange(name, "direct")

    broker.call(declare)


def allow(broker: Broker, kinds: tuple[str, ...], tag: str) -> None:
    patterns = [".*" if kind in kinds else "" for kind in KINDS]

    def change() -> None:
        broker.broker.access.set_permissions("u", "/", *patterns)
        broker.broker.access.set_tags("u", [tag])

    broker.call(change)


def test_the_matrix_has_every_method() -> None:
    answered = {
        name.removeprefix("on_").replace("_", ".", 1).replace("_", "-")
        for name in dir(AmqpChannel)
        if name.startswith("on_")
    }
    named = {word for method in METHODS for word in method.split()}
    assert {*answered, "channel.open", "basic.publish"} <= named


@pytest.mark.parametrize("tag", TAGS)
def test_every_method_needs_what_rabbitmq_needs(running: Broker, tag: str) -> None:
    different = []
    for kinds in SUBSETS:
        set_up(running)
        allow(running, kinds, tag)
        connection = connect(running, "u")
        guest = connect(running, "guest").channel()
        for method, (needed, call) in METHODS.items():
            guest.basic_publish("", "full", b"m")
            guest.basic_qos()
            missing = [check for check in needed if check.split()[0] not in kinds]
            expected = "done"
            if missing:
                kind, what = missing[0].split(" ", 1)
                text = f"{kind} access to {what} in vhost '/' refused for user 'u'"
                expected = f"403 ACCESS_REFUSED - {text}"
            try:
                call(connection.channel())
                answer = "done"
            except pika.exceptions.ChannelClosedByBroker as closed:
                answer = f"{closed.reply_code} {closed.reply_text}"
            if answer != expected:
                different.append((kinds, method, answer, expected))
            for name in ("q-new", "x-new"):
                guest.queue_delete(name) if name[0] == "q" else guest.exchange_delete(name)
        connection.close()
        guest.connection.close()
    assert different == []


def test_a_change_of_permissions_is_seen_by_open_channels(running: Broker) -> None:
    set_up(running)
    allow(running, KINDS, "")
    connection = connect(running, "u")
    channel = connection.channel()
    channel.basic_publish("x", "k", b"")
    channel.basic_get("q")
    allow(running, ("configure",), "")
    channel.basic_publish("x", "k", b"")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="write access to exchange 'x'"):
        channel.basic_qos()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="read access to queue 'q'"):
        connection.channel().basic_get("q")
    connection.close()


def test_topic_permissions_for_publishing_and_binding(running: Broker) -> None:
    set_up(running)
    allow(running, KINDS, "")
    access = running.broker.access
    running.call(
        lambda: access.set_topic_permissions("u", "/", "amq.topic", r"^{username}\.", "^a")
    )
    connection = connect(running, "u")
    channel = connection.channel()
    channel.basic_publish("amq.topic", "u.x", b"")
    channel.queue_bind("q", "amq.topic", "a.#")
    channel.basic_publish("amq.direct", "b", b"")
    channel.basic_publish("amq.topic", "b", b"")
    refused = (
        "write access to topic 'b' in exchange topic 'amq.topic' in vhost '/' refused for user 'u'"
    )
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=refused):
        channel.basic_qos()
    channel = connection.channel()
    carbon = pika.BasicProperties(headers={"CC": ["b"]})
    channel.basic_publish("amq.topic", "u.x", b"", carbon)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="write access to topic 'b'"):
        channel.basic_qos()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="read access to topic 'b'"):
        connection.channel().queue_bind("q", "amq.topic", "b")
    connection.close()
    running.call(lambda: access.clear_topic_permissions("u", "/"))


def test_names_that_a_pattern_does_not_match(running: Broker) -> None:
    set_up(running)
    running.call(
        lambda: running.broker.access.set_permissions(
            "u", "/", "^mine", "^(amq.default|mine)", "^mine"
        )
    )
    connection = connect(running, "u")
    channel = connection.channel()
    channel.queue_declare("mine")
    channel.basic_publish("", "q", b"to any queue, by way of the default exchange")
    channel.basic_qos()
    with pytest.raises(
        pika.exceptions.ChannelClosedByBroker, match="configure access to queue 'q'"
    ):
        channel.queue_declare("q")
    with pytest.raises(
        pika.exceptions.ChannelClosedByBroker, match="configure access to queue 'amq"
    ):
        connection.channel().queue_declare("", exclusive=True)
    connection.close()


@pytest.mark.parametrize("passive", [False, True])
def test_the_default_exchange_cannot_be_declared(running: Broker, passive: bool) -> None:
    text = "403.*operation not permitted on the default exchange"
    with (
        connect(running, "guest") as connection,
        pytest.raises(pika.exceptions.ChannelClosedByBroker, match=text),
    ):
        connection.channel().exchange_declare("", passive=passive, auto_delete=True)


def test_a_virtual_host_without_permissions_is_refused(running: Broker) -> None:
    running.call(lambda: running.broker.add_vhost("other"))
    url = f"amqp://guest:guest@127.0.0.1:{running.port}/other"
    text = "NOT_ALLOWED - access to vhost 'other' refused for user 'guest'"
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match=f"530.*{text}"):
        pika.BlockingConnection(pika.URLParameters(url))


def test_limits_of_connections_and_channels(running: Broker) -> None:
    set_up(running)
    allow(running, KINDS, "")
    access = running.broker.access
    running.call(lambda: access.set_user_limits("u", {"max-connections": 1, "max-channels": 2}))
    connection = connect(running, "u")
    text = r"connection refused for user 'u': user connection limit \(1\) is reached"
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match=text):
        connect(running, "u")
    first = connection.channel()
    connection.channel()
    first.close()
    connection.channel()
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="has reached the maximum"):
        connection.channel()
    running.call(lambda: access.clear_user_limits("u"))
    connection = connect(running, "u")  # the one before has left
    parameters = running.broker.parameters
    running.call(lambda: parameters.set_vhost_limits("/", {"max-connections": 1}))
    text = r"access to vhost '/' refused for user 'u': connection limit \(1\) is reached"
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match=text):
        connect(running, "u")
    running.call(lambda: parameters.clear_vhost_limits("/"))
    connection.close()


def test_who_is_deleted_is_cut_off(running: Broker) -> None:
    access = running.broker.access
    running.call(lambda: access.put_user(User("d", hash_quickly("d"))))
    running.call(lambda: access.set_permissions("d", "/", "", "", ""))
    connection = connect(running, "d")
    running.call(lambda: access.delete_user("d"))
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="user 'd' was deleted"):
        connection.process_data_events(5)
    running.call(lambda: running.broker.add_vhost("dv"))
    running.call(lambda: access.set_permissions("u", "dv", "", "", ""))
    url = f"amqp://u:u@127.0.0.1:{running.port}/dv"
    connection = pika.BlockingConnection(pika.URLParameters(url))
    running.call(lambda: running.broker.delete_vhost("dv"))
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="vhost 'dv' is deleted"):
        connection.process_data_events(5)


def test_an_impersonator_publishes_in_the_name_of_others(running: Broker) -> None:
    set_up(running)
    claimed = pika.BasicProperties(user_id="other")
    for tag, allowed in (("administrator", False), ("impersonator", True)):
        allow(running, KINDS, tag)
        channel = connect(running, "u").channel()
        channel.basic_publish("", "q", b"", claimed)
        if allowed:
            channel.basic_qos()
        else:
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="user_id property"):
                channel.basic_qos()
        channel.connection.close()
