"""Tables of Parquet files: typed columns, folders by value, and small files merged without a reader noticing."""

from __future__ import annotations

import os
import threading
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from headgate.columns.shred import shred_chunk
from headgate.errors import SparkError, SparkOptionsError, SparkSchemaError
from headgate.message import Message
from headgate.pipelines.layout import TableLayout, parse_layout
from headgate.spark.sink import table_files
from headgate.spark.sink.destination import BatchMark, Owner
from headgate.spark.sink.parquet import ParquetDestination, compact_table
from headgate.spark.sink.staging import stage
from headgate.spark.sink.table_compaction import plan_merges

SCHEMA = (
    "timestamp timestamp, region string, express boolean, amount long, ratio double, payload binary"
)
DAY_US = 86_400_000_000
REGIONS = ["EU", "é/ü=%#?:", "a b+c", " ", "..", "__x", "", None]


def table_in(folder: Path, layout: TableLayout) -> ParquetDestination:
    made = ParquetDestination(str(folder), Owner("owner", "unused"), layout)
    made.open()
    return made


def commit(table: ParquetDestination, number: int, *tasks: list[Message]) -> None:
    parts = []
    for messages in tasks:
        batch = pa.record_batch(shred_chunk(messages, [m.payload for m in messages], (), 1))
        parts.extend(table.prepare(stage(table.staging, [batch])))
    table.commit(BatchMark("q", number), parts)


def orders(rng: Random, count: int) -> list[Message]:
    def headers() -> dict[str, object]:
        region = rng.choice(REGIONS)
        chosen = {
            "region": region,
            "express": rng.choice([True, False]),
            "amount": rng.randrange(9),
        }
        return {name: value for name, value in chosen.items() if value is not None}

    return [
        Message(b"%d" % n, "t", headers(), timestamp=rng.randrange(1, 3 * DAY_US))
        for n in range(count)
    ]


def payloads(folder: Path) -> list[bytes]:
    """As readers do it: all listed first, in folders whose names do not begin with _, then read."""
    files = []
    for name, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if not each.startswith("_")]
        files.extend(Path(name, each) for each in names if each.endswith(".parquet"))
    tables = [pq.read_table(file, partitioning=None) for file in sorted(files)]
    return [payload for table in tables for payload in table["payload"].to_pylist()]


def test_every_row_is_in_the_folder_of_its_values_with_typed_columns(tmp_path, seed):
    rng = Random(seed)
    layout = parse_layout(SCHEMA, ["region", "express", "day(timestamp)"], None)
    table = table_in(tmp_path / "t", layout)
    sent = orders(rng, 500)
    commit(table, 0, sent[:300], sent[300:])
    types = {"region": pa.string(), "express": pa.bool_(), "day": pa.date32()}
    partitioning = ds.partitioning(pa.schema(types), flavor="hive")
    stored = ds.dataset(tmp_path / "t", partitioning=partitioning).to_table()
    assert stored.schema.field("amount").type == pa.int64()
    assert stored.schema.field("ratio").type == pa.float64()
    found = Counter(
        (row["payload"], row["region"], row["express"], row["amount"], row["day"], row["timestamp"])
        for row in stored.to_pylist()
    )
    moments = {
        message.payload: datetime.fromtimestamp(message.timestamp / 1e6, UTC) for message in sent
    }
    assert found == Counter(
        (
            message.payload,
            message.headers.get("region") or None,  # as for Spark, no text is no value
            message.headers["express"],
            message.headers["amount"],
            moments[message.payload].date(),
            moments[message.payload],
        )
        for message in sent
    )


def test_rows_of_a_folder_keep_their_order_and_many_folders_few_open_files(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "OPEN_FILES", 2)
    table = table_in(tmp_path / "t", parse_layout("n long, payload binary", ["n"], None))
    sent = [Message(b"%03d" % k, "t", {"n": k % 7}) for k in range(100)]
    commit(table, 0, sent[:50], sent[50:])
    for n in range(7):
        assert payloads(tmp_path / "t" / f"n={n}") == [b"%03d" % k for k in range(n, 100, 7)]


def test_too_many_or_too_long_folders_are_refused_and_leave_no_files(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "MOST_FOLDERS", 5)
    table = table_in(
        tmp_path / "t", parse_layout("n long, s string, payload binary", ["n", "s"], None)
    )
    with pytest.raises(SparkOptionsError, match="columns with fewer values"):
        commit(table, 0, [Message(b"", "t", {"n": n}) for n in range(6)])
    with pytest.raises(SparkOptionsError, match="too long for the name of a folder"):
        commit(table, 0, [Message(b"", "t", {"s": "x" * 300})])
    assert list((tmp_path / "t").rglob("*.parquet")) == []


@pytest.mark.parametrize("partition_by", [[], ["region"]])
def test_merged_files_hold_the_same_rows_and_a_reader_sees_all_or_nothing_new(
    tmp_path, seed, partition_by
):
    """A reader lists and reads while batches are merged: whatever it can read as a whole is a whole."""
    rng = Random(seed)
    table = table_in(tmp_path / "t", parse_layout(SCHEMA, partition_by, None))
    sent = orders(rng, 400)
    for number in range(20):
        commit(table, number, sent[20 * number : 20 * number + 20])
    before = sorted(payloads(tmp_path / "t"))
    assert before == sorted(message.payload for message in sent)
    stop, seen = threading.Event(), Counter()

    def read() -> None:
        while not stop.is_set():
            try:
                seen[sorted(payloads(tmp_path / "t")) == before] += 1
            except (FileNotFoundError, NotADirectoryError):
                seen["not found"] += 1

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for target in (2_000, 3_000, 8_000, 20_000, 1 << 30):
            planned = compact_table(tmp_path / "t", target, dry_run=True)
            assert compact_table(tmp_path / "t", target) == planned
    finally:
        stop.set()
        reader.join()
    assert seen[False] == 0
    assert sorted(payloads(tmp_path / "t")) == before
    folders = 1 if not partition_by else len({m.headers.get("region") or None for m in sent})
    assert len(list((tmp_path / "t").rglob("part-*.parquet"))) == folders
    assert compact_table(tmp_path / "t", 1 << 30).files_before == 0
    commit(table, 19, sent)  # a repeated batch is still known
    commit(table, 20, sent)
    assert len(payloads(tmp_path / "t")) == 2 * len(before)
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_a_writer_merges_a_folder_with_enough_small_files_and_keeps_their_order(tmp_path):
    table = table_in(tmp_path / "t", parse_layout(None, [], 4))
    counts = []
    for number in range(9):
        commit(table, number, [Message(b"%d" % number)])
        counts.append(len(list((tmp_path / "t").glob("*.parquet"))))
    assert counts == [1, 2, 3, 1, 2, 3, 1, 2, 3]
    assert payloads(tmp_path / "t") == [b"%d" % number for number in range(9)]


def test_a_task_that_is_staging_while_its_table_is_merged_finds_its_file(tmp_path):
    table = table_in(tmp_path / "t", TableLayout())
    for number in range(3):
        commit(table, number, [Message(b"%d" % number)])
    batch = pa.record_batch(shred_chunk([Message(b"next")], [b"next"], (), 1))
    staged = stage(table.staging, [batch])
    assert compact_table(tmp_path / "t").files_before == 3
    table.commit(BatchMark("q", 3), table.prepare(staged))
    assert sorted(payloads(tmp_path / "t")) == [b"0", b"1", b"2", b"next"]


def test_files_with_other_columns_are_not_merged_with_each_other(tmp_path):
    old = table_in(tmp_path / "t", parse_layout("a long, payload binary", [], None))
    for number in range(2):
        commit(old, number, [Message(b"old", "t", {"a": number})])
    new = table_in(tmp_path / "t", parse_layout("b long, payload binary", [], None))
    for number in range(2, 4):
        commit(new, number, [Message(b"new", "t", {"b": number})])
    compact_table(tmp_path / "t")
    found = sorted((tmp_path / "t").glob("*.parquet"))
    assert [pq.read_table(file).column_names[0] for file in found] == ["a", "b"]


def test_a_file_system_without_exchange_is_an_error_that_changes_nothing(tmp_path, monkeypatch):
    table = table_in(tmp_path / "t", TableLayout())
    for number in range(2):
        commit(table, number, [Message(b"%d" % number)])

    def refuse(one: Path, other: Path) -> None:
        raise OSError(22, "cannot be exchanged in one step: Invalid argument", str(one))

    monkeypatch.setattr("headgate.spark.sink.table_compaction.exchange", refuse)
    with pytest.raises(SparkError, match="nothing was changed"):
        compact_table(tmp_path / "t")
    assert payloads(tmp_path / "t") == [b"0", b"1"]
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_a_folder_of_others_is_not_merged(tmp_path):
    pq.write_table(pa.table({"payload": [b"theirs"]}), tmp_path / "a.parquet")
    with pytest.raises(SparkOptionsError, match="no folder that a pipeline"):
        compact_table(tmp_path)
    with pytest.raises(SparkOptionsError, match="has no partition_by"):
        table_in(tmp_path, parse_layout(None, ["day(timestamp)"], None))
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


def test_other_folders_than_before_are_refused(tmp_path):
    table_in(tmp_path, parse_layout(None, ["day(timestamp)"], None))
    table_in(tmp_path, parse_layout("payload binary", ["day(timestamp)"], 10))
    with pytest.raises(SparkOptionsError, match=r'has partition_by = \["day\(timestamp\)"\]'):
        table_in(tmp_path, TableLayout())


def test_small_neighbours_are_merged_up_to_the_target_and_large_files_stay():
    sizes = [("a", 3), ("b", 3), ("c", 3), ("d", 9), ("e", 1), ("f", 1), ("g", 5), ("h", 1)]
    assert plan_merges(sizes, 10) == [["a", "b", "c"], ["e", "f"]]
    assert plan_merges([("a", 1)], 10) == []


@pytest.mark.parametrize(
    ("schema", "partition_by", "after", "problem"),
    [
        ("region", [], None, "'region' is no column"),
        ("region date", [], None, "cannot be 'date'"),
        ("region string, Region long", [], None, "occurs twice"),
        (None, ["region"], None, 'add it to schema = "region string'),
        ("a string, payload binary", ["payload"], None, "needs a type"),
        ("a double, payload binary", ["a"], None, "'a' is double"),
        ("a string, payload binary", ["a", "a"], None, "occurs twice"),
        ("a string", ["a"], None, "needs a column besides"),
        (None, ["week(timestamp)"], None, r"day\(timestamp\) or hour"),
        ("day string, payload binary", ["day(timestamp)"], None, "a second column 'day'"),
        (None, [], 1, "2 files or more"),
    ],
)
def test_a_layout_that_no_table_can_have_is_refused(schema, partition_by, after, problem):
    with pytest.raises(SparkOptionsError, match=problem):
        parse_layout(schema, partition_by, after)


def test_columns_that_messages_cannot_fill_are_refused(tmp_path):
    with pytest.raises(SparkSchemaError, match="payload"):
        table_in(tmp_path / "t", parse_layout("payload string", [], None))
    assert list(tmp_path.iterdir()) == []


def test_a_layout_as_options_is_the_same_layout():
    layout = parse_layout("`my region` string, headers map<string, string>, n long", ["n"], 9)
    options = layout.as_options()
    again = parse_layout(options["schema"], [options["partitionBy"]], int(options["compactAfter"]))
    assert again == layout
