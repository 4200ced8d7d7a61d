"""A virtual host: exchanges, queues and bindings under one name; routes messages, and publishes dead letters."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from headgate.broker.contract import BrokerQueue
from headgate.broker.dead_letters import carbon_keys, goes_in_circles, make_dead_letter
from headgate.broker.declarations import (
    binding_name,
    binding_problem,
    check_alternate,
    check_exchange_type,
    check_not_default,
    check_queue_of,
    check_same_exchange,
    check_same_queue,
)
from headgate.broker.delays import delay_of
from headgate.broker.message import BrokerMessage, QueueEntry
from headgate.broker.policies import effective_policy
from headgate.broker.policy_effects import PolicyEffects
from headgate.broker.queue import ClassicQueue
from headgate.broker.queue_definition import QUEUE_TYPES, QueueDefinition, define_queue
from headgate.broker.refusals import (
    AccessRefused,
    NotFound,
    NotImplementedHere,
    PreconditionFailed,
    ResourceLocked,
)
from headgate.broker.routes import Conditions, KnownRoutes, Route
from headgate.broker.stream_queue import StreamQueue
from headgate.broker.trace import trace_message
from headgate.broker.traffic import ExchangeTraffic
from headgate.broker.vhost_settings import VhostSettings
from headgate.errors import BindingRefused, DeclarationRefused
from headgate.routing import DELAYED, Binding, Exchange, ExchangeType, Routed, Topology, Unresolved

if TYPE_CHECKING:
    from headgate.broker.broker import Broker

DEFAULT: Final = ""
RESERVED: Final = "amq."
GENERATED: Final = "amq.gen-"  # names of queues that were declared without one


class ReplyTaker(Protocol):
    """Takes direct replies."""

    def deliver(self, entries: Sequence[QueueEntry]) -> None:
        """Send them."""


class VirtualHost:
    """The objects of one virtual host."""

    def __init__(self, broker: Broker, name: str, settings: VhostSettings | None = None) -> None:
        self.broker, self.name = broker, name
        self.settings = settings or VhostSettings()
        self.topology = Topology()
        self.topology.on_removal = self._removed
        self.queues: dict[str, BrokerQueue] = {}
        # Consumers of direct replies, by the address of each.
        self.replies: dict[str, ReplyTaker] = {}
        # Exclusive queues, by the connection that owns them.
        self._exclusive: dict[object, dict[BrokerQueue, None]] = {}
        self._routes = KnownRoutes()
        self.effects = PolicyEffects(self)
        self.traffic = ExchangeTraffic()
        self.confirms = 0
        self.generation = 0  # changes with the topology: routes of another one are stale

    # ---- exchanges

    def find_exchange(self, name: str) -> Exchange:
        exchange = self.topology.exchange(name)
        if exchange is None:
            raise NotFound("exchange", name, self.name)
        return exchange

    def find_declared_exchange(self, name: str) -> Exchange:
        """The exchange of this name; the default one is not for declarations, also passive ones."""
        check_not_default(name)
        return self.find_exchange(name)

    def declare_exchange(
        self,
        name: str,
        type: str,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Declare an exchange; one that exists must be equivalent."""
        arguments = dict(arguments or {})
        check_exchange_type(type)
        check_not_default(name)
        known = self.topology.exchange(name)
        if known is not None:
            given = {
                "type": type,
                "durable": durable,
                "auto_delete": auto_delete,
                "internal": internal,
            }
            alternate = self.effects.declared_alternate(known)
            check_same_exchange(self.name, known, given, arguments, alternate)
            return
        if name.startswith(RESERVED):
            raise AccessRefused(f"exchange name '{name}' contains reserved prefix 'amq.*'")
        check_alternate(name, self.name, arguments)
        try:
            exchange = self.topology.declare_exchange(
                name,
                cast(ExchangeType, type),
                durable=durable,
                auto_delete=auto_delete,
                internal=internal,
                arguments=arguments,
            )
        except DeclarationRefused as problem:
            raise PreconditionFailed(str(problem)) from problem
        self.forget_routes()
        self.effects.apply_to_exchange(exchange)
        if durable:
            self._define_exchange(exchange, arguments)

    def delete_exchange(self, name: str, *, if_unused: bool = False) -> None:
        """Delete an exchange, if it is there."""
        check_not_default(name)
        if name.startswith(RESERVED):
            raise AccessRefused(
                f"deletion of system exchange '{name}' in vhost '{self.name}' not allowed"
            )
        if self.topology.exchange(name) is None:
            return
        if if_unused and next(self.topology.bindings(name), None) is not None:
            raise PreconditionFailed(f"exchange '{name}' in vhost '{self.name}' in use")
        self.topology.delete_exchange(name)

    # ---- queues

    def find_queue(self, name: str, owner: object | None = None) -> BrokerQueue:
        """The queue of this name, which may belong to this connection only."""
        queue = self.queues.get(name)
        if queue is None:
            raise NotFound("queue", name, self.name)
        if queue.owner is not None and queue.owner is not owner:
            raise ResourceLocked(name, self.name)
        return queue

    def declare_queue(
        self,
        name: str,
        *,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
        connection: object | None = None,
    ) -> BrokerQueue:
        """Declare a queue; one that exists must be equivalent. A queue without a name gets one."""
        arguments = dict(arguments or {})
        if self.settings.default_queue_type and durable and not exclusive and not auto_delete:
            arguments.setdefault("x-queue-type", self.settings.default_queue_type)
        durable = durable and not exclusive  # it goes with its connection
        if name.startswith(RESERVED):  # also one that is there
            raise AccessRefused(f"queue name '{name}' contains reserved prefix 'amq.*'")
        known = self.queues.get(name)
        if known is not None:
            self.find_queue(known.name, connection)
            check_same_queue(known, durable, exclusive, auto_delete, arguments)
            known.note_use()
            return known
        owner = connection if exclusive else None
        return self.create_queue(name, arguments, durable, auto_delete, owner)

    def create_queue(
        self,
        name: str,
        arguments: Mapping[str, Any],
        durable: bool,
        auto_delete: bool,
        owner: object | None = None,
    ) -> BrokerQueue:
        """Add a queue that is not there yet, also one with a name that only the broker gives."""
        self.broker.parameters.check_queue_limit(self.name, name, len(self.queues))
        flags = {"exclusive": owner is not None, "auto_delete": auto_delete}
        definition = self.define(name, arguments, durable=durable, **flags)
        if not name and definition.type != "classic":
            raise PreconditionFailed(
                f"Cannot declare a server-named queue for type rabbit_{definition.type}_queue"
            )
        name = name or f"{GENERATED}{secrets.token_urlsafe(16)}"
        if definition.type == "stream":
            stream = self.add_stream_queue(name, definition, arguments)
            self._define_queue(stream)
            return stream
        queue = self.add_queue(
            ClassicQueue(
                self,
                name,
                definition,
                durable=durable,
                auto_delete=auto_delete,
                owner=owner,
                arguments=arguments,
                first_lane=self.broker.new_lanes(definition.lanes) if durable else 0,
            )
        )
        if owner is not None:
            self._exclusive.setdefault(owner, {})[queue] = None
        if durable:
            self._define_queue(queue)
        return queue

    def release(self, connection: object) -> None:
        """Delete the queues that belong to a connection, which is gone."""
        queues = list(self._exclusive.pop(connection, ()))
        self.broker.take_steps(self.delete_queue(queue) for queue in queues)

    def delete_queue(
        self, queue: BrokerQueue, *, if_unused: bool = False, if_empty: bool = False
    ) -> int:
        """Delete a queue; return how many messages were ready."""
        where = f"queue '{queue.name}' in vhost '{self.name}'"
        if if_unused and queue.consumers:
            raise PreconditionFailed(f"{where} in use")
        if if_empty and len(queue):
            raise PreconditionFailed(f"{where} not empty")
        if self.queues.pop(queue.name, None) is None:
            return 0
        self._exclusive.get(queue.owner, {}).pop(queue, None)
        self.topology.delete_queue(queue.name)
        self.forget_routes()
        self.broker.store.define("queue", self._key(queue.name), None)
        self.broker.changed.add(queue)
        return queue.delete()

    def define(self, name: str, arguments: Mapping[str, Any], **given: bool) -> QueueDefinition:
        """The definition of a queue with these arguments, by the current policies."""
        kind = arguments.get("x-queue-type", "classic")
        is_known = isinstance(kind, str) and kind in QUEUE_TYPES  # if not, it is refused
        policy = effective_policy(self.broker, self.name, kind, name) if is_known else None
        return define_queue(name, self.name, arguments, policy=policy, **given)

    def delete_contents(self) -> Iterator[None]:
        """Delete all bindings, queues and exchanges, one in each step."""
        for binding in self.topology.bindings():
            self.topology.delete_binding(binding)
            yield
        for queue in list(self.queues.values()):
            self.delete_queue(queue)
            yield
        for name in list(self.topology.exchanges):
            if name != DEFAULT and not name.startswith(RESERVED):
                self.topology.delete_exchange(name)
                yield

    # ---- bindings

    def bind(
        self,
        source: str,
        destination: str,
        routing_key: str,
        arguments: Mapping[str, Any],
        *,
        to_exchange: bool = False,
    ) -> None:
        self._check_ends(source, destination, to_exchange)
        target = {"exchange" if to_exchange else "queue": destination}
        try:
            binding = self.topology.bind(source, key=routing_key, arguments=arguments, **target)
        except BindingRefused as problem:
            raise PreconditionFailed(binding_problem(problem, arguments)) from problem
        self.forget_routes()
        if self._is_durable(binding):
            self._define_binding(binding, arguments)

    def unbind(
        self,
        source: str,
        destination: str,
        routing_key: str,
        arguments: Mapping[str, Any],
        *,
        to_exchange: bool = False,
    ) -> None:
        check_not_default(source, *([destination] if to_exchange else ()))
        if self.topology.exchange(source) is None:
            return
        target = {"exchange" if to_exchange else "queue": destination}
        try:
            self.topology.unbind(source, key=routing_key, arguments=arguments, **target)
        except BindingRefused as problem:
            raise PreconditionFailed(binding_problem(problem, arguments)) from problem

    # ---- publishing

    def find_route(self, exchange: str, routing_key: str) -> Route:
        """The route of messages for this exchange and key; an internal or unknown exchange is refused."""
        route = self._routes.by_key.get((exchange, routing_key))
        if route is None:
            if self.find_exchange(exchange).internal:
                raise AccessRefused(
                    f"cannot publish to internal exchange '{exchange}' in vhost '{self.name}'"
                )
            is_delayed = self.find_exchange(exchange).type == DELAYED
            routed = None if is_delayed else self.topology.route_key(exchange, routing_key)
            queues = self._queues_of(routed.queues) if isinstance(routed, Routed) else None
            traffic = self.traffic.of(exchange, len(queues or ()))
            route = Route(exchange, routing_key, queues, traffic)
            route.is_delayed = is_delayed
            if isinstance(routed, Unresolved) and self.topology.is_steady((exchange,)):
                route.conditions = Conditions(routed, self.queues, self.generation)
            self._routes.add(route)
        return route

    def queues_by_properties(self, message: BrokerMessage, route: Route) -> tuple[BrokerQueue, ...]:
        """The queues of a message where more than its routing key decides; found once for equal properties."""
        is_common = message.has_common_properties  # most that are new do not come again
        known = self._routes.by_properties.get((route, message.properties)) if is_common else None
        if known is not None:
            return known
        conditions = route.conditions
        if conditions is not None and conditions.generation == self.generation:
            queues = conditions.find_queues(message.seen_by_filters(route.routing_key))
            if queues is not None:
                if is_common:
                    self._routes.remember((route, message.properties), queues)
                return queues
        if self.topology.exchange(route.exchange) is None:
            return ()
        routed = self.topology.route(route.exchange, message.envelope(route.routing_key))
        queues = self._queues_of(routed.queues)
        if is_common and self.topology.is_steady(routed.via):
            self._routes.remember((route, message.properties), queues)
        return queues

    def queues_for(
        self, message: BrokerMessage, exchange: str, keys: Sequence[str]
    ) -> tuple[BrokerQueue, ...]:
        """The queues of a message under several routing keys, each once; the exchange may be internal."""
        if self.topology.exchange(exchange) is None:
            return ()
        routed = self.topology.route_all(exchange, [message.envelope(key) for key in keys])
        return self._queues_of(routed.queues)

    trace = trace_message

    def deliver(self, message: BrokerMessage, queues: Sequence[BrokerQueue]) -> bool:
        """Publish a message to queues; False if one of them refused it."""
        body_id = None
        if len(queues) > 1 and message.persistent:
            body_id = self._share(message, queues)
        accepted = True
        for queue in queues:
            accepted = queue.publish(message, body_id) and accepted
        return accepted

    def dead_letter(self, queue: BrokerQueue, message: BrokerMessage, reason: str) -> None:
        """Publish a message that died in a queue to the queue's dead letter exchange."""
        definition = queue.definition
        exchange = definition.dead_letter_exchange
        if exchange is None:
            return
        letter, keys = make_dead_letter(
            message, queue.name, reason, exchange, definition.dead_letter_key, self.broker.now()
        )
        found = self.topology.exchange(exchange)
        if found is not None and found.type == DELAYED and self.hold_back(letter):
            return
        targets = self.queues_for(letter, exchange, keys)
        if reason != "rejected":
            targets = tuple(q for q in targets if not goes_in_circles(letter, q.name))
        self.deliver(letter, targets)

    def hold_back(self, message: BrokerMessage) -> bool:
        """Keep a message to a delayed exchange until it is due; False if it is due at once."""
        delay = delay_of(message)
        if delay > 0:
            self.broker.delays.add(self, message, delay)
        return delay > 0

    def publish_due(self, message: BrokerMessage) -> None:
        """Route a message that was held back, also under the keys of its CC and BCC."""
        keys = (message.routing_key, *carbon_keys(message.headers))
        if "BCC" in message.headers:
            message = message.with_headers({}, removed=("BCC",))
        self.deliver(message, self.queues_for(message, message.exchange, keys))

    # ---- inside

    def _share(self, message: BrokerMessage, queues: Sequence[BrokerQueue]) -> int | None:
        """Have the body stored once, if more than one of the queues stores it."""
        if sum(bool(queue.first_lane) for queue in queues) < 2:
            return None
        return self.broker.store.share(message.parts()[1])

    def _queues_of(self, names: Iterable[str]) -> tuple[BrokerQueue, ...]:
        return tuple([self.queues[name] for name in names])

    def add_queue(self, queue: BrokerQueue) -> BrokerQueue:
        """Take in a queue that is new, or was there before a restart."""
        self.queues[queue.name] = queue
        self.topology.declare_queue(queue.name)
        self.forget_routes()
        self.broker.changed.add(queue)
        return queue

    def add_stream_queue(
        self, name: str, definition: QueueDefinition, arguments: Mapping[str, Any]
    ) -> StreamQueue:
        """Take in a stream queue that is new, or was there before a restart."""
        home = self.broker.stream_home
        if home is None:
            raise NotImplementedHere("stream queues in a broker without a place for streams")
        queue = StreamQueue(self, name, definition, home, arguments)
        self.add_queue(queue)
        return queue

    def forget_routes(self) -> None:
        """Forget all routes, here and in connections."""
        self._routes.clear()
        self.generation += 1

    def _key(self, *names: str) -> str:
        return "\x00".join((self.name, *names))

    def _check_ends(self, source: str, destination: str, to_exchange: bool) -> None:
        check_not_default(source, *([destination] if to_exchange else ()))
        exchange = self.find_exchange(source)
        if to_exchange:
            self.find_exchange(destination)
        elif destination not in self.queues:
            raise NotFound("queue", destination, self.name)
        else:
            check_queue_of(exchange, self.queues[destination])

    # ---- what survives a restart

    def _is_durable(self, binding: Binding) -> bool:
        if not self.find_exchange(binding.source).durable:
            return False
        if binding.kind == "exchange":
            return self.find_exchange(binding.destination).durable
        return self.queues[binding.destination].durable

    def _define_exchange(self, exchange: Exchange, arguments: Mapping[str, Any]) -> None:
        self._define(
            "exchange",
            exchange.name,
            {
                "type": exchange.type,
                "auto_delete": exchange.auto_delete,
                "internal": exchange.internal,
                "arguments": arguments,
            },
        )

    def _define_queue(self, queue: BrokerQueue) -> None:
        self._define(
            "queue",
            queue.name,
            {
                "auto_delete": queue.auto_delete,
                "arguments": queue.arguments,
                "first_lane": queue.first_lane,
            },
        )

    def _define_binding(self, binding: Binding, arguments: Mapping[str, Any]) -> None:
        value = {
            "source": binding.source,
            "destination": binding.destination,
            "to_exchange": binding.kind == "exchange",
            "routing_key": binding.key,
            "arguments": arguments,
        }
        self._define("binding", binding_name(binding), value)

    def _define(self, kind: str, name: str, value: Mapping[str, Any]) -> None:
        self.broker.store.define(kind, self._key(name), self.broker.codec.encode_table(value))

    def _removed(self, what: Binding | Exchange) -> None:
        """Forget a binding or an exchange that was deleted, perhaps by deleting another object."""
        if isinstance(what, Exchange):
            self.effects.forget(what)
            self.traffic.forget(what.name)
            if what.durable:
                self.broker.store.define("exchange", self._key(what.name), None)
        else:
            self.broker.store.define("binding", self._key(binding_name(what)), None)
        self.forget_routes()
