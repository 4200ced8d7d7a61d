"""Filters at the broker, over real sockets and with real clients: `x-filter` of consumers, queues and bindings."""

from __future__ import annotations

import asyncio
import shutil
import time

import aio_pika
import kombu
import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from headgate.testing import Broker
from tests.integration.amqp.test_clients import find_amqplib, run_in_node
from tests.patience import PATIENCE


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


def test_the_context_of_a_trace_passes_untouched_and_a_filter_reads_it(channel):
    channel.queue_declare("traced")
    context = {
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "tracestate": "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
    }
    publish(channel, "traced", b"other", traceparent=context["traceparent"].replace("4", "5"))
    publish(channel, "traced", b"wanted", **context)
    wanted = {"x-filter": "traceparent LIKE '00-4bf92f3577b34da6a3ce929d0e0e4736-%'"}
    found = channel.consume("traced", auto_ack=True, inactivity_timeout=10, arguments=wanted)
    _, properties, body = next(found)
    assert (body, properties.headers) == (b"wanted", context)
    channel.cancel()


@pytest.mark.parametrize("kind", ["classic", "quorum", "stream"])
def test_a_filter_sees_the_properties_of_a_message_in_every_type_of_queue(channel, kind):
    channel.queue_declare("orders", durable=True, arguments={"x-queue-type": kind})
    channel.confirm_delivery()
    told = pika.BasicProperties(
        timestamp=1_700_000_000, message_id="m-1", type="created", correlation_id="odd\0"
    )
    channel.basic_publish("", "orders", b"told", told)
    channel.basic_publish("", "orders", b"beyond", pika.BasicProperties(timestamp=2**63))
    channel.basic_publish("", "orders", b"silent")
    channel.basic_qos(prefetch_count=10)
    # Text with NUL is an opaque value, and so is a time beyond 64 bits.
    for wanted, found in (
        ("p.creation_time = 1700000000000", [b"told"]),
        ("p.creation_time IS NULL", [b"beyond", b"silent"]),
        ("sys.id = 'm-1' AND p.type LIKE 'cr%'", [b"told"]),
        ("p.correlation_id LIKE 'odd%' OR p.correlation_id IS NOT NULL", []),
        ("EXISTS(p.correlation_id)", [b"told"]),
    ):
        arguments = {"x-filter": wanted}
        if kind == "stream":
            arguments["x-stream-offset"] = "first"
        got: list[bytes] = []
        tag = channel.basic_consume(
            "orders", lambda *a, got=got: got.append(a[3]), arguments=arguments
        )
        deadline = time.monotonic() + PATIENCE
        while len(got) < len(found) and time.monotonic() < deadline:
            channel.connection.process_data_events(0.05)
        channel.connection.process_data_events(0.05)
        channel.basic_cancel(tag)
        channel.basic_recover(requeue=True)
        assert got == found, wanted


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


def test_the_headers_exchange_of_the_first_example(channel):
    """x-match all: the message has every header of the binding, and may have more."""
    channel.exchange_declare("headers_exchange", "headers")
    channel.queue_declare("filtered_queue")
    arguments = {"x-match": "all", "type": "order", "priority": "high"}
    channel.queue_bind("filtered_queue", "headers_exchange", "", arguments)
    order = {"type": "order", "priority": "high", "region": "asia"}
    for body, headers in (
        (b"Order message content", order),
        (b"another priority", {**order, "priority": "low"}),
        (b"no type", {"priority": "high"}),
    ):
        properties = pika.BasicProperties(headers=headers)
        channel.basic_publish("headers_exchange", "", body, properties)
    assert channel.queue_declare("filtered_queue", passive=True).method.message_count == 1
    assert receive(channel, "filtered_queue", 1, "region = 'asia'") == [b"Order message content"]


def test_aio_pika_consumes_with_a_filter(broker):
    async def run() -> list[bytes]:
        async with await aio_pika.connect_robust(broker.url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("q")
            for number in range(6):
                message = aio_pika.Message(b"%d" % number, headers={"n": number})
                await channel.default_exchange.publish(message, "q")
            found = []
            async with queue.iterator(arguments={"x-filter": "n >= 4"}) as messages:
                async for message in messages:
                    await message.ack()
                    found.append(message.body)
                    if len(found) == 2:
                        break
            return found

    assert asyncio.run(asyncio.wait_for(run(), 30)) == [b"4", b"5"]


def test_kombu_consumes_with_a_filter(broker):
    found: list[int] = []

    def take(body, message):
        found.append(body["n"])
        message.ack()

    with kombu.Connection(broker.url) as connection:
        queue = kombu.Queue("q", kombu.Exchange(""), "q", consumer_arguments={"x-filter": "n < 2"})
        with connection.Producer() as producer:
            for number in range(6):
                producer.publish({"n": number}, routing_key="q", headers={"n": number}, declare=[queue])  # fmt: skip
        with connection.Consumer(queue, callbacks=[take]):
            while len(found) < 2:
                connection.drain_events(timeout=10)
    assert found == [0, 1]


AMQPLIB = """
const amqp = require("amqplib");
(async () => {
  const connection = await amqp.connect(process.argv[2]);
  const channel = await connection.createConfirmChannel();
  await channel.assertQueue("q");
  for (let i = 0; i < 6; i++)
    channel.sendToQueue("q", Buffer.from(String(i)), {headers: {region: i % 2 ? "EU" : "US", amount: i * 1.5}});
  await channel.waitForConfirms();
  const found = [];
  await channel.consume("q", async (message) => {
    found.push(message.content.toString());
    channel.ack(message);
    if (found.length === 2) { await connection.close(); console.log(JSON.stringify(found)); }
  }, {arguments: {"x-filter": "region = 'EU' AND amount > 2.5"}});
})();
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
@pytest.mark.skipif(find_amqplib() is None, reason="npm install amqplib beside the repository")
def test_amqplib_consumes_with_a_filter(broker, tmp_path):
    assert run_in_node(AMQPLIB, broker.url, tmp_path) == ["3", "5"]
