"""RabbitMQ's format of a topology: the JSON definitions that its management plugin exports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from headgate.errors import TopologyError
from headgate.routing.declarations import ALTERNATE
from headgate.routing.definitions.document import (
    SWITCHES,
    Definitions,
    check_types,
    decode_table,
    encode_value,
    read_tables,
)


def from_json(text: str, vhost: str | None = None) -> Definitions:
    """Read what RabbitMQ exports. Users, permissions and other parts that no topology has are left out."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise TopologyError(f"this is not JSON: {problem}") from problem
    if not isinstance(document, dict):
        raise TopologyError(
            "RabbitMQ's definitions are a JSON object with exchanges, queues and bindings"
        )
    vhost = _find_vhost(document, vhost)
    definitions = Definitions()
    policies = [p for p in read_tables(document, "policies") if p.get("vhost", vhost) == vhost]
    for where, entry in _entries_of(document, "exchanges", vhost):
        definitions.exchanges.append((where, _read_exchange(entry, policies, where)))
    for where, entry in _entries_of(document, "queues", vhost):
        declared = _read_entry(entry, ("name",), ("durable", "auto_delete"), where)
        definitions.queues.append((where, declared))
    for where, entry in _entries_of(document, "bindings", vhost):
        definitions.bindings.append((where, _read_binding(entry, where)))
    return definitions


def to_json(definitions: Definitions) -> str:
    """Write definitions as RabbitMQ would export them."""
    document = {
        "exchanges": [_exchange_object(keywords) for _, keywords in definitions.exchanges],
        "queues": [_declaration_object(keywords) for _, keywords in definitions.queues],
        "bindings": [_binding_object(keywords) for _, keywords in definitions.bindings],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _find_vhost(document: Mapping[str, Any], name: str | None) -> str:
    parts = ("exchanges", "queues", "bindings")
    there = {entry.get("vhost", "/") for part in parts for entry in read_tables(document, part)}
    if name is not None:
        if name not in there:
            raise TopologyError(f"there is no vhost {name!r}; there are {sorted(there)}")
        return name
    if len(there) > 1:
        raise TopologyError(f"there are several vhosts, {sorted(there)}: say which one")
    return min(there, default="/")


def _entries_of(
    document: Mapping[str, Any], part: str, vhost: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, entry in enumerate(read_tables(document, part), 1):
        if entry.get("vhost", "/") == vhost:
            yield f"{part[:-1]} {number}", entry


def _read_exchange(entry: Mapping[str, Any], policies: list[Any], where: str) -> dict[str, Any]:
    declared = _read_entry(entry, ("name", "type"), ("durable", "auto_delete", "internal"), where)
    alternate = declared["arguments"].pop(ALTERNATE, None)
    alternate = alternate or _policy_alternate(declared["name"], policies)
    return declared | ({"alternate": alternate} if alternate else {})


def _policy_alternate(name: str, policies: list[Any]) -> str | None:
    best = max(
        (
            policy
            for policy in policies
            if ALTERNATE in policy.get("definition", {})
            and policy.get("apply-to", "all") in ("all", "exchanges")
            and _policy_applies(policy, name)
        ),
        key=lambda policy: policy.get("priority", 0),
        default=None,
    )
    return None if best is None else str(best["definition"][ALTERNATE])


def _policy_applies(policy: Mapping[str, Any], name: str) -> bool:
    try:
        return re.search(str(policy.get("pattern", "")), name) is not None
    except re.error as problem:
        raise TopologyError(
            f"policy {policy.get('name')!r}: its pattern cannot be used: {problem}"
        ) from None


def _read_binding(entry: Mapping[str, Any], where: str) -> dict[str, Any]:
    bound = _read_entry(
        entry, ("source", "destination"), ("destination_type", "routing_key"), where
    )
    kind = bound.get("destination_type", "queue")
    if kind not in ("queue", "exchange"):
        raise TopologyError(f"{where}: destination_type is 'queue' or 'exchange', not {kind!r}")
    return {
        "source": bound["source"],
        kind: bound["destination"],
        "key": bound.get("routing_key", ""),
        "arguments": bound["arguments"],
    }


def _read_entry(
    entry: Mapping[str, Any], required: tuple[str, ...], optional: tuple[str, ...], where: str
) -> dict[str, Any]:
    missing = [key for key in required if key not in entry]
    if missing:
        raise TopologyError(f"{where}: has no {missing[0]!r}")
    kept = {key: entry[key] for key in (*required, *optional) if key in entry}
    check_types(kept, SWITCHES, where)
    return kept | {"arguments": decode_table(entry.get("arguments") or {}, where)}


def _exchange_object(keywords: Mapping[str, Any]) -> dict[str, Any]:
    alternate = keywords.get("alternate")
    more = {ALTERNATE: alternate} if alternate else {}
    entry = {key: value for key, value in keywords.items() if key != "alternate"}
    return _declaration_object(entry | {"arguments": {**keywords.get("arguments", {}), **more}})


def _declaration_object(keywords: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "vhost": "/",
        "durable": True,
        "auto_delete": False,
        **keywords,
        "arguments": encode_value(keywords.get("arguments", {})),
    }


def _binding_object(keywords: Mapping[str, Any]) -> dict[str, Any]:
    kind = "queue" if keywords.get("queue") is not None else "exchange"
    return {
        "source": keywords["source"],
        "vhost": "/",
        "destination": keywords[kind],
        "destination_type": kind,
        "routing_key": keywords.get("key", ""),
        "arguments": encode_value(keywords.get("arguments", {})),
    }
