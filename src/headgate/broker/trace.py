"""Who would receive a message: bindings and consumers that match, and for the others the condition that failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate.broker.consumer import BrokerConsumer
from headgate.message import Message, project_headers
from headgate.routing import Envelope, Reason, failing_term

if TYPE_CHECKING:
    from headgate.broker.contract import BrokerQueue
    from headgate.broker.vhost import VirtualHost


@dataclass(frozen=True, slots=True)
class TracedBinding:
    """A binding that was tested with the message: it matched, or `why_not` is the first condition that failed."""

    source: str
    destination: str
    kind: str  # queue or exchange
    routing_key: str
    arguments: Mapping[str, Any]
    matched: bool
    why_not: str


@dataclass(frozen=True, slots=True)
class TracedConsumer:
    """A consumer of a queue that receives the message, and whether its filter matches."""

    tag: str
    filter: str | None
    matched: bool
    why_not: str


@dataclass(frozen=True, slots=True)
class TracedQueue:
    """A queue that receives the message, and its consumers."""

    name: str
    consumers: tuple[TracedConsumer, ...]


@dataclass(frozen=True, slots=True)
class MessageTrace:
    """Where a message goes; nothing is published."""

    exchange: str
    routing_key: str
    queues: tuple[TracedQueue, ...]
    via: tuple[str, ...]  # the exchanges that it passes
    bindings: tuple[TracedBinding, ...]

    @property
    def is_routed(self) -> bool:
        """Whether some queue receives it."""
        return bool(self.queues)


def trace_message(
    vhost: VirtualHost,
    exchange: str,
    routing_key: str,
    headers: Mapping[str, Any] | None = None,
    properties: Mapping[str, Any] | None = None,
) -> MessageTrace:
    """Route a message without publishing it, and give the reason for every binding and consumer."""
    vhost.find_exchange(exchange)
    message = _make_message(routing_key, headers or {}, properties or {})
    explained = vhost.topology.explain(exchange, Envelope(routing_key, headers, lambda: message))
    queues = [vhost.queues[name] for name in sorted(explained.routed.queues)]
    return MessageTrace(
        exchange,
        routing_key,
        tuple(TracedQueue(queue.name, _trace_consumers(queue, message)) for queue in queues),
        explained.routed.via,
        tuple(map(_trace_binding, explained.reasons)),
    )


def _make_message(topic: str, headers: Mapping[str, Any], properties: Mapping[str, Any]) -> Message:
    others = dict(properties)
    own = {name: others.pop(name) for name in ("priority", "timestamp") if name in others}
    return Message(b"", topic, project_headers(headers), properties=others, **own)


def _trace_binding(reason: Reason) -> TracedBinding:
    binding = reason.binding
    return TracedBinding(
        binding.source,
        binding.destination,
        binding.kind,
        binding.key,
        binding.arguments,
        reason.matched,
        reason.why_not,
    )


def _trace_consumers(queue: BrokerQueue, message: Message) -> tuple[TracedConsumer, ...]:
    return tuple(_trace_consumer(consumer, message) for consumer in queue.consumers)


def _trace_consumer(consumer: BrokerConsumer, message: Message) -> TracedConsumer:
    known = consumer.filter
    if known is None:
        return TracedConsumer(consumer.tag, None, matched=True, why_not="")
    failed = failing_term(known.shared.tree, message)
    return TracedConsumer(consumer.tag, known.text, failed is None, failed or "")
