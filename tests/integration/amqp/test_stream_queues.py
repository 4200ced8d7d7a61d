"""Stream queues over a real socket: published, filtered, read again; and the same directory in other hands meanwhile."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pika
import pytest
from pika.exceptions import (
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
)

from headgate.broker import stream_queue
from headgate.errors import StreamWriteError
from headgate.filters import matches_filter, parse
from headgate.message import Message, project_headers
from headgate.streams import Producer, Stream
from headgate.testing import Broker

STREAM = {"x-queue-type": "stream"}
FIRST = {"x-stream-offset": "first"}


@contextmanager
def open_channel(broker: Broker) -> Iterator[Any]:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_qos(prefetch_count=50)
        yield channel


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Broker]:
    """A broker with a directory."""
    with Broker(tmp_path / "data") as broker:
        yield broker


@pytest.fixture
def orders(kept: Broker) -> Iterator[Any]:
    """A channel with the stream queue `orders`."""
    with open_channel(kept) as channel:
        channel.queue_declare("orders", durable=True, arguments=STREAM)
        yield channel


def publish(channel: Any, body: str, **headers: Any) -> None:
    channel.basic_publish("", "orders", body.encode(), pika.BasicProperties(headers=headers))


def read(channel: Any, count: int, queue: str = "orders", **arguments: Any) -> list[Any]:
    """So many messages from the start, and whatever comes with them; acknowledged."""
    found: list[Any] = []
    arguments = {name.replace("_", "-"): value for name, value in arguments.items()}
    for method, properties, body in channel.consume(
        queue, arguments={**FIRST, **arguments}, inactivity_timeout=30
    ):
        assert method is not None, f"only {len(found)} messages came"
        channel.basic_ack(method.delivery_tag)
        found.append((body.decode(), properties))
        if len(found) == count:
            break
    channel.cancel()
    return found


def bodies(found: list[Any]) -> list[str]:
    return [body for body, _ in found]


def directory_of(tmp_path: Path, queue: str = "orders") -> Path:
    return tmp_path / "data" / "streams" / "%2F" / queue


# ---- consumers


def test_every_consumer_reads_the_whole_stream_with_offsets(orders):
    for number in range(200):
        publish(orders, str(number), n=number)
    for _ in range(2):
        found = read(orders, 200)
        assert bodies(found) == [str(number) for number in range(200)]
        assert [p.headers["x-stream-offset"] for _, p in found] == list(range(200))
    assert orders.queue_declare("orders", passive=True).method.message_count == 200


def test_a_consumer_begins_where_it_asks_to(orders):
    for number in range(3):
        publish(orders, str(number))
    ago = datetime.now(UTC) - timedelta(hours=1)
    assert bodies(read(orders, 1, x_stream_offset="last")) == ["2"]
    assert bodies(read(orders, 2, x_stream_offset=1)) == ["1", "2"]
    assert bodies(read(orders, 3, x_stream_offset="1h")) == ["0", "1", "2"]
    assert bodies(read(orders, 3, x_stream_offset=ago)) == ["0", "1", "2"]


@pytest.mark.parametrize("start", ["next", 1, None])
def test_a_consumer_of_what_comes_gets_it(orders, start):
    publish(orders, "before")
    found: list[bytes] = []
    orders.basic_consume(
        "orders",
        lambda ch, method, _, body: (found.append(body), ch.basic_ack(method.delivery_tag)),
        arguments={"x-stream-offset": start} if start else {},
    )
    publish(orders, "after")
    until = time.monotonic() + 10
    while not found and time.monotonic() < until:
        orders.connection.process_data_events(0.05)
    assert found == [b"after"]


def test_an_offset_that_is_not_there_yet_is_waited_for(orders):
    publish(orders, "0")
    found: list[bytes] = []
    orders.basic_consume(
        "orders", lambda *got: found.append(got[3]), arguments={"x-stream-offset": 3}
    )
    for body in ("1", "2", "3"):
        publish(orders, body)
    until = time.monotonic() + 10
    while not found and time.monotonic() < until:
        orders.connection.process_data_events(0.05)
    assert found == [b"3"]


def test_a_consumer_of_a_new_queue_misses_nothing(kept):
    """Before the stream is even created."""
    with open_channel(kept) as channel:
        for number in range(10):
            name = f"s{number}"
            channel.queue_declare(name, durable=True, arguments=STREAM)
            found: list[bytes] = []
            channel.basic_consume(name, lambda *got, found=found: found.append(got[3]))
            channel.basic_publish("", name, b"first")
            until = time.monotonic() + 10
            while not found and time.monotonic() < until:
                channel.connection.process_data_events(0.05)
            assert found == [b"first"]


def test_consumers_at_the_end_share_what_comes_and_a_slow_one_misses_nothing(kept):
    """More messages come than are kept for the slow one."""
    count, found, tags = 4_000, {name: list[int]() for name in "abcd"}, list[int]()

    def consume(channel: Any, name: str) -> None:
        def take(_: Any, method: Any, __: Any, body: bytes) -> None:
            found[name].append(int(body))
            tags.append(method.delivery_tag)
            if name != "d":
                channel.basic_ack(method.delivery_tag)

        channel.basic_consume("orders", take)

    def wait_for(channel: Any, names: str) -> None:
        until = time.monotonic() + 60
        while min(len(found[name]) for name in names) < count and time.monotonic() < until:
            channel.connection.process_data_events(0.05)
            if names == "d":
                channel.basic_ack(tags[-1], multiple=True)

    with open_channel(kept) as slow, open_channel(kept) as channel:
        channel.queue_declare("orders", durable=True, arguments=STREAM)
        for name in "abc":
            consume(channel, name)
        consume(slow, "d")
        publisher = channel.connection.channel()
        for number in range(count):
            publisher.basic_publish("", "orders", b"%d" % number)
        wait_for(channel, "abc")
        tags.clear()
        slow.connection.process_data_events(0.1)
        wait_for(slow, "d")
    assert all(numbers == list(range(count)) for numbers in found.values())


def test_credit_limits_what_is_sent_and_nothing_comes_twice(orders):
    for number in range(10):
        publish(orders, str(number))
    orders.basic_qos(prefetch_count=3)
    got = orders.consume("orders", arguments=FIRST, inactivity_timeout=0.5)
    first = [next(got) for _ in range(3)]
    assert next(got) == (None, None, None)
    orders.basic_nack(first[0][0].delivery_tag, requeue=True)  # gives credit, as in RabbitMQ
    orders.basic_reject(first[1][0].delivery_tag, requeue=False)
    assert [next(got)[2] for _ in range(2)] == [b"3", b"4"]
    orders.cancel()


OWN, FOR_ALL = {"prefetch_count": 10}, {"prefetch_count": 10, "global_qos": True}


@pytest.mark.parametrize(
    ("limits", "auto_ack", "code"),
    [
        ((), False, 406),
        ((), True, 406),
        ((FOR_ALL,), False, 406),
        ((OWN,), True, 540),
        ((OWN, FOR_ALL), False, 540),
    ],
)
def test_a_consumer_must_have_credit_of_its_own(kept, limits, auto_ack, code):
    connection = pika.BlockingConnection(pika.URLParameters(kept.url))
    channel = connection.channel()
    channel.queue_declare("s", durable=True, arguments=STREAM)
    for limit in limits:
        channel.basic_qos(**limit)
    with pytest.raises((ChannelClosedByBroker, ConnectionClosedByBroker)) as refused:
        channel.basic_consume("s", lambda *_: None, auto_ack=auto_ack)
    assert refused.value.reply_code == code
    if connection.is_open:
        connection.close()


def test_a_priority_of_a_consumer_is_refused_as_in_rabbitmq(orders):
    problem = "invalid arg 'x-priority' for queue 'orders' in vhost '/' of queue type rabbit_stream"
    with pytest.raises(ChannelClosedByBroker, match=problem):
        orders.basic_consume("orders", lambda *_: None, arguments={**FIRST, "x-priority": 1})


def test_a_stream_is_not_purged(kept):
    connection = pika.BlockingConnection(pika.URLParameters(kept.url))
    channel = connection.channel()
    channel.queue_declare("s", durable=True, arguments=STREAM)
    with pytest.raises(ConnectionClosedByBroker, match=r"queue\.purge not supported"):
        channel.queue_purge("s")


def test_properties_and_odd_headers_come_back_as_they_were(orders):
    odd = {"list": [1, [2], None], "table": {"a": {"b": 1}}, "none": None, "": 1, "\n": 2}  # fmt: skip
    sent = pika.BasicProperties(
        content_type="text/plain", content_encoding="gzip", headers=odd, delivery_mode=2, priority=7,
        correlation_id="c", reply_to="r", message_id="m", timestamp=1_700_000_000, type="t",
        user_id="guest", app_id="a",
    )  # fmt: skip
    orders.basic_publish("", "orders", b"\x00\xff", sent)
    orders.basic_publish("", "orders", b"", pika.BasicProperties())
    with_all, without = [properties for _, properties in read_raw(orders, 2)]
    assert with_all.headers.pop("x-stream-offset") == 0
    assert with_all == sent
    assert without == pika.BasicProperties(delivery_mode=1, headers={"x-stream-offset": 1})


def read_raw(channel: Any, count: int) -> list[Any]:
    found = []
    for method, properties, body in channel.consume(
        "orders", arguments=FIRST, inactivity_timeout=30
    ):
        assert method is not None
        found.append((body, properties))
        if len(found) == count:
            break
    channel.cancel()
    return found


def test_large_messages_come_back_whole(orders):
    body = bytes(range(256)) * 2_000
    orders.basic_publish("", "orders", body)
    assert read_raw(orders, 1)[0][0] == body


# ---- filters


def test_stream_filtering_on_amqp_as_rabbitmq_describes_it(kept):
    """Seed 002, "Bonus: Stream Filtering On AMQP": the client still filters, because chunks come whole."""
    with open_channel(kept) as channel:
        channel.queue_declare(
            "invoices",
            durable=True,
            arguments={"x-queue-type": "stream", "x-stream-filter-size-bytes": 32},
        )
        for region in ("AMER", "APAC", "EMEA", "EMEA", "AMER", "AMER", None):
            headers = {} if region is None else {"x-stream-filter-value": region}
            channel.basic_publish("", "invoices", str(region).encode(), pika.BasicProperties(headers=headers))  # fmt: skip

        def consume(count: int, **arguments: Any) -> list[str]:
            return bodies(read(channel, count, "invoices", **arguments))

        # Each message was confirmed before the next one was published: a chunk for each.
        assert consume(3, x_stream_filter="AMER") == ["AMER"] * 3
        assert consume(3, x_stream_filter=["APAC", "EMEA"]) == ["APAC", "EMEA", "EMEA"]
        assert consume(4, x_stream_filter="AMER", x_stream_match_unfiltered=True) == [
            "AMER",
            "AMER",
            "AMER",
            "None",
        ]


@pytest.mark.parametrize(
    ("values", "unfiltered", "expected"),
    [
        (["a"], True, ["a", "none", "empty"]),
        ("", False, ["none", "empty"]),
        ([5], True, ["none", "empty"]),
    ],
)
def test_an_empty_filter_value_is_none_and_an_array_without_a_text_selects_no_value(
    kept, values, unfiltered, expected
):
    with open_channel(kept) as channel:
        channel.queue_declare("orders", durable=True, arguments=STREAM)
        for body, value in (
            ("a", "a"),
            ("none", None),
            ("empty", ""),
            ("b", "b"),
            ("last", "last"),
        ):
            headers = {} if value is None else {"x-stream-filter-value": value}
            channel.basic_publish("", "orders", body.encode(), pika.BasicProperties(headers=headers))  # fmt: skip
        wanted = {"x_stream_filter": values, "x_stream_match_unfiltered": unfiltered}
        assert bodies(read(channel, len(expected), "orders", **wanted)) == expected


def publish_one_chunk(kept: Broker, tmp_path: Path) -> None:
    """Messages of three regions in one chunk, and another chunk."""
    with open_channel(kept) as channel:
        channel.queue_declare("orders", durable=True, arguments=STREAM)
        wait_for_stream(channel)
    stream = Stream.open(directory_of(tmp_path))
    rows = ["EU", "US", "APAC", "EU"]
    for number, regions in enumerate((rows, ["ASIA"])):
        deposit(stream, number, regions)


def wait_for_stream(channel: Any) -> None:
    publish(channel, "one", region="none")


def deposit(stream: Stream, number: int, regions: list[str]) -> None:
    import pyarrow as pa

    stream.deposit(
        "test",
        number,
        pa.table(
            {
                "payload": [region.encode() for region in regions],
                "filter_value": regions,
                "region": regions,
                "topic": ["t"] * len(regions),
            }
        ),
    )


def test_chunks_are_sent_whole_unless_the_consumer_wants_it_exact(kept, tmp_path):
    publish_one_chunk(kept, tmp_path)
    with open_channel(kept) as channel:
        assert bodies(read(channel, 4, x_stream_filter="EU")) == ["EU", "US", "APAC", "EU"]
        assert bodies(read(channel, 2, x_stream_filter="EU", x_stream_filter_exact=True)) == [
            "EU",
            "EU",
        ]
        assert bodies(read(channel, 1, x_stream_filter="EU", x_filter="region LIKE 'A%'")) == [
            "APAC"
        ]
        assert bodies(read(channel, 2, x_filter="region LIKE 'A%'")) == ["APAC", "ASIA"]


def test_a_filter_sees_headers_properties_and_the_routing_key(orders):
    publish(orders, "a", region="EU", amount=10)
    publish(orders, "b", region="US", amount=2000)
    publish(orders, "c", region="EU", amount=3000, list=[1])
    orders.exchange_declare("x", "topic")
    orders.queue_bind("orders", "x", "#")
    orders.basic_publish("x", "eu.new", b"d", pika.BasicProperties(content_type="a/b"))
    assert bodies(read(orders, 1, x_filter="region = 'EU' AND amount > 1000")) == ["c"]
    assert bodies(read(orders, 1, x_filter="properties.content_type = 'a/b'")) == ["d"]
    assert bodies(read(orders, 1, x_filter="sys.topic MATCHES 'eu.*'")) == ["d"]
    assert bodies(read(orders, 1, x_filter="EXISTS(list)")) == ["c"]


def test_a_filter_goes_on_with_what_is_published_later(orders):
    found: list[bytes] = []
    orders.basic_consume(
        "orders",
        lambda ch, method, _, body: (found.append(body), ch.basic_ack(method.delivery_tag)),
        arguments={**FIRST, "x-filter": "n % 10 = 0"},
    )
    for number in range(100):
        publish(orders, str(number), n=number)
    until = time.monotonic() + 10
    while len(found) < 10 and time.monotonic() < until:
        orders.connection.process_data_events(0.05)
    assert found == [b"%d" % number for number in range(0, 100, 10)]


def test_a_bad_filter_closes_the_channel_with_a_caret(orders):
    with pytest.raises(ChannelClosedByBroker) as refused:
        orders.basic_consume("orders", lambda *_: None, arguments={"x-filter": "region = = 'EU'"})
    assert refused.value.reply_code == 406
    assert refused.value.reply_text.endswith("^")


# ---- definitions, retention, restart


def test_streams_and_their_definitions_survive_a_restart(tmp_path):
    with Broker(tmp_path / "data") as broker, open_channel(broker) as channel:
        channel.queue_declare("orders", durable=True, arguments=STREAM)
        publish(channel, "1", region="EU")
    with Broker(tmp_path / "data") as broker, open_channel(broker) as channel:
        declared = channel.queue_declare("orders", durable=True, arguments=STREAM)
        assert declared.method.message_count == 1
        publish(channel, "2", region="US")
        assert bodies(read(channel, 2)) == ["1", "2"]
        assert channel.queue_declare("orders", passive=True).method.message_count == 2


def test_a_deleted_queue_takes_its_directory_along(orders, tmp_path):
    publish(orders, "old")
    assert directory_of(tmp_path).is_dir()
    orders.queue_delete("orders")
    assert not directory_of(tmp_path).exists()
    orders.queue_declare("orders", durable=True, arguments=STREAM)
    publish(orders, "new")
    assert bodies(read(orders, 1)) == ["new"]


def test_consumers_of_a_deleted_queue_are_told(orders):
    cancelled = []
    orders.add_on_cancel_callback(cancelled.append)
    orders.basic_consume("orders", lambda *_: None, arguments=FIRST)
    orders.queue_delete("orders")
    orders.connection.process_data_events(1)
    assert len(cancelled) == 1


def test_retention_drops_the_oldest_segments(kept, tmp_path):
    with open_channel(kept) as channel:
        channel.queue_declare(
            "orders",
            durable=True,
            arguments={
                **STREAM,
                "x-max-length-bytes": 50_000,
                "x-stream-max-segment-size-bytes": 10_000,
                "x-max-age": "7D",
            },
        )
        for number in range(200):
            channel.basic_publish("", "orders", b"%03d" % number + bytes(1_000))
        stream = Stream.open(directory_of(tmp_path))
        until = time.monotonic() + 20
        while stream.first_offset == 0 and time.monotonic() < until:
            channel.connection.process_data_events(0.05)
        assert 0 < stream.first_offset < 199
        found = read(channel, 1)
        assert found[0][1].headers["x-stream-offset"] >= stream.first_offset - 60
        assert stream.options.max_age == timedelta(days=7)
        stream.close()


def test_full_segments_are_sealed_while_clients_publish_and_read(tmp_path, monkeypatch):
    monkeypatch.setattr(stream_queue, "SEAL_EVERY_MS", 0)
    arguments = {**STREAM, "x-stream-max-segment-size-bytes": 20_000}
    with Broker(tmp_path / "data") as broker, open_channel(broker) as channel:
        channel.queue_declare("orders", durable=True, arguments=arguments)
        until, number = time.monotonic() + 30, 0
        while not list(directory_of(tmp_path).glob("*.arrow")) and time.monotonic() < until:
            publish(channel, str(number), n=number, blank="x" * 100)
            number += 1
        assert list(directory_of(tmp_path).glob("*.arrow"))
        assert bodies(read(channel, number)) == [str(n) for n in range(number)]
        wanted = [str(n) for n in range(number) if n % 7 == 3]
        assert bodies(read(channel, len(wanted), x_filter="n % 7 = 3")) == wanted


def test_an_auto_delete_stream_is_refused(kept):
    with open_channel(kept) as channel, pytest.raises(ChannelClosedByBroker, match="auto-delete"):
        channel.queue_declare("s", durable=True, auto_delete=True, arguments=STREAM)


def test_a_super_stream_is_an_exchange_with_partitions(kept):
    """As `rabbitmq-streams add_super_stream` declares one."""
    with open_channel(kept) as channel:
        channel.exchange_declare(
            "invoices", "direct", durable=True, arguments={"x-super-stream": True}
        )
        for number in range(3):
            name = f"invoices-{number}"
            channel.queue_declare(name, durable=True, arguments=STREAM)
            channel.queue_bind(name, "invoices", str(number), {"x-stream-partition-order": number})
        for number in range(9):
            channel.basic_publish("invoices", str(number % 3), b"%d" % number)
        for number in range(3):
            found = bodies(read(channel, 3, f"invoices-{number}"))
            assert found == [str(number), str(number + 3), str(number + 6)]


def test_a_broker_in_memory_has_stream_queues_too(broker):
    with open_channel(broker) as channel:
        channel.queue_declare("orders", durable=True, arguments=STREAM)
        publish(channel, "1")
        assert bodies(read(channel, 1)) == ["1"]


def test_confirms_keep_their_order_between_streams_and_queues(kept):
    """A stream is slower than a queue that stores nothing: what was published first is still confirmed first."""
    with open_channel(kept) as channel:
        channel.queue_declare("orders", durable=True, arguments=STREAM)
        channel.queue_declare("fast")
        channel.exchange_declare("both", "fanout")
        channel.queue_bind("orders", "both")
        channel.queue_bind("fast", "both")
        for number in range(50):
            channel.basic_publish("both" if number % 2 else "", "fast", b"%d" % number)
        assert len(read(channel, 25)) == 25


# ---- the same directory in other hands


def test_the_library_reads_what_clients_publish(orders, tmp_path):
    publish(orders, "1", region="EU", amount=5)
    with Stream.open(directory_of(tmp_path)) as stream:
        message = next(stream.consume("region = 'EU' AND amount = 5"))
    assert (message.payload, message.topic) == (b"1", "orders")
    assert message.headers == {"region": "EU", "amount": 5}


OUTSIDER = """
import sys, time, pyarrow as pa
from headgate.streams import Stream
stream = Stream.open(sys.argv[1])
for line in sys.stdin:
    number = int(line)
    table = pa.table({"payload": [b"%d" % number], "topic": ["from.outside"], "region": ["EU"]})
    stream.deposit("outsider", number, table)
    print(time.time(), flush=True)
"""


def test_what_another_process_appends_is_delivered_within_100_ms(orders, tmp_path):
    publish(orders, "first")
    got = orders.consume("orders", arguments=FIRST, inactivity_timeout=30)
    assert next(got)[2] == b"first"
    delays = []
    with subprocess.Popen(
        [sys.executable, "-c", OUTSIDER, str(directory_of(tmp_path))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as outsider:
        assert outsider.stdin is not None
        assert outsider.stdout is not None
        for number in range(5):
            print(number, file=outsider.stdin, flush=True)
            method, properties, body = next(got)
            arrived = time.time()
            delays.append(arrived - float(outsider.stdout.readline()))
            assert body == b"%d" % number
            assert (method.routing_key, properties.headers["region"]) == ("from.outside", "EU")
        outsider.stdin.close()
    orders.cancel()
    assert min(delays) < 0.1, delays  # the machine may be busy for one of them


# ---- faults, and everything at once


def test_what_the_disk_refuses_is_confirmed_when_it_takes_it(orders, monkeypatch):
    publish(orders, "before")
    refused = [StreamWriteError("no space left on device"), OSError("input/output error")]
    flush = Producer.flush

    def fail_twice(producer: Producer) -> None:
        if refused:
            raise refused.pop()
        flush(producer)

    monkeypatch.setattr(stream_queue, "RETRY_S", 0.05)
    monkeypatch.setattr(Producer, "flush", fail_twice)
    publish(orders, "after")  # returns when it is confirmed
    assert not refused
    found = bodies(read(orders, 2))
    assert found[0] == "before"
    assert set(found[1:]) == {"after"}


FILTERS = (
    "region = 'EU'",
    "n > 30 AND region <> 'US'",
    "region LIKE '%A%' OR n IN (1, 2, 3)",
    "NOT (vip = true)",
    "EXISTS(note)",
    "price >= 5.5",
    "sys.priority > 3",
    "sys.topic MATCHES 'orders'",
)


def test_every_filter_delivers_exactly_what_it_selects(kept, monkeypatch, seed, full):
    """Random messages with odd headers, in sealed and open segments, against the reference evaluator."""
    monkeypatch.setattr(stream_queue, "SEAL_EVERY_MS", 0)
    rng = random.Random(seed)
    arguments = {**STREAM, "x-stream-max-segment-size-bytes": 8_192}
    with open_channel(kept) as channel:
        channel.queue_declare("orders", durable=True, arguments=arguments)
        publisher = channel.connection.channel()
        sent = [random_headers(rng) for _ in range(2_000 if full else 400)]
        for number, (headers, priority) in enumerate(sent):
            properties = pika.BasicProperties(headers=headers, priority=priority)
            publisher.basic_publish("", "orders", str(number).encode(), properties)
        publish(channel, str(len(sent)))  # all of them are stored
        for text in FILTERS:
            tree = parse(text)
            wanted = [
                str(number)
                for number, (headers, priority) in enumerate(sent)
                if matches_filter(
                    tree, Message(b"", "orders", project_headers(headers), priority=priority)
                )
            ]
            if text.startswith("sys.topic"):
                wanted.append(str(len(sent)))
            assert wanted, text
            assert bodies(read(channel, len(wanted), x_filter=text)) == wanted, text


def random_headers(rng: random.Random) -> tuple[dict[str, Any], int]:
    choices: dict[str, list[Any]] = {
        "region": ["EU", "US", "APAC", 7, None, ["EU"]],
        "n": [*range(50), "12"],
        "vip": [True, False, None, "yes"],
        "note": ["", "x" * 300, {"a": 1}, None],
        "price": [Decimal("5.50"), 6, 0, -1],
    }
    names = [name for name in choices if rng.random() < 0.8]
    return {name: rng.choice(choices[name]) for name in names}, rng.randrange(10)


def test_a_filter_is_changed_while_the_consumer_goes_on(kept):
    with open_channel(kept) as channel, httpx.Client(base_url=kept.http_url, auth=("guest", "guest")) as api:  # fmt: skip
        channel.queue_declare("orders", durable=True, arguments=STREAM)
        found: list[int] = []
        channel.basic_consume(
            "orders",
            lambda ch, method, _, body: (
                found.append(int(body)),
                ch.basic_ack(method.delivery_tag),
            ),
            consumer_tag="c",
            arguments={**FIRST, "x-filter": "n % 2 = 0"},
        )
        publisher = channel.connection.channel()
        for number in range(100):
            headers = {"n": number}
            publisher.basic_publish("", "orders", str(number).encode(), pika.BasicProperties(headers=headers))  # fmt: skip
        wait_until(channel, lambda: len(found) == 50)
        shown = api.get("/api/headgate/consumers").json()[0]
        assert shown["filter"] == "n % 2 = 0"
        assert shown["filter_statistics"]["delivered"] == 50
        assert shown["filter_statistics"]["examined"] - shown["filter_statistics"]["skipped"] == 50
        changed = api.put("/api/headgate/consumers/%2F/orders/c/filter", json={"filter": "n > 105"})
        assert changed.status_code < 300, changed.text
        refused = api.put("/api/headgate/consumers/%2F/orders/c/filter", json={"filter": "n >"})
        assert refused.status_code == 400
        for number in range(100, 110):
            publish(channel, str(number), n=number)
        wait_until(channel, lambda: len(found) == 54)
        api.put("/api/headgate/consumers/%2F/orders/c/filter", json={"filter": None})
        publish(channel, "0", n=0)
        wait_until(channel, lambda: len(found) == 55)
    assert found == [*range(0, 100, 2), *range(106, 110), 0]


def wait_until(channel: Any, is_done: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not is_done() and time.monotonic() < until:
        channel.connection.process_data_events(0.05)
    assert is_done()


def test_the_filter_of_the_queue_is_that_of_consumers_without_one(kept):
    with open_channel(kept) as channel:
        arguments = {**STREAM, "x-filter": "n > 1"}
        channel.queue_declare("orders", durable=True, arguments=arguments)
        for number in range(4):
            publish(channel, str(number), n=number)
        assert bodies(read(channel, 2)) == ["2", "3"]
        assert bodies(read(channel, 1, x_filter="n = 0")) == ["0"]


def test_a_policy_for_retention_takes_effect_without_a_publish_and_is_undone(kept, tmp_path):
    with open_channel(kept) as channel:
        segment = {"x-stream-max-segment-size-bytes": 10_000}
        channel.queue_declare("orders", durable=True, arguments={**STREAM, **segment})
        for number in range(100):
            channel.basic_publish("", "orders", b"%03d" % number + bytes(1_000))
        policies, queue = kept.broker.policies, kept.broker.vhosts["/"].queues["orders"]
        assert len(queue) == 100
        limits = {"max-length-bytes": 30_000, "max-age": "7D", "stream-filter-size-bytes": 99}
        kept.call(lambda: policies.set("/", "p", "^orders$", limits, apply_to="streams"))
        wait_until(channel, lambda: len(queue) < 50)
        kept.call(lambda: policies.clear("/", "p"))
        for number in range(50):
            channel.basic_publish("", "orders", b"%03d" % number + bytes(1_000))
        with Stream.open(directory_of(tmp_path)) as stream:
            options = stream.options
        assert (options.max_bytes, options.max_age, options.filter_size) == (None, None, 16)
        assert options.segment_bytes == 10_000
        assert len(queue) > 50


def test_a_policy_gives_consumers_a_filter_and_takes_it_away(kept):
    with open_channel(kept) as channel:
        channel.queue_declare("orders", durable=True, arguments=STREAM)
        got: dict[str, list[str]] = {"plain": [], "own": []}

        def take(channel, method, properties, body):
            got[method.consumer_tag].append(body.decode())
            channel.basic_ack(method.delivery_tag)

        channel.basic_consume("orders", take, consumer_tag="plain")
        channel.basic_consume("orders", take, consumer_tag="own", arguments={"x-filter": "n < 9"})

        def send(*numbers: int) -> None:
            for number in numbers:
                publish(channel, str(number), n=number)

        policies = kept.broker.policies
        send(1)
        wait_until(channel, lambda: got == {"plain": ["1"], "own": ["1"]})
        kept.call(lambda: policies.set("/", "p", "", {"filter": "n > 4"}, apply_to="streams"))
        send(2, 5)
        wait_until(channel, lambda: got["plain"] == ["1", "5"])
        kept.call(lambda: policies.clear("/", "p"))
        send(3)
        wanted = {"plain": ["1", "5", "3"], "own": ["1", "2", "5", "3"]}
        wait_until(channel, lambda: got == wanted)
