"""What the columns of a Spark schema mean: system fields by their names, anything else a header.

    offset bigint                        the position of the message; the sink ignores it
    timestamp timestamp | bigint         when it was published; a bigint is microseconds since 1970 UTC
    topic, id, filter_value, key string  priority int | bigint | smallint         payload binary
    _stream string                       the directory of the stream, or the queue, the message is from; the sink
                                         ignores it
    _state, _group, _reason string       of a queue only: ready, delayed, …; the group; why it is dead
    _attempts int                        of a queue only: how often it was claimed; the sink makes headers of these
    headers map<string, struct<s: string, i: bigint, f: double, b: boolean>>      every header with its type; a value
                                         that no filter can compare is an entry of four nulls
    headers map<string, string>          every header as text
    properties                           the AMQP properties, like headers
    `h.s.region` string, `p.i.group_sequence` bigint, …    one kind of one header or property, by its full name
    decoded struct<…>                    with the option `payload`: the fields of the payload; the sink has no such column
    anything else                        the header of that name: string, bigint, int, smallint, tinyint, double,
                                         float or boolean

A header of another kind than its column is null, and so is an integer that does not fit into its column; a double or
float column takes integers too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import pyarrow as pa

from headgate.columns import OVERFLOW, column_name, header_of, is_typed_name, parse_column_name
from headgate.errors import InvalidMessage, SparkSchemaError
from headgate.filters import SYS_KINDS, Field, Scope, View
from headgate.message import PROPERTY_NAMES, SYSTEM_FIELDS, check_header_name

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

STREAM: Final = "_stream"
DECODED: Final = "decoded"
VALUES: Final = "map<string,struct<s:string,i:bigint,f:double,b:boolean>>"
TEXTS: Final = "map<string,string>"
# The types that hold each field of a message, the default type first.
FIELD_TYPES: Final[dict[str, tuple[str, ...]]] = {
    "timestamp": ("timestamp", "bigint"),
    **{
        field.name: ("string",) if field.kind == "string" else ("int", "bigint", "smallint")
        for field in SYSTEM_FIELDS
        if field.name != "timestamp"
    },
}
_FIELDS: Final = ", ".join(f"{name} {types[0]}" for name, types in FIELD_TYPES.items())
LOSSLESS: Final = f"offset bigint, {_FIELDS}, headers {VALUES}, properties {VALUES}, payload binary"
TEXTUAL: Final = f"offset bigint, {_FIELDS}, headers {TEXTS}, properties {TEXTS}, payload binary"

ColumnContent: TypeAlias = Literal[
    "offset", "stream", "standing", "system", "field", "values", "texts", "decoded"
]

_SYSTEM_TYPES: Final[dict[str, tuple[str, ...]]] = {
    "offset": ("bigint",),
    STREAM: ("string",),
    **FIELD_TYPES,
    "payload": ("binary",),
}
# The state of a message in a queue. In a stream, these are names of headers like any others.
STANDING: Final[dict[str, tuple[str, ...]]] = {
    "_state": ("string",),
    "_attempts": ("int",),
    "_group": ("string",),
    "_reason": ("string",),
}
_ALWAYS_THERE: Final = frozenset(
    {"offset", STREAM, "timestamp", "payload", "_state", "_attempts"}
    | {field.name for field in SYSTEM_FIELDS if field.required}
)
_MAPS: Final[dict[str, Scope]] = {"headers": "header", "properties": "property"}
_VIEWS_OF_TYPE: Final[dict[str, tuple[View, ...]]] = {
    "string": ("string",),
    "bigint": ("int",),
    "int": ("int",),
    "smallint": ("int",),
    "tinyint": ("int",),
    "double": ("float", "int"),
    "float": ("float", "int"),
    "boolean": ("bool",),
}
_TYPE_OF_VIEW: Final[dict[View, str]] = {
    "string": "string",
    "int": "bigint",
    "float": "double",
    "bool": "boolean",
    "opaque": "boolean",
}


@dataclass(frozen=True, slots=True)
class SchemaColumn:
    """One column of a Spark schema and what it means."""

    name: str
    holds: ColumnContent
    type: str  # as Spark writes it
    nullable: bool = True
    field: Field | None = None  # the field of filters that it shows
    views: tuple[View, ...] = ()  # the kinds of values that it shows
    scope: Scope = "header"  # of a map


def reading_columns(schema: StructType, *, decodes: bool = False) -> tuple[SchemaColumn, ...]:
    """Parse the columns of a schema that is read from streams, and refuse those that cannot be filled."""
    return _check_nullable(_columns(schema, decodes=decodes))


def queue_columns(schema: StructType) -> tuple[SchemaColumn, ...]:
    """Parse the columns of a schema that is read from a queue, and refuse those that cannot be filled."""
    return _check_nullable(_columns(schema, {**_SYSTEM_TYPES, **STANDING}))


def _check_nullable(columns: tuple[SchemaColumn, ...]) -> tuple[SchemaColumn, ...]:
    for column in columns:
        if not column.nullable and _may_be_absent(column):
            raise SparkSchemaError(column.name, "messages may lack it: leave out NOT NULL")
    return columns


def _may_be_absent(column: SchemaColumn) -> bool:
    """Whether a message may lack the column's value, as it may lack any header; in a stream, `_state` is a header too."""
    if column.holds in ("standing", "system"):
        return column.name not in _ALWAYS_THERE
    return column.holds in ("field", "decoded")


def writing_columns(schema: StructType) -> tuple[SchemaColumn, ...]:
    """Parse the columns of a schema that is written, and refuse those that cannot be stored."""
    return _columns(schema, {**_SYSTEM_TYPES, "payload": ("binary", "string")})


def _columns(
    schema: StructType,
    system: dict[str, tuple[str, ...]] = _SYSTEM_TYPES,
    *,
    decodes: bool = False,
) -> tuple[SchemaColumn, ...]:
    if not len(schema):
        raise SparkSchemaError("", "a schema needs at least one column")
    columns = tuple(
        _decoded_column(field)
        if decodes and field.name == DECODED
        else _column(*_parts_of(field), system)
        for field in schema
    )
    names = [column.name for column in columns]
    if len(set(names)) < len(names):
        raise SparkSchemaError(max(names, key=names.count), "occurs twice")
    return columns


def _parts_of(field: StructField) -> tuple[str, str, bool]:
    return field.name, field.dataType.simpleString(), field.nullable


def _decoded_column(field: StructField) -> SchemaColumn:
    name, type_, nullable = _parts_of(field)
    if not type_.startswith("struct<"):
        raise SparkSchemaError(
            name, f"must be struct<…> with the fields of the payload, not {type_}"
        )
    return SchemaColumn(name, "decoded", type_, nullable)


def table_columns(columns: Iterable[tuple[str, str]]) -> tuple[SchemaColumn, ...]:
    """Parse the columns of a table's layout, given by names and types, and refuse invalid ones."""
    return tuple(_column(name, type_, True, _SYSTEM_TYPES) for name, type_ in columns)


def _column(
    name: str, type_: str, nullable: bool, system: dict[str, tuple[str, ...]]
) -> SchemaColumn:
    if name in system:
        _require_type(name, type_, system[name])
        known = Field("sys", name) if name in SYS_KINDS else None
        return SchemaColumn(name, _holds(name), type_, nullable, known)
    if name in _MAPS:
        _require_type(name, type_, (VALUES, TEXTS))
        holds: ColumnContent = "values" if type_ == VALUES else "texts"
        return SchemaColumn(name, holds, type_, nullable, scope=_MAPS[name])
    return _field_column(name, type_, nullable)


def _holds(name: str) -> ColumnContent:
    if name in STANDING:
        return "standing"
    return "offset" if name == "offset" else "stream" if name == STREAM else "system"


def _field_column(name: str, type_: str, nullable: bool) -> SchemaColumn:
    if _is_full_name(name):
        return _typed_column(name, type_, nullable)
    views = _VIEWS_OF_TYPE.get(_base(type_))
    if views is None:
        raise SparkSchemaError(
            name,
            f"a header cannot be {type_}; cast it to one of {', '.join(_VIEWS_OF_TYPE)}",
        )
    try:
        check_header_name(name)
    except InvalidMessage as problem:
        raise SparkSchemaError(name, str(problem)) from None
    return SchemaColumn(name, "field", type_, nullable, Field("header", name), views)


def _is_full_name(name: str) -> bool:
    return is_typed_name(name) and header_of(name) != ""


def _typed_column(name: str, type_: str, nullable: bool) -> SchemaColumn:
    field, view = parse_column_name(name)
    assert field is not None
    assert view is not None
    if field.scope == "property" and field.name not in PROPERTY_NAMES:
        raise SparkSchemaError(name, f"{field.name!r} is not an AMQP property; use a header")
    _require_type(name, type_, (_TYPE_OF_VIEW[view],))
    return SchemaColumn(name, "field", type_, nullable, field, (view,))


def _base(type_: str) -> str:
    return type_.split(" collate ")[0]


def _require_type(name: str, type_: str, allowed: Sequence[str]) -> None:
    if _base(type_) not in allowed:
        if name == "payload" and type_.startswith("struct<"):
            raise SparkSchemaError(
                name,
                f'is bytes; to read its fields, add .option("payload", "json") and the column decoded {type_}',
            )
        raise SparkSchemaError(
            name,
            f"must be {' or '.join(allowed)}, not {type_}, for a column of that name is a part of a message; cast it, or "
            "give the column another name",
        )


# ---- columns of the stream ---------------------------------------------------------------------------


def stream_columns(columns: Iterable[SchemaColumn]) -> tuple[str, ...] | None:
    """The columns of the stream that must be read to fill these; None for all."""
    columns = tuple(columns)
    if any(column.holds in ("values", "texts") for column in columns):
        return None
    return tuple(dict.fromkeys(name for column in columns for name in _sources(column)))


def _sources(column: SchemaColumn) -> Iterator[str]:
    if column.holds == "system":
        yield column.name
    if column.holds == "decoded":
        yield "payload"
    if column.field is not None and column.holds == "field":
        yield from (column_name(column.field, view) for view in column.views)
        if column.field.scope == "header":
            yield OVERFLOW


def arrow_schema(schema: StructType) -> pa.Schema:
    """The exact Arrow types that Spark expects."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
