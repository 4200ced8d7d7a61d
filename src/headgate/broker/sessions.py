"""Open connections by user and virtual host: limits of their numbers, and closing them together."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

from headgate.broker.refusals import NotAllowed
from headgate.broker.users import Login

if TYPE_CHECKING:
    from headgate.broker.broker import Broker


class Session(Protocol):
    """A connection, whatever its protocol."""

    def close(self, text: str) -> None:
        """Close the connection, and tell the client why."""


class Sessions:
    """The connections that have opened a virtual host. Limits below zero are none."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.most = -1  # connections in all
        self._names: dict[Session, tuple[str, str]] = {}  # user and virtual host
        self._users: Counter[str] = Counter()
        self._vhosts: Counter[str] = Counter()
        self._channels: Counter[str] = Counter()  # by user

    def __len__(self) -> int:
        return len(self._names)

    def admit(self, session: Session, login: Login, vhost: str) -> None:
        """Let a connection use a virtual host; refuse one too many, in RabbitMQ's words."""
        user = login.name
        if 0 <= self.most <= len(self._names):
            raise NotAllowed(f"connection refused: node connection limit ({self.most}) is reached")
        if vhost not in self._broker.vhosts:
            raise NotAllowed(f"vhost {vhost} not found")
        limit = self._broker.parameters.vhost_limits(vhost).get("max-connections", -1)
        if 0 <= limit <= self._vhosts[vhost]:
            raise NotAllowed(
                f"access to vhost '{vhost}' refused for user '{user}': connection limit ({limit}) is reached"
            )
        limit = self._limit_of(user, "max-connections")
        if 0 <= limit <= self._users[user]:
            raise NotAllowed(
                f"connection refused for user '{user}': user connection limit ({limit}) is reached"
            )
        self._broker.access.check_enter(login, vhost)
        self._names[session] = user, vhost
        self._users[user] += 1
        self._vhosts[vhost] += 1

    def leave(self, session: Session) -> None:
        """Count a connection that has ended no more."""
        names = self._names.pop(session, None)
        if names is not None:
            for counter, name in zip((self._users, self._vhosts), names, strict=True):
                _count_down(counter, name)

    def open_channel(self, login: Login) -> None:
        """Count a channel of a user; refuse one too many."""
        limit = self._limit_of(login.name, "max-channels")
        if 0 <= limit <= self._channels[login.name]:
            raise NotAllowed(
                f"number of channels opened for user '{login.name}' has reached the maximum allowed user limit of "
                f"({limit})"
            )
        self._channels[login.name] += 1

    def close_channels(self, login: Login, count: int) -> None:
        """Count channels of a user that have ended no more."""
        self._channels[login.name] -= count
        if self._channels[login.name] <= 0:
            del self._channels[login.name]

    def close_user(self, user: str, text: str) -> None:
        self._close([session for session, names in self._names.items() if names[0] == user], text)

    def close_vhost(self, vhost: str, text: str) -> None:
        self._close([session for session, names in self._names.items() if names[1] == vhost], text)

    def _close(self, sessions: list[Session], text: str) -> None:
        for session in sessions:
            session.close(text)

    def _limit_of(self, user: str, name: str) -> int:
        known = self._broker.access.users.get(user)
        return -1 if known is None else known.limits.get(name, -1)


def _count_down(counter: Counter[str], name: str) -> None:
    counter[name] -= 1
    if counter[name] <= 0:
        del counter[name]
