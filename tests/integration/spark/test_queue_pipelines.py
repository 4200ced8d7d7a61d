"""Pipelines whose source is a queue: what was acked arrives exactly once, and a look is one look."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from headgate.errors import PipelineError
from headgate.message import Message
from headgate.pipelines.account import Account
from headgate.pipelines.file import read_pipeline
from headgate.queues.database import connect
from headgate.spark.pipeline.run import follow, start, stop
from headgate.streams.stream import Stream
from tests.integration.spark.pipeline_process import SLOWEST_S, kill_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PIPELINE = """
    [pipeline]
    max_messages_per_trigger = {batch}
    partitions = 2
    [source]
    queue = "queue:{url}#orders"
    filter = "amount >= 10"
    states = "{states}"
    [exchange]
    type = "headers"
    [[binding]]
    queue = "eu"
    arguments = {{ region = "EU" }}
    [[binding]]
    queue = "large"
    filter = "amount > 50"
    [[sink]]
    queue = "eu"
    to = "stream:eu"
    [[sink]]
    queue = "large"
    to = "queue:sqlite:///large.db"
    [dead_letter]
    to = "stream:lost"
"""


def written(folder: Path, url: str, *, states: str = "archived", batch: int = 40) -> Path:
    file = folder / "p.toml"
    file.write_text(dedent(PIPELINE.format(url=url, states=states, batch=batch)))
    return file


def message(n: int) -> Message:
    return Message(b"%d" % n, headers={"region": ("EU", "US", "AP")[n % 3], "amount": n * 37 % 100})


def publish(url: str, numbers: range) -> None:
    with connect(url) as database:
        database.queue("orders", archive=True).publish_many([message(n) for n in numbers])


def ack(url: str, count: int) -> None:
    with connect(url) as database:
        for delivery in database.find("orders").claim(count):
            delivery.ack()


def arrived(folder: Path) -> dict[str, list[int]]:
    """What each place holds, in its order."""
    found = {}
    for place in ("eu", "lost"):
        with Stream.open(folder / place) as stream:
            found[place] = [int(one.payload) for one in stream.consume()]
    with connect(f"sqlite:///{folder}/large.db") as database:
        held = database.find("large").browse(page=1000)
        found["large"] = [int(one.message.payload) for one in held]
    return found


def wanted(numbers: range) -> dict[str, list[int]]:
    """The same, said in plain words."""
    passing = [n for n in numbers if n * 37 % 100 >= 10]
    eu = [n for n in passing if n % 3 == 0]
    large = [n for n in passing if n * 37 % 100 > 50]
    return {"eu": eu, "large": large, "lost": [n for n in passing if n not in {*eu, *large}]}


def run_once(file: Path, spark: SparkSession) -> Account:
    pipeline = read_pipeline(file)
    account = Account(pipeline.name)
    for _ in follow(start(pipeline, spark, "once"), account, lambda: False, poll_s=0.02):
        pass
    return account


def test_acked_messages_arrive_once_over_many_batches_and_two_runs(
    tmp_path: Path, url: str, spark: SparkSession
) -> None:
    file = written(tmp_path, url)
    publish(url, range(200))
    ack(url, 100)
    first = run_once(file, spark)
    assert (first.batches, first.counters.scanned, first.lag) == (3, 100, 0)
    assert arrived(tmp_path) == wanted(range(100))
    ack(url, 100)
    second = run_once(file, spark)
    assert (second.counters.scanned, second.lag) == (100, 0)
    assert arrived(tmp_path) == wanted(range(200))
    assert first.counters.read + second.counters.read == sum(n * 37 % 100 >= 10 for n in range(200))
    assert run_once(file, spark).batches == 0


def test_a_continuous_pipeline_gets_messages_of_concurrent_acks(
    tmp_path: Path, url: str, spark: SparkSession
) -> None:
    publish(url, range(300))
    pipeline = read_pipeline(written(tmp_path, url))
    assert pipeline.trigger == "continuous"
    account = Account(pipeline.name)
    query = start(pipeline, spark)
    consumers = [threading.Thread(target=consume_all, args=(url,)) for _ in range(3)]
    for consumer in consumers:
        consumer.start()
    try:
        for _ in follow(query, account, lambda: account.counters.scanned >= 300, poll_s=0.02):
            pass
    finally:
        stop(query)
        for consumer in consumers:
            consumer.join()
    assert {place: sorted(got) for place, got in arrived(tmp_path).items()} == wanted(range(300))


def consume_all(url: str) -> None:
    with connect(url) as database:
        queue = database.find("orders")
        while taken := queue.claim(7):
            for delivery in reversed(taken):
                delivery.ack()


def test_a_killed_pipeline_continues_from_its_checkpoint(
    tmp_path: Path, url: str, full: bool
) -> None:
    if not full:
        pytest.skip("two Spark processes take a minute: HEADGATE_FULL=1 kills on both engines")
    file = written(tmp_path, url, batch=50)
    publish(url, range(240))
    ack(url, 120)
    with running(file) as process:
        assert process.stdout is not None
        line = json.loads(process.stdout.readline())
        assert line["scanned"] == 50
    ack(url, 120)
    with running(file) as process:
        process.communicate(timeout=SLOWEST_S)
        assert process.returncode == 0
    assert arrived(tmp_path) == wanted(range(240))
    assert not [path for path in tmp_path.rglob("*.arrow") if "staged" in str(path.parent)]


@contextmanager
def running(file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The pipeline at work; none of its processes is left afterwards."""
    program = ["-c", "from headgate.cli import main; main()", "pipeline", "run", str(file)]
    environ = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    process = subprocess.Popen(
        [sys.executable, *program, "--once", "--json", "--master", "local[1]"],
        stdout=subprocess.PIPE,
        env=environ,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        kill_session(process)


def test_the_messages_of_a_queue_are_read_once_and_stay_there(
    tmp_path: Path, url: str, spark: SparkSession
) -> None:
    file = written(tmp_path, url, states="ready")
    publish(url, range(100))
    assert read_pipeline(file).trigger == "once"
    with pytest.raises(PipelineError, match="read once"):
        start(read_pipeline(file), spark, "continuous")
    first = run_once(file, spark)
    assert (first.counters.scanned, first.lag) == (100, 0)
    publish(url, range(100, 120))
    assert run_once(file, spark).batches == 0
    assert arrived(tmp_path) == wanted(range(100))
    with connect(url) as database:
        assert len(list(database.find("orders").browse())) == 120


def test_an_archive_is_a_stream_to_anybody_s_query(
    tmp_path: Path, url: str, spark: SparkSession
) -> None:
    publish(url, range(60))
    ack(url, 50)
    reading = spark.readStream.format("headgate").schema("offset long, amount long, payload binary")
    rows = reading.option("filter", "region = 'EU'").option("states", "archived")
    writer = (
        rows.load(f"queue:{url}#orders")
        .where("amount >= 10")
        .writeStream.format("headgate")
        .option("checkpointLocation", str(tmp_path / "ck"))
        .trigger(availableNow=True)
    )
    writer.start(str(tmp_path / "out")).awaitTermination()
    with Stream.open(tmp_path / "out") as stream:
        got = [int(one.payload) for one in stream.consume()]
    assert got == [n for n in range(0, 50, 3) if n * 37 % 100 >= 10]
