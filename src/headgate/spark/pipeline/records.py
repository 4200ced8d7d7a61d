"""Payloads of Avro and Protobuf -> a struct column, decoded batch by batch in Python: PySpark brings no jar for them.

A payload that cannot be decoded, or not as a whole, is null. Every named type that contains itself is refused: a column's type
is finite.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from datetime import UTC
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import pyarrow as pa

from headgate.errors import MissingExtra, SparkOptionsError

RecordDecoder: TypeAlias = Callable[[pa.Array], pa.Array]
_Schema = TypeVar("_Schema")
_UTC: Final = pa.timestamp("us", "UTC")


def avro_decoder(schema: str) -> tuple[pa.StructType, RecordDecoder]:
    """The columns of a record's schema, and the function that decodes payloads, which are the bare record without a header."""
    try:
        from fastavro.schema import SchemaParseException, UnknownType, expand_schema
    except ModuleNotFoundError:
        raise MissingExtra("payloads", "a payload of Avro") from None
    try:
        plain = _plain(json.loads(schema))
        whole = expand_schema(plain)
    except (KeyError, SchemaParseException, UnknownType) as problem:
        raise SparkOptionsError(f"this is no schema of Avro: {problem!r}") from None
    kind = _avro_type(whole, "the schema")
    if not pa.types.is_struct(kind):
        raise SparkOptionsError(
            "the schema is no record, so it has no fields that could be columns"
        )
    return kind, _decoder(_avro_reader, json.dumps(plain), kind)


def protobuf_decoder(schema: str) -> tuple[pa.StructType, RecordDecoder]:
    """The columns of a message, and the function that decodes payloads of it; `schema` is FILE.desc#package.Message."""
    file, _, name = schema.rpartition("#")
    try:
        message = _message_class(descriptors := Path(file).read_bytes(), name)
    except ModuleNotFoundError:
        raise MissingExtra("payloads", "a payload of Protobuf") from None
    except (KeyError, OSError, TypeError, ValueError) as problem:
        raise SparkOptionsError(f"{file} has no descriptor of {name!r}: {problem}") from None
    kind = _message_type(message.DESCRIPTOR, ())
    return kind, _decoder(_protobuf_reader, (descriptors, name), kind)


def _decoder(
    reader: Callable[[_Schema], Callable[[bytes], Any]], schema: _Schema, kind: pa.StructType
) -> RecordDecoder:
    def decode(payloads: pa.Array) -> pa.Array:  # Spark reads these annotations
        read = reader(schema)
        records = [_read_or_null(read, payload) for payload in payloads.to_pylist()]
        try:
            return pa.array(records, kind)
        except (pa.ArrowException, OverflowError):  # a value that its column cannot hold
            return pa.concat_arrays([_fitting(record, kind) for record in records])

    return decode


def _read_or_null(read: Callable[[bytes], Any], payload: bytes | None) -> Any:
    try:
        return None if payload is None else read(payload)
    except Exception:  # bytes of something else fail in many ways
        return None


def _fitting(record: Any, kind: pa.StructType) -> pa.Array:
    try:
        return pa.array([record], kind)
    except (pa.ArrowException, OverflowError):
        return pa.nulls(1, kind)


# ---- Avro --------------------------------------------------------------------------------------------

_AVRO_TYPES: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "bytes": pa.binary(), "fixed": pa.binary(), "string": pa.string(), "enum": pa.string(),
}  # fmt: skip
_LOGICAL_TYPES: Final[Mapping[str, pa.DataType]] = {
    "date": pa.date32(),
    "timestamp-millis": _UTC,
    "timestamp-micros": _UTC,
}
_WIDER: Final = (({"int", "long"}, "long"), ({"float", "double"}, "double"))


def _plain(schema: Any) -> Any:
    """Remove the logical types that are not decoded here from a schema; their values are those of the underlying type."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    known = (*_LOGICAL_TYPES, "decimal")
    return {
        key: _plain(value)
        for key, value in schema.items()
        if key != "logicalType" or value in known
    }


def _avro_type(schema: Any, where: str) -> pa.DataType:
    if isinstance(schema, list):
        return _union_type([one for one in schema if one != "null"], where)
    if isinstance(schema, str):
        schema = {"type": schema}
    logical = schema.get("logicalType")
    if logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    match logical or schema["type"]:
        case str(known) if known in _LOGICAL_TYPES or known in _AVRO_TYPES:
            return _LOGICAL_TYPES.get(known) or _AVRO_TYPES[known]
        case "record" if schema["fields"]:
            fields = schema["fields"]
            return pa.struct(
                [(one["name"], _avro_type(one["type"], one["name"])) for one in fields]
            )
        case "array":
            return pa.list_(_avro_type(schema["items"], where))
        case "map":
            return pa.map_(pa.string(), _avro_type(schema["values"], where))
        case dict() | list() as inner:
            return _avro_type(inner, where)
        case other:
            raise SparkOptionsError(f"{where}: {other!r} cannot be a column; {_LEFT_OUT}")


_LEFT_OUT: Final = "types without values and types that contain themselves are not supported"


def _union_type(kinds: list[Any], where: str) -> pa.DataType:
    if len(kinds) == 1:
        return _avro_type(kinds[0], where)
    for together, wide in _WIDER:
        if kinds and all(isinstance(one, str) and one in together for one in kinds):
            return _AVRO_TYPES[wide]
    raise SparkOptionsError(f"{where}: a union of several types cannot be a column")


@cache
def _avro_reader(schema: str) -> Callable[[bytes], Any]:
    from fastavro import parse_schema, schemaless_reader

    parsed = parse_schema(json.loads(schema))

    def read(payload: bytes) -> Any:
        record = schemaless_reader(source := io.BytesIO(payload), parsed, None)
        if source.read(1):
            raise ValueError("the payload goes on after the record")
        return record

    return read


# ---- Protobuf ----------------------------------------------------------------------------------------

_PROTOBUF_TYPES: Final[Mapping[str, pa.DataType]] = {
    "DOUBLE": pa.float64(), "FLOAT": pa.float32(), "BOOL": pa.bool_(), "STRING": pa.string(), "BYTES": pa.binary(),
    "INT32": pa.int32(), "SINT32": pa.int32(), "SFIXED32": pa.int32(), "UINT32": pa.int64(), "FIXED32": pa.int64(),
    "INT64": pa.int64(), "SINT64": pa.int64(), "SFIXED64": pa.int64(), "UINT64": pa.int64(), "FIXED64": pa.int64(),
    "ENUM": pa.string(),
}  # fmt: skip
_TIMESTAMP: Final = "google.protobuf.Timestamp"


def _message_class(descriptors: bytes, name: str) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file
    except message.DecodeError as problem:
        raise ValueError(f"it is no descriptor set ({problem})") from None
    pool = descriptor_pool.DescriptorPool()
    for file in files:  # protoc writes imports first
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def _message_type(message: Any, outer: tuple[str, ...]) -> pa.StructType:
    if message.full_name in outer or not message.fields:
        raise SparkOptionsError(f"{message.full_name} cannot be a column; {_LEFT_OUT}")
    inside = (*outer, message.full_name)
    return pa.struct([(field.name, _field_type(field, inside)) for field in message.fields])


def _field_type(field: Any, outer: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return pa.map_(_value_type(key, outer), _value_type(value, outer))
    kind = _value_type(field, outer)
    return pa.list_(kind) if field.is_repeated else kind


def _value_type(field: Any, outer: tuple[str, ...]) -> pa.DataType:
    if field.message_type is None:
        return _PROTOBUF_TYPES[_wire_types()[field.type]]
    is_time = field.message_type.full_name == _TIMESTAMP
    return _UTC if is_time else _message_type(field.message_type, outer)


@cache
def _wire_types() -> dict[int, str]:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    return {
        number: name.removeprefix("TYPE_") for name, number in FieldDescriptorProto.Type.items()
    }


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


@cache
def _protobuf_reader(schema: tuple[bytes, str]) -> Callable[[bytes], Any]:
    message = _message_class(*schema)
    return lambda payload: _fields(message.FromString(payload))


def _fields(message: Any) -> dict[str, Any]:
    """The fields by name. One that is not set is null, or its default if the message does not record whether it is set."""
    return {
        field.name: None
        if field.has_presence and not message.HasField(field.name)
        else _field_value(field, getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
    }


def _field_value(field: Any, value: Any) -> Any:
    if _is_map(field):
        of_value = field.message_type.fields_by_name["value"]
        return [(key, _single(of_value, one)) for key, one in value.items()]
    if field.is_repeated:
        return [_single(field, one) for one in value]
    return _single(field, value)


def _single(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.message_type is None:
        return value
    if field.message_type.full_name == _TIMESTAMP:
        return value.ToDatetime(UTC)
    return _fields(value)
