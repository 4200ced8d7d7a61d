"""Payloads decoded where they are read: each beside its own message, whatever its neighbours hold."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from headgate.errors import SparkOptionsError, SparkSchemaError
from headgate.spark.options import parse_stream_read
from headgate.spark.schema import reading_columns, writing_columns
from headgate.spark.source.payloads import check_json_type, decode_json

KIND = pa.struct(
    {
        "a": pa.string(),
        "b": pa.int64(),
        "c": pa.struct({"d": pa.float64()}),
        "l": pa.list_(pa.int64()),
    }
)
# Alone, or with what follows, each of these would shift its neighbours if they were only joined.
BROKEN = [
    b"", b"{", b"}", b"{half", b"{}{}", b'{"a":"x"}\n{"a":"y"}', b"null", b"[1]", b"5", b'"text"', b'{"a":"', b'"}',
    b'{"a":{', b"}}", b"1}{\"x\":2", b'{"a":"\xff"}', b'{"a":1}', b'{"b":"1"}', b'{"b":1.5}', b'{"b":99999999999999999999}',
    b'{"c":[]}', b'{"a":"\n"}', b"\x00", b'{"a":"x"}}', None,
]  # fmt: skip


def whole(rng: Random, n: int) -> tuple[bytes, dict[str, Any]]:
    fields: dict[str, Any] = {
        "a": rng.choice([f"text {n}", "}{", '"', "é", None]),
        "b": rng.choice([n, -n, None]),
        "c": rng.choice([{"d": n / 4}, {"d": None}, None]),
        "l": rng.choice([[], [1, n], None]),
    }
    more = {**fields, "extra": {"deep": [fields]}}
    text = json.dumps(more, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 1]))
    return text.encode(), fields


def test_a_payload_that_is_no_object_of_the_type_is_null_and_shifts_no_other(seed):
    rng = Random(seed)
    for _ in range(30):
        payloads: list[bytes | None] = []
        wanted: list[dict[str, Any] | None] = []
        for n in range(rng.randrange(1, 80)):
            if rng.random() < 0.3:
                payloads.append(rng.choice(BROKEN))
                wanted.append(None)
            else:
                text, fields = whole(rng, n)
                payloads.append(text)
                wanted.append(fields)
        found = decode_json(pa.array(payloads, pa.binary()), KIND)
        assert found.to_pylist() == wanted
        found.validate(full=True)


def test_an_object_followed_by_more_fields_shifts_no_other():
    payloads = [b'{"b":1}', b'{},"v":{}', b'{"b":3}']
    first, _, last = decode_json(pa.array(payloads, pa.binary()), KIND).to_pylist()
    assert (first["b"], last["b"]) == (1, 3)


def test_no_payloads_are_no_structs():
    assert decode_json(pa.array([], pa.binary()), KIND).type == KIND
    assert decode_json(pa.array([None, b""], pa.binary()), KIND).to_pylist() == [None, None]


def test_types_that_json_has_no_values_for_are_refused():
    for kind in (pa.timestamp("us"), pa.binary(), pa.list_(pa.decimal128(5))):
        with pytest.raises(SparkSchemaError, match="JSON cannot be decoded into"):
            check_json_type(pa.struct({"x": kind}))


def test_the_column_needs_the_option_and_is_not_written():
    schema = StructType().add("decoded", StructType().add("a", "string"))
    assert reading_columns(schema, decodes=True)[0].holds == "decoded"
    with pytest.raises(SparkSchemaError, match="must be struct"):
        reading_columns(StructType().add("decoded", "string"), decodes=True)
    for refuse in (reading_columns, writing_columns):
        with pytest.raises(SparkSchemaError, match="a header cannot be struct"):
            refuse(schema)
    with pytest.raises(SparkSchemaError, match="to read its fields, add"):
        reading_columns(StructType().add("payload", StructType().add("a", "string")))


def test_other_formats_and_a_schema_without_a_format_are_refused(tmp_path):
    from headgate.streams.stream import Stream

    Stream.create(tmp_path / "s").close()
    path = {"path": str(tmp_path / "s")}
    assert parse_stream_read({**path, "payload": "JSON"}).payload == "json"
    with pytest.raises(SparkOptionsError, match="from_avro"):
        parse_stream_read({**path, "payload": "avro"})
    with pytest.raises(SparkOptionsError, match="payloadSchema: add"):
        parse_stream_read({**path, "payloadSchema": "a string"})
