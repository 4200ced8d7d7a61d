"""What the methods of AMQP need permission for. As RabbitMQ 4.0.5, with its words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from headgate.broker import Login, PermissionKind, VirtualHost

RESERVED: Final = "amq."
SERVER_NAMED: Final = "amq.gen-"  # how names begin that the broker gives


class Permissions:
    """What a user may do in a virtual host: everything refuses what it may not."""

    def __init__(self, login: Login, vhost: VirtualHost) -> None:
        self._login, self._vhost = login, vhost
        self._access = vhost.broker.access

    def renew(self, login: Login) -> None:
        """Go on with a new token of the same user."""
        self._login = login

    def check(self, permission: PermissionKind, kind: str, name: str) -> None:
        self._access.check(self._login, self._vhost.name, permission, kind, name)

    def check_topics(self, permission: PermissionKind, exchange: str, keys: Iterable[str]) -> None:
        """Check routing keys, if the exchange is one of topics."""
        known = self._vhost.topology.exchange(exchange)
        if known is not None and known.type == "topic":
            for key in keys:
                self._access.check_topic(self._login, self._vhost.name, permission, exchange, key)

    def check_declaration(self, kind: str, name: str, target: Any) -> None:
        """Declaring needs `configure`; a new one that passes messages on to a target needs to read and write, too."""
        if kind == "exchange" and not name:
            return  # which is refused to everybody
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
        """Binding writes to the destination and reads the source; the default exchange is refused to everybody."""
        self.check("write", kind, destination)
        if source and (destination or kind == "queue"):
            self.check("read", "exchange", source)
            self.check_topics("read", source, (key,))
