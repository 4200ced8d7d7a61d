"""`format("headgate")` as a source: what Spark gets is what the reference predicate selects, in batches and streams."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import Not
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from headgate.columns.decode import Record
from headgate.filters.logic import matches_filter
from headgate.filters.nodes import Filter
from headgate.filters.normal import bind_now
from headgate.filters.printer import to_text
from headgate.message import Message
from headgate.spark.java import java_home
from headgate.spark.schema import reading_columns
from headgate.streams.read.cursors import Cursors
from headgate.streams.stream import Stream
from headgate.streams.superstream import SuperStream
from tests import generate
from tests.mixed_stream import everything, mixed_stream, publish
from tests.pushed import answered_by_spark, as_column, in_spark, pushing, some_filter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TYPES = (StringType(), LongType(), IntegerType(), ShortType(), DoubleType(), BooleanType())
NAMES = ("a", "b", "c", "region", "x-y", "with space", "a.b", "é😀")


def some_schema(rng: Random) -> StructType:
    """Offsets and streams, and a few headers of random types."""
    schema = StructType().add("offset", LongType()).add("_stream", StringType())
    for name in rng.sample(NAMES, 3):
        schema.add(name, rng.choice(TYPES))
    more: list[tuple[str, DataType]] = [
        ("timestamp", TimestampType()),
        ("topic", StringType()),
        ("id", StringType()),
        ("priority", IntegerType()),
    ]
    for name, type_ in rng.sample(more, 2):
        schema.add(name, type_)
    return schema


def some_streams(folder: Path, rng: Random) -> dict[str, list[Record]]:
    paths = [folder / f"s{number}" for number in range(rng.randint(1, 2))]
    return {str(path): mixed_stream(path, rng, rng.randint(1, 250)) for path in paths}


def some_text(rng: Random) -> tuple[Filter, str]:
    filter = bind_now(generate.filter(rng, depth=2), generate.NOW_US)
    return filter, to_text(filter)


def matching(
    streams: dict[str, list[Record]], filter: Filter
) -> Iterator[tuple[str, int, Message]]:
    for path, records in streams.items():
        yield from ((path, offset, m) for offset, m in records if matches_filter(filter, m))


def as_rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The rows in the order of streams and offsets."""
    return in_order(tuple(row.values()) for row in frame.toArrow().to_pylist())


def in_order(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda row: (row[1], row[0]))


def reference(
    streams: dict[str, list[Record]], filter: Filter, schema: StructType, conditions: list[Any]
) -> list[tuple[Any, ...]]:
    """What Spark has to show, worked out message by message."""
    columns = {column.name: column for column in reading_columns(schema)}
    found = []
    for path, offset, message in matching(streams, filter):
        row = {name: in_spark(message, column) for name, column in list(columns.items())[2:]}
        if all(answered_by_spark(c, row[column_of(c)]) for c in conditions):
            found.append((offset, path, *row.values()))
    return in_order(found)


def column_of(condition: Any) -> str:
    inner = condition.child if isinstance(condition, Not) else condition
    name: str = inner.attribute[0]
    return name


def test_a_batch_holds_what_the_filter_and_spark_s_own_conditions_select(
    spark: SparkSession, seed: int, full: bool, tmp_path: Path
) -> None:
    for number in range(45 if full else 3):
        rng = Random(f"{seed} {number}")
        streams = some_streams(tmp_path / str(number), rng)
        schema, (filter, text) = some_schema(rng), some_text(rng)
        columns = [c for c in reading_columns(schema) if c.name not in ("offset", "_stream")]
        conditions = [some_filter(rng, rng.choice(columns)) for _ in range(rng.randint(0, 2))]
        expected = reference(streams, filter, schema, conditions)
        with pushing(spark) as format:
            for taking in ("headgate", format):
                reader = reading(spark, schema, filter=text, partitions=rng.randint(1, 4))
                frame = reader.format(taking).load(list(streams))
                for condition in conditions:
                    frame = frame.where(as_column(condition))
                assert as_rows(frame) == expected, (taking, text, conditions)


def reading(spark: SparkSession, schema: StructType | str = "", **options: object) -> Any:
    reader = spark.read.format("headgate").options(**options)  # type: ignore[arg-type]
    return reader.schema(schema) if schema else reader


def test_spark_s_own_conditions_are_answered_inside_a_source_that_takes_them_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Stream.create(tmp_path / "s") as stream:
        publish(
            stream, [Message(headers={"n": i, "r": "EU" if i % 2 else "US"}) for i in range(50)]
        )
    reader = reading(spark, "offset long, n long, r string")
    with pushing(spark) as format:
        asked = reader.format(format).load(str(tmp_path / "s"))
        asked = asked.where("n > 10 AND r LIKE 'E%' AND r <> 'X' AND offset < 40")
        plan = asked._jdf.queryExecution().executedPlan().toString()
        assert "Filter" not in plan.replace("RuntimeFilters", "")
        assert sorted(row.n for row in asked.collect()) == list(range(11, 40, 2))
        both = reader.load(str(tmp_path / "s")).where("n > 10 AND (n % 5 = 0 OR r = 'EU')")
        assert both.count() == sum(1 for i in range(11, 50) if i % 5 == 0 or i % 2)


def test_a_sql_user_reads_a_super_stream_as_a_view(spark: SparkSession, tmp_path: Path) -> None:
    with SuperStream.create(tmp_path / "many", 3) as streams, streams.producer() as producer:
        for i in range(30):
            producer.publish(Message(key=str(i), headers={"n": i}, topic="t"))
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW many USING headgate OPTIONS (path '{tmp_path / 'many'}', filter 'n < 20')"
    )
    row = spark.sql("SELECT count(*), sum(headers['n'].i) FROM many WHERE topic = 't'").first()
    assert row is not None
    assert tuple(row) == (20, sum(range(20)))


def test_a_read_begins_and_ends_where_it_is_told_to(spark: SparkSession, tmp_path: Path) -> None:
    mixed_stream(tmp_path / "s", Random(1), 100)
    options = {"startingOffset": "10", "endingOffset": "60"}
    frame = reading(spark, "offset long", **options).load(str(tmp_path / "s"))
    assert sorted(row.offset for row in frame.collect()) == list(range(10, 60))


@pytest.mark.parametrize(
    ("schema", "options", "problem"),
    [
        ("", {"filtr": "a = 1"}, "no option 'filtr'; did you mean 'filter'?"),
        ("offset long", {"filter": "a = = 1"}, "at line 1, column 5"),
        ("offset string", {}, "column 'offset': must be bigint, not string"),
        ("at date", {}, "column 'at': a header cannot be date"),
        ("", {"path": "/nowhere/at/all"}, "there is no stream in /nowhere/at/all"),
        ("offset long", {"path": "/nowhere/at/all"}, "there is no stream in /nowhere/at/all"),
    ],
)
def test_an_invalid_read_is_refused_on_the_driver(
    schema: str, options: dict[str, str], problem: str, spark: SparkSession, tmp_path: Path
) -> None:
    Stream.create(tmp_path / "s").close()
    given = {"path": str(tmp_path / "s"), **options}
    with pytest.raises(PySparkException) as refused:
        reading(spark, schema, **given).load().collect()
    assert problem in str(refused.value)
    assert "Job aborted" not in str(refused.value)


# ---- as they come ------------------------------------------------------------------------------------


def copy_stream(
    spark: SparkSession, paths: Iterable[str], to: Path, checkpoint: Path, **options: object
) -> list[dict[str, Any]]:
    """Everything that is there now goes into another stream; gives the progress of each batch."""
    source = spark.readStream.format("headgate").options(**options)  # type: ignore[arg-type]
    running = (
        source.option("paths", ",".join(paths))
        .load()
        .writeStream.format("headgate")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start(str(to))
    )
    running.awaitTermination()
    return [dict(progress) for progress in running.recentProgress]


def counted(messages: Iterable[Message]) -> Counter[str]:
    return Counter(map(described, messages))


def described(message: Message) -> str:
    """The message as text, its headers in order."""
    headers, properties = (
        sorted(m.items(), key=str) for m in (message.headers, message.properties)
    )
    return repr((replace(message, headers={}, properties={}), headers, properties))


def test_a_stream_of_batches_holds_every_match_once_also_after_a_restart(
    spark: SparkSession, seed: int, full: bool, tmp_path: Path
) -> None:
    for number in range(10 if full else 1):
        rng, place = Random(f"{seed} {number}"), tmp_path / str(number)
        streams = some_streams(place, rng)
        filter, text = some_text(rng)
        limit = rng.choice(({"maxMessagesPerTrigger": 90}, {"maxBytesPerTrigger": 40_000}, {}))
        options: dict[str, Any] = {"filter": text, "partitions": rng.randint(1, 3), **limit}
        Stream.create(place / "out").close()
        for run in range(2):
            progress = copy_stream(spark, streams, place / "out", place / "ckpt", **options)
            selected = [message for *_, message in matching(streams, filter)]
            found = [record.message for record in everything(place / "out")]
            assert counted(found) == counted(selected), (text, options)
            if len(streams) == 1:
                assert list(map(described, found)) == list(map(described, selected))
            if "maxMessagesPerTrigger" in limit and run == 0:
                assert len(progress) >= sum(map(len, streams.values())) / 90
            for path in streams:
                with Stream.open(path) as stream:
                    publish(stream, generate.messages(rng, rng.randint(0, 60)))
                streams[path] = everything(Path(path))


def test_progress_is_a_cursor_of_the_stream_also_when_nothing_matches(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Stream.create(tmp_path / "s") as stream:
        publish(stream, [Message(headers={"n": i}) for i in range(25)])
    Stream.create(tmp_path / "out").close()
    copy_stream(
        spark, [str(tmp_path / "s")], tmp_path / "out", tmp_path / "c",
        filter="n > 99", cursor="to-out", maxMessagesPerTrigger=10,
    )  # fmt: skip
    found = Cursors(tmp_path / "s").get("to-out")
    assert found is not None
    assert found.position == 25
    assert everything(tmp_path / "out") == []


def test_messages_deleted_by_retention_stop_a_query_unless_it_allows_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Stream.create(tmp_path / "s", segment_bytes=4096, chunk_messages=10) as stream:
        publish(stream, [Message(b"x" * 50) for _ in range(20)])
        Stream.create(tmp_path / "out").close()
        places = [str(tmp_path / "s")], tmp_path / "out", tmp_path / "c"
        copy_stream(spark, *places)
        publish(stream, [Message(b"y" * 50) for _ in range(400)])
        stream.trim(before_offset=300)
        first = stream.first_offset
    assert first > 20
    with pytest.raises(PySparkException, match=f"offsets 20 to {first - 1} were deleted"):
        copy_stream(spark, *places)
    copy_stream(spark, *places, failOnDataLoss=False)
    assert len(everything(tmp_path / "out")) == 20 + 420 - first


# ---- where it runs -----------------------------------------------------------------------------------

EXECUTOR = """
import sys
import headgate.spark.datasource, headgate.spark.source.stream_batch, headgate.spark.source.stream_micro, headgate.spark.sink.composition
loaded = [name for name in ("apsw", "psycopg", "starlette", "typer", "rich") if name in sys.modules]
assert not loaded, loaded
"""
CONNECTED = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[1]").config("spark.sql.python.filterPushdown.enabled", "true").getOrCreate()
frame = spark.read.format("headgate").schema("offset long, n long").option("filter", "n < 15").load(sys.argv[1])
assert sorted(row.n for row in frame.where("n > 10").collect()) == [11, 12, 13, 14]
spark.stop()
"""
STREAMING_CONNECTED = """
import sys
from pyspark.sql import SparkSession
source, out, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote("local[1]").getOrCreate()
def run():
    rows = spark.readStream.format("headgate").option("filter", "n < 15").option("maxMessagesPerTrigger", "8").load(source)
    writer = rows.writeStream.format("headgate").option("checkpointLocation", checkpoint).trigger(availableNow=True)
    query = writer.start(out)
    assert query.awaitTermination(200), query.status
    return [report["batchId"] for report in query.recentProgress if "addBatch" in report["durationMs"]]
print(run(), run())
spark.stop()
"""


def test_an_executor_loads_no_database_and_no_server() -> None:
    subprocess.run([sys.executable, "-c", EXECUTOR], check=True, timeout=120)


def test_spark_connect_reads_a_stream(full: bool, tmp_path: Path) -> None:
    if not full:
        pytest.skip("a server of its own takes a while: HEADGATE_FULL=1 runs this")
    pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")
    with Stream.create(tmp_path / "s") as stream:
        publish(stream, [Message(headers={"n": i}) for i in range(20)])
    environ = {**os.environ, "JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable}
    program = [sys.executable, "-c", CONNECTED, str(tmp_path / "s")]
    subprocess.run(program, check=True, timeout=300, env=environ)


def test_spark_connect_reads_a_stream_in_micro_batches(full: bool, tmp_path: Path) -> None:
    if not full:
        pytest.skip("a server of its own takes a while: HEADGATE_FULL=1 runs this")
    pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")
    with Stream.create(tmp_path / "s") as stream:
        publish(stream, [Message(b"%d" % i, headers={"n": i}) for i in range(20)])
    environ = {**os.environ, "JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable}
    places = [str(tmp_path / name) for name in ("s", "out", "ck")]
    program = [sys.executable, "-c", STREAMING_CONNECTED, *places]
    done = subprocess.run(
        program, check=True, timeout=300, env=environ, stdout=subprocess.PIPE, text=True
    )
    assert done.stdout.split("\n")[-2] == "[0, 1, 2] []"  # the second run finds nothing new
    with Stream.open(tmp_path / "out") as stream:
        assert [int(message.payload) for message in stream.consume()] == list(range(15))
