"""Routes of messages by exchange and routing key, kept for later messages; also by properties where these decide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.broker.traffic import RouteTraffic
from headgate.routing import Unresolved

if TYPE_CHECKING:
    from headgate.broker.contract import BrokerQueue

MAX_ROUTES: Final = 100_000  # by exchange and routing key
MAX_PROPERTIES: Final = 4_096  # different properties, each with a route


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
        self.conditions: Unresolved | None = None  # filters of bindings, where they alone decide
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
