"""Routes of messages by exchange and routing key, kept for later messages; also by properties where these decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from headgate.broker.traffic import RouteTraffic
from headgate.message import Message
from headgate.routing import Unresolved

if TYPE_CHECKING:
    from headgate.broker.contract import BrokerQueue

MAX_ROUTES: Final = 100_000  # by exchange and routing key
MAX_PROPERTIES: Final = 4_096  # different properties, each with a route
FEW_TESTS: Final = 8  # up to here, asking filters one by one is faster than by their index


class Conditions:
    """Filters of bindings, where they alone decide about the messages of a route.

    Made of the queues as they are in one generation of the topology, and for messages of this generation only.
    """

    __slots__ = ("_answer", "_certain", "_queues", "_tests", "generation")

    def __init__(
        self, answer: Unresolved, queues: Mapping[str, BrokerQueue], generation: int
    ) -> None:
        self._answer, self._queues, self.generation = answer, queues, generation
        self._certain = tuple([queues[name] for name in answer.queues])
        self._tests = self._few_tests()

    def _few_tests(self) -> list[tuple[Callable[[Message], bool], BrokerQueue]] | None:
        gates = self._answer.gates
        if self._answer.exchanges or self._answer.checks or sum(map(len, gates)) > FEW_TESTS:
            return None
        tests = [entry for gate in gates for entry in gate.tests()]
        if not all(isinstance(target, str) for target, _ in tests):
            return None  # some lead to exchanges
        return [(test, self._queues[str(target)]) for target, test in tests]

    def find_queues(self, message: Message) -> tuple[BrokerQueue, ...] | None:
        """The queues of a message, each once; None where it also goes to exchanges."""
        if self._tests is None:
            names, exchanges = self._answer.resolve(message)
            return None if exchanges else tuple([self._queues[name] for name in names])
        found = self._certain
        for test, queue in self._tests:
            if test(message) and queue not in found:
                found += (queue,)
        return found


class Route:
    """Where messages of one exchange and routing key go; `queues` is None where their headers decide."""

    __slots__ = ("conditions", "exchange", "is_delayed", "queues", "routing_key", "traffic")

    def __init__(
        self,
        exchange: str,
        routing_key: str,
        queues: tuple[BrokerQueue, ...] | None,
        traffic: RouteTraffic,
    ) -> None:
        self.exchange, self.routing_key, self.queues = exchange, routing_key, queues
        self.is_delayed = False  # whether the exchange may hold a message back
        self.conditions: Conditions | None = None
        self.traffic = traffic


class KnownRoutes:
    """The routes found since the last change of the topology."""

    def __init__(self) -> None:
        self.by_key: dict[tuple[str, str], Route] = {}
        self.by_properties: dict[tuple[Route, object], tuple[BrokerQueue, ...]] = {}

    def add(self, route: Route) -> None:
        if len(self.by_key) >= MAX_ROUTES:
            self.by_key.clear()
        self.by_key[route.exchange, route.routing_key] = route

    def remember(self, key: tuple[Route, object], queues: tuple[BrokerQueue, ...]) -> None:
        """Remember where messages of a route with these properties go."""
        if len(self.by_properties) >= MAX_PROPERTIES:
            self.by_properties.clear()
        self.by_properties[key] = queues

    def clear(self) -> None:
        self.by_key.clear()
        self.by_properties.clear()
