"""Applies policies to a virtual host: the definitions of its queues, and the alternate exchanges of its exchanges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headgate.broker.declarations import ALTERNATE
from headgate.broker.policies import Policy, effective_policy
from headgate.routing import Exchange

if TYPE_CHECKING:
    from headgate.broker.contract import BrokerQueue
    from headgate.broker.vhost import VirtualHost


class PolicyEffects:
    """Applies the current policies of a virtual host, and undoes those that no longer apply."""

    def __init__(self, vhost: VirtualHost) -> None:
        self._vhost = vhost
        # Alternates as declared, of exchanges to which a policy gave another.
        self._declared: dict[str, str | None] = {}

    def apply(self, changed: Sequence[Policy]) -> None:
        """Apply changed policies to the queues and exchanges that they matched before or match now."""
        vhost = self._vhost
        for exchange in vhost.topology.exchanges.values():
            if any(policy.matches("exchange", exchange.name) for policy in changed):
                self.apply_to_exchange(exchange)
        vhost.broker.take_steps(self._apply_to_queues(list(vhost.queues.values()), changed))

    def _apply_to_queues(
        self, queues: Sequence[BrokerQueue], changed: Sequence[Policy]
    ) -> Iterator[None]:
        for queue in queues:
            self._apply_to_queue(queue, changed)
            yield

    def _apply_to_queue(self, queue: BrokerQueue, changed: Sequence[Policy]) -> None:
        """Define a queue anew by all current policies, which may have changed again since."""
        vhost, kind = self._vhost, queue.definition.type
        if queue.is_deleted or not any(policy.matches(kind, queue.name) for policy in changed):
            return
        definition = vhost.define(queue.name, queue.arguments)
        if definition != queue.definition:
            queue.redefine(definition)
            vhost.broker.dirty.add(queue)

    def apply_to_exchange(self, exchange: Exchange) -> None:
        """Set the alternate exchange: the declared one, else that of a policy."""
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
        """Forget an exchange that was deleted."""
        self._declared.pop(exchange.name, None)
