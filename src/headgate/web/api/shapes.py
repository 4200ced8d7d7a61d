"""Facts in the shapes of RabbitMQ's HTTP API."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final
from urllib.parse import quote_plus

from headgate.broker import OpenConnection
from headgate.insights import (
    BrokerQueueFacts,
    ChannelFacts,
    ConnectionFacts,
    ConsumerFacts,
    ExchangeFacts,
    Flow,
)
from headgate.routing import Binding

QUEUE_STATS: Final = ("publish", "deliver", "deliver_no_ack", "get", "get_no_ack", "get_empty", "redeliver", "ack")  # fmt: skip
TAKEN: Final = ("deliver", "deliver_no_ack", "get", "get_no_ack")
CHANNEL_STATS: Final = ("publish", "confirm", "return_unroutable", "drop_unroutable", *QUEUE_STATS[1:])  # fmt: skip

JsonObject = dict[str, Any]


def plain(value: Any) -> Any:
    """A value of an AMQP table as JSON has it."""
    match value:
        case bytes():
            return value.decode(errors="replace")
        case datetime():
            return int(value.timestamp())
        case Decimal():
            return float(value)
        case float() if value != value or value in (float("inf"), float("-inf")):
            return str(value)
        case Mapping():
            return {str(key): plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
    return value


def stats_of(flow: Flow, names: Iterable[str]) -> JsonObject:
    """Counters with their rates, and the sum of all messages taken from queues."""
    row: JsonObject = {}
    for name in names:
        row[name] = flow.counts[name]
        row[name + "_details"] = {"rate": flow.rates[name]}
    if "deliver" in row:
        row["deliver_get"] = flow.total(*TAKEN)
        row["deliver_get_details"] = {"rate": sum(flow.rates[name] for name in TAKEN)}
    return row


def totals_of(flow: Flow) -> JsonObject:
    """Messages that are in queues now."""
    ready, unacked = flow.counts["messages_ready"], flow.counts["messages_unacknowledged"]
    rates = flow.rates["messages_ready"], flow.rates["messages_unacknowledged"]
    return {
        "messages": flow.counts["messages"],
        "messages_details": {"rate": flow.rates["messages"]},
        "messages_ready": ready,
        "messages_ready_details": {"rate": rates[0]},
        "messages_unacknowledged": unacked,
        "messages_unacknowledged_details": {"rate": rates[1]},
    }


def queue_basics(facts: BrokerQueueFacts, node: str) -> JsonObject:
    """A queue without its numbers."""
    return {
        "name": facts.name,
        "vhost": facts.vhost,
        "type": facts.type,
        "durable": facts.durable,
        "auto_delete": facts.auto_delete,
        "exclusive": facts.exclusive,
        "internal": False,
        "arguments": plain(facts.arguments),
        "node": node,
        "state": "running",
        "policy": facts.policy,
        "operator_policy": facts.operator_policy,
        "effective_policy_definition": plain(facts.effective_policy),
    }


def queue_totals(facts: BrokerQueueFacts) -> JsonObject:
    return {
        "messages": facts.messages,
        "messages_ready": facts.ready,
        "messages_unacknowledged": facts.unacknowledged,
    }


def queue_row(facts: BrokerQueueFacts, node: str) -> JsonObject:
    """A queue as it is in lists."""
    row = queue_basics(facts, node)
    row |= totals_of(facts.flow)
    row |= queue_totals(facts)
    row |= {
        "consumers": facts.consumers,
        "consumer_utilisation": 1 if facts.consumers else 0,
        "consumer_capacity": 1 if facts.consumers else 0,
        "message_bytes": facts.ready_bytes,
        "message_bytes_ready": facts.ready_bytes,
        "memory": facts.ready_bytes,
        "exclusive_consumer_tag": None,
        "single_active_consumer_tag": facts.active_consumer,
        "unmatched": facts.unmatched,
        "message_stats": stats_of(facts.flow, QUEUE_STATS),
    }
    if facts.type == "quorum":
        row |= {"leader": node, "members": [node], "online": [node]}
    if facts.idle_since is not None:
        row["idle_since"] = iso(facts.idle_since)
    return row


def exchange_row(facts: ExchangeFacts) -> JsonObject:
    exchange = facts.exchange
    row: JsonObject = {
        "name": exchange.name,
        "vhost": facts.vhost,
        "type": exchange.type,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": plain(facts.arguments),
        "policy": facts.policy,
    }
    if any(facts.flow.counts.values()):
        row["message_stats"] = stats_of(facts.flow, facts.flow.counts)
    return row


def binding_row(vhost: str, binding: Binding) -> JsonObject:
    arguments = plain(binding.arguments)
    return {
        "source": binding.source,
        "vhost": vhost,
        "destination": binding.destination,
        "destination_type": binding.kind,
        "routing_key": binding.key,
        "arguments": arguments,
        "properties_key": properties_key(binding),
    }


def properties_key(binding: Binding) -> str:
    """The key that RabbitMQ gives a binding, by which those between one source and one destination differ."""
    if not binding.arguments:
        return _quote(binding.key) if binding.key else "~"
    digest = hashlib.sha256(repr(binding.frozen).encode()).digest()[:12]
    return f"{_quote(binding.key)}~{base64.urlsafe_b64encode(digest).decode()}"


def _quote(text: str) -> str:
    return quote_plus(text).replace("~", "%7E")


def connection_row(facts: ConnectionFacts, node: str) -> JsonObject:
    connection, flow = facts.connection, facts.flow
    properties = plain(connection.properties)
    return {
        "name": connection.name,
        "user_provided_name": properties.get("connection_name"),
        "node": node,
        "type": "network",
        "protocol": connection.protocol,
        "user": connection.user,
        "user_who_performed_action": connection.user,
        "vhost": connection.vhost,
        "host": connection.host,
        "port": connection.port,
        "peer_host": connection.peer_host,
        "peer_port": connection.peer_port,
        "ssl": connection.tls,
        "auth_mechanism": connection.mechanism,
        "connected_at": connection.connected_at,
        "timeout": connection.heartbeat,
        "frame_max": connection.frame_max,
        "channel_max": connection.channel_max,
        "channels": facts.channels,
        "state": facts.state,
        "client_properties": properties,
        "recv_oct": flow.counts["recv_oct"],
        "recv_oct_details": {"rate": flow.rates["recv_oct"]},
        "send_oct": flow.counts["send_oct"],
        "send_oct_details": {"rate": flow.rates["send_oct"]},
    }


def connection_details(connection: OpenConnection) -> JsonObject:
    return {
        "name": connection.name,
        "peer_host": connection.peer_host,
        "peer_port": connection.peer_port,
    }


def channel_row(facts: ChannelFacts, node: str) -> JsonObject:
    connection = facts.connection
    return {
        "name": facts.name,
        "number": facts.number,
        "node": node,
        "user": connection.user,
        "user_who_performed_action": connection.user,
        "vhost": connection.vhost,
        "connection_details": connection_details(connection),
        "state": "running",
        "confirm": facts.confirms,
        "transactional": facts.transactional,
        "consumer_count": facts.consumers,
        "prefetch_count": facts.prefetch,
        "global_prefetch_count": facts.prefetch_all,
        "messages_unacknowledged": facts.unacknowledged,
        "messages_uncommitted": facts.uncommitted,
        "messages_unconfirmed": 0,
        "acks_uncommitted": 0,
        "message_stats": stats_of(facts.flow, CHANNEL_STATS),
    }


def consumer_row(facts: ConsumerFacts, node: str) -> JsonObject:
    connection = facts.connection
    return {
        "consumer_tag": facts.tag,
        "queue": {"name": facts.queue, "vhost": connection.vhost},
        "channel_details": {
            "name": f"{connection.name} ({facts.channel})",
            "number": facts.channel,
            "connection_name": connection.name,
            "node": node,
            "user": connection.user,
            "peer_host": connection.peer_host,
            "peer_port": connection.peer_port,
        },
        "ack_required": not facts.no_ack,
        "exclusive": facts.exclusive,
        "prefetch_count": facts.prefetch,
        "active": facts.is_active,
        "activity_status": "up" if facts.is_active else "single_active",
        "arguments": plain(facts.arguments),
        "consumer_timeout": "undefined",
        "messages_unacknowledged": facts.unacknowledged,
        "filter": facts.filter,
        "filter_statistics": dict(facts.filter_counts),
    }


def iso(milliseconds: int) -> str:
    """A time as RabbitMQ prints it."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds")
