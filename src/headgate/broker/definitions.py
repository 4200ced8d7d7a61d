"""Definitions: everything that operators and clients declared, as one document. The format is that of RabbitMQ 4.0.

Values that JSON cannot express are written as in files of topologies, as a table with one key such as `{"$bytes": …}`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from headgate import __version__
from headgate.broker.declarations import ALTERNATE
from headgate.broker.passwords import hash_password
from headgate.broker.policies import Policies, Policy
from headgate.broker.refusals import PreconditionFailed, Refusal
from headgate.broker.users import User, make_user, parse_tags
from headgate.broker.vhost import DEFAULT, RESERVED, VirtualHost
from headgate.broker.vhost_settings import VhostSettings
from headgate.errors import HeadgateError
from headgate.routing import Exchange, declaration_arguments, decode_table, encode_value

if TYPE_CHECKING:
    from headgate.broker.broker import Broker

RABBITMQ: Final = "4.0.5"  # whose format it is
OPERATOR: Final = "operator_policy"  # among the parameters
_CLUSTER: Final = "cluster_name"
_Entry = Mapping[str, Any]


# ---- export


def export_definitions(broker: Broker, vhost: str | None = None) -> dict[str, Any]:
    """All definitions, or those of one virtual host, whose entries do not name it."""
    if vhost is not None:
        return _export_vhost(broker, vhost)
    access, cluster = broker.access, broker.parameters.of_all.get(_CLUSTER, "headgate")
    document: dict[str, Any] = {
        **_versions(),
        "rabbitmq_definition_format": "cluster",
        "original_cluster_name": cluster,
        "explanation": f"Definitions of cluster '{cluster}'",
        "users": [{"name": user.name, **user.to_json()} for user in access.users.values()],
        "vhosts": [_write_vhost(vhost) for vhost in broker.vhosts.values()],
        "permissions": [
            {
                "user": user,
                "vhost": vhost,
                "configure": p.configure,
                "write": p.write,
                "read": p.read,
            }
            for (vhost, user), p in access.permissions.items()
        ],
        "topic_permissions": [
            {"user": user, "vhost": vhost, "exchange": exchange, "write": p.write, "read": p.read}
            for (vhost, user, exchange), p in access.topic_permissions.items()
        ],
        "global_parameters": [
            {"name": name, "value": value} for name, value in broker.parameters.of_all.items()
        ],
    }
    parts = [_export_contents(broker, vhost) for vhost in broker.vhosts.values()]
    for part in ("parameters", "policies", "queues", "exchanges", "bindings"):
        document[part] = [entry for contents in parts for entry in contents[part]]
    return document


def _export_vhost(broker: Broker, name: str) -> dict[str, Any]:
    vhost = broker.find_vhost(name)
    own = _write_vhost(vhost)
    contents = _export_contents(broker, vhost)
    return {
        **_versions(),
        "rabbitmq_definition_format": "single_virtual_host",
        "original_vhost_name": name,
        "explanation": f"Definitions of virtual host '{name}'",
        "metadata": own["metadata"],
        "description": own["description"],
        "default_queue_type": own["default_queue_type"],
        "limits": dict(broker.parameters.vhost_limits(name)) or [],
        **{
            part: [{key: v for key, v in entry.items() if key != "vhost"} for entry in entries]
            for part, entries in contents.items()
        },
    }


def _versions() -> dict[str, Any]:
    return {
        "rabbit_version": RABBITMQ,
        "rabbitmq_version": RABBITMQ,
        "product_name": "Headgate",
        "product_version": __version__,
    }


def _export_contents(broker: Broker, vhost: VirtualHost) -> dict[str, list[dict[str, Any]]]:
    name = vhost.name
    parameters = [
        {"vhost": name, "component": p.component, "name": p.name, "value": p.value}
        for p in broker.parameters.list(name)
    ]
    return {
        "parameters": parameters
        + [_write_operator(p) for p in broker.operator_policies.list(name)],
        "policies": [policy.to_json() for policy in broker.policies.list(name)],
        "queues": [
            {
                "name": queue.name,
                "vhost": name,
                "durable": queue.durable,
                "auto_delete": queue.auto_delete,
                "arguments": encode_value(queue.arguments),
            }
            for queue in vhost.queues.values()
            if queue.owner is None
        ],
        "exchanges": [
            _write_exchange(vhost, exchange)
            for exchange in vhost.topology.exchanges.values()
            if exchange.name != DEFAULT and not exchange.name.startswith(RESERVED)
        ],
        "bindings": list(_write_bindings(vhost)),
    }


def _write_vhost(vhost: VirtualHost) -> dict[str, Any]:
    settings = vhost.settings
    kind = settings.default_queue_type or "classic"
    facts = {
        "description": settings.description,
        "tags": list(settings.tags),
        "default_queue_type": kind,
    }
    return {"name": vhost.name, **facts, "metadata": {**settings.metadata, **facts}}


def _write_operator(policy: Policy) -> dict[str, Any]:
    value = policy.to_json()
    vhost, name = value.pop("vhost"), value.pop("name")
    return {"vhost": vhost, "component": OPERATOR, "name": name, "value": value}


def _write_exchange(vhost: VirtualHost, exchange: Exchange) -> dict[str, Any]:
    arguments = dict(declaration_arguments(exchange).get("arguments", {}))
    alternate = vhost.effects.declared_alternate(exchange)
    if alternate is not None:
        arguments[ALTERNATE] = alternate
    return {
        "name": exchange.name,
        "vhost": vhost.name,
        "type": exchange.type,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": encode_value(arguments),
    }


def _write_bindings(vhost: VirtualHost) -> Iterator[dict[str, Any]]:
    for binding in vhost.topology.bindings():
        if binding.kind == "queue" and vhost.queues[binding.destination].owner is not None:
            continue
        yield {
            "source": binding.source,
            "vhost": vhost.name,
            "destination": binding.destination,
            "destination_type": binding.kind,
            "routing_key": binding.key,
            "arguments": encode_value(dict(binding.arguments)),
        }


# ---- import


def import_definitions(broker: Broker, document: Any, vhost: str | None = None) -> None:
    """Add what a document defines; what is there and not in it stays. With a virtual host, all of it goes into that one."""
    if not isinstance(document, Mapping):
        raise PreconditionFailed("definitions are a JSON object with users, vhosts, queues …")
    if vhost is not None:
        broker.find_vhost(vhost)
        document = {part: document.get(part, []) for part in _OF_VHOSTS}
    for part in _PARTS:
        _check_part(part, document.get(part) or [])
    for part, read in _PARTS.items():
        for number, entry in enumerate(document.get(part) or [], 1):
            _import_entry(broker, part, number, entry, vhost, read)
    broker.flush()


def _check_part(part: str, entries: Any) -> None:
    """Refuse a document that is not built like definitions before anything of it is imported."""
    if not isinstance(entries, list):
        raise PreconditionFailed(f"{part} are a list, not {type(entries).__name__}")
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, Mapping):
            raise PreconditionFailed(f"{part}, entry {number}: is not an object")
        for key in _TEXTS:
            if not isinstance(entry.get(key, ""), str):
                raise PreconditionFailed(
                    f"{part}, entry {number}: {key} is text, not {type(entry[key]).__name__}"
                )


def _import_entry(
    broker: Broker,
    part: str,
    number: int,
    entry: _Entry,
    vhost: str | None,
    read: Callable[[Broker, _Entry], None],
) -> None:
    """Import one entry; a refusal says which it is."""
    if part in _OF_VHOSTS:
        entry = {**entry, "vhost": vhost or entry.get("vhost", "/")}
    where = f"{part}, entry {number} ({entry.get('name') or entry.get('user') or entry.get('source') or '?'})"
    try:
        read(broker, entry)
    except KeyError as problem:
        raise PreconditionFailed(f"{where}: has no {problem}") from problem
    except (HeadgateError, TypeError, ValueError) as problem:
        raise PreconditionFailed(f"{where}: {problem}") from problem


def _read_user(broker: Broker, entry: _Entry) -> None:
    user = make_user(entry["name"], entry)
    if entry.get("password"):
        user = User(user.name, hash_password(str(entry["password"])), user.tags, user.limits)
    broker.access.put_user(user)


def _read_vhost(broker: Broker, entry: _Entry) -> None:
    metadata = {**(entry.get("metadata") or {})}
    facts = {**metadata, **entry}
    kind = facts.get("default_queue_type")
    settings = VhostSettings(
        str(facts.get("description") or ""),
        parse_tags(facts.get("tags") or []),
        None if kind in (None, "classic", "undefined") else str(kind),
        metadata,
    )
    broker.add_vhost(entry["name"], settings)
    if entry.get("limits"):
        broker.parameters.set_vhost_limits(entry["name"], entry["limits"])


def _read_permission(broker: Broker, entry: _Entry) -> None:
    keys = ("user", "vhost", "configure", "write", "read")
    broker.access.set_permissions(*(entry[key] for key in keys))


def _read_topic_permission(broker: Broker, entry: _Entry) -> None:
    keys = ("user", "vhost", "exchange", "write", "read")
    broker.access.set_topic_permissions(*(entry[key] for key in keys))


def _read_parameter(broker: Broker, entry: _Entry) -> None:
    if entry["component"] == OPERATOR:
        value = {**entry["value"], "vhost": entry["vhost"], "name": entry["name"]}
        _set_policy(broker.operator_policies, value)
    else:
        names = (entry["vhost"], entry["component"], entry["name"])
        broker.parameters.set(*names, entry["value"])


def _read_global_parameter(broker: Broker, entry: _Entry) -> None:
    broker.parameters.set_global(entry["name"], entry["value"])


def _read_policy(broker: Broker, entry: _Entry) -> None:
    _set_policy(broker.policies, entry)


def _set_policy(policies: Policies, entry: _Entry) -> None:
    policies.set(
        entry["vhost"],
        entry["name"],
        entry["pattern"],
        entry["definition"],
        priority=entry.get("priority", 0),
        apply_to=entry.get("apply-to", "all"),
    )


def _read_queue(broker: Broker, entry: _Entry) -> None:
    vhost = broker.find_vhost(entry["vhost"])
    if entry["name"] not in vhost.queues:
        vhost.declare_queue(
            entry["name"],
            durable=bool(entry.get("durable", True)),
            auto_delete=bool(entry.get("auto_delete", False)),
            arguments=decode_table(entry.get("arguments") or {}, "arguments"),
        )


def _read_exchange(broker: Broker, entry: _Entry) -> None:
    vhost = broker.find_vhost(entry["vhost"])
    if vhost.topology.exchange(entry["name"]) is None:
        vhost.declare_exchange(
            entry["name"],
            entry["type"],
            durable=bool(entry.get("durable", True)),
            auto_delete=bool(entry.get("auto_delete", False)),
            internal=bool(entry.get("internal", False)),
            arguments=decode_table(entry.get("arguments") or {}, "arguments"),
        )


def _read_binding(broker: Broker, entry: _Entry) -> None:
    if entry["source"] == DEFAULT:
        return  # which every queue has
    kind = entry.get("destination_type", "queue")
    if kind not in ("queue", "exchange"):
        raise Refusal(f"destination_type is queue or exchange, not {kind!r}")
    broker.find_vhost(entry["vhost"]).bind(
        entry["source"],
        entry["destination"],
        entry.get("routing_key", ""),
        decode_table(entry.get("arguments") or {}, "arguments"),
        to_exchange=kind == "exchange",
    )


_OF_VHOSTS: Final = ("parameters", "policies", "queues", "exchanges", "bindings")
_TEXTS: Final = (
    *("name", "vhost", "user", "exchange", "component", "configure", "write", "read", "pattern"),
    *("apply-to", "type", "source", "destination", "destination_type", "routing_key"),
)
# In the order in which they need each other.
_PARTS: Final[dict[str, Callable[[Broker, _Entry], None]]] = {
    "users": _read_user,
    "vhosts": _read_vhost,
    "permissions": _read_permission,
    "topic_permissions": _read_topic_permission,
    "parameters": _read_parameter,
    "global_parameters": _read_global_parameter,
    "policies": _read_policy,
    "queues": _read_queue,
    "exchanges": _read_exchange,
    "bindings": _read_binding,
}
