"""Queues of the database that the pages show: publish to one, send its dead letters back or delete them, change a filter.

They have no virtual host and no permissions of their own, so that only administrators may change them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

from headgate.errors import QueueNotFound
from headgate.queues import Queue, State, Subscription, connect
from headgate.web.api.bodies import table, text
from headgate.web.api.shapes import JsonObject
from headgate.web.endpoints import Call, EndpointTable
from headgate.web.problems import HttpProblem, bad_request

api = EndpointTable()

MESSAGE: Final = {
    "type": "object",
    "required": ["payload"],
    "properties": {
        "payload": {"type": "string"},
        "topic": {"type": "string"},
        "headers": {"type": "object"},
    },
}
IDS: Final = {
    "type": "object",
    "properties": {"ids": {"type": "array", "items": {"type": "integer"}}},
}
NEW_FILTER: Final = {
    "type": "object",
    "required": ["filter"],
    "properties": {"filter": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
}
_Result = TypeVar("_Result")


@api.post("/api/headgate/sql-queues/{queue}/publish", needs="administrator", body=MESSAGE)
async def publish(call: Call) -> JsonObject:
    """Publish a message to a queue on SQL."""
    given = call.document()
    payload = text(given, "payload").encode()
    fields: Any = {"topic": text(given, "topic", ""), "headers": table(given, "headers")}
    return {"id": await _change(call, lambda queue: queue.publish(payload, **fields))}


@api.post("/api/headgate/sql-queues/{queue}/requeue", needs="administrator", body=IDS)
async def requeue(call: Call) -> JsonObject:
    """Make dead letters of a queue on SQL ready again: those that are named, or all."""
    ids = _read_ids(call.document())
    return {"requeued": await _change(call, lambda queue: queue.requeue(ids))}


@api.delete("/api/headgate/sql-queues/{queue}/dead", needs="administrator")
async def delete_dead(call: Call) -> JsonObject:
    """Delete all dead letters of a queue on SQL."""
    return {"deleted": await _change(call, lambda queue: queue.purge(State.DEAD))}


@api.delete("/api/headgate/sql-queues/{queue}/contents", needs="administrator")
async def delete_contents(call: Call) -> JsonObject:
    """Delete the messages of a queue on SQL that are ready or delayed."""
    return {"deleted": await _change(call, lambda queue: queue.purge())}


@api.put(
    "/api/headgate/sql-queues/{queue}/filter",
    needs="administrator",
    body=NEW_FILTER,
    told=("filter",),
)
async def change_filter(call: Call) -> None:
    """Change the filter of a subscription, for messages that are published from now on."""
    given = call.document()
    filter = None if given.get("filter", "") is None else text(given, "filter")

    def change(queue: Queue) -> None:
        if not isinstance(queue, Subscription):
            raise bad_request(f"{queue.name} is no subscription: it has no filter")
        queue.set_filter(filter)

    await _change(call, change)


def _read_ids(given: dict[str, Any]) -> list[int] | None:
    ids = given.get("ids")
    if ids is None:
        return None
    if not isinstance(ids, list) or not all(type(id) is int and 0 <= id < 1 << 63 for id in ids):
        raise bad_request("ids must be a list of the numbers of messages")
    return ids


async def _change(call: Call, change: Callable[[Queue], _Result]) -> _Result:
    """Change the queue of the path, in a thread: the broker goes on meanwhile."""
    database: str | None = call.shared["database"]
    if database is None:
        raise bad_request("this broker shows no database: set http.database")

    def work() -> _Result:
        with connect(database, access="change") as opened:
            return change(opened.find(call.values["queue"]))

    try:
        return await asyncio.to_thread(work)
    except QueueNotFound as problem:
        raise HttpProblem(404, str(problem)) from problem
