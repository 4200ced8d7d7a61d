"""The HTTP API: RabbitMQ's paths, and ours below `/api/headgate/`."""

from __future__ import annotations

from typing import Any, Final

from headgate.web.api import (
    connections,
    definitions,
    exchanges,
    filters,
    health,
    messages,
    overview,
    policies,
    queues,
    sql_queues,
    users,
    vhosts,
)
from headgate.web.api.openapi import make_document
from headgate.web.endpoints import Call, EndpointTable

own = EndpointTable()


@own.get("/api/headgate/openapi.json", needs=None)
def get_openapi(call: Call) -> dict[str, Any]:
    """This API as an OpenAPI document."""
    return make_document(endpoint for table in TABLES for endpoint in table.endpoints)


TABLES: Final[tuple[EndpointTable, ...]] = (
    overview.api,
    vhosts.api,
    queues.api,
    exchanges.api,
    connections.api,
    users.api,
    policies.api,
    definitions.api,
    health.api,
    filters.api,
    messages.api,
    sql_queues.api,
    own,
)
