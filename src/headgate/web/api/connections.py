"""Connections, channels and consumers over HTTP: look, and close."""

from __future__ import annotations

from typing import Any

from headgate.broker import OpenConnection
from headgate.insights import (
    connection_facts,
    list_channels,
    list_connections,
    list_consumers,
    refresh,
)
from headgate.web.api.listing import QUERY, list_rows, pick_columns, read_columns
from headgate.web.api.queues import node_of
from headgate.web.api.shapes import channel_row, connection_row, consumer_row
from headgate.web.endpoints import Call, EndpointTable
from headgate.web.problems import missing, not_authorised

api = EndpointTable()

CLOSED = "Closed via management plugin"


def _is_shown(call: Call, connection: OpenConnection) -> bool:
    """Whether the user may see a connection: its own or, with the tag monitoring or administrator, any."""
    return call.identity.may_watch(connection.user)


def find_connection(call: Call) -> OpenConnection:
    connection = call.broker.connections.get(call.values["connection"])
    if connection is None:
        raise missing()
    if not _is_shown(call, connection):
        raise not_authorised("User not authorised to access object")
    return connection


@api.get("/api/connections", query=QUERY)
@api.get("/api/vhosts/{vhost}/connections", query=QUERY)
@api.get("/api/connections/username/{username}", query=QUERY)
def get_connections(call: Call) -> Any:
    """Open connections."""
    refresh(call.broker)
    vhost = call.vhost().name if "vhost" in call.values else None
    user = call.values.get("username")
    rows = [
        connection_row(facts, node_of(call))
        for facts in list_connections(call.broker)
        if _is_shown(call, facts.connection)
        and vhost in (None, facts.connection.vhost)
        and user in (None, facts.connection.user)
    ]
    return list_rows(call, rows)


@api.get("/api/connections/{connection}", query=("columns",))
def get_connection(call: Call) -> Any:
    """One connection."""
    refresh(call.broker)
    facts = connection_facts(call.broker, find_connection(call))
    return pick_columns(connection_row(facts, node_of(call)), read_columns(call.query))


@api.delete("/api/connections/{connection}")
def close_connection(call: Call) -> None:
    """Close a connection; the header `X-Reason` is told to the client."""
    _close(call, find_connection(call))


def _close(call: Call, connection: OpenConnection) -> None:
    if not call.identity.may_steer(connection.user):
        raise not_authorised("User not authorised to access object")
    reason = call.headers.get("x-reason", CLOSED)
    connection.client.close(reason)


@api.delete("/api/connections/username/{username}")
def close_connections_of_user(call: Call) -> None:
    """Close the connections of a user."""
    for connection in list(call.broker.connections.values()):
        if connection.user == call.values["username"]:
            _close(call, connection)


@api.get("/api/connections/{connection}/channels", query=QUERY)
def get_channels_of_connection(call: Call) -> Any:
    """The channels of a connection."""
    refresh(call.broker)
    found = list_channels(call.broker, find_connection(call))
    return list_rows(call, [channel_row(facts, node_of(call)) for facts in found])


@api.get("/api/channels", query=QUERY)
@api.get("/api/vhosts/{vhost}/channels", query=QUERY)
def get_channels(call: Call) -> Any:
    """Open channels."""
    refresh(call.broker)
    vhost = call.vhost().name if "vhost" in call.values else None
    rows = [
        channel_row(facts, node_of(call))
        for facts in list_channels(call.broker)
        if _is_shown(call, facts.connection) and vhost in (None, facts.connection.vhost)
    ]
    return list_rows(call, rows)


@api.get("/api/channels/{channel}", query=("columns",))
def get_channel(call: Call) -> Any:
    """One channel, with its consumers."""
    refresh(call.broker)
    for facts in list_channels(call.broker):
        if facts.name == call.values["channel"]:
            if not _is_shown(call, facts.connection):
                raise not_authorised("User not authorised to access object")
            row = channel_row(facts, node_of(call))
            row["consumer_details"] = [
                consumer_row(consumer, node_of(call))
                for consumer in list_consumers(call.broker)
                if consumer.connection is facts.connection and consumer.channel == facts.number
            ]
            return pick_columns(
                {**row, "publishes": [], "deliveries": []}, read_columns(call.query)
            )
    raise missing()


@api.get("/api/consumers", query=QUERY)
@api.get("/api/consumers/{vhost}", query=QUERY)
def get_consumers(call: Call) -> Any:
    """Consumers, with their filters."""
    vhost = call.vhost().name if "vhost" in call.values else None
    rows = [
        consumer_row(facts, node_of(call))
        for facts in list_consumers(call.broker, vhost)
        if _is_shown(call, facts.connection)
    ]
    return list_rows(call, rows, ("queue.vhost", "queue.name", "consumer_tag"))
