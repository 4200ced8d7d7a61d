"""Who asks, and how one may log in."""

from __future__ import annotations

from typing import Any

from headgate.web.endpoints import Call, EndpointTable

api = EndpointTable()


@api.get("/api/whoami")
def whoami(call: Call) -> dict[str, Any]:
    """The user of this request, and its tags."""
    return {
        "name": call.identity.name,
        "tags": sorted(call.identity.tags),
        "is_internal_user": True,
    }


@api.get("/api/auth", needs=None)
def auth(call: Call) -> dict[str, Any]:
    """Whether pages log in with OAuth2."""
    return {"oauth_enabled": False}
