"""Endpoints that only Headgate has: filters of consumers, browsing with a filter, tracing, streams, statistics."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from headgate.broker import BrokerQueue, StreamQueue
from headgate.insights import (
    Sighting,
    broker_facts,
    explain_filter,
    list_consumers,
    newest_in_broker_queue,
    newest_in_stream,
    refresh,
    vhost_facts,
)
from headgate.message import Message
from headgate.web.api.bodies import table, text
from headgate.web.api.queues import encode_payload, find_queue, node_of
from headgate.web.api.shapes import JsonObject, consumer_row, plain
from headgate.web.endpoints import Call, EndpointTable
from headgate.web.problems import HttpProblem, bad_request, missing, not_authorised

api = EndpointTable()

FILTER: Final = {
    "type": "object",
    "required": ["filter"],
    "properties": {"filter": {"type": "string"}},
}
MESSAGE: Final = {
    "type": "object",
    "required": ["filter"],
    "properties": {
        "filter": {"type": "string"},
        "topic": {"type": "string"},
        "headers": {"type": "object"},
    },
}
TRACE: Final = {
    "type": "object",
    "required": ["exchange"],
    "properties": {
        "exchange": {"type": "string"},
        "routing_key": {"type": "string"},
        "headers": {"type": "object"},
        "properties": {"type": "object"},
    },
}
NEW_FILTER: Final = {
    "type": "object",
    "required": ["filter"],
    "properties": {"filter": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
}
MOST_BROWSED: Final = 1_000
MOST_SHOWN: Final = 100_000  # bytes of a payload


@api.post("/api/headgate/filters/explain", body=FILTER, told=None)
async def explain(call: Call) -> JsonObject:
    """How a filter is understood, term by term, and which layer answers what."""
    wanted = text(call.document(), "filter")
    facts = await asyncio.get_running_loop().run_in_executor(None, explain_filter, wanted)
    return {
        "filter": wanted,
        "warnings": list(facts.warnings),
        "spark": facts.spark,
        "plan": plain(asdict(facts.plan)),
    }


@api.post("/api/headgate/filters/check", body=MESSAGE, told=None)
def check(call: Call) -> JsonObject:
    """Whether a filter matches a message with these headers: true, false or null for unknown."""
    from headgate.filters import evaluate, parse

    given = call.document()
    tree = parse(text(given, "filter"))
    message = Message(b"", text(given, "topic", ""), table(given, "headers"))
    answer = evaluate(tree, message)
    return {"matches": answer is True, "answer": answer}


@api.get("/api/headgate/consumers", query=("queue",))
@api.get("/api/headgate/consumers/{vhost}", query=("queue",))
def get_filters(call: Call) -> list[JsonObject]:
    """Consumers with the text and the numbers of their filters."""
    names = {vhost.name for vhost in call.vhosts()}
    queue = call.query.get("queue")
    return [
        consumer_row(facts, node_of(call))
        for facts in list_consumers(call.broker)
        if facts.connection.vhost in names
        and queue in (None, facts.queue)
        and call.identity.may_watch(facts.connection.user)
    ]


@api.put("/api/headgate/consumers/{vhost}/{queue}/{tag}/filter", body=NEW_FILTER, told=("filter",))
def set_filter(call: Call) -> None:
    """Give a consumer another filter, or none (null), while it goes on consuming."""
    queue, given = find_queue(call), call.document()
    call.broker.access.check(call.login, queue.vhost.name, "read", "queue", queue.name)
    if "filter" not in given or not isinstance(given["filter"], str | None):
        raise bad_request("filter must be text, or null for no filter")
    consumer = next((c for c in queue.consumers if c.tag == call.values["tag"]), None)
    if consumer is None:
        raise missing()
    _check_steering(call, queue)
    _verb(queue, "set_filter")(consumer, given["filter"])


def _check_steering(call: Call, queue: BrokerQueue) -> None:
    """Refuse to change the filter of another user's consumer."""
    for facts in list_consumers(call.broker, queue.vhost.name):
        is_meant = facts.queue == queue.name and facts.tag == call.values["tag"]
        if is_meant and not call.identity.may_steer(facts.connection.user):
            raise not_authorised("User not authorised to access object")


def _verb(thing: object, name: str) -> Any:
    """A method that not every type of queue has; a queue without it is refused."""
    verb = getattr(thing, name, None)
    if verb is None:
        raise HttpProblem(400, f"this queue cannot do that: it has no {name.replace('_', ' ')}")
    return verb


@api.get("/api/headgate/queues/{vhost}/{queue}/messages", query=("filter", "before", "limit"))
async def browse(call: Call) -> JsonObject:
    """Look at messages that match a filter, the newest first, and take none; `before` is the position to go on from."""
    queue = find_queue(call)
    call.broker.access.check(call.login, queue.vhost.name, "read", "queue", queue.name)
    before, limit = _number(call, "before", None), _number(call, "limit", 50)
    if limit is None or not 0 < limit <= MOST_BROWSED:
        raise bad_request(f"limit is a whole number from 1 to {MOST_BROWSED}")
    wanted = call.query.get("filter") or None
    if isinstance(queue, StreamQueue):
        look = partial(newest_in_stream, queue.directory, wanted, before=before, limit=limit)
        page = await asyncio.get_running_loop().run_in_executor(None, look)
    else:
        page = newest_in_broker_queue(queue, wanted, before=before, limit=limit)
    items = [_sighting_row(seen) for seen in page.messages]
    return {"items": items, "following": page.following, "complete": page.complete}


def _number(call: Call, name: str, default: int | None) -> int | None:
    given = call.query.get(name, "")
    if not given:
        return default
    if not given.isascii() or not given.isdigit() or len(given) > 18:
        raise bad_request(f"{name} is a whole number")
    return int(given)


def _sighting_row(seen: Sighting) -> JsonObject:
    message = seen.message
    return {
        "position": seen.position,
        "state": seen.state,
        "deliveries": seen.attempts,
        "reason": seen.reason,
        "routing_key": message.topic,
        "headers": plain(message.headers),
        "properties": plain(message.properties),
        "payload_bytes": len(message.payload),
        **encode_payload(message.payload[:MOST_SHOWN], "auto"),
    }


@api.post("/api/headgate/trace/{vhost}", body=TRACE, told=None)
def trace(call: Call) -> Any:
    """Where a message would go, which consumers want it, and for all others the condition that failed."""
    vhost, given = call.vhost(), call.document()
    traced = vhost.trace(
        text(given, "exchange"),
        text(given, "routing_key", ""),
        table(given, "headers"),
        table(given, "properties"),
    )
    return plain({**asdict(traced), "routed": traced.is_routed})


@api.get("/api/headgate/streams")
@api.get("/api/headgate/streams/{vhost}")
def get_streams(call: Call) -> list[JsonObject]:
    """Stream queues, with the directories that the library and Spark read."""
    return [
        {
            "name": queue.name,
            "vhost": vhost.name,
            "directory": str(getattr(queue, "directory", "")),
            "messages": len(queue),
            "consumers": len(queue.consumers),
        }
        for vhost in call.vhosts()
        for queue in vhost.queues.values()
        if queue.definition.type == "stream"
    ]


@api.get("/api/headgate/statistics", needs="monitoring")
def get_statistics(call: Call) -> JsonObject:
    """Counters and rates of the broker and of each virtual host."""
    refresh(call.broker)
    vhosts = call.broker.vhosts.values()
    total = broker_facts(call.broker, vhosts)
    return {
        "total": asdict(total),
        "vhosts": [asdict(vhost_facts(vhost)) for vhost in vhosts],
    }
