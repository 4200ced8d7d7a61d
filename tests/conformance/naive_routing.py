"""Routing as it is told, without any index: every binding is looked at for every message.

Written from RabbitMQ's rules and not from ours: it shares no code with `headgate.routing` but the shape of
a binding, so that the two can only agree by both being right.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headgate.filters.logic import matches_filter
from headgate.filters.nodes import Filter
from headgate.message import OPAQUE, Message


class Bound(NamedTuple):
    source: str
    kind: str
    destination: str
    key: str
    arguments: dict[str, Any]
    filter: Filter | None


class NaiveTopology:
    def __init__(self) -> None:
        self.types: dict[str, str] = {}
        self.alternates: dict[str, str] = {}
        self.queues: set[str] = set()
        self.bindings: list[Bound] = []

    def route(self, exchange: str, message: Message) -> set[str]:
        queues: set[str] = set()
        seen, work = {exchange}, [exchange]
        while work:
            name = work.pop(0)
            found = [b for b in self.bindings if b.source == name and self.matches(b, message)]
            queues |= {b.destination for b in found if b.kind == "queue"}
            onward = [b.destination for b in found if b.kind == "exchange"]
            if not found and name in self.alternates:
                onward = [self.alternates[name]]
            for other in onward:
                if other in self.types and other not in seen:
                    seen.add(other)
                    work.append(other)
        return queues

    def matches(self, binding: Bound, message: Message) -> bool:
        if binding.filter is not None and not matches_filter(binding.filter, message):
            return False
        match self.types[binding.source]:
            case "fanout" | "filter":
                return True
            case "direct":
                return binding.key == message.topic
            case "topic":
                return topic_matches(words(binding.key), words(message.topic))
            case "headers":
                return headers_match(binding.arguments, message.headers)
        raise AssertionError(binding)


def words(text: str) -> list[str]:
    return text.split(".") if text else []


def topic_matches(pattern: list[str], topic: list[str]) -> bool:
    if not pattern:
        return not topic
    if pattern[0] == "#":
        return topic_matches(pattern[1:], topic) or (
            bool(topic) and topic_matches(pattern, topic[1:])
        )
    return bool(topic) and pattern[0] in ("*", topic[0]) and topic_matches(pattern[1:], topic[1:])


def headers_match(arguments: dict[str, Any], headers: Any) -> bool:
    mode = arguments.get("x-match", "all")
    wanted = [
        (name, value)
        for name, value in arguments.items()
        if name not in ("x-match", "x-filter")
        and (mode.endswith("-with-x") or not name.startswith("x-"))
    ]
    hits = [
        headers.get(name) is not None and (value is None or same(value, headers[name]))
        for name, value in wanted
    ]
    return any(hits) if mode.startswith("any") else all(hits)


def same(left: Any, right: Any) -> bool:
    """Equal and of one kind, all the way down."""
    if left is OPAQUE or right is OPAQUE or type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    return bool(left == right)
