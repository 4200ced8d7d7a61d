"""The HTTP API: RabbitMQ's paths, and ours below `/api/headgate/`."""

from __future__ import annotations

from typing import Final

from headgate.web.api import identity
from headgate.web.endpoints import EndpointTable

TABLES: Final[tuple[EndpointTable, ...]] = (identity.api,)
