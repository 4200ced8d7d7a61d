"""Definitions over HTTP: everything that is declared, in RabbitMQ's form."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Any, Final

from headgate.broker import DefinitionsImport, export_definitions
from headgate.web.api.shapes import JsonObject, plain
from headgate.web.endpoints import Call, EndpointTable
from headgate.web.problems import bad_request

api = EndpointTable()

DOCUMENT: Final = {"type": "object"}
SLICE_S: Final = 0.01  # of declaring definitions, before other clients have their turn


@api.get("/api/definitions", needs="administrator", query=("download",))
@api.get("/api/definitions/{vhost}", needs="administrator", query=("download",))
def get_definitions(call: Call) -> Any:
    """Users, virtual hosts, permissions, policies, queues, exchanges and bindings; or those of one virtual host."""
    vhost = call.vhost().name if "vhost" in call.values else None
    return plain(export_definitions(call.broker, vhost))


@api.post("/api/definitions", needs="administrator", body=DOCUMENT)
@api.post("/api/definitions/{vhost}", needs="administrator", body=DOCUMENT)
async def put_definitions(call: Call) -> None:
    """Declare everything that the document names, if all of it can be used; what exists stays."""
    vhost = call.vhost().name if "vhost" in call.values else None
    if call.headers.get("content-type", "").startswith("multipart/"):
        raise bad_request("send definitions as JSON, not as a form")
    document: JsonObject = call.document()
    imported = DefinitionsImport(call.broker, document, vhost)
    await asyncio.get_running_loop().run_in_executor(None, imported.check)
    ends = perf_counter() + SLICE_S
    for _ in imported.steps():
        if perf_counter() > ends:
            call.broker.flush()
            await asyncio.sleep(0)
            ends = perf_counter() + SLICE_S
    call.shared["rows"].clear()
