"""What policies change in a virtual host: the definitions of its queues, and where exchanges pass messages on to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.broker.declarations import ALTERNATE
from headgate.broker.policies import Policy, effective_policy
from headgate.routing import Exchange

if TYPE_CHECKING:
    from headgate.broker.vhost import VirtualHost


class PolicyEffects:
    """Applies the policies of a virtual host as they are now; what they no longer say is undone."""

    def __init__(self, vhost: VirtualHost) -> None:
        self._vhost = vhost
        self._declared: dict[str, str | None] = {}  # alternates of exchanges that got another

    def apply(self, changed: Sequence[Policy]) -> None:
        """Let queues and exchanges do what policies say, where these were or are about them."""
        vhost = self._vhost
        for exchange in vhost.topology.exchanges.values():
            if any(policy.matches("exchange", exchange.name) for policy in changed):
                self.apply_to_exchange(exchange)
        for queue in list(vhost.queues.values()):
            kind = queue.definition.type
            if not any(policy.matches(kind, queue.name) for policy in changed):
                continue
            definition = vhost.define(queue.name, queue.arguments)
            if definition != queue.definition:
                queue.redefine(definition)
                vhost.broker.dirty.add(queue)

    def apply_to_exchange(self, exchange: Exchange) -> None:
        """Let an exchange pass on what it cannot route to where it, or else a policy, says."""
        vhost, name = self._vhost, exchange.name
        if not name:
            return
        declared = wanted = self.declared_alternate(exchange)
        if declared is None:
            wanted = effective_policy(vhost.broker, vhost.name, "exchange", name).get(ALTERNATE)
        if wanted != exchange.alternate:
            self._declared[name] = declared
            vhost.topology.change_alternate(name, wanted)
            vhost.forget_routes()

    def declared_alternate(self, exchange: Exchange) -> str | None:
        """The alternate exchange that was declared, whatever a policy says."""
        return self._declared.get(exchange.name, exchange.alternate)

    def forget(self, exchange: Exchange) -> None:
        """An exchange is gone."""
        self._declared.pop(exchange.name, None)
