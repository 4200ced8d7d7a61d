"""The index answers what a scan over every binding answers, whatever is bound and unbound in between."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pyarrow import RecordBatch

from headgate.columns import shred_messages
from headgate.filters.nodes import depends_on_time
from headgate.matching import batch as batches
from headgate.matching import cache as memory
from headgate.matching import groups, index, paths, tree, trie
from headgate.message import Message
from headgate.routing.topology import Topology
from headgate.routing.values import Envelope
from tests import generate
from tests.conformance.naive_routing import Bound, NaiveTopology
from tests.conftest import FULL
from tests.wide import LAYOUTS

TYPES = ("direct", "fanout", "topic", "headers", "filter", "x-consistent-hash", "x-modulus-hash")
NAMES = ["a", "b", "c", "region", "x-y"]
KEYS = ["", "a", "a.b", "a.b.c", "orders.eu.created"]
TABLES: list[Any] = [[1], [1.0], [True], ["a", [2]], {"k": 1}, {"k": [1, {"d": None}]}, [], {}]


class Pair:
    """The index and the scan, told the same things."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.index, self.scan = Topology(), NaiveTopology()
        self.exchanges = [f"x{n}" for n in range(rng.randint(1, 6))]
        for name in self.exchanges:
            kind = rng.choice(TYPES)
            alternate = rng.choice((None, None, *self.exchanges, "gone"))
            hashed = rng.choice((None, *NAMES)) if kind == "x-consistent-hash" else None
            options = {} if hashed is None else {"hash-header": hashed}
            self.index.declare_exchange(name, kind, alternate=alternate, arguments=options)
            self.scan.types[name] = kind
            if hashed is not None:
                self.scan.hashed[name] = hashed
            if alternate is not None:
                self.scan.alternates[name] = alternate
        for n in range(rng.randint(1, 12)):
            self.index.declare_queue(f"q{n}")
            self.scan.queues.add(f"q{n}")

    def change(self) -> None:
        what = self.rng.random()
        if what < 0.1:
            self.bind_all(self.rng.randint(0, 30))
        elif what < 0.65 or not self.scan.bindings:
            self.bind()
        elif what < 0.95:
            self.unbind(self.rng.choice(self.scan.bindings))
        elif self.rng.random() < 0.5 and len(self.scan.queues) > 1:
            self.delete_queue(self.rng.choice(sorted(self.scan.queues)))
        elif len(self.exchanges) > 1:
            self.delete_exchange(self.rng.choice(self.exchanges))

    def bind(self) -> None:
        bound = binding(self.rng, self.scan, self.exchanges)
        self.index.bind(bound.source, **arguments(bound))
        self._bind_in_scan(bound)

    def bind_all(self, count: int) -> None:
        many = [binding(self.rng, self.scan, self.exchanges) for _ in range(count)]
        self.index.bind_all({"source": bound.source, **arguments(bound)} for bound in many)
        for bound in many:
            self._bind_in_scan(bound)

    def _bind_in_scan(self, bound: Bound) -> None:
        if not any(same_binding(bound, other) for other in self.scan.bindings):
            self.scan.bindings.append(bound)

    def unbind(self, bound: Bound) -> None:
        assert self.index.unbind(bound.source, **arguments(bound))
        assert not self.index.unbind(bound.source, **arguments(bound))
        self.scan.bindings = [b for b in self.scan.bindings if not same_binding(b, bound)]

    def delete_queue(self, name: str) -> None:
        assert self.index.delete_queue(name)
        self.scan.queues.remove(name)
        self.scan.bindings = [
            b for b in self.scan.bindings if (b.kind, b.destination) != ("queue", name)
        ]

    def delete_exchange(self, name: str) -> None:
        assert self.index.delete_exchange(name)
        self.exchanges.remove(name)
        del self.scan.types[name]
        self.scan.alternates.pop(name, None)
        self.scan.bindings = [
            b
            for b in self.scan.bindings
            if b.source != name and (b.kind, b.destination) != ("exchange", name)
        ]

    def assert_agree(self, messages: list[Message]) -> None:
        for exchange in self.exchanges:
            for message in messages:
                found, wanted = (
                    self.index.route(exchange, message),
                    self.scan.route(exchange, message),
                )
                assert set(found.queues) == wanted
                assert len(found.queues) == len(wanted)
                assert found.unroutable is not bool(wanted)
                assert found.via[0] == exchange
                assert len(found.via) == len(set(found.via))

    def assert_batch_agrees(
        self,
        messages: list[Message],
        layout: Callable[[list[Message]], RecordBatch] = shred_messages,
    ) -> None:
        batch = layout(messages)
        for exchange in self.exchanges:
            routed = self.index.route_batch(exchange, batch)
            wanted = [self.index.route(exchange, message).queues for message in messages]
            rows = {
                q: [at for at, to in enumerate(wanted) if q in to] for q in set().union(*wanted)
            }
            assert {queue: found.tolist() for queue, found in routed.selections().items()} == rows
            assert routed.queues == rows.keys()
            assert routed.unroutable.tolist() == [at for at, to in enumerate(wanted) if not to]
            for queue in sorted(self.scan.queues):
                assert routed.rows_of(queue).tolist() == rows.get(queue, [])


def binding(rng: Random, scan: NaiveTopology, exchanges: list[str]) -> Bound:
    source = rng.choice(exchanges)
    kind = "exchange" if rng.random() < 0.2 else "queue"
    destination = rng.choice(exchanges if kind == "exchange" else sorted(scan.queues))
    if scan.types[source].startswith("x-"):
        return Bound(source, kind, destination, str(rng.randint(1, 5)), {}, None)
    wants_filter = scan.types[source] == "filter" or rng.random() < 0.2
    return Bound(
        source,
        kind,
        destination,
        rng.choice(KEYS if rng.random() < 0.5 else generate.TOPIC_PATTERNS),
        header_arguments(rng) if scan.types[source] == "headers" else {},
        condition(rng) if wants_filter else None,
    )


def header_arguments(rng: Random) -> dict[str, Any]:
    match = rng.choice((None, "all", "any", "all-with-x", "any-with-x"))
    wanted = {name: header_value(rng) for name in rng.sample(NAMES, rng.randint(0, 3))}
    return wanted if match is None else {"x-match": match, **wanted}


def header_value(rng: Random) -> Any:
    return rng.choice(
        (None, "EU", "US", "a", 0, 1, 2, 1.0, 0.0, True, False, "1", rng.choice(TABLES))
    )


def condition(rng: Random) -> Any:
    while depends_on_time(found := generate.filter(rng, depth=2)):
        pass
    return found


def arguments(bound: Bound) -> dict[str, Any]:
    return {
        bound.kind: bound.destination,
        "key": bound.key,
        "arguments": bound.arguments,
        "filter": bound.filter,
    }


def same_binding(left: Bound, right: Bound) -> bool:
    return repr(left) == repr(right)  # 1, 1.0 and True are three bindings


def message(rng: Random) -> Message:
    drawn = generate.message(rng)
    headers = {**drawn.headers, **{n: header_value(rng) for n in NAMES if rng.random() < 0.6}}
    scalars = {name: v for name, v in headers.items() if not isinstance(v, list | dict)}
    return Message(
        topic=rng.choice((drawn.topic, rng.choice(KEYS))),
        headers=scalars,
        priority=drawn.priority,
        timestamp=drawn.timestamp,
        id=drawn.id,
        filter_value=drawn.filter_value,
        key=drawn.key,
        properties=drawn.properties,
    )


def play(rng: Random, rounds: int, messages: int) -> int:
    pair, asked = Pair(rng), 0
    for _ in range(rounds):
        for _ in range(rng.randint(1, 12)):
            pair.change()
        drawn = [message(rng) for _ in range(messages)]
        pair.assert_agree(drawn)
        asked += len(drawn) * len(pair.exchanges)
    pair.index = pickle.loads(pickle.dumps(pair.index))
    pair.assert_agree(drawn)
    pair.assert_batch_agrees(drawn)
    return asked


def test_the_index_and_the_scan_agree_on_ten_thousand_messages(seed, full, monkeypatch):
    rng, asked = Random(seed), 0
    while asked < (100_000 if full else 12_000):
        monkeypatch.setattr(index, "FEW", rng.choice((0, 8)))
        asked += play(rng, rounds=12, messages=20)


def test_the_index_and_the_scan_agree_at_every_limit_of_the_index(seed, monkeypatch):
    monkeypatch.setattr(index, "WIDE", 2)
    monkeypatch.setattr(memory, "FIRST", 1)
    monkeypatch.setattr(memory, "MOST", 4)
    monkeypatch.setattr(memory, "MAX_WEIGHT", 8)
    monkeypatch.setattr(memory, "PAUSE_FACTOR", 2)
    monkeypatch.setattr(paths, "MAX_PATHS", 3)
    monkeypatch.setattr(groups, "SMALL", 1)
    monkeypatch.setattr(trie, "REMEMBERED", 2)
    rng, asked = Random(seed), 0
    while asked < 6_000:
        monkeypatch.setattr(index, "WIDE", rng.choice((0, 2, 64)))
        monkeypatch.setattr(index, "FEW", rng.choice((0, 1, 8)))
        monkeypatch.setattr(tree, "CROWDED", rng.choice((0, 1, 8)))
        asked += play(rng, rounds=12, messages=20)


@hypothesis_settings(max_examples=40)
@given(st.randoms(use_true_random=False))
def test_the_index_and_the_scan_agree_on_small_worlds(rng):
    play(rng, rounds=2, messages=3)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("worth_a_mask", [1, 8, 10_000])
def test_a_batch_is_routed_as_its_messages_are(seed, monkeypatch, worth_a_mask, layout):
    monkeypatch.setattr(batches, "WORTH_A_MASK", worth_a_mask)
    rng = Random(seed)
    for _ in range(15 if layout is shred_messages or FULL else 5):
        pair = Pair(rng)
        for _ in range(40):
            pair.change()
        pair.assert_batch_agrees([message(rng) for _ in range(60)], layout)


def test_raw_headers_are_compared_by_value(seed):
    rng = Random(seed)
    for _ in range(200):
        pair = Pair(rng)
        pair.index.declare_exchange("raw", "headers")
        pair.scan.types["raw"] = "headers"
        pair.exchanges = ["raw"]
        for _ in range(12):
            pair.bind()
        for _ in range(20):
            headers = {name: header_value(rng) for name in NAMES if rng.random() < 0.7}
            found = pair.index.route("raw", ("k", headers))
            assert set(found.queues) == {
                b.destination
                for b in pair.scan.bindings
                if b.kind == "queue" and raw_matches(b, headers)
            }


def raw_matches(bound: Bound, headers: dict[str, Any]) -> bool:
    """As over AMQP, where a void header is there."""
    scan = NaiveTopology()
    scan.types["raw"] = "headers"
    if bound.filter is not None and not scan.matches(
        Bound("raw", "queue", "", "", {}, bound.filter), Envelope("k", headers).message
    ):
        return False
    there = {name: "void" if value is None else value for name, value in headers.items()}
    without = bound._replace(filter=None)
    return scan.matches(without, Message(headers=there))
