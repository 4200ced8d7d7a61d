"""Definitions: everything that operators and clients declared, as one document. The format is that of RabbitMQ 4.0.

Values that JSON cannot express are written as in files of topologies, as a table with one key such as `{"$bytes": …}`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from headgate import __version__
from headgate.broker.declarations import ALTERNATE
from headgate.broker.policies import Policy
from headgate.broker.vhost import DEFAULT, RESERVED, VirtualHost
from headgate.routing import Exchange, declaration_arguments, encode_value

if TYPE_CHECKING:
    from headgate.broker.broker import Broker

RABBITMQ: Final = "4.0.5"  # whose format it is
OPERATOR: Final = "operator_policy"  # among the parameters
_CLUSTER: Final = "cluster_name"


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
