"""The identity of a request: a user of the broker with tags, by basic authentication, a token or a session."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Final, Literal

from headgate.broker import Broker, Login, LoginRefused, PasswordHash

log: Final = logging.getLogger(__name__)

Tag = Literal["management", "policymaker", "monitoring", "administrator"]
# The tags that each tag includes, by RabbitMQ's rules.
IMPLIED: Final[dict[str, frozenset[str]]] = {
    "administrator": frozenset(("management", "policymaker", "monitoring", "administrator")),
    "monitoring": frozenset(("management", "monitoring")),
    "policymaker": frozenset(("management", "policymaker")),
    "management": frozenset(("management",)),
}


@dataclass(frozen=True, slots=True)
class Identity:
    """A user that has logged in."""

    login: Login
    # The password it logged in with: its sessions end when the user gets another.
    password: PasswordHash | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return self.login.name

    @property
    def tags(self) -> frozenset[str]:
        return frozenset(self.login.tags)

    def has(self, tag: Tag) -> bool:
        """Whether one of the tags is this tag or includes it."""
        return any(tag in IMPLIED.get(own, ()) for own in self.login.tags)

    def may_watch(self, user: str) -> bool:
        """Whether it may see the connections of a user: its own, or with the tag monitoring all."""
        return self.has("monitoring") or user == self.name

    def may_steer(self, user: str) -> bool:
        """Whether it may change or close connections of a user: its own, or as an administrator all."""
        return self.has("administrator") or user == self.name


async def identify(broker: Broker, name: str, password: str, address: str) -> Identity | None:
    """Log in with a password, or a token in its place; None if the login is refused."""
    try:
        login = await broker.access.authenticate(name, password, address)
    except LoginRefused as refusal:
        log.warning("HTTP login refused: %s", refusal, extra={"address": address})
        return None
    user = broker.access.users.get(login.name)
    return Identity(login, user.password if user is not None else None)


def identify_again(broker: Broker, known: Identity) -> Identity | None:
    """The user of a session as it is now; None if there is no such user any more, or its token has expired."""
    if known.login.grants is not None:
        expires = known.login.expires
        return known if expires is None or expires * 1000 > broker.now() else None
    user = broker.access.users.get(known.name)
    if user is None or user.password != known.password:
        return None
    return Identity(Login(user.name, user.tags), known.password)
