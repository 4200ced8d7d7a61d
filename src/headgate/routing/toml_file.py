"""Our own file: TOML, for people to write."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from headgate.errors import TopologyError
from headgate.routing.bindings import X_FILTER, X_MATCH
from headgate.routing.definitions import (
    SWITCHES,
    Definitions,
    decoded_table,
    encoded,
    entries,
    only,
    text_or_switch,
)
from headgate.routing.toml_text import to_toml

EXCHANGE_KEYS: Final = frozenset(
    {"type", "durable", "auto_delete", "internal", "alternate", "arguments"}
)
_QUEUE_KEYS: Final = frozenset({"durable", "auto_delete", "arguments"})
_BINDING_KEYS: Final = frozenset(
    {"from", "queue", "exchange", "key", "match", "headers", "present", "filter", "arguments"}
)


def from_toml(text: str) -> Definitions:
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as problem:
        raise TopologyError(f"this is not TOML: {problem}") from problem
    only(document, frozenset({"exchanges", "queues", "bindings"}), "the file")
    found = Definitions()
    for name, entry in _tables(document, "exchanges"):
        where = f"exchange {name!r}"
        found.exchanges.append((where, {"name": name, **declared(entry, EXCHANGE_KEYS, where)}))
    for name, entry in _tables(document, "queues"):
        where = f"queue {name!r}"
        found.queues.append((where, {"name": name, **declared(entry, _QUEUE_KEYS, where)}))
    for number, entry in enumerate(entries(document, "bindings"), 1):
        where = f"binding {number}"
        found.bindings.append((where, bound(entry, where)))
    return found


def as_toml(definitions: Definitions) -> str:
    document = {
        "exchanges": {given["name"]: _plain_entry(given) for _, given in definitions.exchanges},
        "queues": {given["name"]: _plain_entry(given) for _, given in definitions.queues},
        "bindings": [_bound_entry(given) for _, given in definitions.bindings],
    }
    return to_toml({name: part for name, part in document.items() if part})


def declared(entry: Any, keys: frozenset[str], where: str) -> dict[str, Any]:
    """The arguments of a declaration, from its table."""
    only(entry, keys, where)
    text_or_switch(entry, SWITCHES, where)
    given = dict(entry)
    if "arguments" in given:
        given["arguments"] = decoded_table(given["arguments"], where)
    return given


def bound(entry: Any, where: str) -> dict[str, Any]:
    """The arguments of the `bind` that an entry of [[bindings]] says."""
    only(entry, _BINDING_KEYS, where)
    text_or_switch(entry, frozenset(), where)
    if "from" not in entry:
        raise TopologyError(f'{where}: says no exchange to come from; add from = "…"')
    arguments = decoded_table(entry.get("arguments", {}), where)
    arguments |= decoded_table(entry.get("headers", {}), where)
    arguments |= dict.fromkeys(_names(entry.get("present", []), where))
    if "match" in entry:
        arguments[X_MATCH] = entry["match"]
    given = {"source": entry["from"], "arguments": arguments}
    return given | {
        key: entry[key] for key in ("queue", "exchange", "key", "filter") if key in entry
    }


def _bound_entry(given: Mapping[str, Any]) -> dict[str, Any]:
    arguments = dict(given.get("arguments", {}))
    kept = {key: given[key] for key in ("queue", "exchange", "key") if given.get(key)}
    entry: dict[str, Any] = {"from": given["source"], **kept}
    if isinstance(arguments.get(X_MATCH), str):
        entry["match"] = arguments.pop(X_MATCH)
    if isinstance(arguments.get(X_FILTER), str):
        entry["filter"] = arguments.pop(X_FILTER)
    headers = {
        name: encoded(v) for name, v in arguments.items() if v is not None and name[:2] != "x-"
    }
    present = [name for name, v in arguments.items() if v is None and name[:2] != "x-"]
    others = {name: encoded(v) for name, v in arguments.items() if name[:2] == "x-"}
    parts = {"headers": headers, "present": present, "arguments": others}
    return entry | {name: part for name, part in parts.items() if part}


def _plain_entry(given: Mapping[str, Any]) -> dict[str, Any]:
    entry = {key: value for key, value in given.items() if key != "name"}
    return entry | ({"arguments": encoded(entry["arguments"])} if "arguments" in entry else {})


def _tables(document: Mapping[str, Any], part: str) -> Iterator[tuple[str, Any]]:
    found = document.get(part, {})
    if not isinstance(found, dict):
        raise TopologyError(f"{part}: write [{part}.<name>] for each of them")
    yield from found.items()


def _names(given: Any, where: str) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise TopologyError(f"{where}: present is a list of header names, not {given!r}")
    return given
