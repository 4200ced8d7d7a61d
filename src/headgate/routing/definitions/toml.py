"""Headgate's own format of a topology: TOML, to be written by hand."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import tomli_w

from headgate.errors import TopologyError
from headgate.routing.bindings import X_FILTER, X_MATCH
from headgate.routing.definitions.document import (
    SWITCHES,
    Definitions,
    check_keys,
    check_types,
    decode_table,
    encode_value,
    read_tables,
)

EXCHANGE_KEYS: Final = frozenset(
    {"type", "durable", "auto_delete", "internal", "alternate", "arguments"}
)
_QUEUE_KEYS: Final = frozenset({"durable", "auto_delete", "arguments"})
_BINDING_KEYS: Final = frozenset(
    {"from", "queue", "exchange", "key", "match", "headers", "present", "filter", "arguments"}
)


def from_toml(text: str) -> Definitions:
    """Read definitions from TOML text."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as problem:
        raise TopologyError(f"this is not TOML: {problem}") from problem
    check_keys(document, frozenset({"exchanges", "queues", "bindings"}), "the file")
    definitions = Definitions()
    for name, entry in _named_tables(document, "exchanges"):
        where = f"exchange {name!r}"
        arguments = read_declaration(entry, EXCHANGE_KEYS, where)
        definitions.exchanges.append((where, {"name": name, **arguments}))
    for name, entry in _named_tables(document, "queues"):
        where = f"queue {name!r}"
        arguments = read_declaration(entry, _QUEUE_KEYS, where)
        definitions.queues.append((where, {"name": name, **arguments}))
    for number, entry in enumerate(read_tables(document, "bindings"), 1):
        where = f"binding {number}"
        definitions.bindings.append((where, read_binding(entry, where)))
    return definitions


def to_toml(definitions: Definitions) -> str:
    """Write definitions as TOML text."""
    document = {
        "exchanges": {
            keywords["name"]: _declaration_table(keywords) for _, keywords in definitions.exchanges
        },
        "queues": {
            keywords["name"]: _declaration_table(keywords) for _, keywords in definitions.queues
        },
        "bindings": [_binding_table(keywords) for _, keywords in definitions.bindings],
    }
    return tomli_w.dumps({name: part for name, part in document.items() if part})


def read_declaration(entry: Any, keys: frozenset[str], where: str) -> dict[str, Any]:
    """The arguments of the declaration that a table describes."""
    check_keys(entry, keys, where)
    check_types(entry, SWITCHES, where)
    if "arguments" not in entry:
        return dict(entry)
    return {**entry, "arguments": decode_table(entry["arguments"], where)}


def read_binding(entry: Any, where: str) -> dict[str, Any]:
    """The arguments of the `bind` that an entry of [[bindings]] describes."""
    check_keys(entry, _BINDING_KEYS, where)
    check_types(entry, frozenset(), where)
    if "from" not in entry:
        raise TopologyError(f'{where}: says no exchange to come from; add from = "…"')
    arguments = decode_table(entry.get("arguments", {}), where)
    arguments |= decode_table(entry.get("headers", {}), where)
    arguments |= dict.fromkeys(_read_names(entry.get("present", []), where))
    if "match" in entry:
        arguments[X_MATCH] = entry["match"]
    others = {key: entry[key] for key in ("queue", "exchange", "key", "filter") if key in entry}
    return {"source": entry["from"], "arguments": arguments, **others}


def _declaration_table(keywords: Mapping[str, Any]) -> dict[str, Any]:
    entry = {key: value for key, value in keywords.items() if key != "name"}
    return entry | ({"arguments": encode_value(entry["arguments"])} if "arguments" in entry else {})


def _binding_table(keywords: Mapping[str, Any]) -> dict[str, Any]:
    arguments = dict(keywords.get("arguments", {}))
    target = {key: keywords[key] for key in ("queue", "exchange", "key") if keywords.get(key)}
    entry: dict[str, Any] = {"from": keywords["source"], **target}
    if isinstance(arguments.get(X_MATCH), str):
        entry["match"] = arguments.pop(X_MATCH)
    if isinstance(arguments.get(X_FILTER), str):
        entry["filter"] = arguments.pop(X_FILTER)
    plain = {name: value for name, value in arguments.items() if name[:2] != "x-"}
    parts = {
        "present": [name for name, value in plain.items() if value is None],
        "headers": {n: encode_value(value) for n, value in plain.items() if value is not None},
        "arguments": {n: encode_value(v) for n, v in arguments.items() if n[:2] == "x-"},
    }
    return entry | {name: part for name, part in parts.items() if part}


def _named_tables(document: Mapping[str, Any], part: str) -> Iterator[tuple[str, Any]]:
    tables = document.get(part, {})
    if not isinstance(tables, dict):
        raise TopologyError(f"{part}: write [{part}.<name>] for each of them")
    yield from tables.items()


def _read_names(names: Any, where: str) -> list[str]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TopologyError(f"{where}: present is a list of header names, not {names!r}")
    return names
