"""The app: the HTTP API and the pages behind one guard."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from headgate.broker import Broker
from headgate.insights import NodeOptions
from headgate.web.api import TABLES
from headgate.web.api.encoded_queues import EncodedQueues
from headgate.web.api.shapes import JsonObject
from headgate.web.endpoints import ApiRouter, read_form
from headgate.web.guard import Guard
from headgate.web.identity import identify
from headgate.web.sessions import (
    COOKIE,
    LoginSessions,
    clear_session_cookie,
    set_session_cookie,
)


class ApiRoute(BaseRoute):
    """Matches everything below /api; a route of Starlette would not match a name with a line break."""

    def __init__(self, api: ApiRouter) -> None:
        self._api = api

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        is_below = scope["type"] == "http" and f"{scope['path']}/".startswith("/api/")
        return (Match.FULL if is_below else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._api(scope, receive, send)


def make_app(
    broker: Broker,
    *,
    node: NodeOptions | None = None,
    pages: Iterable[BaseRoute] = (),
    list_shovels: Callable[[], list[JsonObject]] = list,
    database: str | None = None,
) -> Starlette:
    """The app of a broker that runs in this event loop; the shovels in it are listed as RabbitMQ lists them.

    `database` is the address of the one whose queues administrators may change.

    `app.state` has `broker`, `node` and `sessions`, for the pages; `identity_of(request)` says who asks.
    """
    sessions, node = LoginSessions(), node or NodeOptions()
    rows = EncodedQueues(broker)
    shared = {
        "sessions": sessions,
        "node": node,
        "rows": rows,
        "list_shovels": list_shovels,
        "database": database,
    }
    api = ApiRouter(broker, TABLES, shared)
    routes = [
        Route("/login", _log_in, methods=["POST"]),
        Route("/logout", _log_out, methods=["POST"]),
        ApiRoute(api),
        *pages,
    ]
    guard = Middleware(Guard, broker=broker, sessions=sessions)
    app = Starlette(routes=routes, middleware=[guard])
    app.state.broker, app.state.node, app.state.sessions = broker, node, sessions
    return app


async def _log_in(request: Request) -> Response:
    """Begin a session for the name and password of a form; `next` is the path of the page to show."""
    form = await read_form(request.receive)
    name, password = form.get("username", ""), form.get("password", "")
    address = request.client.host if request.client else ""
    identity = await identify(request.app.state.broker, name, password, address)
    following = _local_path(form.get("next", "/"))
    if identity is None or not identity.has("management"):
        if "text/html" not in request.headers.get("accept", ""):
            return PlainTextResponse("the name or the password is wrong", 401)
        return RedirectResponse(f"/login?{urlencode({'failed': 1, 'next': following})}", 303)
    response = RedirectResponse(following, 303)
    token = request.app.state.sessions.begin(identity)
    set_session_cookie(response, token, secure=request.url.scheme == "https")
    return response


async def _log_out(request: Request) -> Response:
    request.app.state.sessions.end(request.cookies.get(COOKIE, ""))
    response = RedirectResponse("/login", 303)
    clear_session_cookie(response)
    return response


def _local_path(path: str) -> str:
    """The path if it is one of this server, else `/`: a login must not lead to another site."""
    is_local = path.startswith("/") and not path.startswith(("//", "/\\"))
    return path if is_local and path.isprintable() else "/"
