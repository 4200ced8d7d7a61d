"""The broker as a whole over HTTP: overview, node, cluster name, features, the user of the request."""

from __future__ import annotations

from typing import Any, Final, get_args

from headgate import __version__
from headgate.broker import BrokerQueue
from headgate.insights import (
    ListeningPort,
    NodeOptions,
    broker_facts,
    node_facts,
    refresh,
)
from headgate.routing import ExchangeType
from headgate.web.api.bodies import text
from headgate.web.api.listing import pick_columns, read_columns
from headgate.web.api.shapes import CHANNEL_STATS, JsonObject, plain, stats_of, totals_of
from headgate.web.endpoints import Call, EndpointTable
from headgate.web.problems import missing

api = EndpointTable()

CLUSTER_NAME: Final = "cluster_name"  # the global parameter that holds it
# The feature flags that clients are told are enabled.
FEATURES: Final = ("classic_queue_type_delivery_support", "direct_exchange_routing_v2", "feature_flags_v2", "message_containers", "quorum_queue", "stream_queue", "virtual_host_metadata")  # fmt: skip


def node_options(call: Call) -> NodeOptions:
    options: NodeOptions = call.shared["node"]
    return options


def cluster_name(call: Call) -> str:
    return str(call.broker.parameters.of_all.get(CLUSTER_NAME, node_options(call).name))


def _listener_row(node: str, listener: ListeningPort) -> JsonObject:
    return {
        "node": node,
        "protocol": listener.protocol,
        "ip_address": listener.host,
        "port": listener.port,
        "tls": listener.tls,
        "socket_opts": {},
    }


def exchange_types() -> list[JsonObject]:
    return [
        {"name": name, "description": f"AMQP {name} exchange", "enabled": True}
        for name in sorted(get_args(ExchangeType))
    ]


@api.get("/api/overview", query=("columns", "disable_stats"))
def overview(call: Call) -> Any:
    """Versions, totals of objects and messages, rates, listeners."""
    options = node_options(call)
    row: JsonObject = {
        "management_version": options.version,
        "rates_mode": "basic",
        "exchange_types": exchange_types(),
        "product_version": options.version,
        "product_name": options.product,
        "rabbitmq_version": options.version,
        "headgate_version": __version__,
        "cluster_name": cluster_name(call),
        "cluster_tags": {},
        "node_tags": {},
        "erlang_version": "none",
        "erlang_full_version": "none: Headgate runs on Python",
        "release_series_support_status": "supported",
        "disable_stats": call.query.get("disable_stats") == "true",
        "default_queue_type": "classic",
        "is_op_policy_updating_enabled": True,
        "enable_queue_totals": False,
        "node": options.name,
    }
    refresh(call.broker)
    seen = list(call.broker.vhosts.values()) if call.identity.has("monitoring") else call.vhosts()
    facts = broker_facts(call.broker, seen)
    row["object_totals"] = {
        name: getattr(facts, name)
        for name in ("connections", "channels", "exchanges", "queues", "consumers")
    }
    if not row["disable_stats"]:
        row["message_stats"] = stats_of(facts.flow, CHANNEL_STATS)
        row["queue_totals"] = totals_of(facts.flow)
        row["statistics_db_event_queue"] = 0
        row["churn_rates"] = {}
    if call.identity.has("monitoring"):
        row["listeners"] = [_listener_row(options.name, one) for one in options.listeners]
        row["contexts"] = [
            {"node": options.name, "description": "Headgate", "path": "/", "port": str(one.port)}
            for one in options.listeners
            if one.protocol in ("http", "https")
        ]
    return pick_columns(row, read_columns(call.query))


def _node_row(call: Call) -> JsonObject:
    options = node_options(call)
    facts = node_facts(call.broker, options)
    return {
        "name": options.name,
        "type": "disc",
        "running": True,
        "os_pid": str(facts.pid),
        "uptime": facts.uptime_ms,
        "mem_used": facts.memory_bytes,
        "mem_used_details": {"rate": 0.0},
        "mem_limit": facts.memory_limit_bytes,
        "mem_alarm": facts.memory_alarm,
        "disk_free": facts.disk_free_bytes,
        "disk_free_details": {"rate": 0.0},
        "disk_free_limit": facts.disk_limit_bytes,
        "disk_free_alarm": facts.disk_alarm,
        "fd_used": facts.descriptors,
        "fd_used_details": {"rate": 0.0},
        "fd_total": facts.descriptors_limit,
        "sockets_used": facts.sockets,
        "sockets_total": facts.descriptors_limit,
        "proc_used": 1,
        "proc_total": 1_048_576,
        "processors": facts.processors,
        "run_queue": 0,
        "rates_mode": "basic",
        "partitions": [],
        "being_drained": False,
        "auth_mechanisms": [
            {"name": name, "enabled": True} for name in ("PLAIN", "AMQPLAIN", "EXTERNAL")
        ],
        "exchange_types": exchange_types(),
        "applications": [{"name": "headgate", "version": __version__, "description": "Headgate"}],
        "contexts": [],
        "db_dir": str(options.data or ""),
        "log_files": ["<stderr>"],
        "config_files": [],
        "enabled_plugins": ["rabbitmq_management"],
        "cluster_links": [],
        "net_ticktime": 60,
        "python_version": facts.python,
    }


@api.get("/api/nodes", needs="monitoring", query=("columns",))
def get_nodes(call: Call) -> Any:
    """The node: memory, disk, descriptors, alarms."""
    return [pick_columns(_node_row(call), read_columns(call.query))]


@api.get("/api/nodes/{node}", needs="monitoring", query=("columns", "memory", "binary"))
def get_node(call: Call) -> Any:
    """The node, by its name."""
    if call.values["node"] != node_options(call).name:
        raise missing()
    return pick_columns(_node_row(call), read_columns(call.query))


@api.get("/api/nodes/{node}/memory", needs="monitoring")
def get_node_memory(call: Call) -> JsonObject:
    """The memory of the node."""
    if call.values["node"] != node_options(call).name:
        raise missing()
    used = node_facts(call.broker, node_options(call)).memory_bytes
    return {"memory": {"total": {"rss": used, "allocated": used, "erlang": 0}, "strategy": "rss"}}


@api.get("/api/cluster-name")
def get_cluster_name(call: Call) -> JsonObject:
    """The name of the broker, as clients are told."""
    return {"name": cluster_name(call)}


@api.put(
    "/api/cluster-name",
    needs="administrator",
    body={"type": "object", "required": ["name"]},
    told=("name",),
)
def set_cluster_name(call: Call) -> None:
    """Name the broker."""
    call.broker.parameters.set_global(CLUSTER_NAME, text(call.document(), "name"))


@api.get("/api/extensions")
def get_extensions(call: Call) -> list[JsonObject]:
    """What the pages of RabbitMQ would load in addition: nothing."""
    return []


@api.get("/api/feature-flags", needs="administrator")
def get_feature_flags(call: Call) -> list[JsonObject]:
    """Features that clients may ask for; all are enabled."""
    return [
        {
            "name": name,
            "state": "enabled",
            "stability": "required",
            "desc": name.replace("_", " "),
            "provided_by": "headgate",
            "doc_url": "",
        }
        for name in FEATURES
    ]


@api.put("/api/feature-flags/{name}/enable", needs="administrator", body={"type": "object"})
def enable_feature_flag(call: Call) -> None:
    """Accepted for features that are there: they are enabled."""
    if call.values["name"] not in (*FEATURES, "all"):
        raise missing()


@api.get("/api/deprecated-features", needs="monitoring")
@api.get("/api/deprecated-features/used", needs="monitoring")
def get_deprecated_features(call: Call) -> list[JsonObject]:
    """Features that will go: none."""
    return []


@api.get("/api/whoami")
def whoami(call: Call) -> JsonObject:
    """The user of this request, and its tags."""
    return {
        "name": call.identity.name,
        "tags": list(call.login.tags),
        "is_internal_user": call.login.grants is None,
    }


@api.get("/api/auth", needs=None)
def auth(call: Call) -> JsonObject:
    """Whether pages log in with OAuth2."""
    return {"oauth_enabled": False}


@api.get("/api/version")
def version(call: Call) -> str:
    """The version that clients are told."""
    return node_options(call).version


@api.post("/api/rebalance/queues", needs="administrator")
def rebalance_queues(call: Call) -> None:
    """Accepted: there is one node, and all queues are on it."""


@api.get("/api/users/{user}/queues", needs="administrator")
def get_queues_of_user(call: Call) -> list[JsonObject]:
    """Exclusive queues of the connections of a user."""
    call.broker.access.find_user(call.values["user"])
    return [
        {"name": queue.name, "vhost": queue.vhost.name, "arguments": plain(queue.arguments)}
        for queue in _owned(call)
    ]


def _owned(call: Call) -> list[BrokerQueue]:
    return [
        queue
        for vhost in call.broker.vhosts.values()
        for queue in vhost.queues.values()
        if getattr(queue.owner, "user", None) == call.values["user"]
    ]
