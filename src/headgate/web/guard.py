"""The guard of every request: checks the size of its body, its origin and its login, and sets security headers.

What a user may do is checked later, by the endpoints (`web.endpoints`) and the pages (`web.pages.visit`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headgate.broker import Broker
from headgate.web.identity import Identity, identify, identify_again
from headgate.web.problems import HttpProblem, problem_response
from headgate.web.sessions import COOKIE, LoginSessions

SAFE_METHODS: Final = ("GET", "HEAD", "OPTIONS")
IDENTITY: Final = "headgate.identity"
MAX_BODY: Final = 20_000_000
SECURITY_HEADERS: Final[tuple[tuple[bytes, bytes], ...]] = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


def identity_of(scope: Mapping[str, Any]) -> Identity | None:
    """The identity that the guard found for a request; None without a login."""
    return scope.get(IDENTITY)


class Guard:
    """An ASGI app around another one: identifies the user, and refuses requests from pages of other sites.

    Without a broker there are no users, and every request is without a login.
    """

    def __init__(
        self, app: ASGIApp, broker: Broker | None, sessions: LoginSessions, max_body: int = MAX_BODY
    ) -> None:
        self._app, self._broker, self._sessions, self._max_body = app, broker, sessions, max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = _with_security_headers(send)
        headers = Headers(scope=scope)
        try:
            self._check_size(headers)
            scope[IDENTITY], by_cookie = await self._identify(scope, headers)
            if scope["method"] not in SAFE_METHODS:
                check_origin(headers, required=by_cookie)
            await self._app(scope, _Limited(receive, self._max_body), send)
        except HttpProblem as problem:
            await problem_response(scope["path"], problem)(scope, receive, send)

    def _check_size(self, headers: Headers) -> None:
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self._max_body:
            raise _too_large(self._max_body)

    async def _identify(self, scope: Scope, headers: Headers) -> tuple[Identity | None, bool]:
        """The identity of the user, and whether it comes from a cookie."""
        if self._broker is None:
            return None, False
        given = read_credentials(headers.get("authorization", ""))
        if given is not None:
            client = scope.get("client")
            address = client[0] if client else ""
            return await identify(self._broker, *given, address), False
        try:
            token = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            token = None
        known = None if token is None else self._sessions.find(token.value)
        return (None if known is None else identify_again(self._broker, known)), token is not None


def read_credentials(text: str) -> tuple[str, str] | None:
    """Name and password of basic authentication, or a token in place of the password; None if it is neither."""
    scheme, _, encoded = text.partition(" ")
    if scheme.lower() == "bearer":
        return "", encoded.strip()
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return (name, password) if colon else None


def check_origin(headers: Headers, *, required: bool) -> None:
    """Refuse a change that the page of another site sent; browsers say from where a request comes.

    A cookie proves nothing without an origin, so `required` refuses a request that does not name one.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site in ("cross-site", "same-site"):
        raise HttpProblem(403, "the request comes from a page of another site")
    if origin is not None and urlsplit(origin).netloc != headers.get("host", ""):
        raise HttpProblem(403, f"the request comes from {origin}, which is another site")
    if required and site is None and origin is None:
        raise HttpProblem(
            403, "a request with a session cookie must say where it comes from (Origin)"
        )


class _Limited:
    """Receives a body up to a limit."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive, self._most, self._seen = receive, most, 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self._seen += len(message.get("body", b""))
        if self._seen > self._most:
            raise _too_large(self._most)
        return message


def _too_large(most: int) -> HttpProblem:
    return HttpProblem(413, f"the body is larger than {most} bytes", {"Connection": "close"})


def _with_security_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = {name for name, _ in message["headers"]}
            added = [pair for pair in SECURITY_HEADERS if pair[0] not in own]
            if b"cache-control" not in own:
                added.append((b"cache-control", b"no-store"))
            message = {**message, "headers": [*message["headers"], *added]}
        await send(message)

    return send_with_headers
