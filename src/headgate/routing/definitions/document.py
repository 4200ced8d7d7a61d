"""What a file says about a topology, and how it writes AMQP values.

Values that TOML and JSON cannot express are written as a table with one key: `{"$void": true}`,
`{"$bytes": "base64"}`, `{"$decimal": "1.50"}`, `{"$timestamp": seconds}`. A table that only looks like one
of these is wrapped in `{"$table": …}`.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, TypeAlias

from headgate.errors import RoutingError, TopologyError

Located: TypeAlias = tuple[str, dict[str, Any]]  # where an entry was written, and its arguments

SWITCHES: Final = frozenset({"durable", "auto_delete", "internal"})
_COLLECTIONS: Final = frozenset({"arguments", "headers", "present"})
_TAGS: Final = frozenset({"$void", "$bytes", "$decimal", "$timestamp", "$table"})


@dataclass(frozen=True, slots=True)
class Definitions:
    """The arguments of every declaration and every `bind`, with where in the file each was written."""

    exchanges: list[Located] = field(default_factory=list)
    queues: list[Located] = field(default_factory=list)
    bindings: list[Located] = field(default_factory=list)


def encode_value(value: Any) -> Any:
    """Express an AMQP value in the types that TOML and JSON share."""
    match value:
        case None:
            return {"$void": True}
        case bytes():
            return {"$bytes": b64encode(value).decode()}
        case Decimal():
            return {"$decimal": str(value)}
        case datetime():
            return {"$timestamp": int(value.timestamp())}
        case list():
            return [encode_value(part) for part in value]
        case dict():
            table = {name: encode_value(part) for name, part in value.items()}
            return {"$table": table} if _is_tagged(table) else table
        case _:
            return value


def decode_value(value: Any, where: str) -> Any:
    """Read a value that `encode_value` wrote; `where` names the entry in an error."""
    match value:
        case dict() if _is_tagged(value):
            return _decode_tagged(*next(iter(value.items())), where)
        case dict():
            return decode_table(value, where)
        case list():
            return [decode_value(part, where) for part in value]
        case _:
            return value


def decode_table(value: Any, where: str) -> dict[str, Any]:
    """Read a table of values; its own keys are no tags."""
    if not isinstance(value, dict):
        raise TopologyError(f"{where}: expected a table, not {value!r}")
    return {name: decode_value(part, where) for name, part in value.items()}


def _is_tagged(table: Mapping[str, Any]) -> bool:
    return len(table) == 1 and table.keys() <= _TAGS


def _decode_tagged(tag: str, value: Any, where: str) -> Any:
    decode: dict[str, Callable[[Any], Any]] = {
        "$void": lambda _: None,
        "$bytes": b64decode,
        "$decimal": Decimal,
        "$timestamp": lambda seconds: datetime.fromtimestamp(seconds, UTC),
        "$table": lambda table: decode_table(table, where),
    }
    try:
        return decode[tag](value)
    except (TypeError, ValueError, ArithmeticError) as problem:
        raise TopologyError(
            f"{where}: {{{tag!r}: {value!r}}} cannot be read: {problem}"
        ) from problem


def check_keys(entry: Any, keys: frozenset[str], where: str) -> None:
    """Refuse an entry that is no table, and unknown keys: most of them are misspelt."""
    if not isinstance(entry, dict):
        raise TopologyError(f"{where}: expected a table, not {entry!r}")
    unknown = sorted(entry.keys() - keys)
    if unknown:
        raise TopologyError(
            f"{where}: does not know {unknown[0]!r}; it knows {', '.join(sorted(keys))}"
        )


def check_types(entry: Mapping[str, Any], switches: frozenset[str], where: str) -> None:
    """Refuse a switch that is neither true nor false, and any other value that is no text. What is a table or a list is checked where it is read."""
    for key, value in entry.items():
        if key in switches and not isinstance(value, bool):
            raise TopologyError(f"{where}: {key} is true or false, not {value!r}")
        allowed = str | dict | list if key in _COLLECTIONS else str
        if key not in switches and not isinstance(value, allowed):
            raise TopologyError(f"{where}: {key} is text, not {value!r}")


def read_tables(document: Mapping[str, Any], part: str) -> list[Any]:
    """A list of tables of the document; empty when the document has no such part."""
    tables = document.get(part, [])
    if not isinstance(tables, list) or not all(isinstance(entry, dict) for entry in tables):
        raise TopologyError(f"{part}: expected a list of tables, not {tables!r}")
    return tables


def perform_all(step: Callable[..., object], entries: list[Located]) -> None:
    """Perform a step for each entry; one that is refused is named."""
    for where, keywords in entries:
        try:
            step(**keywords)
        except (RoutingError, TypeError) as problem:
            raise TopologyError(f"{where}: {problem}") from problem
