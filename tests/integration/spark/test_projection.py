from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from headgate.columns.decode import Record
from headgate.errors import SparkSchemaError
from headgate.message import OPAQUE, HeaderValue, Message
from headgate.spark.schema import (
    LOSSLESS,
    TEXTUAL,
    arrow_schema,
    reading_columns,
    stream_columns,
    writing_columns,
)
from headgate.spark.sink.composition import to_stream_columns
from headgate.spark.source.projection import BATCH_ROWS, Projection, even_batches
from headgate.streams.read.query import make_query
from headgate.streams.stream import Stream
from tests.mixed_stream import everything, mixed_stream, publish, very_wide
from tests.unit.spark.ddl import struct


def projected(path: Path, ddl: str) -> tuple[StructType, list[pa.RecordBatch]]:
    schema = struct(ddl)
    columns = reading_columns(schema)
    query = make_query(columns=stream_columns(columns))
    with Stream.open(path) as stream:
        found = stream.scan(columns=query.columns)
        projection = Projection(columns, arrow_schema(schema))
        return schema, list(even_batches(projection.batch(batch, str(path)) for batch in found))


def rows_of(path: Path, ddl: str) -> list[dict[str, Any]]:
    return [row for batch in projected(path, ddl)[1] for row in batch.to_pylist()]


def one_stream(path: Path, *messages: Message) -> Path:
    with Stream.create(path) as stream:
        publish(stream, list(messages))
    return path


def copied(path: Path, to: Path, ddl: str = LOSSLESS) -> list[Record]:
    schema, batches = projected(path, ddl)
    with Stream.create(to) as stream:
        for batch in batches:
            stream.append(to_stream_columns(batch, schema))
    return everything(to)


@pytest.mark.parametrize("round", range(4))
def test_read_write_read_is_the_identity(round: int, seed: int, tmp_path: Path) -> None:
    records = mixed_stream(tmp_path / "s", Random(seed + round), 200)
    assert copied(tmp_path / "s", tmp_path / "t") == records


def test_read_write_read_is_the_identity_for_very_many_headers(tmp_path: Path) -> None:
    one_stream(tmp_path / "s", *very_wide(20))
    assert copied(tmp_path / "s", tmp_path / "t") == everything(tmp_path / "s")


def shown(value: HeaderValue, type_: str) -> object:
    """What a column of this type shows of a header."""
    match type_, value:
        case ("boolean", bool()) | ("string", str()):
            return value
        case "double", int() | float() if not isinstance(value, bool):
            return float(value)
        case "bigint", int() if not isinstance(value, bool):
            return value
        case "smallint", int() if not isinstance(value, bool) and -(2**15) <= value < 2**15:
            return value
        case _:
            return None


@pytest.mark.parametrize("type_", ["string", "bigint", "smallint", "double", "boolean"])
def test_a_column_shows_a_header_of_its_own_kind_and_null_for_others(
    type_: str, seed: int, tmp_path: Path
) -> None:
    records = mixed_stream(tmp_path / "s", Random(seed), 200)
    found = rows_of(tmp_path / "s", f"a {type_}, `p.s.subject` string, offset bigint")
    assert [(row["offset"], row["a"]) for row in found] == [
        (offset, shown(message.headers.get("a"), type_)) for offset, message in records
    ]


@pytest.mark.parametrize("type_", ["string", "bigint", "double", "boolean"])
def test_a_header_past_the_cap_of_columns_is_shown_too(type_: str, tmp_path: Path) -> None:
    one_stream(tmp_path / "s", *very_wide(12))
    for name in ("n5", "n20"):
        values = [r.message.headers.get(name) for r in everything(tmp_path / "s")]
        found = [row[name] for row in rows_of(tmp_path / "s", f"{name} {type_}")]
        assert found == [shown(value, type_) for value in values]


def test_system_columns_have_the_types_of_the_schema(tmp_path: Path) -> None:
    message = Message(b"p", "a.b", {"h": 1}, 9, 1_700_000_000_000_001, "id", "EU", "k", {"to": "x"})
    one_stream(tmp_path / "s", message)
    [row] = rows_of(
        tmp_path / "s",
        "priority bigint, timestamp bigint, offset bigint, payload binary, key string, id string, "
        "filter_value string, topic string, _stream string, `p.s.to` string",
    )
    assert row == {
        "priority": 9,
        "timestamp": 1_700_000_000_000_001,
        "offset": 0,
        "payload": b"p",
        "key": "k",
        "id": "id",
        "filter_value": "EU",
        "topic": "a.b",
        "_stream": str(tmp_path / "s"),
        "p.s.to": "x",
    }


def test_headers_as_text(tmp_path: Path) -> None:
    headers = {"s": "x", "i": 7, "f": 2.5, "b": True, "o": OPAQUE}
    one_stream(tmp_path / "s", Message(headers=headers))
    [row] = rows_of(tmp_path / "s", TEXTUAL)
    texts = {"s": "x", "i": "7", "f": "2.5", "b": "true", "o": None}
    assert dict(row["headers"]) == texts


def test_the_types_are_spark_s_to_the_letter(tmp_path: Path) -> None:
    one_stream(tmp_path / "s", Message(headers={"a": "x"}), Message())
    schema, batches = projected(tmp_path / "s", LOSSLESS)
    assert all(batch.schema == arrow_schema(schema) for batch in batches)
    assert not any(pa.types.is_dictionary(field.type) for field in batches[0].schema)


def test_a_plain_column_changes_the_header_of_that_name(tmp_path: Path) -> None:
    one_stream(
        tmp_path / "s", Message(headers={"a": "old", "b": 1}), Message(headers={"a": "kept"})
    )
    _, [batch] = projected(tmp_path / "s", LOSSLESS)
    schema = struct(f"{LOSSLESS}, a bigint")
    changed = pa.RecordBatch.from_arrays(
        [*batch.columns, pa.array([5, None])], schema=arrow_schema(schema)
    )
    with Stream.create(tmp_path / "t") as stream:
        stream.append(to_stream_columns(changed, schema))
    first, second = (record.message.headers for record in everything(tmp_path / "t"))
    assert (first, second) == ({"a": 5, "b": 1}, {"a": "kept"})


def test_plain_columns_become_headers_of_their_own_types(tmp_path: Path) -> None:
    schema = struct("a int, b float, c string, d boolean, payload string, timestamp timestamp")
    values = [[1, None], [0.5, None], ["x", None], [True, None], ["péi", None], [5, 6]]
    arrays = [pa.array(v, f.type) for v, f in zip(values, arrow_schema(schema), strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(schema))
    with Stream.create(tmp_path / "t") as stream:
        stream.append(to_stream_columns(batch, schema))
    first, second = (record.message for record in everything(tmp_path / "t"))
    assert first == Message(
        "péi".encode(), headers={"a": 1, "b": 0.5, "c": "x", "d": True}, timestamp=5
    )
    assert second == Message(timestamp=6)


def test_a_batch_of_nulls_keeps_its_rows() -> None:
    schema = struct("a string")
    batch = pa.RecordBatch.from_arrays([pa.nulls(3, pa.string())], schema=arrow_schema(schema))
    assert to_stream_columns(batch, schema).num_rows == 3


def test_short_batches_are_put_together_and_long_ones_cut() -> None:
    def batch(rows: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array(range(rows))], ["a"])

    sizes = [3, 0, 5000, 10, BATCH_ROWS * 2 + 1, 4]
    found = list(even_batches(map(batch, sizes)))
    assert [b.num_rows for b in found] == [5003, 10, BATCH_ROWS, BATCH_ROWS, 1, 4]
    assert [v for b in found for v in b.column(0).to_pylist()] == [
        v for size in sizes for v in range(size)
    ]


@pytest.mark.parametrize(
    ("ddl", "problem"),
    [
        ("offset string", "column 'offset': must be bigint, not string"),
        ("when timestamp", "column 'when': a header cannot be timestamp"),
        ("a decimal(10,2)", r"column 'a': a header cannot be decimal\(10,2\)"),
        (
            "headers map<string,int>",
            "column 'headers': must be map<string,struct<.*, not map<string,int>",
        ),
        ("a string NOT NULL", "column 'a': messages may lack it: leave out NOT NULL"),
        ("_state string NOT NULL", "column '_state': messages may lack it"),  # a header here
        ("`p.s.nothing` string", "column 'p.s.nothing': 'nothing' is not an AMQP property"),
        ("`h.i.n` string", "column 'h.i.n': must be bigint, not string"),
        ("a string, a bigint", "column 'a': occurs twice"),
        ("payload string", "column 'payload': must be binary, not string"),
    ],
)
def test_a_type_that_cannot_hold_its_column_is_refused(ddl: str, problem: str) -> None:
    with pytest.raises(SparkSchemaError, match=problem):
        reading_columns(struct(ddl))


def test_only_the_columns_of_the_schema_are_read() -> None:
    ddl = "offset bigint, topic string, region string, weight double, `p.i.group_sequence` bigint"
    assert stream_columns(reading_columns(struct(ddl))) == (
        "topic", "h.s.region", "overflow", "h.f.weight", "h.i.weight", "p.i.group_sequence",
    )  # fmt: skip
    assert stream_columns(writing_columns(struct(LOSSLESS))) is None
