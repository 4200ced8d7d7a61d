"""Queues in a real session: Spark gets what the reference predicate selects, and what it writes there it reads back."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import LongType, StringType, StructType

from headgate.columns.shred import shred_chunk
from headgate.filters.logic import matches_filter
from headgate.filters.normal import bind_now
from headgate.filters.printer import to_text
from headgate.message import OPAQUE, Message
from headgate.queues.database import connect
from headgate.queues.engine import Publication
from headgate.spark.schema import LOSSLESS, queue_columns
from headgate.spark.sink.destination import BatchMark, destination_of
from headgate.spark.sink.staging import stage
from headgate.streams.stream import Stream
from tests import generate
from tests.pushed import answered_by_spark, as_column, in_spark, pushing, some_filter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def reading(
    spark: SparkSession, url: str, schema: StructType | str = "", **options: str
) -> DataFrame:
    reader = spark.read.format("headgate").options(**options)
    return (reader.schema(schema) if schema else reader).load(f"queue:{url}#orders")


def as_rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in frame.toArrow().to_pylist())


def by_id(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows without their ids, in the order of these."""
    rows = sorted(frame.toArrow().to_pylist(), key=lambda row: row["offset"])
    return [{name: value for name, value in row.items() if name != "offset"} for row in rows]


def test_a_read_holds_what_the_filter_and_spark_s_own_conditions_select(
    spark: SparkSession, url: str, seed: int, full: bool
) -> None:
    rng = Random(f"{seed} spark")
    with connect(url) as database:
        queue = database.queue("orders")
        queue.publish_many(list(map(Publication, generate.messages(rng, 700))))
        held = list(queue.browse())
    schema = StructType().add("offset", LongType())
    for name, type_ in (("a", StringType()), ("b", LongType()), ("topic", StringType())):
        schema.add(name, type_)
    columns = queue_columns(schema)
    for _ in range(20 if full else 2):
        filter = bind_now(generate.filter(rng, depth=2), generate.NOW_US)
        column = rng.choice(columns[1:])
        condition = some_filter(rng, column)
        frame = reading(spark, url, schema, filter=to_text(filter), partitions="3")
        expected = [
            (one.id, *(in_spark(one.message, each) for each in columns[1:]))
            for one in held
            if matches_filter(filter, one.message)
            and answered_by_spark(condition, in_spark(one.message, column))
        ]
        assert as_rows(frame.where(as_column(condition))) == expected, (to_text(filter), condition)


def test_the_conditions_that_a_source_takes_over_go_into_the_query_of_the_database(
    spark: SparkSession, url: str
) -> None:
    with connect(url) as database:
        messages = [Message(headers={"n": i, "r": "EU" if i % 2 else "US"}) for i in range(50)]
        ids = database.queue("orders").publish_many(messages)
    with pushing(spark) as format:
        reader = spark.read.format(format).schema("offset long, n long, r string")
        asked = reader.load(f"queue:{url}#orders")
        asked = asked.where(f"n > 10 AND r LIKE 'E%' AND offset < {ids[40]}")
        plan = asked._jdf.queryExecution().executedPlan().toString()
        assert "Filter" not in plan.replace("RuntimeFilters", "")
        assert sorted(row.n for row in asked.collect()) == list(range(11, 40, 2))
        both = reader.load(f"queue:{url}#orders").where("n > 10 AND (n % 5 = 0 OR r = 'EU')")
        assert both.count() == 23


def test_a_sql_user_reads_a_queue_as_a_view(spark: SparkSession, url: str) -> None:
    with connect(url) as database:
        queue = database.queue("orders")
        queue.publish_many([Message(headers={"n": i}, topic="t") for i in range(30)])
        queue.claim(5)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW waiting USING headgate "
        f"OPTIONS (path 'queue:{url}', queue 'orders', filter 'n < 20', states 'all')"
    )
    row = spark.sql("SELECT count(*), sum(headers['n'].i) FROM waiting WHERE topic = 't'").first()
    assert row is not None
    assert tuple(row) == (20, sum(range(20)))
    assert spark.read.format("headgate").load(f"queue:{url}#orders").count() == 25


# ---- what is written is what is read -----------------------------------------------------------------


def message(n: int) -> Message:
    """One of each kind of header, and every part of a message there or not."""
    headers: dict[str, Any] = {"n": n, "mixed": [1, "one", 1.5, True, 1.0][n % 5], "é": 2**62}
    if n % 3 == 0:
        headers["table"] = OPAQUE
    properties = {"subject": f"s{n}", "group_sequence": n} if n % 4 == 0 else {}
    key, id_, value = (f"k{n}", f"i{n}", "v") if n % 2 else (None, None, None)
    payload = bytes([n % 256, 0, 255])
    return Message(
        payload, f"t.{n % 9}", headers, n % 10, 1_000_000 * n + 7, id_, value, key, properties
    )


def test_messages_written_to_a_queue_are_read_back_unchanged(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    with Stream.create(tmp_path / "in") as stream, stream.producer() as producer:
        producer.publish_many([message(n) for n in range(500)])
    given = spark.read.format("headgate").option("partitions", "1").load(str(tmp_path / "in"))
    given.write.format("headgate").mode("append").save(f"queue:{url}#orders")
    found = reading(spark, url, partitions="2")
    assert found.schema == given.schema == spark.createDataFrame([], LOSSLESS).schema
    assert by_id(found) == by_id(given)
    with connect(url) as database:
        assert [one.message for one in database.find("orders").browse()] == list(
            map(message, range(500))
        )
    found.write.format("headgate").mode("append").save(f"stream:{tmp_path}/out")
    with Stream.open(tmp_path / "out") as stream:
        copied = sorted(stream.consume(), key=lambda one: one.headers["n"])
    assert copied == list(map(message, range(500)))


def test_a_batch_that_is_committed_again_is_not_read_twice(spark: SparkSession, url: str) -> None:
    destination = destination_of(f"queue:{url}#orders", "")
    destination.open()
    for batch in (0, 0, 1, 0, 1):
        sent = [message(100 * batch + n) for n in range(100)]
        columns = shred_chunk(sent, [one.payload for one in sent], (), 1)
        staged = stage(destination.staging, [pa.record_batch(columns)])
        assert staged is not None
        destination.commit(BatchMark("query", batch), [staged])
    found = reading(spark, url, "offset long, n long")
    assert [row["n"] for row in by_id(found)] == list(range(200))


# ---- what cannot be read -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "options", "problem"),
    [
        ("queue:sqlite:///{}/q.db#nobody", {}, "there is no queue or subscription 'nobody'"),
        ("queue:sqlite:///{}/none.db#orders", {}, "there is no database"),
        ("queue:sqlite:///{}/q.db", {}, "names no queue; write queue:sqlite:///"),
        (
            "queue:sqlite:///{}/q.db#orders",
            {"from": "first"},
            "from: only streams have this option",
        ),
        ("queue:sqlite:///{}/q.db#orders", {"stats": "all"}, "did you mean 'states'?"),
        ("queue:sqlite:///{}/q.db#orders", {"filter": "a = = 1"}, "at line 1, column 5"),
        ("queue:postgresql://nobody@127.0.0.1:1/x#orders", {}, "PostgreSQL cannot be reached"),
    ],
)
def test_an_invalid_read_is_refused_on_the_driver(
    path: str, options: dict[str, str], problem: str, spark: SparkSession, tmp_path: Path
) -> None:
    with connect(f"sqlite:///{tmp_path}/q.db") as database:
        database.queue("orders")
    with pytest.raises(PySparkException) as refused:
        spark.read.format("headgate").options(**options).load(path.format(tmp_path)).collect()
    assert problem in str(refused.value)
    assert "Job aborted" not in str(refused.value)


def test_the_error_for_reading_a_queue_as_a_stream_names_the_alternatives(
    spark: SparkSession, tmp_path: Path
) -> None:
    with connect(f"sqlite:///{tmp_path}/q.db") as database:
        database.queue("orders")
    frame = spark.readStream.format("headgate").load(f"queue:sqlite:///{tmp_path}/q.db#orders")
    writer = frame.writeStream.format("headgate").option("checkpointLocation", str(tmp_path / "ck"))
    with pytest.raises(
        PySparkException,
        match=r"the messages of a queue cannot be read with readStream.*spark\.read",
    ):
        writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()


def test_an_empty_queue_is_an_empty_frame(spark: SparkSession, url: str) -> None:
    with connect(url) as database:
        database.queue("orders")
    assert reading(spark, url).count() == 0
