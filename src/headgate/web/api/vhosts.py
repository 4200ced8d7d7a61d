"""Virtual hosts and their limits over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.responses import Response

from headgate.broker import QUEUE_TYPES, VhostSettings, VirtualHost, parse_tags
from headgate.insights import refresh, vhost_facts
from headgate.web.api.bodies import integer, text
from headgate.web.api.listing import QUERY, list_rows, pick_columns, read_columns
from headgate.web.api.queues import node_of
from headgate.web.api.shapes import CHANNEL_STATS, JsonObject, stats_of, totals_of
from headgate.web.api.users import LIMIT
from headgate.web.endpoints import Call, EndpointTable
from headgate.web.problems import bad_request

api = EndpointTable()

VHOST: Final = {
    "type": "object",
    "properties": {
        "description": {"type": "string"},
        "tags": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        "default_queue_type": {"enum": [*QUEUE_TYPES, "undefined"]},
    },
}


def _row(call: Call, vhost: VirtualHost) -> JsonObject:
    settings, flow = vhost.settings, vhost_facts(vhost).flow
    default_type = settings.default_queue_type or "undefined"
    return {
        "name": vhost.name,
        "description": settings.description,
        "tags": list(settings.tags),
        "default_queue_type": default_type,
        "metadata": {
            "description": settings.description,
            "tags": list(settings.tags),
            **settings.metadata,
        },
        "protected_from_deletion": False,
        "tracing": False,
        "cluster_state": {node_of(call): "running"},
        **totals_of(flow),
        "message_stats": stats_of(flow, CHANNEL_STATS),
    }


@api.get("/api/vhosts", query=QUERY)
def get_vhosts(call: Call) -> Any:
    """Virtual hosts, with the numbers of all their queues."""
    refresh(call.broker)
    shown = call.broker.vhosts.values()
    if not call.identity.has("monitoring"):
        shown = call.vhosts()  # type: ignore[assignment]
    return list_rows(call, [_row(call, vhost) for vhost in shown], ("name",))


@api.get("/api/vhosts/{vhost}", query=("columns",))
def get_vhost(call: Call) -> Any:
    """One virtual host."""
    refresh(call.broker)
    vhost = call.broker.find_vhost(call.values["vhost"])
    if not call.identity.has("monitoring"):
        vhost = call.vhost()
    return pick_columns(_row(call, vhost), read_columns(call.query))


@api.put(
    "/api/vhosts/{vhost}",
    needs="administrator",
    body=VHOST,
    told=("description", "tags", "default_queue_type"),
)
def put_vhost(call: Call) -> Response:
    """Add a virtual host, or change its settings. The user that adds it may use it."""
    broker, name, given = call.broker, call.values["vhost"], call.document()
    existed = name in broker.vhosts
    default_type = given.get("default_queue_type") or given.get("defaultqueuetype")
    if default_type in ("undefined", ""):
        default_type = None
    if default_type is not None and default_type not in QUEUE_TYPES:
        raise bad_request(f"there is no queue type {default_type!r}")
    settings = VhostSettings(
        text(given, "description", ""), parse_tags(given.get("tags") or ""), default_type
    )
    broker.add_vhost(name, settings if given or not existed else None)
    if not existed and call.identity.name in broker.access.users:
        broker.access.set_permissions(call.identity.name, name, ".*", ".*", ".*")
    return Response(status_code=204 if existed else 201)


@api.delete("/api/vhosts/{vhost}", needs="administrator")
async def delete_vhost(call: Call) -> None:
    """Delete a virtual host with everything in it; its connections are closed."""
    done = asyncio.Event()
    call.broker.take_steps(call.broker.delete_vhost_stepwise(call.values["vhost"]), done.set)
    await done.wait()


@api.post("/api/vhosts/{vhost}/start/{node}", needs="administrator")
def start_vhost(call: Call) -> None:
    """Accepted: a virtual host runs as long as the broker does."""
    call.broker.find_vhost(call.values["vhost"])


# ---- limits


@api.get("/api/vhost-limits", needs="monitoring")
@api.get("/api/vhost-limits/{vhost}", needs="monitoring")
def get_vhost_limits(call: Call) -> list[JsonObject]:
    """Limits of the connections and queues of virtual hosts."""
    if "vhost" in call.values:
        call.broker.find_vhost(call.values["vhost"])
    wanted = call.values.get("vhost")
    names = [name for name in call.broker.vhosts if wanted in (None, name)]
    rows = [{"vhost": name, "value": dict(call.broker.parameters.vhost_limits(name))} for name in names]  # fmt: skip
    return [row for row in rows if row["value"]]


@api.put("/api/vhost-limits/{vhost}/{name}", needs="administrator", body=LIMIT, told=("value",))
def set_vhost_limit(call: Call) -> None:
    """Limit the connections (`max-connections`) or queues (`max-queues`) of a virtual host."""
    value = integer(call.document(), "value")
    call.broker.parameters.set_vhost_limits(call.values["vhost"], {call.values["name"]: value})


@api.delete("/api/vhost-limits/{vhost}/{name}", needs="administrator")
def clear_vhost_limit(call: Call) -> None:
    """Lift a limit of a virtual host."""
    call.broker.find_vhost(call.values["vhost"])
    call.broker.parameters.clear_vhost_limits(call.values["vhost"], call.values["name"])
