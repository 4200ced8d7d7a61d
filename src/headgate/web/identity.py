"""Who asks: a user of the broker with tags, as basic authentication or a session says."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal

from headgate.broker import is_loopback

GUEST: Final = "guest"
KNOWN_S: Final = 30.0  # a password that was right is not checked again for this long
MOST_KNOWN: Final = 1_000

Tag = Literal["management", "policymaker", "monitoring", "administrator"]
# What a tag allows besides its own: RabbitMQ's rules.
IMPLIED: Final[dict[str, frozenset[str]]] = {
    "administrator": frozenset(("management", "policymaker", "monitoring", "administrator")),
    "monitoring": frozenset(("management", "monitoring")),
    "policymaker": frozenset(("management", "policymaker")),
    "management": frozenset(("management",)),
}


@dataclass(frozen=True, slots=True)
class Identity:
    """A user that has logged in, with its tags."""

    name: str
    tags: frozenset[str] = frozenset()

    def has(self, tag: Tag) -> bool:
        """Whether one of the tags allows what this tag allows."""
        return any(tag in IMPLIED.get(own, ()) for own in self.tags)


# Name, password and address of the peer to an identity, or None if the login is refused.
Identify = Callable[[str, str, str], "Awaitable[Identity | None]"]


async def identify_guest(name: str, password: str, address: str) -> Identity | None:
    """Let `guest` in with its well-known password, from this machine only."""
    known = name == password == GUEST and is_loopback(address)
    return Identity(name, frozenset(("administrator",))) if known else None


class LoginCache:
    """Checks passwords, which is slow by design, and remembers for some seconds those that were right.

    What is remembered is a keyed hash: the process does not keep passwords.
    """

    def __init__(self, identify: Identify, clock: Callable[[], float] = time.monotonic) -> None:
        self._identify, self._clock = identify, clock
        self._key = secrets.token_bytes(32)
        self._known: dict[bytes, tuple[float, Identity]] = {}

    async def identify(self, name: str, password: str, address: str) -> Identity | None:
        text = "\0".join((name, password, address)).encode(errors="surrogatepass")
        key = hmac.digest(self._key, text, hashlib.sha256)
        known = self._known.get(key)
        if known is not None and known[0] > self._clock():
            return known[1]
        identity = await self._identify(name, password, address)
        if identity is None:
            self._known.pop(key, None)
            return None
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[key] = self._clock() + KNOWN_S, identity
        return identity

    def forget(self) -> None:
        """Check every password again: a user was changed."""
        self._known.clear()
