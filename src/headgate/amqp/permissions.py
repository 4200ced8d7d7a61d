"""The permissions that each method of AMQP needs: rules and words of RabbitMQ 4.0.5."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from headgate.broker import Login, PermissionKind, VirtualHost

RESERVED: Final = "amq."
SERVER_NAMED: Final = "amq.gen-"  # the prefix of names that the broker generates


class Permissions:
    """The permissions of a user in a virtual host; every check raises a refusal if one is missing."""

    def __init__(self, login: Login, vhost: VirtualHost) -> None:
        self._login, self._vhost = login, vhost
        self._access = vhost.broker.access

    def renew(self, login: Login) -> None:
        """Use a new login of the same user from now on."""
        self._login = login

    def check(self, permission: PermissionKind, kind: str, name: str) -> None:
        self._access.check(self._login, self._vhost.name, permission, kind, name)

    def check_topics(self, permission: PermissionKind, exchange: str, keys: Iterable[str]) -> None:
        """Check routing keys, if it is a topic exchange."""
        known = self._vhost.topology.exchange(exchange)
        if known is not None and known.type == "topic":
            for key in keys:
                self._access.check_topic(self._login, self._vhost.name, permission, exchange, key)

    def check_declaration(self, kind: str, name: str, target: Any) -> None:
        """Require `configure`; for a new object that passes messages on to a target, also read and write."""
        if kind == "exchange" and not name:
            return  # the default exchange, which is refused later
        if kind == "queue":
            is_new = name not in self._vhost.queues
        else:
            is_new = self._vhost.topology.exchange(name) is None
        name = name or SERVER_NAMED
        self.check("configure", kind, name)
        if is_new and isinstance(target, str):
            self.check("read", kind, name)
            self.check("write", "exchange", target)

    def check_deletion(self, kind: str, name: str) -> None:
        if kind == "queue" or (name and not name.startswith(RESERVED)):
            self.check("configure", kind, name)

    def check_binding(self, kind: str, destination: str, source: str, key: str) -> None:
        """Require write on the destination and read on the source; refuse the default exchange."""
        self.check("write", kind, destination)
        if source and (destination or kind == "queue"):
            self.check("read", "exchange", source)
            self.check_topics("read", source, (key,))
