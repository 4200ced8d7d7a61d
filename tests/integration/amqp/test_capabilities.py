"""Every capability that the broker announces acts."""

from __future__ import annotations

import pika
import pytest
from pika.exceptions import ConnectionClosedByBroker, ProbableAuthenticationError

from headgate.amqp.handshake import CAPABILITIES
from tests.patience import wait_until


@pytest.fixture(autouse=True)
def declared(channel):
    channel.queue_declare("q")


def test_all_are_announced_and_each_has_a_test(connection):
    announced = connection._impl.server_capabilities
    assert announced == CAPABILITIES
    tests = {name for name in globals() if name.startswith("test_capability_")}
    elsewhere = {"connection.blocked"}  # test_alarms
    for name in announced.keys() - elsewhere:
        assert f"test_capability_{name.replace('.', '_')}" in tests


def test_capability_publisher_confirms(channel):
    channel.confirm_delivery()
    channel.basic_publish("", "q", b"m", mandatory=True)  # raises if it is not confirmed
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("", "nowhere", b"m", mandatory=True)


def test_capability_exchange_exchange_bindings(channel):
    channel.exchange_declare("first", "fanout")
    channel.exchange_declare("second", "fanout")
    channel.exchange_bind("second", "first")
    channel.queue_bind("q", "second")
    channel.basic_publish("first", "", b"m")
    assert channel.basic_get("q")[2] == b"m"
    channel.exchange_unbind("second", "first")
    channel.basic_publish("first", "", b"m")
    assert channel.basic_get("q")[0] is None


def test_capability_basic_nack(channel):
    for number in range(3):
        channel.basic_publish("", "q", b"%d" % number)
    tags = [channel.basic_get("q")[0].delivery_tag for _ in range(3)]
    channel.basic_nack(tags[1], multiple=True, requeue=True)
    assert [channel.basic_get("q")[2] for _ in range(2)] == [b"0", b"1"]
    assert channel.basic_get("q")[0] is None


def test_capability_consumer_cancel_notify(connection, channel):
    cancelled: list[str] = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = channel.basic_consume("q", lambda *_: None)
    connection.channel().queue_delete("q")
    wait_until(lambda: bool(connection.process_data_events()) or bool(cancelled))
    assert cancelled == [tag]


def test_capability_consumer_priorities(connection, channel):
    found: list[str] = []
    for name, priority in (("low", 0), ("high", 5)):
        channel.basic_consume("q", lambda ch, m, p, b, name=name: found.append(name), arguments={"x-priority": priority})  # fmt: skip
    for _ in range(5):
        channel.basic_publish("", "q", b"m")
    wait_until(lambda: bool(connection.process_data_events()) or len(found) == 5)
    assert found == ["high"] * 5


def test_capability_per_consumer_qos(connection, channel):
    found: list[str] = []
    for name, prefetch in (("one", 1), ("two", 2)):
        channel.basic_qos(prefetch_count=prefetch)
        channel.basic_consume("q", lambda ch, m, p, b, name=name: found.append(name))
    for _ in range(10):
        channel.basic_publish("", "q", b"m")
    wait_until(lambda: bool(connection.process_data_events()) or len(found) == 3)
    channel.queue_declare("q", passive=True)
    connection.process_data_events()
    assert sorted(found) == ["one", "two", "two"]


def test_capability_direct_reply_to(connection, channel):
    found: list[bytes] = []
    channel.basic_consume("amq.rabbitmq.reply-to", lambda ch, m, p, body: found.append(body), auto_ack=True)  # fmt: skip
    channel.basic_publish("", "q", b"ask", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to"))
    _, properties, _ = channel.basic_get("q", auto_ack=True)
    assert properties.reply_to.startswith("amq.rabbitmq.reply-to.")
    connection.channel().basic_publish("", properties.reply_to, b"answer")
    wait_until(lambda: bool(connection.process_data_events()) or bool(found))
    assert found == [b"answer"]


@pytest.mark.parametrize("knows", [True, False])
def test_capability_authentication_failure_close(broker, knows):
    parameters = pika.URLParameters(broker.url.replace("guest:guest", "guest:wrong"))
    parameters.client_properties = {"capabilities": {"authentication_failure_close": knows}}
    if knows:
        with pytest.raises((ConnectionClosedByBroker, ProbableAuthenticationError), match="403"):
            pika.BlockingConnection(parameters)
    else:
        with pytest.raises(pika.exceptions.AMQPConnectionError) as caught:
            pika.BlockingConnection(parameters)
        assert "403" not in str(caught.value)
