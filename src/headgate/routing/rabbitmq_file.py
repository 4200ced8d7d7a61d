"""RabbitMQ's own file: the definitions its management plugin exports, as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from headgate.errors import TopologyError
from headgate.routing.definitions import (
    SWITCHES,
    Definitions,
    decoded_table,
    encoded,
    entries,
    text_or_switch,
)

ALTERNATE: Final = "alternate-exchange"


def from_json(text: str, vhost: str | None = None) -> Definitions:
    """What RabbitMQ exports. Users, permissions and the like are not for a topology and left out."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise TopologyError(f"this is not JSON: {problem}") from problem
    if not isinstance(document, dict):
        raise TopologyError(
            "RabbitMQ's definitions are a JSON object with exchanges, queues and bindings"
        )
    chosen = _vhost(document, vhost)
    found = Definitions()
    policies = [p for p in entries(document, "policies") if p.get("vhost", chosen) == chosen]
    for where, entry in _located(document, "exchanges", chosen):
        found.exchanges.append((where, _exchange_of(entry, policies, where)))
    for where, entry in _located(document, "queues", chosen):
        found.queues.append((where, _taken(entry, ("name",), ("durable", "auto_delete"), where)))
    for where, entry in _located(document, "bindings", chosen):
        found.bindings.append((where, _binding_of(entry, where)))
    return found


def as_json(definitions: Definitions) -> str:
    document = {
        "exchanges": [_rabbit_exchange(given) for _, given in definitions.exchanges],
        "queues": [_rabbit_entry(given) for _, given in definitions.queues],
        "bindings": [_rabbit_binding(given) for _, given in definitions.bindings],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _vhost(document: Mapping[str, Any], wanted: str | None) -> str:
    parts = ("exchanges", "queues", "bindings")
    there = {entry.get("vhost", "/") for part in parts for entry in entries(document, part)}
    if wanted is not None:
        if wanted not in there:
            raise TopologyError(f"there is no vhost {wanted!r}; there are {sorted(there)}")
        return wanted
    if len(there) > 1:
        raise TopologyError(f"there are several vhosts, {sorted(there)}: say which one")
    return min(there, default="/")


def _located(
    document: Mapping[str, Any], part: str, vhost: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, entry in enumerate(entries(document, part), 1):
        if entry.get("vhost", "/") == vhost:
            yield f"{part[:-1]} {number}", entry


def _exchange_of(entry: Mapping[str, Any], policies: list[Any], where: str) -> dict[str, Any]:
    given = _taken(entry, ("name", "type"), ("durable", "auto_delete", "internal"), where)
    alternate = given["arguments"].pop(ALTERNATE, None) or _policy_alternate(
        given["name"], policies
    )
    return given | ({"alternate": alternate} if alternate else {})


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


def _binding_of(entry: Mapping[str, Any], where: str) -> dict[str, Any]:
    given = _taken(entry, ("source", "destination"), ("destination_type", "routing_key"), where)
    kind = given.get("destination_type", "queue")
    if kind not in ("queue", "exchange"):
        raise TopologyError(f"{where}: destination_type is 'queue' or 'exchange', not {kind!r}")
    return {
        "source": given["source"],
        kind: given["destination"],
        "key": given.get("routing_key", ""),
        "arguments": given["arguments"],
    }


def _taken(
    entry: Mapping[str, Any], needed: tuple[str, ...], optional: tuple[str, ...], where: str
) -> dict[str, Any]:
    missing = [key for key in needed if key not in entry]
    if missing:
        raise TopologyError(f"{where}: has no {missing[0]!r}")
    kept = {key: entry[key] for key in (*needed, *optional) if key in entry}
    text_or_switch(kept, SWITCHES, where)
    return kept | {"arguments": decoded_table(entry.get("arguments") or {}, where)}


def _rabbit_exchange(given: Mapping[str, Any]) -> dict[str, Any]:
    alternate = given.get("alternate")
    more = {ALTERNATE: alternate} if alternate else {}
    entry = {key: value for key, value in given.items() if key != "alternate"}
    return _rabbit_entry(entry | {"arguments": {**given.get("arguments", {}), **more}})


def _rabbit_entry(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "vhost": "/",
        "durable": True,
        "auto_delete": False,
        **given,
        "arguments": encoded(given.get("arguments", {})),
    }


def _rabbit_binding(given: Mapping[str, Any]) -> dict[str, Any]:
    kind = "queue" if given.get("queue") is not None else "exchange"
    return {
        "source": given["source"],
        "vhost": "/",
        "destination": given[kind],
        "destination_type": kind,
        "routing_key": given.get("key", ""),
        "arguments": encoded(given.get("arguments", {})),
    }
