"""Errors of requests: in RabbitMQ's form on its paths, as problem+json on Headgate's own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from starlette.responses import Response

from headgate.broker import AccessRefused, NotFound, Refusal, ResourceLocked
from headgate.errors import HeadgateError

OURS: Final = "/api/headgate/"
REALM: Final = 'Basic realm="RabbitMQ Management"'
WORDS: Final = {
    400: "bad_request",
    401: "not_authorised",
    403: "forbidden",
    404: "Object Not Found",
    405: "Method Not Allowed",
    413: "payload_too_large",
    500: "internal_server_error",
    503: "service_unavailable",
}


class HttpProblem(HeadgateError):
    """A request cannot be answered; `reason` says why."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, dict(headers or {})


def bad_request(reason: str) -> HttpProblem:
    return HttpProblem(400, reason)


def missing() -> HttpProblem:
    return HttpProblem(404, "Not Found")


def not_authorised(reason: str) -> HttpProblem:
    return HttpProblem(401, reason, {"WWW-Authenticate": REALM})


def problem_of(refusal: HeadgateError) -> HttpProblem:
    """The status of what the broker refused."""
    if isinstance(refusal, HttpProblem):
        return refusal
    if isinstance(refusal, NotFound):
        return missing()
    if isinstance(refusal, AccessRefused) and not isinstance(refusal, ResourceLocked):
        return HttpProblem(401, f"ACCESS_REFUSED - {refusal}")
    return bad_request(str(refusal) if isinstance(refusal, Refusal) else _one_line(refusal))


def problem_response(path: str, problem: HttpProblem) -> Response:
    """A refusal in the shape that clients of this path expect."""
    if path.startswith(OURS):
        shape: dict[str, Any] = {
            "type": "about:blank",
            "title": HTTPStatus(problem.status).phrase,
            "status": problem.status,
            "detail": problem.reason,
        }
        kind = "application/problem+json"
    else:
        shape = {"error": WORDS.get(problem.status, "bad_request"), "reason": problem.reason}
        kind = "application/json"
    return Response(
        json.dumps(shape), status_code=problem.status, media_type=kind, headers=problem.headers
    )


def _one_line(problem: HeadgateError) -> str:
    return " ".join(str(problem).split())
