"""What a file says of a topology, and the values it says it with.

Values that TOML or JSON has no words for are written as a table with one key: `{"$void": true}`,
`{"$bytes": "base64"}`, `{"$decimal": "1.50"}`, `{"$timestamp": seconds}`. A table that only looks like one
of these is wrapped in `{"$table": …}`.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from headgate.errors import TopologyError

SWITCHES: Final = frozenset({"durable", "auto_delete", "internal"})
_TAGS: Final = ("$void", "$bytes", "$decimal", "$timestamp", "$table")


@dataclass(frozen=True, slots=True)
class Definitions:
    """The arguments of every declaration and every bind, with where in the file each was said."""

    exchanges: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    queues: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    bindings: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


def encoded(value: Any) -> Any:
    """A value in the words TOML and JSON share."""
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
            return [encoded(part) for part in value]
        case dict():
            table = {name: encoded(part) for name, part in value.items()}
            return {"$table": table} if len(table) == 1 and set(table) <= set(_TAGS) else table
        case _:
            return value


def decoded(value: Any, where: str) -> Any:
    """The value that was written; `where` names the entry in a complaint."""
    match value:
        case dict() if len(value) == 1 and set(value) <= set(_TAGS):
            return _decode_tagged(*next(iter(value.items())), where)
        case dict():
            return {name: decoded(part, where) for name, part in value.items()}
        case list():
            return [decoded(part, where) for part in value]
        case _:
            return value


def decoded_table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TopologyError(f"{where}: expected a table, not {value!r}")
    return {name: decoded(part, where) for name, part in value.items()}


def _decode_tagged(tag: str, value: Any, where: str) -> Any:
    decode: dict[str, Callable[[Any], Any]] = {
        "$void": lambda _: None,
        "$bytes": b64decode,
        "$decimal": Decimal,
        "$timestamp": lambda seconds: datetime.fromtimestamp(seconds, UTC),
        "$table": lambda table: decoded_table(table, where),
    }
    try:
        return decode[tag](value)
    except (TypeError, ValueError, ArithmeticError) as problem:
        raise TopologyError(
            f"{where}: {{{tag!r}: {value!r}}} cannot be read: {problem}"
        ) from problem


def only(entry: Any, keys: frozenset[str], where: str) -> None:
    """Refuse what is no table, and keys nobody reads: they are misspelt more often than not."""
    if not isinstance(entry, dict):
        raise TopologyError(f"{where}: expected a table, not {entry!r}")
    unknown = sorted(entry.keys() - keys)
    if unknown:
        raise TopologyError(
            f"{where}: does not know {unknown[0]!r}; it knows {', '.join(sorted(keys))}"
        )


def text_or_switch(entry: Mapping[str, Any], switches: frozenset[str], where: str) -> None:
    """Refuse a name that is no text, and a switch that is neither true nor false."""
    for key, value in entry.items():
        if key in switches and not isinstance(value, bool):
            raise TopologyError(f"{where}: {key} is true or false, not {value!r}")
        if key not in switches and not isinstance(value, str | dict | list):
            raise TopologyError(f"{where}: {key} is text, not {value!r}")


def entries(document: Mapping[str, Any], part: str) -> list[Any]:
    """A list of tables; empty when it is not there."""
    found = document.get(part, [])
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise TopologyError(f"{part}: expected a list of tables, not {found!r}")
    return found
