"""Queues over HTTP: look, declare, delete, purge, get messages."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from starlette.responses import Response

from headgate.amqp import Content, sent_content
from headgate.broker import BrokerQueue, PreconditionFailed, QueueEntry
from headgate.insights import (
    bindings_of_queue,
    list_consumers,
    queue_facts_of,
    queues_by_name,
    refresh,
)
from headgate.web.api.bodies import boolean, integer, optional_integer, table
from headgate.web.api.encoded_queues import EncodedQueues, frame_page
from headgate.web.api.listing import (
    QUERY,
    SLICE,
    in_slices,
    pick_columns,
    read_columns,
    read_page,
    sort_rows,
)
from headgate.web.api.shapes import (
    JsonObject,
    binding_row,
    connection_details,
    consumer_row,
    plain,
    queue_basics,
    queue_row,
    queue_totals,
)
from headgate.web.endpoints import Call, EndpointTable
from headgate.web.problems import bad_request, missing

api = EndpointTable()

MOST_TAKEN: Final = 50_000  # messages of one request
ACK_MODES: Final = ("ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false")  # fmt: skip
DECLARATION: Final = {
    "type": "object",
    "properties": {
        "durable": {"type": "boolean"},
        "auto_delete": {"type": "boolean"},
        "arguments": {"type": "object"},
    },
}
GET: Final = {
    "type": "object",
    "required": ["count", "ackmode", "encoding"],
    "properties": {
        "count": {"type": "integer"},
        "ackmode": {"enum": list(ACK_MODES)},
        "encoding": {"enum": ["auto", "base64"]},
        "truncate": {"type": "integer"},
    },
}


def node_of(call: Call) -> str:
    return str(call.shared["node"].name)


# Columns that are quick to read. A list that needs and sorts by no others is made without whole rows.
QUICK: Final[dict[str, Callable[[BrokerQueue], Any]]] = {
    "name": lambda queue: queue.name,
    "vhost": lambda queue: queue.vhost.name,
    "type": lambda queue: queue.definition.type,
    "durable": lambda queue: queue.durable,
    "auto_delete": lambda queue: queue.auto_delete,
    "exclusive": lambda queue: queue.owner is not None,
    "messages": lambda queue: queue.messages,
    "messages_ready": len,
    "messages_unacknowledged": lambda queue: queue.unacked,
    "message_bytes": lambda queue: queue.ready_bytes,
    "consumers": lambda queue: len(queue.consumers),
    "state": lambda queue: "running",
}


@api.get("/api/queues", query=QUERY)
@api.get("/api/queues/detailed", query=QUERY)
@api.get("/api/queues/{vhost}", query=QUERY)
async def list_queues(call: Call) -> Any:
    """Queues, with their messages, consumers and rates."""
    refresh(call.broker)
    page, columns = read_page(call.query), read_columns(call.query)
    sort, has_stats = call.query.get("sort", ""), call.query.get("disable_stats") != "true"
    queues = list(queues_by_name(call.vhosts()))
    total, filtered = len(queues), len(queues)
    if page is not None and page.name:
        chosen = page.chooser()
        queues = [queue for queue in queues if chosen(queue.name)]
        filtered = len(queues)
    if sort and sort not in QUICK:
        return await _sort_by_rows(call, queues, total)
    if sort:
        queues.sort(key=QUICK[sort])
    if call.query.get("sort_reverse") == "true":
        queues.reverse()
    wanted = queues if page is None else page.cut(queues)
    if columns is not None or not has_stats:
        rows = await in_slices(_pick(call, queue, columns) for queue in wanted)
        return rows if page is None else page.describe(total, filtered, rows, len(rows))
    encoded: EncodedQueues = call.shared["rows"]
    items = await encoded.encode(wanted, node_of(call))
    if page is None:
        return items
    return frame_page(page.describe(total, filtered, [], len(wanted)), items)


def _pick(call: Call, queue: BrokerQueue, columns: list[list[str]] | None) -> JsonObject:
    """Some columns of a queue, without making its whole row if all of them are quick to read."""
    if columns is not None and all(column[0] in QUICK and len(column) == 1 for column in columns):
        return {column[0]: QUICK[column[0]](queue) for column in columns}
    return pick_columns(_row(call, queue), columns)  # type: ignore[no-any-return]


async def _sort_by_rows(call: Call, queues: list[BrokerQueue], total: int) -> Any:
    """The list sorted by a column that only whole rows have."""
    page, columns = read_page(call.query), read_columns(call.query)
    rows = await in_slices(_row(call, queue) for queue in queues)
    order = partial(sort_rows, rows, call.query, ("vhost", "name"))
    rows = await asyncio.get_running_loop().run_in_executor(None, order)
    wanted = rows if page is None else page.cut(rows)
    items = [pick_columns(row, columns) for row in wanted]
    return items if page is None else page.describe(total, len(rows), items, len(items))


def _row(call: Call, queue: BrokerQueue) -> JsonObject:
    facts = queue_facts_of(queue)
    if call.query.get("disable_stats") != "true":
        return queue_row(facts, node_of(call))
    row = queue_basics(facts, node_of(call))
    if call.query.get("enable_queue_totals") == "true":
        row |= queue_totals(facts)
    return row


def find_queue(call: Call) -> BrokerQueue:
    queue = call.vhost().queues.get(call.values["queue"])
    if queue is None:
        raise missing()
    return queue


@api.get("/api/queues/{vhost}/{queue}", query=("columns", "disable_stats", "enable_queue_totals"))
def get_queue(call: Call) -> Any:
    """One queue, with its consumers."""
    refresh(call.broker)
    queue = find_queue(call)
    row = _row(call, queue)
    if call.query.get("disable_stats") != "true":
        consumers = list_consumers(call.broker, queue.vhost.name) if queue.consumers else ()
        row["consumer_details"] = [
            consumer_row(facts, node_of(call)) for facts in consumers if facts.queue == queue.name
        ]
        owner = call.broker.connections.get(queue_facts_of(queue).owner or "")
        row["owner_pid_details"] = {} if owner is None else connection_details(owner)
        row["incoming"], row["deliveries"] = [], []
    return pick_columns(row, read_columns(call.query))


@api.put(
    "/api/queues/{vhost}/{queue}", body=DECLARATION, told=("durable", "auto_delete", "arguments")
)
def declare_queue(call: Call) -> Response:
    """Declare a queue; one that exists must have been declared alike."""
    vhost, name, given = call.vhost(), call.values["queue"], call.document()
    if not name or len(name.encode()) > 255:
        raise bad_request("the name of a queue has 1 to 255 bytes")
    call.broker.access.check(call.login, vhost.name, "configure", "queue", name)
    arguments = table(given, "arguments")
    _check_dead_letters(call, arguments)
    existed = name in vhost.queues
    vhost.declare_queue(
        name,
        durable=boolean(given, "durable", True),
        auto_delete=boolean(given, "auto_delete", False),
        arguments=arguments,
    )
    return Response(status_code=204 if existed else 201)


def _check_dead_letters(call: Call, arguments: JsonObject) -> None:
    """Require, for a dead letter exchange, the permissions to write to it and to read the queue."""
    exchange = arguments.get("x-dead-letter-exchange")
    if isinstance(exchange, str):
        vhost, name = call.values["vhost"], call.values["queue"]
        call.broker.access.check(call.login, vhost, "read", "queue", name)
        call.broker.access.check(call.login, vhost, "write", "exchange", exchange)


@api.delete("/api/queues/{vhost}/{queue}", query=("if-empty", "if-unused"))
def delete_queue(call: Call) -> None:
    """Delete a queue with its messages."""
    queue = _exclusive_to_none(find_queue(call))
    call.broker.access.check(call.login, queue.vhost.name, "configure", "queue", queue.name)
    queue.vhost.delete_queue(
        queue,
        if_unused=call.query.get("if-unused") == "true",
        if_empty=call.query.get("if-empty") == "true",
    )


def _exclusive_to_none(queue: BrokerQueue) -> BrokerQueue:
    return queue.vhost.find_queue(queue.name)


@api.get("/api/queues/{vhost}/{queue}/bindings", query=("columns", "sort", "sort_reverse"))
def get_queue_bindings(call: Call) -> list[JsonObject]:
    """The bindings to a queue."""
    queue = find_queue(call)
    rows = [binding_row(queue.vhost.name, b) for b in bindings_of_queue(queue.vhost, queue.name)]
    return [pick_columns(row, read_columns(call.query)) for row in rows]


@api.delete("/api/queues/{vhost}/{queue}/contents")
def purge_queue(call: Call) -> None:
    """Delete the ready messages of a queue."""
    queue = _exclusive_to_none(find_queue(call))
    call.broker.access.check(call.login, queue.vhost.name, "read", "queue", queue.name)
    queue.purge()


@api.post("/api/queues/{vhost}/{queue}/actions", body={"type": "object"}, told=("action",))
def act_on_queue(call: Call) -> None:
    """Accept `sync` and `cancel_sync`, which were for mirrored queues and do nothing."""
    find_queue(call)
    action = call.document().get("action")
    if action not in ("sync", "cancel_sync"):
        raise bad_request(f"unknown action '{action}'")


@api.post("/api/queues/{vhost}/{queue}/get", body=GET, told=None)
async def get_messages(call: Call) -> list[JsonObject]:
    """Take messages from a queue, and put them back if `ackmode` says so."""
    queue, given = _exclusive_to_none(find_queue(call)), call.document()
    call.broker.access.check(call.login, queue.vhost.name, "read", "queue", queue.name)
    for name in ("ackmode", "count", "encoding"):
        if given.get(name) is None:
            raise bad_request(f"key_missing: {name}")
    mode, encoding = given["ackmode"], given["encoding"]
    if mode not in ACK_MODES:
        raise bad_request(
            f"Invalid ackmode value: {mode}. Valid values are: {', '.join(ACK_MODES)}"
        )
    if encoding not in ("auto", "base64"):
        raise bad_request("Unsupported encoding. Please use auto or base64.")
    count, truncate = integer(given, "count"), optional_integer(given, "truncate")
    if count < 0 or (truncate is not None and truncate < 0):
        raise bad_request("count and truncate cannot be negative")
    rows, taken = [], []
    for _ in range(min(count, MOST_TAKEN)):
        entry = None if queue.is_deleted else queue.get()
        if entry is None:
            break
        taken.append(entry)
        if not len(taken) % SLICE:
            await asyncio.sleep(0)
        rows.append(message_row(sent_content(entry, queue), entry, len(queue), encoding, truncate))
    _settle(queue, taken, mode)
    return rows


def _settle(queue: BrokerQueue, taken: list[QueueEntry], mode: str) -> None:
    if queue.is_deleted:
        return
    if mode.endswith("requeue_true"):
        queue.requeue(taken)
    else:
        for entry in taken:
            (queue.reject if mode.startswith("reject") else queue.ack)(entry)


def message_row(
    content: Content, entry: QueueEntry, left: int, encoding: str, truncate: int | None
) -> JsonObject:
    """A message in the form of the answer to `get`."""
    body = content.body
    shown = body if truncate is None else body[:truncate]
    return {
        "payload_bytes": len(body),
        "redelivered": entry.redelivered,
        "exchange": content.exchange,
        "routing_key": content.routing_key,
        "message_count": left,
        "properties": plain(content.properties.values),
        **encode_payload(shown, encoding),
    }


def encode_payload(body: bytes, encoding: str) -> JsonObject:
    if encoding == "auto":
        try:
            return {"payload": body.decode(), "payload_encoding": "string"}
        except UnicodeDecodeError:
            pass
    return {"payload": base64.b64encode(body).decode(), "payload_encoding": "base64"}


@api.get("/api/queues/quorum/{vhost}/{queue}/status")
def quorum_status(call: Call) -> list[JsonObject]:
    """The members of a quorum queue: this node."""
    queue = find_queue(call)
    if queue.definition.type != "quorum":
        raise PreconditionFailed(f"queue '{queue.name}' is no quorum queue")
    return [{"Node Name": node_of(call), "Raft State": "leader", "Membership": "voter"}]
