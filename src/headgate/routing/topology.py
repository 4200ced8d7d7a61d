"""Exchanges, queues and the bindings between them; the question it answers is `route`.

Semantics are RabbitMQ's: a queue gets one copy, however many bindings, diamonds and cycles lead to it; an exchange
that reaches no queue and no exchange passes the message on to its alternate exchange; a message that reaches no
queue at all is unroutable. Nothing here stores or sends: a topology is a value with indexes, and is pickled as its
declarations.

Threads may share a topology: each question is answered by the bindings as they are at one moment of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from headgate.checks import nearest
from headgate.errors import NotPermitted, UnknownExchange, UnknownQueue
from headgate.filters import Filter
from headgate.routing.advice import BindingAdvice, TopologyProblem, find_problems, make_advice
from headgate.routing.answers import Routable, RouteAnswer, Routed
from headgate.routing.batches import RoutedBatch, route_rows
from headgate.routing.bindings import (
    Binding,
    FilterText,
    check_bind_arguments,
    make_binding,
    parse_filter,
)
from headgate.routing.changes import ChangeLock, pause_collector
from headgate.routing.choosing import EXCHANGE_INDEXES, remake_index
from headgate.routing.declarations import (
    DEFAULT,
    RESERVED,
    STANDARD,
    Exchange,
    ExchangeType,
    QueueDeclaration,
    check_equivalent,
    declaration_arguments,
    make_exchange,
    make_queue,
)
from headgate.routing.definitions import read_definitions, write_definitions
from headgate.routing.definitions.document import Definitions, perform_all
from headgate.routing.exchanges import DefaultIndex, ExchangeIndex
from headgate.routing.explain import Explained, explain_bindings
from headgate.routing.incoming import Incoming, add_incoming, list_incoming, remove_incoming
from headgate.routing.values import Envelope
from headgate.routing.walks import walk, walk_all

_COMPARED: Final = 1000  # names that a misspelt one is compared with


class Topology:
    """Declare, bind, and ask where a message goes.

        from headgate import Message, Topology

        topology = Topology()
        topology.declare_exchange("orders", "topic")
        topology.declare_queue("large")
        topology.bind("orders", queue="large", key="orders.eu.#", filter="amount > 1000")
        message = Message(b"order 1", topic="orders.eu.created", headers={"amount": 1200})
        assert list(topology.route("orders", message).queues) == ["large"]

    Changes, and questions that must not see one half done, hold the lock. `route` first tries without it, and asks
    again under the lock if something was changed meanwhile.
    """

    def __init__(self) -> None:
        self._changes = ChangeLock()
        self._lock = self._changes.lock
        self._queues: dict[str, Incoming] = {}  # every queue, and the bindings to it
        # The queues with other than default options.
        self._uncommon: dict[str, QueueDeclaration] = {}
        default = DefaultIndex(Exchange(DEFAULT), self._queues)
        self._indexes: dict[str, ExchangeIndex] = {DEFAULT: default}
        self._public = dict(self._indexes)  # the exchanges one may publish to
        self._exchanges: dict[str, Incoming] = {}  # every exchange, and the bindings to it
        # Called for each binding and exchange that is removed, also when it goes with another; not pickled.
        self.on_removal: Callable[[Binding | Exchange], None] | None = None
        for name, type in STANDARD.items():
            self._add_exchange(Exchange(name, type))

    def __reduce__(self) -> tuple[Any, ...]:
        # An index is many times the size of its bindings, and its compiled tests cannot be pickled.
        with self._lock:
            own = [index for name, index in self._indexes.items() if name != DEFAULT]
            exchanges = tuple(i.exchange for i in own if i.exchange.name not in STANDARD)
            bindings = tuple((b, i.filters.get(b)) for i in own for b in i.bindings)
            queues = tuple(self._queues), tuple(self._uncommon.values())
        return _rebuild, (exchanges, *queues, bindings)

    # ---- declaring

    def declare_exchange(
        self,
        name: str,
        type: ExchangeType = "direct",
        *,
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        alternate: str | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> Exchange:
        """Declare an exchange; one that was declared before must have been declared with equal arguments.

        The alternate exchange may also be given as AMQP's argument `alternate-exchange`.
        """
        exchange = make_exchange(
            name,
            type,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            alternate=alternate,
            arguments=arguments,
        )
        if name == DEFAULT:
            raise NotPermitted("the default exchange is always there and cannot be declared")
        with self._changes:
            if name in self._indexes:
                check_equivalent(f"exchange {name!r}", self._indexes[name].exchange, exchange)
                return self._indexes[name].exchange
            if name.startswith(RESERVED):
                raise NotPermitted(
                    f"exchange names that begin with {RESERVED!r} are reserved: {name!r}"
                )
            self._add_exchange(exchange)
            return exchange

    def declare_queue(
        self,
        name: str,
        *,
        durable: bool = True,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> QueueDeclaration:
        """Declare a queue, which the default exchange reaches at once."""
        queue = make_queue(name, durable=durable, auto_delete=auto_delete, arguments=arguments)
        with self._changes:
            if name in self._queues:
                declared = self._uncommon.get(name, QueueDeclaration(name))
                check_equivalent(f"queue {name!r}", declared, queue)
            else:
                self._add_queue(queue)
            return queue

    def delete_exchange(self, name: str) -> bool:
        """Delete the exchange and every binding from it and to it; whether it was there."""
        if name == DEFAULT or name in STANDARD:
            raise NotPermitted(f"the exchange {name!r} is always there and cannot be deleted")
        with self._changes:
            return self._delete_exchange(name)

    def change_alternate(self, name: str, alternate: str | None) -> None:
        """Let messages that the exchange cannot route go on to another exchange, or to none."""
        with self._changes:
            self._file_index(remake_index(self._indexes[name], alternate))

    def delete_queue(self, name: str) -> bool:
        """Delete the queue and every binding to it; whether it was there."""
        with self._changes:
            if is_there := name in self._queues:
                self._uncommon.pop(name, None)
                self._delete_bindings(self._queues.pop(name))
            return is_there

    # ---- binding

    def bind(
        self,
        source: str,
        *,
        queue: str | None = None,
        exchange: str | None = None,
        key: str = "",
        arguments: Mapping[str, Any] | None = None,
        filter: FilterText | None = None,
    ) -> Binding:
        """Bind a queue, or another exchange, to the source; to bind twice is to bind once."""
        with self._changes:
            return self._bind(source, queue, exchange, key, arguments, filter)

    def bind_all(self, bindings: Iterable[Mapping[str, Any]]) -> None:
        """Bind many at once, each given as the arguments of a `bind`; those before one that is refused are bound."""
        entries = list(bindings)  # no code of the caller runs during the change
        for keywords in entries:
            check_bind_arguments(keywords)
        with self._changes, self._bulk({keywords.get("source", "") for keywords in entries}):
            for keywords in entries:
                self._bind(**keywords)

    def unbind(
        self,
        source: str,
        *,
        queue: str | None = None,
        exchange: str | None = None,
        key: str = "",
        arguments: Mapping[str, Any] | None = None,
        filter: FilterText | None = None,
    ) -> bool:
        """Undo a `bind` with equal arguments; whether there was such a binding."""
        with self._changes:
            if source not in self._indexes:
                raise self._unknown(source)
            binding, given = make_binding(source, queue, exchange, key, arguments, filter)
            if given is not None and type(given) is not str:
                binding = binding.with_filter(parse_filter(given, str(binding))[1])
            return self._delete_binding(binding)

    def delete_binding(self, binding: Binding) -> bool:
        """Delete a binding; whether it was there. An `auto_delete` exchange goes with its last one."""
        with self._changes:
            return self._delete_binding(binding)

    # ---- routing

    def route(self, exchange: str, message: Routable | tuple[str, Mapping[str, Any]]) -> Routed:
        """Where the message goes. What came over AMQP is an `Envelope` or (routing key, headers)."""
        index = self._public.get(exchange) or self._find_public(exchange)
        if type(message) is tuple:
            message = Envelope(*message)
        # Settled answers were put in under the lock, and go with the next change.
        if index.final:  # where the topic does not decide, it is not even read
            known = index.final.get(message.topic)  # type: ignore[union-attr]
            if known is not None:
                return known
        changes, recall, answer = self._changes, index.recall, None
        moment = changes.moment
        if recall is not None and moment is not None:
            try:
                answer = recall(message)  # type: ignore[arg-type]
            except Exception:  # by a change; any other cause raises again under the lock
                answer = None
            if type(answer) is Routed and moment is changes.moment:
                return answer
        return self._route_locked(exchange, message, moment, answer)  # type: ignore[arg-type]

    def route_all(self, exchange: str, messages: Sequence[Envelope]) -> Routed:
        """Where a message of several topics goes: each exchange sees all. It may begin at an internal exchange."""
        with self._lock:
            if exchange not in self._indexes:
                raise self._unknown(exchange)
            return walk_all(self._indexes, self._indexes[exchange], messages)

    def route_key(self, exchange: str, topic: str) -> RouteAnswer | None:
        """Where every message with this topic goes, or the filters that decide that; None if more than they decide."""
        with self._lock:
            index = self._find_public(exchange)
            if not index.by_key:
                return None
            envelope = Envelope(topic)
            return walk(self._indexes, index, index.find(envelope), envelope, by_key=True)

    def is_steady(self, via: Iterable[str]) -> bool:
        """Whether these exchanges send messages that differ in nothing but the body to the same queues."""
        return all(self._indexes[name].is_steady for name in via)

    def route_batch(self, exchange: str, batch: pa.RecordBatch) -> RoutedBatch:
        """Where each row of the batch goes; its columns are named as in `headgate.columns.names`."""
        with self._lock:
            return route_rows(self._indexes, self._find_public(exchange), batch)

    def explain(
        self, exchange: str, message: Routable | tuple[str, Mapping[str, Any]]
    ) -> Explained:
        """Who receives the message and, for every other binding it met, the first condition that failed."""
        if type(message) is tuple:
            message = Envelope(*message)
        with self._lock:
            routed = self.route(exchange, message)
            passed = [self._indexes[name] for name in routed.via]
            return Explained(routed, tuple(explain_bindings(passed, message, routed)))  # type: ignore[arg-type]

    def validate(self) -> list[TopologyProblem]:
        """What is declared and has no effect: missing alternates, bindings that never match."""
        with self._lock:
            return list(find_problems(self._indexes))

    def advise(self) -> list[BindingAdvice]:
        """What no index can make fast, by exchange."""
        with self._lock:
            return [entry for index in self._indexes.values() for entry in make_advice(index)]

    # ---- looking

    def exchange(self, name: str) -> Exchange | None:
        """The exchange of this name, if there is one."""
        return index.exchange if (index := self._indexes.get(name)) else None

    @property
    def exchanges(self) -> Mapping[str, Exchange]:
        with self._lock:
            return {name: i.exchange for name, i in self._indexes.items()}

    @property
    def queues(self) -> Mapping[str, QueueDeclaration]:
        with self._lock:
            return {
                name: self._uncommon.get(name) or QueueDeclaration(name) for name in self._queues
            }

    def bindings(self, source: str | None = None) -> Iterator[Binding]:
        """The bindings of one exchange, or of all, as they are now."""
        with self._lock:
            if source is not None and source not in self._indexes:
                raise self._unknown(source)
            names = self._indexes if source is None else (source,)
            return iter([binding for name in names for binding in self._indexes[name].bindings])

    def bindings_to(self, kind: str, name: str) -> list[Binding]:
        """The bindings to one queue or exchange."""
        return list_incoming((self._queues if kind == "queue" else self._exchanges).get(name))

    def __len__(self) -> int:
        """How many bindings there are."""
        with self._lock:
            return sum(len(i.bindings) for i in self._indexes.values())

    @classmethod
    def load(cls, path: str | Path, *, vhost: str | None = None) -> Topology:
        """Load a .toml file, or a .json file of RabbitMQ's definitions."""
        return cls.from_definitions(read_definitions(Path(path), vhost))

    def save(self, path: str | Path) -> None:
        """Write a .toml file, or a .json file with RabbitMQ's definitions."""
        write_definitions(Path(path), self.definitions())

    @classmethod
    def from_definitions(cls, definitions: Definitions) -> Topology:
        """Declare and bind all; an entry that is refused is named."""
        topology = cls()
        with pause_collector():
            perform_all(topology.declare_exchange, definitions.exchanges)
            perform_all(topology.declare_queue, definitions.queues)
            with topology._bulk(topology._indexes.keys()):
                perform_all(topology._bind, definitions.bindings)
        return topology

    def definitions(self) -> Definitions:
        """The arguments that declare and bind all of it again."""
        with self._lock:
            own = [e for n, e in self.exchanges.items() if n not in STANDARD and n != DEFAULT]
            return Definitions(
                [(f"exchange {e.name!r}", declaration_arguments(e)) for e in own],
                [(f"queue {q.name!r}", declaration_arguments(q)) for q in self.queues.values()],
                [(f"binding {b}", b.bind_arguments) for b in self.bindings()],
            )

    # ---- inside

    @contextmanager
    def _bulk(self, sources: Set[str]) -> Iterator[None]:
        """Insert the bindings that are made inside together; the indexes of these exchanges must not be queried until then."""
        with pause_collector(), ExitStack() as stack:
            for source in sources & self._indexes.keys():
                stack.enter_context(self._indexes[source].bulk())
            yield

    def _unknown(self, exchange: str) -> UnknownExchange:
        known = list(self._indexes)  # in one step: other threads may declare
        return UnknownExchange(exchange, nearest(exchange, known[:_COMPARED]))

    def _find_public(self, exchange: str) -> ExchangeIndex:
        index = self._public.get(exchange)
        if index is None and exchange in self._indexes:
            raise NotPermitted(
                f"the exchange {exchange!r} is internal: bind it to one that may be published to"
            )
        if index is None:
            raise self._unknown(exchange)
        return index

    def _route_locked(
        self, exchange: str, message: Routable, moment: object | None, answer: RouteAnswer | None
    ) -> Routed:
        """Route under the lock; an answer of the first exchange is used if nothing was changed since that moment."""
        with self._lock:
            index = self._find_public(exchange)
            if answer is None or moment is not self._changes.moment:
                answer = index.find(message)
            if type(answer) is Routed:
                return answer
            return walk(self._indexes, index, answer, message)  # type: ignore[return-value]

    def _add_exchange(self, exchange: Exchange) -> None:
        self._file_index(EXCHANGE_INDEXES[exchange.routing_type](exchange))
        self._exchanges[exchange.name] = None

    def _file_index(self, index: ExchangeIndex) -> None:
        self._indexes[index.exchange.name] = index
        if not index.exchange.internal:
            self._public[index.exchange.name] = index

    def _delete_exchange(self, name: str) -> bool:
        if (index := self._indexes.pop(name, None)) is None:
            return False
        for binding in list(index.bindings):
            self._forget_binding(binding)
        self._public.pop(name, None)
        if self.on_removal:
            self.on_removal(index.exchange)
        self._delete_bindings(self._exchanges.pop(name))
        return True

    def _add_queue(self, queue: QueueDeclaration) -> None:
        self._queues[queue.name] = None
        if queue != QueueDeclaration(queue.name):
            self._uncommon[queue.name] = queue

    def _bind(
        self,
        source: str,
        queue: str | None = None,
        exchange: str | None = None,
        key: str = "",
        arguments: Mapping[str, Any] | None = None,
        filter: FilterText | None = None,
    ) -> Binding:
        index = self._indexes.get(source)
        if index is None:
            raise self._unknown(source)
        binding, given_filter = make_binding(source, queue, exchange, key, arguments, filter)
        targets = self._exchanges if queue is None else self._queues
        if binding.destination not in targets:
            raise (UnknownExchange if queue is None else UnknownQueue)(binding.destination)
        tree = None
        if given_filter is not None:
            tree, text = parse_filter(given_filter, str(binding))
            if type(given_filter) is not str:
                binding = binding.with_filter(text)
        if index.bind(binding, tree):
            add_incoming(targets, binding)
        return binding

    def _delete_binding(self, binding: Binding) -> bool:
        if not self._remove_binding(binding):
            return False
        index = self._indexes[binding.source]
        if index.exchange.auto_delete and not index.bindings:
            self._delete_exchange(binding.source)
        return True

    def _remove_binding(self, binding: Binding) -> bool:
        index = self._indexes.get(binding.source)
        if index is None or not index.unbind(binding):
            return False
        self._forget_binding(binding)
        return True

    def _forget_binding(self, binding: Binding) -> None:
        remove_incoming(self._targets(binding), binding)
        if self.on_removal is not None:
            self.on_removal(binding)

    def _delete_bindings(self, incoming: Incoming) -> None:
        """Delete the bindings to a queue or an exchange that was deleted."""
        for binding in list_incoming(incoming):
            self._delete_binding(binding)

    def _targets(self, binding: Binding) -> dict[str, Incoming]:
        return self._queues if binding.kind == "queue" else self._exchanges


def _rebuild(
    exchanges: tuple[Exchange, ...],
    queues: tuple[str, ...],
    uncommon: tuple[QueueDeclaration, ...],
    bindings: tuple[tuple[Binding, Filter | None], ...],
) -> Topology:
    topology = Topology()
    for exchange in exchanges:
        topology._add_exchange(exchange)
    topology._queues.update(dict.fromkeys(queues))
    for queue in uncommon:
        topology._add_queue(queue)
    with topology._bulk(topology._indexes.keys()):
        for binding, tree in bindings:
            if topology._indexes[binding.source].bind(binding, tree):
                add_incoming(topology._targets(binding), binding)
    return topology
