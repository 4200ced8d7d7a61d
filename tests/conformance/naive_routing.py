"""Routing as it is told, without any index: every binding is looked at for every message.

Written from RabbitMQ's rules and not from ours: it shares no code with `headgate.routing` but the shape of
a binding, so that the two can only agree by both being right.
"""

from __future__ import annotations

import math
from hashlib import blake2b
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
        self.hashed: dict[str, str] = {}  # the header that an exchange hashes, if not the topic
        self.queues: set[str] = set()
        self.bindings: list[Bound] = []

    def route(self, exchange: str, message: Message) -> set[str]:
        queues: set[str] = set()
        seen, work = {exchange}, [exchange]
        while work:
            name = work.pop(0)
            found = [b for b in self.bindings if b.source == name]
            if self.types[name].startswith("x-"):
                found = self.choose(name, found, message)
            else:
                found = [b for b in found if self.matches(b, message)]
            queues |= {b.destination for b in found if b.kind == "queue"}
            onward = [b.destination for b in found if b.kind == "exchange"]
            if not found and name in self.alternates:
                onward = [self.alternates[name]]
            for other in onward:
                if other in self.types and other not in seen:
                    seen.add(other)
                    work.append(other)
        return queues

    def choose(self, name: str, bound: list[Bound], message: Message) -> list[Bound]:
        """The bindings to the one target that a hash leads to."""
        if not bound:
            return []
        header = self.hashed.get(name)
        value = message.topic if header is None else message.headers.get(header)
        targets = sorted({(b.kind, b.destination) for b in bound}, key=" ".join)
        if self.types[name] == "x-modulus-hash":
            chosen = targets[hashed(message.topic) % len(targets)]
        else:
            weight = {
                t: sum(int(b.key) for b in bound if (b.kind, b.destination) == t) for t in targets
            }
            slot = hashed(value) % 65536
            chosen = max(targets, key=lambda t: weight[t] / -math.log(draw(slot, " ".join(t))))
        return [b for b in bound if (b.kind, b.destination) == chosen]

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


WORD = 2**64 - 1


def hashed(value: Any) -> int:
    """The first 64 bits of BLAKE2b, of text as it is, of any other value with its kind."""
    match value:
        case str():
            text = value
        case bool():
            text = f"\0('bool', {value})"
        case int():
            text = f"\0{value}"
        case float():
            text = f"\0('float', {value + 0.0!r})"
        case None:
            text = "\0('void',)"
        case _:
            text = "\0('opaque',)"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def draw(slot: int, target: str) -> float:
    """A number between 0 and 1 for a target in a slot."""
    return ((splitmix(splitmix(slot) ^ hashed(target)) >> 11) + 0.5) / 2**53


def splitmix(number: int) -> int:
    z = (number + 0x9E3779B97F4A7C15) & WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return z ^ (z >> 31)
