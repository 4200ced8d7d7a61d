"""Who receives a message, and why the other bindings do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headgate.message import HeaderValue, Message, project_headers
from headgate.routing import Envelope, Reason, Topology, describe_condition


@dataclass(frozen=True, slots=True)
class BindingFacts:
    """A binding that was tested with the message. If it did not match, `why_not` is the first condition that failed."""

    source: str
    source_type: str
    destination: str
    destination_type: str
    key: str
    arguments: Mapping[str, Any]
    matched: bool
    why_not: str

    @property
    def condition(self) -> str:
        """The condition of the binding in one line."""
        return describe_condition(self.key, self.arguments)


@dataclass(frozen=True, slots=True)
class RouteFacts:
    """The queues that receive a message, the exchanges it passed, and every binding on the way."""

    queues: tuple[str, ...]
    unroutable: bool
    via: tuple[str, ...]
    bindings: tuple[BindingFacts, ...]


def explain_route(
    topology: Topology,
    exchange: str,
    *,
    topic: str = "",
    headers: Mapping[str, HeaderValue] | None = None,
    priority: int = 0,
) -> RouteFacts:
    """Route one message without publishing it, and give the reason for every binding."""
    message = Envelope(
        topic, headers, lambda: Message(b"", topic, project_headers(message.headers), priority)
    )
    explained = topology.explain(exchange, message)
    routed = explained.routed
    return RouteFacts(
        tuple(sorted(routed.queues)),
        routed.unroutable,
        tuple(routed.via),
        tuple(_facts(topology, reason) for reason in explained.reasons),
    )


def _facts(topology: Topology, reason: Reason) -> BindingFacts:
    binding = reason.binding
    return BindingFacts(
        source=binding.source,
        source_type=topology.exchanges[binding.source].type,
        destination=binding.destination,
        destination_type=binding.kind,
        key=binding.key,
        arguments=binding.arguments,
        matched=reason.matched,
        why_not=reason.why_not,
    )
