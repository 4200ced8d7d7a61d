"""Pages beside an application that embeds Headgate: streams below a directory, queues of a database; to look at only."""

from __future__ import annotations

from typing import Final

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from headgate.web.guard import SAFE_METHODS, Guard
from headgate.web.pages import Site, make_pages
from headgate.web.sessions import LoginSessions

MAX_BODY: Final = 100_000
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


def make_embedded_app(site: Site, host: str = "127.0.0.1") -> Starlette:
    """The app of a site without a broker, which is served on that host."""
    sessions = LoginSessions()
    guard = Middleware(Guard, broker=None, sessions=sessions, max_body=MAX_BODY)
    routes = [Route("/", _go_to_streams), *make_pages(site)]
    return Starlette(routes=routes, middleware=[guard, Middleware(_ReadOnly, host=host)])


async def _go_to_streams(request: Request) -> Response:
    return RedirectResponse("/streams", 303)


class _ReadOnly:
    """Refuses changes and, on a loopback address, other host names: a page of another site could rebind its name (DNS)."""

    def __init__(self, app: ASGIApp, host: str) -> None:
        self._app, self._is_local = app, host in (*_LOOPBACK, "::1")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        if scope["method"] not in SAFE_METHODS:
            return await _refuse(405, "these pages are to look at only")(scope, receive, send)
        if self._is_local and _host_of(scope) not in _LOOPBACK:
            return await _refuse(400, "ask for this machine by localhost")(scope, receive, send)
        return await self._app(scope, receive, send)


def _refuse(status: int, reason: str) -> Response:
    return PlainTextResponse(reason, status)


def _host_of(scope: Scope) -> str:
    named = Headers(scope=scope).get("host", "")
    host, colon, port = named.rpartition(":")
    return host if colon and port.isdigit() else named
