"""Payloads of Avro and Protobuf: what was written is what is read, and a broken payload spoils no other."""

from __future__ import annotations

import io
import json
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from headgate.errors import HeadgateError, MissingExtra
from headgate.message import Message
from headgate.pipelines.account import Account
from headgate.pipelines.file import read_pipeline
from headgate.spark.pipeline.records import _message_class, avro_decoder, protobuf_decoder
from headgate.spark.pipeline.run import follow, start
from headgate.streams.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": ["null", "long"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "paid", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}},
        {"name": "at", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "next", "type": ["null", "State"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": ["int", "long"]}},
        {"name": "at_home", "type": {"type": "record", "name": "A", "fields": [{"name": "zip", "type": "int"}]}},
    ],
}  # fmt: skip
WHOLE: dict[str, Any] = {
    "customer": "ada",
    "amount": 7,
    "state": "PAID",
    "paid": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "day": date(2026, 1, 2),
    "price": Decimal("12.50"),
    "at": 250,
    "next": "NEW",
    "tags": ["a", "é"],
    "counts": {"x": 3},
    "at_home": {"zip": 1010},
}
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def written(record: dict[str, Any], schema: dict[str, Any] = ORDER) -> bytes:
    from fastavro import parse_schema, schemaless_writer

    place = io.BytesIO()
    schemaless_writer(place, parse_schema(schema), record)
    return place.getvalue()


def described(folder: Path) -> Path:
    """A descriptor set as protoc --include_imports writes it."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="PAID", number=1)
    line = file.message_type.add(name="Line")
    line.field.add(name="sku", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")

    def add(name: str, type_: int, repeated: bool = False, **more: Any) -> None:
        label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
        order.field.add(name=name, number=len(order.field) + 1, type=type_, label=label, **more)

    add("customer", field.TYPE_STRING)
    add("amount", field.TYPE_INT64)
    add("serial", field.TYPE_UINT64)
    add("note", field.TYPE_STRING, proto3_optional=True, oneof_index=0)
    order.oneof_decl.add(name="_note")
    add("state", field.TYPE_ENUM, type_name=".shop.State")
    add("paid", field.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp")
    add("lines", field.TYPE_MESSAGE, repeated=True, type_name=".shop.Line")
    entry = order.nested_type.add(name="StockEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=field.TYPE_SINT32, label=field.LABEL_OPTIONAL)
    add("stock", field.TYPE_MESSAGE, repeated=True, type_name=".shop.Order.StockEntry")
    tree = file.message_type.add(name="Tree")
    tree.field.add(
        name="up", number=1, type=field.TYPE_MESSAGE, label=field.LABEL_OPTIONAL, type_name=".shop.Tree"
    )  # fmt: skip
    imported = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(imported)
    path = folder / "shop.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[imported, file]).SerializeToString())
    return path


def ordered(path: Path, **fields: Any) -> bytes:
    return _message_class(path.read_bytes(), "shop.Order")(**fields).SerializeToString()


def test_avro_is_read_as_it_was_written_and_a_broken_payload_is_null():
    kind, decode = avro_decoder(json.dumps(ORDER))
    empty = {**WHOLE, "amount": None, "next": None, "tags": [], "counts": {}}
    too_wide = {**ORDER, "fields": [dict(field) for field in ORDER["fields"]]}
    too_wide["fields"][5]["type"] = {**ORDER["fields"][5]["type"], "precision": 9}
    payloads = [
        written(WHOLE), None, b"", b"\xff" * 30, written(WHOLE)[:-1], written(WHOLE) + b"x",
        written({**WHOLE, "price": Decimal("1234567.25")}, too_wide), written(empty),
    ]  # fmt: skip
    found = decode(pa.array(payloads, pa.binary()))
    assert found.type == kind
    first, *broken, last = found.to_pylist(maps_as_pydicts="strict")
    assert (first, last) == (WHOLE, empty)
    assert broken == [None] * 6


def test_protobuf_is_read_as_it_was_written_and_a_broken_payload_is_null(tmp_path: Path):
    file = described(tmp_path)
    kind, decode = protobuf_decoder(f"{file}#shop.Order")
    stamp = timestamp_pb2.Timestamp()
    stamp.FromDatetime(NOON)
    whole = ordered(
        file, customer="ada", amount=-7, serial=2**63 - 1, note="", state=1,
        paid={"seconds": stamp.seconds}, lines=[{"sku": "a"}, {"sku": "b"}], stock={"x": -3},
    )  # fmt: skip
    payloads = [whole, None, b"\xff", whole[:-1], ordered(file, serial=2**63), b"", ordered(file, state=9)]  # fmt: skip
    found = decode(pa.array(payloads, pa.binary()))
    assert found.type == kind
    first, *broken, defaults, unknown = found.to_pylist(maps_as_pydicts="strict")
    assert first == {
        "customer": "ada", "amount": -7, "serial": 2**63 - 1, "note": "", "state": "PAID", "paid": NOON,
        "lines": [{"sku": "a"}, {"sku": "b"}], "stock": {"x": -3},
    }  # fmt: skip
    assert broken == [None] * 4
    assert (defaults["amount"], defaults["note"], defaults["paid"]) == (0, None, None)
    assert unknown["state"] == "9"


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ('{"type": "long"}', "no record"),
        ('{"type": "record", "name": "R"}', "the schema: 'record' cannot be a column"),
        ('{"type": "record", "name": "R", "fields": [{"name": "x", "type": "Oops"}]}', "no schema of Avro"),
        ('{"type": "record", "name": "R", "fields": [{"name": "x", "type": ["int", "string"]}]}', "x: a union"),
        ('{"type": "record", "name": "R", "fields": [{"name": "x", "type": ["null", "R"]}]}', "x: 'R' cannot"),
        ('{"type": "record", "name": "R", "fields": [{"name": "x", "type": {"type": "array", "items": "null"}}]}', "x: 'null'"),
    ],
)  # fmt: skip
def test_a_schema_of_avro_that_has_no_columns_is_refused_with_its_field(schema: str, problem: str):
    with pytest.raises(HeadgateError, match=problem):
        avro_decoder(schema)


def test_a_message_of_protobuf_that_has_no_columns_is_refused_by_name(tmp_path: Path):
    file = described(tmp_path)
    (tmp_path / "text.desc").write_text("message Order {}")
    for schema, problem in (
        (f"{file}#shop.Tree", "shop.Tree cannot be a column"),
        (f"{file}#shop.Odrer", "no descriptor of 'shop.Odrer'"),
        (f"{tmp_path}/text.desc#shop.Order", "it is no descriptor set"),
    ):
        with pytest.raises(HeadgateError, match=problem):
            protobuf_decoder(schema)


def test_a_missing_package_is_named_with_the_line_that_installs_it(tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fastavro.schema", None)
    with pytest.raises(
        MissingExtra, match=r"Avro needs an extra: pip install 'headgate\[payloads\]'"
    ):
        avro_decoder(json.dumps(ORDER))
    file = described(tmp_path)
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(MissingExtra, match=r"Protobuf needs an extra: pip install 'headgate\[pay"):
        protobuf_decoder(f"{file}#shop.Order")


@pytest.mark.spark
@pytest.mark.parametrize("format", ["avro", "protobuf"])
def test_a_pipeline_filters_and_routes_by_fields_of_the_payload(
    tmp_path: Path, spark: SparkSession, format: str
) -> None:
    file = described(tmp_path)
    fields = [{"customer": name, "amount": n} for n, name in enumerate(["ada", "bob", "eve"])]
    if format == "avro":
        (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
        schema, payloads = "order.avsc", [written({**WHOLE, **one}) for one in fields]
    else:
        schema, payloads = "shop.desc#shop.Order", [ordered(file, **one) for one in fields]
    with Stream.create(tmp_path / "events") as stream, stream.producer() as producer:
        for payload in [*payloads, b"\xff"]:
            producer.publish(Message(payload, headers={"region": "EU"}))
    text = f"""
        [source]
        stream = "events"
        payload = "{format}"
        payload_schema = "{schema}"
        filter = "amount >= 1"
        [[step]]
        sql = "SELECT headers, payload, customer, amount, state FROM messages"
        [exchange]
        type = "filter"
        [[binding]]
        queue = "large"
        filter = "amount > 1 AND region = 'EU'"
        [[sink]]
        queue = "large"
        to = "stream:large"
        [dead_letter]
        to = "stream:dead"
    """
    (tmp_path / "p.toml").write_text(dedent(text))
    pipeline = read_pipeline(tmp_path / "p.toml")
    account = Account(pipeline.name)
    for _ in follow(start(pipeline, spark, "once"), account, lambda: False, poll_s=0.02):
        pass
    with Stream.open(tmp_path / "large") as large, Stream.open(tmp_path / "dead") as dead:
        [found] = large.consume()
        lost = {message.payload: "malformed" in message.headers for message in dead.consume()}
    state = "PAID" if format == "avro" else "NEW"
    assert dict(found.headers) == {"region": "EU", "customer": "eve", "amount": 2, "state": state}
    assert found.payload == payloads[2]
    assert lost == {payloads[1]: False, b"\xff": True}
