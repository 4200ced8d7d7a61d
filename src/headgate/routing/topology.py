"""Exchanges, queues and the bindings between them; the question it answers is `route`.

Semantics are RabbitMQ's: a queue gets one copy however many bindings, diamonds and cycles lead to it; an
exchange that reaches nobody passes the message on to its alternate exchange; what reaches nobody at all is
unroutable. Nothing here stores or sends: a topology is a value with an index, and travels as its definitions.

Threads may share a topology: each question is answered by the bindings as they are at one moment of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from headgate.errors import RoutingError, TopologyError
from headgate.filters import Filter
from headgate.matching import merged
from headgate.routing.advice import Advice, Problem, advice, problems
from headgate.routing.answers import Answer, Routable, Routed
from headgate.routing.batches import RoutedBatch, route_rows
from headgate.routing.bindings import Binding
from headgate.routing.declarations import (
    DEFAULT,
    STANDARD,
    Declarations,
    Queue,
    arrived,
    collector_paused,
)
from headgate.routing.definitions import Definitions
from headgate.routing.exchanges import Exchange, Index
from headgate.routing.explain import Explained, reasons
from headgate.routing.files import read_definitions, write_definitions
from headgate.routing.values import Envelope, arguments_of


class Topology(Declarations):
    """Declare, bind, and ask where a message goes."""

    def __reduce__(self) -> tuple[Any, ...]:
        # An index is many times the size of what it is made from, and its compiled tests cannot travel.
        with self._lock:
            own = [index for name, index in self._indexes.items() if name != DEFAULT]
            exchanges = tuple(i.exchange for i in own if i.exchange.name not in STANDARD)
            bindings = tuple((b, i.filters.get(b)) for i in own for b in i.bindings)
            queues = tuple(self._queues), tuple(self._uncommon.values())
        return _rebuilt, (exchanges, *queues, bindings)

    # ---- routing

    def route(self, exchange: str, message: Routable | tuple[str, Mapping[str, Any]]) -> Routed:
        """Where the message goes. For what came over AMQP, an `Envelope` or (routing key, headers)."""
        try:
            index = self._doors[exchange]
        except KeyError:
            raise self._no_door(exchange) from None
        if type(message) is tuple:
            message = Envelope(*message)
        # What is known already needs no lock: it was put in under the lock, and goes with the next change.
        if index.settled:  # where the topic does not decide, it is not even touched
            known = index.settled.get(message.topic)  # type: ignore[union-attr]
            if known is not None:
                return known
        if index.recall is not None:
            recalled = index.recall(message)  # type: ignore[arg-type]
            if type(recalled) is Routed:
                return recalled
        with self._lock:
            index = self._doors.get(exchange)  # type: ignore[assignment]
            if index is None:  # deleted meanwhile
                raise self._no_door(exchange)
            answer = index.find(message)  # type: ignore[arg-type]
            if type(answer) is Routed:
                return answer
            return self._walk(index, answer, message)  # type: ignore[arg-type]

    def route_batch(self, exchange: str, batch: pa.RecordBatch) -> RoutedBatch:
        """Where each row of the batch goes; its columns are named as in `headgate.columns.names`."""
        with self._lock:
            index = self._doors.get(exchange)
            if index is None:
                raise self._no_door(exchange)
            return route_rows(self._indexes, index, batch)

    def explain(
        self, exchange: str, message: Routable | tuple[str, Mapping[str, Any]]
    ) -> Explained:
        """Who receives the message and, for every other binding it met, the first condition that failed."""
        if type(message) is tuple:
            message = Envelope(*message)
        with self._lock:
            routed = self.route(exchange, message)
            passed = [self._indexes[name] for name in routed.via]
            return Explained(routed, tuple(reasons(passed, message)))  # type: ignore[arg-type]

    def _walk(self, start: Index, answer: Answer, message: Routable) -> Routed:
        queues: Set[str] = frozenset()
        seen = {start.exchange.name}
        work = [start]
        for index in work:
            if index is not start:
                answer = index.find(message)
            if isinstance(answer, Routed):
                queues = merged(queues, answer.queues)
                continue
            found, onward = answer.resolve(message)
            queues = merged(queues, found)
            if not found and not onward and index.exchange.alternate is not None:
                onward = (index.exchange.alternate,)
            for name in onward:
                if name not in seen and name in self._indexes:
                    seen.add(name)
                    work.append(self._indexes[name])
        return Routed(queues, not queues, tuple(index.exchange.name for index in work))

    def validate(self) -> list[Problem]:
        """What is declared and can hardly be meant: missing alternates, bindings that never match."""
        with self._lock:
            return list(problems(self._indexes))

    def advise(self) -> list[Advice]:
        """What no index can make fast, by exchange."""
        with self._lock:
            return [entry for index in self._indexes.values() for entry in advice(index)]

    # ---- files

    @classmethod
    def load(cls, path: str | Path, *, vhost: str | None = None) -> Topology:
        """The topology of a .toml file, or of a .json file of RabbitMQ's definitions."""
        return cls.of(read_definitions(Path(path), vhost))

    def save(self, path: str | Path) -> None:
        """Write it down as the suffix says: .toml, or .json with RabbitMQ's definitions."""
        write_definitions(Path(path), self.definitions())

    @classmethod
    def of(cls, definitions: Definitions) -> Topology:
        """Everything declared and bound; an entry that cannot be is named."""
        topology = cls()
        with collector_paused():
            _perform(topology.declare_exchange, definitions.exchanges)
            _perform(topology.declare_queue, definitions.queues)
            with topology._bulk(topology._indexes.keys()):
                _perform(topology.bind, definitions.bindings)
        return topology

    def definitions(self) -> Definitions:
        """What it takes to build it again."""
        with self._lock:
            exchanges, queues, bindings = self.exchanges, self.queues, list(self.bindings())
        own = [e for name, e in exchanges.items() if name not in STANDARD and name != DEFAULT]
        return Definitions(
            [(f"exchange {exchange.name!r}", _said(exchange)) for exchange in own],
            [(f"queue {queue.name!r}", _said(queue)) for queue in queues.values()],
            [(f"binding {binding}", _said_of(binding)) for binding in bindings],
        )


def _perform(step: Callable[..., object], entries: list[tuple[str, dict[str, Any]]]) -> None:
    for where, given in entries:
        try:
            step(**given)
        except (RoutingError, TypeError) as problem:
            raise TopologyError(f"{where}: {problem}") from problem


def _rebuilt(
    exchanges: tuple[Exchange, ...],
    queues: tuple[str, ...],
    uncommon: tuple[Queue, ...],
    bindings: tuple[tuple[Binding, Filter | None], ...],
) -> Topology:
    topology = Topology()
    for exchange in exchanges:
        topology._add(exchange)
    topology._queues.update(dict.fromkeys(queues))
    for queue in uncommon:
        topology._add_queue(queue)
    with topology._bulk(topology._indexes.keys()):
        for binding, tree in bindings:
            topology._indexes[binding.source].bind(binding, tree)
            targets, destination = topology._targets(binding), binding.destination
            targets[destination] = arrived(targets[destination], binding)
    return topology


def _said(declared: Exchange | Queue) -> dict[str, Any]:
    """The arguments of the declaration, as far as they are not the usual ones."""
    said = {
        field.name: value
        for field in fields(declared)
        if (value := getattr(declared, field.name)) != field.default
    }
    return said | ({"arguments": arguments_of(declared.arguments)} if declared.arguments else {})


def _said_of(binding: Binding) -> dict[str, Any]:
    said = {"source": binding.source, binding.kind: binding.destination, "key": binding.key}
    return {**said, "arguments": binding.arguments}
