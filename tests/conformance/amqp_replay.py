"""Replays recorded AMQP conversations against a topology: just enough of a broker to count what arrives."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from headgate.errors import (
    BindingRefused,
    NotEquivalent,
    NotPermitted,
    RoutingError,
    UnknownExchange,
    UnknownQueue,
)
from headgate.routing.topology import Topology

CODES = {
    UnknownExchange: 404,
    UnknownQueue: 404,
    NotPermitted: 403,
    NotEquivalent: 406,
    BindingRefused: 406,
}
Step = dict[str, Any]


def replay(steps: list[Step]) -> list[Step]:
    """What each step is answered with, in the words of the recording."""
    broker = _Broker()
    return [broker.answer(dict(step)) for step in steps]


def without_words(answer: Any) -> Any:
    """The answer without the wording of errors, which is nobody's contract."""
    if isinstance(answer, list):
        return [without_words(part) for part in answer]
    if not isinstance(answer, dict):
        return answer
    kept = {key: without_words(part) for key, part in answer.items() if key != "reply_text"}
    if "error" in kept:
        kept["error"] = {key: kept["error"][key] for key in ("level", "code")}
    return kept


class _Broker:
    def __init__(self) -> None:
        self.topology = Topology()
        self.waiting: dict[str, deque[Step]] = {}

    def answer(self, step: Step) -> Step:
        perform: Callable[[Step], Step] = getattr(self, step.pop("op").replace(".", "_"))
        try:
            return perform(step)
        except RoutingError as problem:
            return {"error": {"level": "channel", "code": CODES[type(problem)]}}

    def exchange_declare(self, step: Step) -> Step:
        arguments = step.get("arguments", {})
        self.topology.declare_exchange(
            step["exchange"],
            step["type"],
            durable=step.get("durable", False),
            internal=step.get("internal", False),
            alternate=arguments.get("alternate-exchange"),
        )
        return {"ok": True}

    def exchange_bind(self, step: Step) -> Step:
        self.topology.bind(
            step["source"],
            exchange=step["destination"],
            key=step.get("routing_key", ""),
            arguments=value(step.get("arguments")),
        )
        return {"ok": True}

    def exchange_unbind(self, step: Step) -> Step:
        self.topology.unbind(
            step["source"],
            exchange=step["destination"],
            key=step.get("routing_key", ""),
            arguments=value(step.get("arguments")),
        )
        return {"ok": True}

    def queue_declare(self, step: Step) -> Step:
        name = step["queue"]
        if not step.get("passive"):
            self.topology.declare_queue(name)
        waiting = self.waiting.setdefault(name, deque())
        return {"queue": name, "message_count": len(waiting), "consumer_count": 0}

    def queue_bind(self, step: Step) -> Step:
        self.topology.bind(
            step["exchange"],
            queue=step["queue"],
            key=step["routing_key"],
            arguments=value(step.get("arguments")),
        )
        return {"ok": True}

    def queue_unbind(self, step: Step) -> Step:
        self.topology.unbind(
            step["exchange"],
            queue=step["queue"],
            key=step["routing_key"],
            arguments=value(step.get("arguments")),
        )
        return {"ok": True}

    def publish(self, step: Step) -> Step:
        headers = step.get("properties", {}).get("headers", {})
        routed = self.topology.route(step["exchange"], (step["routing_key"], value(headers)))
        message = {key: step[key] for key in ("body", "exchange", "routing_key")}
        for queue in routed.queues:
            self.waiting[queue].append(
                {**message, "redelivered": False, **({"headers": headers} if headers else {})}
            )
        if routed.unroutable and step.get("mandatory"):
            return {"sent": True, "returned": [{"reply_code": 312, **message}]}
        return {"sent": True}

    def route(self, step: Step) -> Step:
        asked = [(item.get("key", ""), value(item.get("headers", {}))) for item in step["items"]]
        found = [self.topology.route(step["exchange"], message) for message in asked]
        return {"routed": [not routed.unroutable for routed in found]}

    def get(self, step: Step) -> Step:
        waiting = self.waiting[step["queue"]]
        return {**waiting.popleft(), "message_count": len(waiting)} if waiting else {"empty": True}


def value(recorded: Any) -> Any:
    """A recorded value as AMQP decodes it."""
    match recorded:
        case {"$ts": seconds}:
            return datetime.fromtimestamp(seconds, UTC)
        case {"$decimal": text}:
            return Decimal(text)
        case {"$long": number}:
            return number
        case dict():
            return {name: value(part) for name, part in recorded.items()}
        case list():
            return [value(part) for part in recorded]
        case _:
            return recorded
