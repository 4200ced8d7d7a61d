"""The OpenAPI document, made of the table of endpoints."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any, Final

from headgate import __version__
from headgate.web.endpoints import Endpoint

ERROR: Final = {
    "type": "object",
    "properties": {"error": {"type": "string"}, "reason": {"type": "string"}},
}


def make_document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """Describe the endpoints as OpenAPI 3.1 does."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headgate",
            "version": __version__,
            "description": "RabbitMQ's HTTP API, and what Headgate adds below /api/headgate/.",
        },
        "security": [{"basic": []}],
        "components": {"securitySchemes": {"basic": {"type": "http", "scheme": "basic"}}},
        "paths": paths,
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    text = inspect.getdoc(endpoint.answer) or ""
    varying = re.findall(r"\{(\w+)\}", endpoint.path)
    name = endpoint.answer.__name__ + "".join(f"-{part}" for part in varying)
    operation: dict[str, Any] = {
        "operationId": f"{endpoint.method.lower()}-{name}-{len(endpoint.segments)}",
        "summary": text.partition("\n")[0],
        "description": f"Needs the tag {endpoint.needs}." if endpoint.needs else "Needs no login.",
        "tags": [endpoint.segments[1]],
        "parameters": [
            *(_parameter(part, "path", True) for part in varying),
            *(_parameter(part, "query", False) for part in endpoint.query),
        ],
        "responses": _responses(endpoint),
    }
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": bool(endpoint.body.get("required")),
            "content": {"application/json": {"schema": endpoint.body}},
        }
    return operation


def _parameter(name: str, place: str, required: bool) -> dict[str, Any]:
    return {"name": name, "in": place, "required": required, "schema": {"type": "string"}}


def _responses(endpoint: Endpoint) -> dict[str, Any]:
    problem = {"application/json": {"schema": ERROR}}
    if endpoint.path.startswith("/api/headgate/"):
        problem = {"application/problem+json": {"schema": {"type": "object"}}}
    found: dict[str, Any] = {
        "400": {"description": "The request cannot be understood.", "content": problem},
        "401": {"description": "The user may not.", "content": problem},
        "404": {"description": "There is no such object.", "content": problem},
    }
    if "/health/" in endpoint.path:
        found["503"] = {"description": "The check failed."}
    if endpoint.method == "GET":
        found["200"] = {"description": "OK", "content": {"application/json": {"schema": {}}}}
    elif endpoint.method == "POST":
        found["200"] = {"description": "OK", "content": {"application/json": {"schema": {}}}}
        found["201"] = {"description": "Created"}
        found["204"] = {"description": "Done"}
    else:
        found["201"] = {"description": "Created"}
        found["204"] = {"description": "Done"}
    return found
