"""Pipelines whose messages pass through Spark: payloads decoded, columns cast, SQL between source and exchange, any format as a sink."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from headgate.errors import PipelineError
from headgate.message import Message
from headgate.pipelines.account import Account
from headgate.pipelines.file import read_pipeline
from headgate.spark.pipeline.run import follow, start
from headgate.streams.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ORDERS = [
    {"customer": "ada", "amount": "120", "items": 2},
    {"customer": "bob", "amount": "7", "items": 1},
    {"customer": "ada", "amount": "not a number", "items": 9},
    {"customer": "eve", "amount": "80", "items": 3},
]


def publish(path: Path, *messages: Message) -> None:
    stream = Stream.open(path) if path.exists() else Stream.create(path)
    with stream, stream.producer() as producer:
        producer.publish_many(list(messages))


def orders(*payloads: object) -> list[Message]:
    texts = [p if isinstance(p, bytes) else json.dumps(p).encode() for p in payloads]
    return [
        Message(text, "orders", {"region": "EU", "n": n}, timestamp=1_000_000 * (n + 1))
        for n, text in enumerate(texts)
    ]


def run_once(folder: Path, text: str, spark: SparkSession) -> Account:
    file = folder / "p.toml"
    file.write_text(dedent(text))
    pipeline = read_pipeline(file)
    account = Account(pipeline.name)
    for _ in follow(start(pipeline, spark, "once"), account, lambda: False, poll_s=0.02):
        pass
    return account


def stored(path: Path) -> list[Message]:
    with Stream.open(path) as stream:
        return list(stream.consume())


DECODED = """
    [source]
    stream = "events"
    schema = "n long"
    payload = "json"
    payload_schema = "customer string, amount string, items long"
    casts = { amount = "long" }
    filter = "items < 9 OR customer = 'x'"
    [[step]]
    sql = "SELECT *, amount * items AS total FROM messages"
    [[step]]
    sql = "SELECT * EXCEPT (items), upper(customer) AS name FROM messages WHERE n < 90"
    [exchange]
    type = "filter"
    [[binding]]
    queue = "large"
    filter = "total >= 240 AND region = 'EU'"
    [[binding]]
    queue = "small"
    filter = "amount < 100"
    [[sink]]
    queue = "large"
    to = "stream:out/large"
    [[sink]]
    queue = "small"
    format = "json"
    path = "out/small"
    schema = "topic string, name string, amount long, region string"
    partition_by = ["region"]
    options = { compression = "gzip" }
    [dead_letter]
    to = "stream:out/dead"
"""


def test_payloads_are_decoded_cast_filtered_and_changed_before_they_are_routed(
    tmp_path: Path, spark: SparkSession
) -> None:
    publish(
        tmp_path / "events",
        *orders(*ORDERS, b"{half", {"customer": "max", "amount": "5", "items": 1}),
    )
    account = run_once(tmp_path, DECODED, spark)
    [large, *others] = stored(tmp_path / "out/large")
    assert [dict(message.headers) for message in (large, *others)] == [
        {"region": "EU", "n": 0, "customer": "ada", "amount": 120, "total": 240, "name": "ADA"},
        {"region": "EU", "n": 3, "customer": "eve", "amount": 80, "total": 240, "name": "EVE"},
    ]
    assert json.loads(large.payload) == ORDERS[0]
    assert (large.topic, large.timestamp) == ("orders", 1_000_000)

    def rows() -> DataFrame:  # listed anew
        schema = "topic string, name string, amount long, region string"
        return spark.read.schema(schema).json(str(tmp_path / "out/small"))

    assert sorted(map(tuple, rows().collect())) == [
        ("orders", "BOB", 7, "EU"),
        ("orders", "EVE", 80, "EU"),
        ("orders", "MAX", 5, "EU"),
    ]
    [folder] = (tmp_path / "out/small").glob("region=*")
    assert all(file.name.endswith(".json.gz") for file in folder.glob("part-*"))
    [dead] = stored(tmp_path / "out/dead")
    assert (dead.payload, "malformed" in dead.headers) == (b"{half", True)
    assert (account.counters.malformed, account.counters.queues) == (1, {"large": 2, "small": 3})
    publish(tmp_path / "events", *orders({"customer": "ida", "amount": "9", "items": 4}))
    run_once(tmp_path, DECODED, spark)
    assert rows().count() == 4
    assert not [path for path in (tmp_path / ".headgate").rglob("*.parquet") if path.is_file()]


def test_a_batch_that_is_repeated_is_appended_once(tmp_path: Path, spark: SparkSession) -> None:
    """As after a kill between Spark's write and the end of the batch."""
    publish(tmp_path / "events", *orders(*ORDERS))
    text = """
        [source]
        stream = "events"
        [exchange]
        type = "fanout"
        [[binding]]
        queue = "all"
        [[sink]]
        queue = "all"
        format = "parquet"
        path = "out"
        [[sink]]
        queue = "all"
        format = "orc"
        path = "rows"
        [[sink]]
        queue = "all"
        format = "headgate"
        path = "copy"
    """
    assert run_once(tmp_path, text, spark).counters.queues == {"all": 4}
    [commit] = (tmp_path / ".headgate/p/commits").glob("[0-9]*")
    commit.unlink()  # Spark runs its last batch again
    run_once(tmp_path, text, spark)
    assert spark.read.parquet(str(tmp_path / "out")).count() == 4
    assert spark.read.orc(str(tmp_path / "rows")).count() == 4
    assert len(stored(tmp_path / "copy")) == 4


def test_a_windowed_aggregation_emits_each_window_once(tmp_path: Path, spark: SparkSession) -> None:
    text = """
        [source]
        stream = "events"
        schema = "n long, region string"
        [[step]]
        watermark = "timestamp 2 seconds"
        sql = '''
            SELECT 'sums' AS topic, window.end AS timestamp, region, count(*) AS messages, sum(n) AS total
            FROM messages GROUP BY window(timestamp, '10 seconds'), region
        '''
        [exchange]
        type = "topic"
        [[binding]]
        queue = "sums"
        key = "sums"
        [[sink]]
        queue = "sums"
        to = "stream:out"
    """
    publish(tmp_path / "events", *orders(*[{}] * 15))
    run_once(tmp_path, text, spark)
    publish(tmp_path / "events", *orders(*[{}] * 40)[25:])
    run_once(tmp_path, text, spark)
    sums = [
        (m.timestamp // 1_000_000, m.headers["messages"], m.headers["total"])
        for m in stored(tmp_path / "out")
    ]
    assert sums == [(10, 9, 36), (20, 6, 69), (30, 4, 106)]


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('[[step]]\nsql = "SELECT oops FROM messages"', r"\[\[step\]\] 1: .*oops"),
        ('[[step]]\nsql = "SELECT FROM WHERE"', r"\[\[step\]\] 1: "),
        (
            '[[step]]\nsql = "SELECT array(1) AS list FROM messages"',
            r"\[\[step\]\] 1: .*list.*cast",
        ),
        ('[source.casts]\nmissing = "long"', "there is no column 'missing'"),
        ('[source.casts]\ntopic = "longish"', r"\[source.casts\]: .*LONGISH"),
    ],
)
def test_what_spark_cannot_run_is_reported_with_its_table_before_anything_is_created(
    tmp_path: Path, spark: SparkSession, capfd, lines: str, problem: str
) -> None:
    publish(tmp_path / "events", *orders({}))
    text = f'[source]\nstream = "events"\n{lines}\n' + dedent("""
        [exchange]
        type = "fanout"
        [[binding]]
        queue = "all"
        [[sink]]
        queue = "all"
        to = "none:"
    """)
    with pytest.raises(PipelineError, match=problem):
        run_once(tmp_path, text, spark)
    assert not (tmp_path / ".headgate").exists()
    assert "QueryContextLogger" not in capfd.readouterr().err


def test_a_format_whose_package_is_missing_is_named_with_its_remedy(
    tmp_path: Path, spark: SparkSession
) -> None:
    publish(tmp_path / "events", *orders({}))
    text = """
        [source]
        stream = "events"
        [exchange]
        type = "fanout"
        [[binding]]
        queue = "all"
        [[sink]]
        queue = "all"
        {0}
    """
    delta = 'format = "delta"\npath = "out"'
    with pytest.raises(PipelineError, match=r"no format 'delta' here; run with --conf"):
        run_once(tmp_path, dedent(text).format(delta), spark)
    assert not (tmp_path / ".headgate").exists()
