"""The sink in a real session: what is read is what was written, and every batch arrives once, whatever fails."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.message import OPAQUE, Message
from headgate.queues.database import connect
from headgate.spark.sink.destination import destination_of
from headgate.spark.sink.staging import stage
from headgate.spark.sink.writer import DESCRIPTOR_NAMES, DESCRIPTOR_SCHEMA
from headgate.streams.stream import Stream

pytestmark = pytest.mark.spark

COUNT = 600


def message(n: int) -> Message:
    headers = {"n": n, "region": "EU" if n % 3 else "US", "mixed": [1, "one", 1.5, True][n % 4]}
    if n % 5 == 0:
        headers["table"] = OPAQUE
    properties = {"subject": f"s{n % 2}"} if n % 7 == 0 else {}
    key, id_ = (f"k{n}", f"i{n}") if n % 2 else (None, None)
    return Message(
        b"%d" % n, f"t.{n % 9}", headers, n % 10, 1_000_000 * n, id_, "v", key, properties
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A stream of known messages."""
    path = tmp_path_factory.mktemp("sink") / "in"
    with Stream.create(path, chunk_messages=50) as stream, stream.producer() as producer:
        for n in range(COUNT):
            producer.publish(message(n))
    return path


def messages(path: Path) -> list[Message]:
    with Stream.open(path) as stream:
        return list(stream.consume())


def payloads(path: Path) -> list[bytes]:
    return [each.payload for each in messages(path)]


def staged_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and "staged" in path.parts]


def expected() -> list[bytes]:
    return [b"%d" % n for n in range(COUNT)]


def run(frame, checkpoint: Path, to: str) -> None:
    writer = frame.writeStream.format("headgate").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start(to)
    try:
        query.awaitTermination()
    finally:
        query.stop()


def reading(spark, source: Path):
    return (
        spark.readStream.format("headgate").option("maxMessagesPerTrigger", "300").load(str(source))
    )


def forget_last_commit(checkpoint: Path) -> None:
    """As if the driver had died after the sink committed, before Spark knew."""
    commits = [path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()]
    last = max(commits, key=lambda path: int(path.name))
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    last.unlink()


# ---- batches -----------------------------------------------------------------------------------------


def test_messages_that_are_read_and_written_are_equal(spark, source, tmp_path):
    read = spark.read.format("headgate").option("partitions", "1").load(str(source))
    read.write.format("headgate").mode("append").save(str(tmp_path / "out"))
    assert messages(tmp_path / "out") == messages(source)
    assert staged_files(tmp_path) == []


def test_a_batch_goes_to_a_queue_or_to_parquet_by_the_name_of_the_place(spark, source, tmp_path):
    read = spark.read.format("headgate").option("filter", "n < 30").load(str(source))
    url = f"sqlite:///{tmp_path}/q.db"
    read.write.format("headgate").mode("append").option("to", f"queue:{url}#orders").save()
    read.write.format("headgate").mode("append").save(f"parquet:{tmp_path}/out")
    with connect(url) as database:
        found = {each.message.payload: each.message for each in database.find("orders").browse()}
    assert found == {b"%d" % n: message(n) for n in range(30)}
    assert sorted(pq.read_table(tmp_path / "out")["payload"].to_pylist()) == sorted(found)
    assert spark.read.parquet(f"{tmp_path}/out").where("headers['region'].s = 'EU'").count() == 20


def test_descriptors_of_staged_files_are_committed_where_they_belong(spark, tmp_path):
    """Rows without a file, and other columns, are none of the sink's business."""
    places = [f"stream:{tmp_path}/a", f"stream:{tmp_path}/b"]
    batch = pa.record_batch({"payload": pa.array([b"x", b"y"])})
    rows = []
    for number, to in enumerate(places):
        destination = destination_of(to, "")
        destination.open()
        made = stage(destination.staging, [batch.slice(number)], number)
        rows.append((*(getattr(made, name) for name in DESCRIPTOR_NAMES), None))
    rows.append((None, None, None, None, None, "12 read"))
    frame = spark.createDataFrame(rows, f"{DESCRIPTOR_SCHEMA}, counters string")
    writer = frame.write.format("headgate").mode("append")
    writer.option("destinations", json.dumps([{"to": to} for to in places])).save()
    assert payloads(tmp_path / "a") == [b"x", b"y"]
    assert payloads(tmp_path / "b") == [b"y"]


def test_an_invalid_write_is_refused_on_the_driver(spark):
    frame = spark.range(1).selectExpr("id AS n")
    with pytest.raises(
        Exception, match="messages can only be appended; use mode 'append'"
    ) as refused:
        frame.write.format("headgate").mode("overwrite").save("out")
    assert "AnalysisException" in type(refused.value).__name__


def test_a_table_is_refused_with_the_reason_and_a_view_can_be_written_to(spark, tmp_path):
    Stream.create(tmp_path / "s").close()
    where = f"USING headgate OPTIONS (path '{tmp_path}/s')"
    reason = "CREATE TABLE … USING headgate makes a table that cannot be used"
    with pytest.raises(Exception, match=reason):
        spark.sql(f"CREATE TABLE refused {where}")
    spark.sql(
        f"CREATE TABLE unusable (payload binary) {where}"
    )  # Spark does not call the source here
    try:
        with pytest.raises(Exception, match=reason):
            spark.sql("SELECT * FROM unusable").collect()
        with pytest.raises(Exception, match=reason):
            spark.sql("INSERT INTO unusable VALUES (X'00')")
    finally:
        spark.sql("DROP TABLE unusable")
    spark.sql(f"CREATE TEMPORARY VIEW usable (payload binary) {where}")
    spark.sql("INSERT INTO usable VALUES (X'61')")
    spark.catalog.dropTempView("usable")
    assert payloads(tmp_path / "s") == [b"a"]


# ---- streams -----------------------------------------------------------------------------------------


def test_a_batch_that_spark_runs_again_is_stored_once_everywhere(spark, source, tmp_path):
    url = f"sqlite:///{tmp_path}/q.db"
    for to in (f"stream:{tmp_path}/out", f"queue:{url}#orders"):
        checkpoint = tmp_path / f"ck-{to[:5]}"
        for _ in range(2):
            run(reading(spark, source), checkpoint, to)
            forget_last_commit(checkpoint)
    assert payloads(tmp_path / "out") == expected()
    with connect(url) as database:
        found = [each.message.payload for each in database.find("orders").browse()]
    assert sorted(found) == sorted(expected())
    assert staged_files(tmp_path) == []


def test_a_deleted_checkpoint_delivers_everything_again(spark, source, tmp_path):
    for _ in range(2):
        run(reading(spark, source), tmp_path / "ck", str(tmp_path / "out"))
        shutil.rmtree(tmp_path / "ck")
    assert payloads(tmp_path / "out") == expected() * 2


def test_a_task_that_fails_names_the_column_and_the_query_goes_on_after_it(spark, source, tmp_path):
    read = reading(spark, source).selectExpr("*", "headers['n'].i AS number")
    ratio = "IF(number = 333, double('NaN'), 0.5D) AS ratio"
    with pytest.raises(Exception, match=r"column 'h\.f\.ratio': holds NaN or an infinity"):
        run(read.selectExpr("*", ratio), tmp_path / "ck", str(tmp_path / "out"))
    assert payloads(tmp_path / "out") == expected()[:300]
    run(read.selectExpr("*", "0.5D AS ratio"), tmp_path / "ck", str(tmp_path / "out"))
    assert payloads(tmp_path / "out") == expected()
    assert staged_files(tmp_path) == []


def test_while_another_holds_the_stream_its_holder_takes_the_batches_in(spark, source, tmp_path):
    Stream.create(tmp_path / "out").close()
    with Stream.open(tmp_path / "out") as holder, holder.producer():
        run(reading(spark, source), tmp_path / "ck", str(tmp_path / "out"))
        consumer = holder.consume(follow=True)
        found = [next(consumer).payload for _ in range(COUNT)]
        consumer.close()
    assert found == expected()
    assert payloads(tmp_path / "out") == expected()
    assert staged_files(tmp_path) == []


def test_a_checkpoint_the_sink_does_not_see_is_refused(spark, source, tmp_path):
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "ck"))
    try:
        writer = reading(spark, source).writeStream.format("headgate").trigger(availableNow=True)
        query = writer.start(str(tmp_path / "out"))
        with pytest.raises(Exception, match=r"add \.option.*checkpointLocation"):
            query.awaitTermination()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
