"""Sessions of people who logged in on a page: a random token in a cookie, kept in memory."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Final

from starlette.responses import Response

from headgate.web.identity import Identity

COOKIE: Final = "headgate_session"
IDLE_S: Final = 8 * 3_600.0  # a session that is not used for this long is over
MOST: Final = 10_000


class LoginSessions:
    """The identities of users who are logged in, by the token of their session."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: dict[str, tuple[float, Identity]] = {}

    def begin(self, identity: Identity) -> str:
        """Remember an identity; return the token that stands for it."""
        if len(self._open) >= MOST:
            self._open.pop(next(iter(self._open)))
        token = secrets.token_urlsafe(32)
        self._open[token] = self._clock() + IDLE_S, identity
        return token

    def find(self, token: str) -> Identity | None:
        """The identity of a token; its session is prolonged."""
        known = self._open.pop(token, None)
        if known is None or known[0] < self._clock():
            return None
        self._open[token] = self._clock() + IDLE_S, known[1]
        return known[1]

    def holds(self, token: str) -> bool:
        """Whether a token has a session; asking does not prolong it."""
        known = self._open.get(token)
        return known is not None and known[0] >= self._clock()

    def end(self, token: str) -> None:
        self._open.pop(token, None)

    def end_all(self, user: str) -> None:
        """End the sessions of a user that was changed or deleted."""
        for token in [token for token, (_, who) in self._open.items() if who.name == user]:
            del self._open[token]


def set_session_cookie(response: Response, token: str, *, secure: bool) -> None:
    """Hand a token to the browser, for requests from our own pages only."""
    response.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=secure, path="/")


def clear_session_cookie(response: Response) -> None:
    response.delete_cookie(COOKIE, httponly=True, samesite="strict", path="/")
