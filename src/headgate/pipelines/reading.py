"""The keys of a pipeline file that say what becomes of rows between the source and the exchange.

[source]    payload = "json", payload_schema = "customer string, amount double"
            payload = "avro", payload_schema = "order.avsc"; payload = "protobuf", payload_schema = "order.desc#shop.Order"
            casts = { amount = "double" }
            schema = "region string, amount long": of a stream or queue, headers as columns for the steps
[[step]]    sql = "SELECT … FROM messages", watermark = "timestamp 10 minutes"
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from headgate.pipelines.definition import (
    MALFORMED,
    FormatSource,
    PayloadColumns,
    Reading,
    Source,
    SqlStep,
)
from headgate.pipelines.places import absolute_path
from headgate.pipelines.tables import Problems, TomlTable

READING_KEYS: Final = ("payload", "payload_schema", "casts")
PAYLOADS: Final = ("json", "avro", "protobuf")
_EXAMPLES: Final = {
    "json": '"customer string, amount double"',
    "avro": '"order.avsc"',
    "protobuf": '"order.desc#shop.Order"',
}


def read_reading(
    document: dict[str, Any], base: Path, problems: Problems, source: Source | None
) -> Reading:
    """Read what becomes of rows between the source and the exchange."""
    values = document.get("source", {})
    table = TomlTable(values if isinstance(values, dict) else {}, "[source]", problems)
    steps = document.get("step", [])
    if not isinstance(steps, list):
        problems.add("[[step]]", "write it with two brackets: [[step]]")
        steps = []
    casts = table.table("casts")
    return Reading(
        None if isinstance(source, FormatSource) else table.text("schema"),
        _payload(table, base),
        tuple((column, casts.text(column) or "") for column in casts.values),
        tuple(_step(TomlTable(one, f"[[step]] {n}", problems)) for n, one in enumerate(steps, 1)),
        None if isinstance(source, FormatSource) else _malformed(table),
    )


def _malformed(table: TomlTable) -> str | None:
    """Read what to do with payloads of a stream or queue that cannot be decoded."""
    policy = table.text("malformed")
    if policy is not None and "payload" not in table:
        table.add_problem('malformed is for payloads that are decoded: add payload = "json"')
    elif policy is not None and policy not in MALFORMED:
        table.add_problem(f"malformed is one of {', '.join(MALFORMED)}, not {policy!r}")
    return policy


def _payload(table: TomlTable, base: Path) -> PayloadColumns | None:
    format, schema = table.text("payload"), table.text("payload_schema")
    if format is None:
        if schema is not None:
            table.add_problem('payload_schema needs payload = "json", "avro" or "protobuf"')
        return None
    if format not in PAYLOADS:
        table.add_problem(f"payload is one of {', '.join(PAYLOADS)}, not {format!r}")
        return None
    if schema is None:
        table.add_problem(f"payload_schema is missing; add payload_schema = {_EXAMPLES[format]}")
        return None
    return PayloadColumns(format, _schema_text(table, format, schema, base))  # type: ignore[arg-type]


def _schema_text(table: TomlTable, format: str, schema: str, base: Path) -> str:
    """Return the schema: of Avro the text, also from a file; of Protobuf the absolute path of the file, which Spark reads."""
    if format == "avro" and not schema.lstrip().startswith(("{", '"', "[")):
        try:
            schema = Path(absolute_path(schema, base)).read_text("utf-8")
        except (OSError, ValueError) as problem:
            table.add_problem(f"payload_schema: the file cannot be read: {problem}")
            return ""
    if format == "avro":
        try:
            json.loads(schema)
        except ValueError as problem:
            table.add_problem(f"payload_schema: this is no schema of Avro: {problem}")
    if format == "protobuf":
        file, _, message = schema.partition("#")
        if not message:
            table.add_problem(
                f"payload_schema: name the message after the file: {_EXAMPLES['protobuf']}, not {schema!r}"
            )
        elif not Path(path := absolute_path(file, base)).is_file():
            table.add_problem(
                f"payload_schema: there is no file {path}; make it with protoc --descriptor_set_out"
            )
        return f"{absolute_path(file, base)}#{message}"
    return schema


def _step(table: TomlTable) -> SqlStep:
    table.allow_only("sql", "watermark")
    sql = table.required_text("sql", '"SELECT *, amount * 2 AS twice FROM messages"')
    text = table.text("watermark")
    if text is None:
        return SqlStep(sql)
    column, _, delay = text.strip().partition(" ")
    if not delay:
        table.add_problem(
            f'watermark is a column and a delay: "timestamp 10 minutes", not {text!r}'
        )
    return SqlStep(sql, (column, delay.strip()))
