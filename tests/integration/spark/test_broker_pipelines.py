"""Pipelines and a running broker: AMQP clients publish what a pipeline reads, and consume what it writes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pika
import pyarrow as pa
import pytest

from headgate.errors import PipelineError, SparkError
from headgate.pipelines.account import Account
from headgate.pipelines.file import read_pipeline
from headgate.spark.pipeline.run import follow, start
from headgate.spark.sink.destination import BatchMark, owner_of
from headgate.spark.sink.exchange import ExchangeDestination
from headgate.spark.sink.staging import stage, valid_columns
from headgate.streams import Stream
from headgate.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM = {"x-queue-type": "stream"}


@contextmanager
def open_channel(broker: Broker) -> Iterator[Any]:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_qos(prefetch_count=200)
        yield channel


def run_once(folder: Path, text: str, spark: SparkSession) -> Account:
    (folder / "p.toml").write_text(dedent(text))
    pipeline = read_pipeline(folder / "p.toml")
    account = Account(pipeline.name)
    for _ in follow(start(pipeline, spark, "once"), account, lambda: False, poll_s=0.02):
        pass
    return account


def take(channel: Any, queue: str, count: int) -> list[Any]:
    found: list[Any] = []
    arguments = {"x-stream-offset": "first"} if queue.startswith("s-") else {}
    for method, properties, body in channel.consume(
        queue, arguments=arguments, inactivity_timeout=20
    ):
        assert method is not None, f"only {len(found)} messages came"
        channel.basic_ack(method.delivery_tag)
        found.append((method.routing_key, body.decode(), properties))
        if len(found) == count:
            break
    channel.cancel()
    return found


@pytest.mark.spark
def test_a_pipeline_reads_a_stream_queue_and_writes_to_another_and_to_an_exchange(
    tmp_path: Path, spark: SparkSession
) -> None:
    with Broker(tmp_path / "data") as broker, open_channel(broker) as channel:
        for name in ("s-in", "s-out"):
            channel.queue_declare(name, durable=True, arguments=STREAM)
        channel.exchange_declare("done", "topic", durable=True)
        channel.queue_declare("paid", durable=True)
        channel.queue_bind("paid", "done", "#")
        for number in range(40):
            headers = {"region": "EU" if number % 2 else "US", "n": number, "list": [number]}
            channel.basic_publish("", "s-in", b"%d" % number, pika.BasicProperties(headers=headers))
        account = run_once(
            tmp_path,
            f"""
            [source]
            stream = "{tmp_path}/data/streams/%2F/s-in"
            [[exchange]]
            name = "all"
            type = "filter"
            [[binding]]
            queue = "eu"
            filter = "region = 'EU'"
            [[binding]]
            queue = "us"
            filter = "region = 'US'"
            [[sink]]
            queue = "eu"
            to = "stream:{tmp_path}/data/streams/%2F/s-out"
            [[sink]]
            queue = "us"
            to = "{broker.url}#done"
            """,
            spark,
        )
        stored = take(channel, "s-out", 20)
        published = take(channel, "paid", 20)
    assert account.counters.routed == 40
    assert sorted(int(body) for _, body, _ in stored) == list(range(1, 40, 2))
    assert sorted(int(body) for _, body, _ in published) == list(range(0, 40, 2))
    for key, body, properties in (*stored, *published):
        # What the pipeline did not touch comes through it as it was.
        assert (key, properties.headers["list"]) == ("s-in", [int(body)])
    assert len({properties.message_id for _, _, properties in published}) == 20
    assert all(properties.delivery_mode == 2 for _, _, properties in published)


@pytest.mark.spark
def test_what_a_query_commits_is_delivered_within_100_ms(
    tmp_path: Path, spark: SparkSession
) -> None:
    with Broker(tmp_path / "data") as broker, open_channel(broker) as channel:
        channel.queue_declare("s-out", durable=True, arguments=STREAM)
        place = tmp_path / "data/streams/%2F/s-out"
        channel.basic_publish("", "s-out", b"first")
        delays = []
        for number in range(1, 4):
            seen: list[float] = []
            watcher = watch(broker, "s-out", number + 1, seen)
            frame = spark.range(1).selectExpr("cast(id as string) as id")
            frame.write.format("headgate").mode("append").save(str(place))
            watcher.join()
            # The index is written when a commit is, and by nobody else.
            committed = max(path.stat().st_mtime for path in place.glob("*.idx"))
            delays.append(seen[0] - committed)
    assert min(delays) < 0.1, delays  # the machine may be busy for one of them


def watch(broker: Broker, queue: str, count: int, seen: list[float]) -> threading.Thread:
    """Note when so many messages of a queue have arrived."""

    def watch() -> None:
        with open_channel(broker) as channel:
            take(channel, queue, count)
            seen.append(time.time())

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


@pytest.mark.spark
def test_an_exchange_that_is_not_there_is_reported_before_the_pipeline_runs(
    tmp_path: Path, spark: SparkSession, broker: Broker
) -> None:
    Stream.create(tmp_path / "events").close()
    with pytest.raises(PipelineError, match=r"no exchange 'nowhere' in vhost") as refused:
        run_once(
            tmp_path,
            f"""
            [source]
            stream = "events"
            [[exchange]]
            name = "all"
            type = "fanout"
            [[binding]]
            queue = "q"
            [[sink]]
            queue = "q"
            to = "{broker.url}#nowhere"
            """,
            spark,
        )
    assert "guest:guest" not in str(refused.value)


# ---- the sink, without Spark


def staged_batch(destination: ExchangeDestination, bodies: list[bytes]) -> Any:
    count = len(bodies)
    columns = {"payload": bodies, "topic": ["orders.new"] * count, "n": [1] * count}
    destination.open()
    part = stage(destination.staging, [valid_columns(pa.record_batch(columns))])
    assert part is not None
    return part


def test_a_repeated_batch_has_the_same_ids_in_whatever_order(
    tmp_path: Path, broker: Broker
) -> None:
    destination = ExchangeDestination(broker.url, "amq.topic", owner_of(str(tmp_path)))
    with open_channel(broker) as channel:
        channel.queue_declare("all")
        channel.queue_bind("all", "amq.topic", "#")
        for bodies in ([b"a", b"b", b"a"], [b"b", b"a", b"a"]):
            destination.commit(BatchMark("q", 7), [staged_batch(destination, bodies)])
        destination.commit(BatchMark("q", 8), [staged_batch(destination, [b"a"])])
        found = take(channel, "all", 7)
    ids = Counter((body, properties.message_id) for _, body, properties in found)
    assert sorted(ids.values()) == [1, 2, 2, 2]
    assert not list(Path(destination.staging).iterdir())


def test_a_message_that_no_queue_takes_fails_the_batch(tmp_path: Path, broker: Broker) -> None:
    destination = ExchangeDestination(broker.url, "amq.topic", owner_of(str(tmp_path)))
    part = staged_batch(destination, [b"a"])
    with pytest.raises(SparkError, match="NO_ROUTE"):
        destination.commit(BatchMark("q", 0), [part])
    assert Path(part.file).exists()  # for the next try


def test_a_broker_that_does_not_answer_is_named_without_its_password(tmp_path: Path) -> None:
    url = "amqp://me:secret@127.0.0.1:1/"
    with pytest.raises(SparkError, match=r"amqp://127\.0\.0\.1:1/#x") as refused:
        ExchangeDestination(url, "x", owner_of(str(tmp_path))).check()
    assert "secret" not in str(refused.value)
