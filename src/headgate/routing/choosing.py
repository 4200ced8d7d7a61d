"""Exchanges that pass each message on to one of their bindings: by a consistent hash, by a modulus, or at random.

A consistent hash gives each of 65,536 slots to one binding, by weighted rendezvous: of all bindings the one with the best
score for the slot owns it. A new binding takes only the slots in which it is the best, and leaves them to the next best
when it goes, so that keys move only to it or from it, whatever the order of binding.
"""

from __future__ import annotations

import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from headgate.checksum import crc32
from headgate.columns import BatchColumns
from headgate.errors import BindingRefused
from headgate.filters import TOPIC, Columns, Field, Filter
from headgate.matching import CodedAnswers, RowNumbers, distinct_values
from headgate.message import OPAQUE, Message
from headgate.partitions import partition_of
from headgate.routing.answers import Routable, RouteAnswer
from headgate.routing.bindings import X_FILTER, Binding, Target, ToExchange
from headgate.routing.declarations import (
    HASH_HEADER,
    HASH_PROPERTY,
    Exchange,
    ExchangeType,
    hash_arguments,
)
from headgate.routing.exchanges import INDEXES, ExchangeIndex, NewBinding
from headgate.routing.values import key_of

SLOTS: Final = 1 << 16
MOST_WEIGHT: Final = 1 << 20
_INTEGER: Final = re.compile(r"[+-]?\d+", re.ASCII)
_TIMESTAMP: Final = Field("sys", "timestamp")
_PROPERTY_FIELDS: Final = {
    "message_id": Field("sys", "id"),
    "correlation_id": Field("property", "correlation_id"),
    "timestamp": _TIMESTAMP,
}


class ChoosingIndex(ExchangeIndex, ABC):
    """Bindings of which each message takes one. A target that is bound several times counts once, with all its weights."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.weights: dict[Target, int] = {}
        # The targets by name, so that the order of binding does not matter.
        self.sorted: tuple[Target, ...] = ()
        self.recall = self.find

    @abstractmethod
    def choose(self, message: Routable) -> Target | None:
        """The target of this message; None when nothing is bound."""

    @abstractmethod
    def choose_rows(self, columns: Columns, rows: RowNumbers) -> tuple[npt.NDArray[Any], Any]:
        """A number for the target of each of the rows, and the targets by these numbers."""

    def change_weight(self, target: Target, weight: int) -> None:
        """Let a target have this weight from now on; with 0 it is not bound any more."""
        self.weights[target] = weight
        if not weight:
            del self.weights[target]
        self.sorted = tuple(sorted(self.weights, key=_name_of))

    def find(self, message: Routable) -> RouteAnswer:
        return self._lead_to(self.choose(message))

    def _lead_to(self, target: Target | None) -> RouteAnswer:
        return self.nowhere if target is None else self.finish(frozenset((target,)))

    def find_rows(self, columns: Columns, rows: RowNumbers) -> CodedAnswers[RouteAnswer]:
        if not self.weights:
            return CodedAnswers(np.zeros(len(rows), np.int64), [self.nowhere])
        numbers, targets = self.choose_rows(columns, rows)
        chosen, codes = np.unique(numbers, return_inverse=True)
        answers = [self._lead_to(targets[number]) for number in chosen.tolist()]
        return CodedAnswers(codes.astype(np.int64), answers)

    def place(self, binding: Binding, tree: Filter | None) -> int:
        if tree is not None:
            raise BindingRefused(
                f"{binding}: an exchange of type {self.exchange.type} takes one binding for each message, without "
                f"{X_FILTER}; bind it to a filter exchange instead"
            )
        return self.read_weight(binding)

    def read_weight(self, binding: Binding) -> int:
        """The weight that a binding asks for."""
        return 1

    def insert(self, bindings: Sequence[NewBinding]) -> None:
        for binding, weight, target, _ in bindings:
            self.bindings[binding] = weight
            self.change_weight(target, self.weights.get(target, 0) + weight)

    def delete(self, binding: Binding, place: int, tree: Filter | None) -> None:
        self.change_weight(binding.target, self.weights[binding.target] - place)


class ConsistentHashIndex(ChoosingIndex):
    """By a hash of the routing key, a header or a property; the key of a binding is its weight."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.field = hashed_field(exchange)
        self.by_key = self.field == TOPIC
        self._numbers: dict[Target, int] = {}
        self._targets: dict[int, Target] = {}
        self._owner = np.zeros(SLOTS, np.int64)  # the number of the target that owns each slot
        self._best = np.zeros(SLOTS)  # its score there

    def read_weight(self, binding: Binding) -> int:
        key = _integer_key(binding)
        weight = int(key[:20])  # Python refuses to convert thousands of digits
        if not 1 <= weight <= MOST_WEIGHT:
            raise BindingRefused(
                f"{binding}: the binding key is a weight from 1 to {MOST_WEIGHT}, not {key}"
            )
        return weight

    def choose(self, message: Routable) -> Target | None:
        if not self.weights:
            return None
        slot = hash_value(value_in(message, self.field)) % SLOTS
        return self._targets[int(self._owner[slot])]

    def choose_rows(self, columns: Columns, rows: RowNumbers) -> tuple[npt.NDArray[Any], Any]:
        codes, values = distinct_values(self.field, columns, rows)
        slots = [hash_value(_filled(self.field, value)) % SLOTS for value in values]
        return self._owner[np.array(slots, np.int64)][codes], self._targets

    def change_weight(self, target: Target, weight: int) -> None:
        if weight < self.weights.get(target, 0):
            self._release(target)
        if weight:
            self.weights[target] = weight
            number = self._numbers.setdefault(target, max(self._targets, default=0) + 1)
            self._targets[number] = target
            self._take(target, np.arange(SLOTS))

    def _take(self, target: Target, slots: npt.NDArray[np.int64]) -> None:
        """Give a target those of the slots in which it has the best score."""
        scores = score_slots(target, self.weights[target], slots)
        won = scores > self._best[slots]
        self._best[slots[won]], self._owner[slots[won]] = scores[won], self._numbers[target]

    def _release(self, target: Target) -> None:
        """Leave the slots of a target to the others."""
        number = self._numbers.pop(target)
        del self.weights[target], self._targets[number]
        slots = np.flatnonzero(self._owner == number)
        self._best[slots] = self._owner[slots] = 0
        for other in self.weights:
            self._take(other, slots)


class ModulusHashIndex(ChoosingIndex):
    """By a hash of the routing key modulo the number of targets: cheap, and a new target moves most keys."""

    by_key = True

    def choose(self, message: Routable) -> Target | None:
        targets = self.sorted
        return targets[hash_value(message.topic) % len(targets)] if targets else None

    def choose_rows(self, columns: Columns, rows: RowNumbers) -> tuple[npt.NDArray[Any], Any]:
        codes, topics = distinct_values(TOPIC, columns, rows)
        numbers = [hash_value(_filled(TOPIC, topic)) % len(self.sorted) for topic in topics]
        return np.array(numbers, np.int64)[codes], self.sorted


class SuperStreamIndex(ChoosingIndex):
    """By the hash of RabbitMQ's stream clients: the key of a binding is the number of its partition."""

    by_key = True

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self._partitions: list[Target | None] = []

    def read_weight(self, binding: Binding) -> int:
        _integer_key(binding)
        return 1

    def change_weight(self, target: Target, weight: int) -> None:
        super().change_weight(target, weight)
        by_key = {binding.key: binding.target for binding in reversed(self.bindings)}
        self._partitions = [by_key.get(str(number)) for number in range(len(self.bindings))]

    def choose(self, message: Routable) -> Target | None:
        partitions = self._partitions
        return partitions[partition_of(message.topic, len(partitions))] if partitions else None

    def choose_rows(self, columns: Columns, rows: RowNumbers) -> tuple[npt.NDArray[Any], Any]:
        codes, topics = distinct_values(TOPIC, columns, rows)
        count = len(self._partitions)
        numbers = [partition_of(_filled(TOPIC, topic), count) for topic in topics]
        return np.array(numbers, np.int64)[codes], self._partitions


class RandomIndex(ChoosingIndex):
    """At random. A batch is spread by what its rows hold, so that a pipeline which repeats one routes it alike."""

    is_steady = False
    draw: Callable[[int], int] = staticmethod(random.randrange)

    def choose(self, message: Routable) -> Target | None:
        targets = self.sorted
        return targets[self.draw(len(targets))] if targets else None

    def choose_rows(self, columns: Columns, rows: RowNumbers) -> tuple[npt.NDArray[Any], Any]:
        spread = mix(fingerprint_rows(columns)[rows]) % np.uint64(len(self.sorted))
        return spread.astype(np.int64), self.sorted


class LocalRandomIndex(RandomIndex):
    """At random, among queues that are bound without a key. RabbitMQ takes those of its node."""

    def read_weight(self, binding: Binding) -> int:
        if binding.key:
            raise BindingRefused(f"Non empty binding '{binding.key}' key not permitted")
        if binding.kind == "exchange":
            raise BindingRefused("Destination not found")
        return 1


EXCHANGE_INDEXES: Final[dict[ExchangeType, type[ExchangeIndex]]] = {
    **INDEXES,
    "x-consistent-hash": ConsistentHashIndex,
    "x-modulus-hash": ModulusHashIndex,
    "x-random": RandomIndex,
    "x-local-random": LocalRandomIndex,
    "x-super-stream": SuperStreamIndex,
}


def _integer_key(binding: Binding) -> str:
    if not _INTEGER.fullmatch(binding.key):
        raise BindingRefused(f"{binding}: the binding key must be an integer, not {binding.key!r}")
    return binding.key


# ---- what is hashed ------------------------------------------------------------------------------------


def hashed_field(exchange: Exchange) -> Field:
    """The field whose value an exchange hashes: the topic, a header or a property."""
    header, name = hash_arguments(exchange)
    if header is not None:
        return Field("header", header)
    return TOPIC if name is None else _PROPERTY_FIELDS[name]


def describe_hashed(exchange: Exchange) -> str:
    """What an exchange hashes, in words."""
    header, name = hash_arguments(exchange)
    if header is not None:
        return f"{HASH_HEADER} {header!r}"
    return "the routing key" if name is None else f"{HASH_PROPERTY} {name!r}"


def value_in(message: Routable, field: Field) -> Any:
    """The value of the field; None when the message does not have it."""
    if field == TOPIC:
        return message.topic
    if field.scope == "header":
        return message.headers.get(field.name)
    asked = message if isinstance(message, Message) else message.message
    if field.scope == "property":
        return asked.properties.get(field.name)
    return getattr(asked, field.name)


def _filled(field: Field, value: Any) -> Any:
    return "" if value is None and field == TOPIC else value


# ---- hashes --------------------------------------------------------------------------------------------


def hash_value(value: Any) -> int:
    """A hash of a value that is the same in every process: 5, 5.0 and "5" differ, 0.0 and -0.0 do not."""
    key = ("opaque",) if value is OPAQUE else key_of(value + 0.0 if type(value) is float else value)
    text = key if isinstance(key, str) else f"\0{key!r}"
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def score_slots(target: Target, weight: int, slots: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """The score of a target in each slot: the best one is that of a target as often as its share of all weights."""
    seed = np.uint64(hash_value(_name_of(target)))
    drawn = mix(mix(slots.astype(np.uint64)) ^ seed) >> np.uint64(11)
    uniform = (drawn.astype(np.float64) + 0.5) / float(1 << 53)  # within (0, 1)
    return -weight / np.log(uniform)


def mix(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Spread numbers over all 64 bits (SplitMix64)."""
    z = numbers + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def fingerprint_rows(columns: Columns) -> npt.NDArray[np.uint64]:
    """A number for each row of a batch, from its payload and timestamp; equal rows are counted."""
    found = np.zeros(columns.num_rows, np.uint64)
    times = columns.view(_TIMESTAMP, "int")
    if times is not None:
        found += mix(times.fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64))
    payload = columns.column("payload") if isinstance(columns, BatchColumns) else None
    if payload is not None:
        found += np.array([crc32(value or b"") for value in payload.to_pylist()], np.uint64)
    order = np.argsort(found, kind="stable")
    ordered = found[order]
    first = np.searchsorted(ordered, ordered)  # where the rows equal to each begin
    found[order] += mix((np.arange(len(order)) - first).astype(np.uint64))
    return found


def _name_of(target: Target) -> str:
    return f"exchange {target.name}" if isinstance(target, ToExchange) else f"queue {target}"


def remake_index(known: ExchangeIndex, alternate: str | None) -> ExchangeIndex:
    """The index of the same exchange and bindings with another alternate exchange."""
    exchange = replace(known.exchange, alternate=alternate)
    index = EXCHANGE_INDEXES[exchange.routing_type](exchange)
    with index.bulk():
        for binding in known.bindings:
            index.bind(binding, known.filters.get(binding))
    return index
