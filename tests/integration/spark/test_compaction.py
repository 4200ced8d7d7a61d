"""Compaction on Spark: the stream is unchanged for readers, and every other engine reads its Parquet files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import duckdb
import pytest

from headgate.cli.app import run
from headgate.message import Message
from headgate.spark.jobs.compaction import compact
from headgate.streams.cold import compaction
from headgate.streams.format import segment_files
from headgate.streams.stream import Stream
from headgate.streams.upkeep.verification import verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CLOCK = 1_750_000_000_000_000
COUNT = 3_000


def message(i: int) -> Message:
    rng = Random(i)
    return Message(
        rng.randbytes(30),
        topic=f"orders.{rng.choice(('eu', 'us'))}",
        headers={"x-region": rng.choice(("EU", "US", "APAC")), "amount": i % 777}
        | ({"user": f"u{i}"} if i % 3 else {}),
        priority=i % 10,
        timestamp=CLOCK + i,
    )


MESSAGES = [message(i) for i in range(COUNT)]


@pytest.fixture
def sealed_stream(tmp_path: Path) -> Path:
    """Three sealed segments of a thousand messages."""
    path = tmp_path / "s"
    with Stream.create(path, indexed=["x-region", "user"], fsync="never") as made:
        for start in range(0, COUNT, 1000):
            with made.producer() as producer:
                producer.publish_many(MESSAGES[start : start + 1000])
            made.seal(all=True)
    return path


def read(path: Path) -> list[Message]:
    with Stream.open(path) as opened:
        return list(opened.consume())


def test_every_engine_reads_what_the_stream_reads(
    spark: SparkSession, sealed_stream: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "COLD_BYTES", 1)  # a file for every segment
    done = compact(spark, sealed_stream, clock=lambda: CLOCK)
    assert [written.rows for written in done.added] == [1000] * 3
    assert [file.path.suffix for file in segment_files(sealed_stream)] == [".cold"] * 3 + [".log"]
    assert read(sealed_stream) == MESSAGES
    assert verify(sealed_stream).fine

    wanted = [
        (
            i, m.timestamp, m.topic, m.priority, bytes(m.payload), m.headers["x-region"],
            m.headers["amount"], m.headers.get("user"),
        )
        for i, m in enumerate(MESSAGES)
    ]  # fmt: skip
    names = "topic, priority, payload, {0}h_s_x$2dregion{0}, h_i_amount, h_s_user"
    files = f"{sealed_stream}/cold/*.parquet"
    columns = names.format('"')
    by_duckdb = duckdb.sql(
        f"SELECT \"offset\", epoch_us(timestamp), {columns} FROM '{files}' ORDER BY 1"
    )
    assert by_duckdb.fetchall() == wanted
    columns = names.format("`")
    parquet = spark.read.parquet(str(sealed_stream / "cold")).sort("offset")
    by_spark = parquet.selectExpr("offset", "unix_micros(timestamp)", *columns.split(", "))
    assert [tuple(row) for row in by_spark.collect()] == wanted
    found = parquet.where("`h_s_x$2dregion` = 'EU' AND h_s_user = 'u1001'").collect()
    assert [row.offset for row in found] == (
        [1001] if MESSAGES[1001].headers["x-region"] == "EU" else []
    )


def test_parquet_files_have_correct_bloom_filters_for_other_engines(
    spark: SparkSession, sealed_stream: Path
) -> None:
    compact(spark, sealed_stream, clock=lambda: CLOCK)
    file = f"{sealed_stream}/cold/*.parquet"
    with_filter = duckdb.sql(
        "SELECT DISTINCT path_in_schema FROM parquet_metadata(?) WHERE bloom_filter_length > 0",
        params=[file],
    )
    assert {name for (name,) in with_filter.fetchall()} == {"topic", "h_s_x$2dregion", "h_s_user"}
    assert not excluded(file, "h_s_user", "u1001")
    nobody = [excluded(file, "h_s_user", f"nobody {i}") for i in range(200)]
    assert sum(nobody) > 180


def excluded(file: str, column: str, value: str) -> bool:
    """Whether DuckDB finds by the Bloom filters alone that no row group holds the value."""
    probed = duckdb.sql(
        "SELECT bool_and(bloom_filter_excludes) FROM parquet_bloom_probe(?, ?, ?)",
        params=[file, column, value],
    ).fetchall()
    return bool(probed[0][0])


def test_a_damaged_segment_is_named_and_the_others_become_cold(
    spark: SparkSession, sealed_stream: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "COLD_BYTES", 1)
    damaged = segment_files(sealed_stream)[0].path
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    done = compact(spark, sealed_stream, clock=lambda: CLOCK)
    assert [written.first_offset for written in done.added] == [1000, 2000]
    assert [damaged.name in problem for problem in done.problems] == [True]


@pytest.mark.usefixtures("spark")
def test_the_command_reports_its_result_and_the_holder_of_a_lock(
    sealed_stream: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["stream", "compact", str(sealed_stream), "--older-than", "1d", "--all"]) == 2
    assert "give one of --older-than, --before and --all" in capsys.readouterr().err
    assert run(["stream", "compact", str(sealed_stream), "--before", "900"]) == 0
    assert "nothing to compact" in capsys.readouterr().out
    with Stream.open(sealed_stream) as writing, writing.producer("pos-1"):
        assert run(["stream", "compact", str(sealed_stream), "--before", "2500"]) == 0
        told = capsys.readouterr().out
    assert "compacted offsets 0 to 1,999 into cold/" in told
    assert "is being written (pid" in told
    assert "producer pos-1" in told
    assert run(["stream", "compact", str(sealed_stream), "--all"]) == 0
    told = capsys.readouterr().out
    assert "compacted offsets 2,000 to 2,999" in told
    assert "deleted 1 file of segments that are cold now" in told
    assert list(sealed_stream.glob("*.arrow")) == []
    assert run(["stream", "info", str(sealed_stream), "--json"]) == 0
    assert '"cold": 2' in capsys.readouterr().out
    assert read(sealed_stream) == MESSAGES


def test_executors_load_no_database_and_no_web_framework() -> None:
    program = (
        "import sys, headgate.streams.cold.write, headgate.streams.read.catalog;"
        "print([n for n in ('apsw', 'psycopg', 'starlette', 'typer', 'rich') if n in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert told.stdout.strip() == b"[]"
