"""Single messages of a queue: delete one, send a dead letter back; and messages of a stream as events."""

from __future__ import annotations

import asyncio
from pathlib import Path

from starlette.responses import Response

from headgate.broker import BrokerQueue, StreamQueue, delete_entry, requeue_dead_letter
from headgate.insights import find_stream
from headgate.web.api.queues import find_queue
from headgate.web.api.shapes import JsonObject
from headgate.web.endpoints import Call, EndpointTable
from headgate.web.identity import identify_again
from headgate.web.problems import bad_request, missing, not_authorised
from headgate.web.subscribe import stream_messages

api = EndpointTable()


@api.delete("/api/headgate/queues/{vhost}/{queue}/messages/{position}")
def delete_message(call: Call) -> None:
    """Delete the ready message at a position."""
    delete_entry(_readable(call), _position(call))


@api.post("/api/headgate/queues/{vhost}/{queue}/messages/{position}/requeue")
def requeue_message(call: Call) -> JsonObject:
    """Send the dead letter at a position back to the queue that it died in first."""
    queue = _readable(call)
    # Its publisher may have written the header that names the queue.
    call.broker.access.check(call.login, queue.vhost.name, "write", "exchange", "")
    return {"queue": requeue_dead_letter(queue, _position(call))}


@api.get("/api/headgate/subscribe", query=("stream", "vhost", "queue", "filter", "from"))
async def subscribe(call: Call) -> Response:
    """Messages of a stream as events: of a stream queue (`vhost`, `queue`), or of any below the data (`stream`)."""
    path = await _stream_path(call)
    return stream_messages(path, call.query, call.headers, lambda: _may_still_read(call))


async def _stream_path(call: Call) -> Path:
    if "queue" not in call.query:
        data: Path | None = call.shared["node"].data
        if not call.identity.has("monitoring"):
            raise not_authorised("Not monitoring user")
        if data is None:
            raise bad_request("this broker keeps everything in memory, and has no streams")
        return find_stream(data, call.query.get("stream", ""))
    vhost, name = call.query.get("vhost", "/"), call.query["queue"]
    if vhost not in call.broker.vhosts or not call.may_see(vhost):
        raise missing()
    call.broker.access.check(call.login, vhost, "read", "queue", name)
    queue = call.broker.vhosts[vhost].queues.get(name)
    if not isinstance(queue, StreamQueue):
        raise bad_request("only a stream can be subscribed to")
    await asyncio.to_thread(queue.open_stream)  # a new queue may have no files yet
    return queue.directory


def _may_still_read(call: Call) -> bool:
    """Whether the user still exists and may read what it subscribed to."""
    known = identify_again(call.broker, call.identity)
    if known is None or not known.has("management"):
        return False
    if "queue" not in call.query:
        return known.has("monitoring")
    vhost, name = call.query.get("vhost", "/"), call.query["queue"]
    access = call.broker.access
    return vhost in call.broker.vhosts and access.may(known.login, vhost, "read", name)


def _readable(call: Call) -> BrokerQueue:
    """The queue of the path, whose messages the user may take."""
    queue = find_queue(call)
    call.broker.access.check(call.login, queue.vhost.name, "read", "queue", queue.name)
    call.broker.access.check(call.login, queue.vhost.name, "write", "queue", queue.name)
    if queue.definition.type == "stream":
        raise bad_request("the messages of a stream stay where they are")
    return queue


def _position(call: Call) -> int:
    text = call.values["position"]
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise bad_request("the position of a message is a number")
    return int(text)
