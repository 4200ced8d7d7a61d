"""Threads that share a topology or a matcher get answers that are true at some moment of their question."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Event
from typing import Any

import pytest

from headgate.columns.shred import shred_messages
from headgate.errors import UnknownExchange
from headgate.filters.parser import parse
from headgate.matching import cache, index
from headgate.matching.matcher import Matcher
from headgate.message import Message
from headgate.queues.engine import QueueInfo, QueueOptions
from headgate.queues.sql.catalog import QueueCatalog
from headgate.routing.topology import Topology
from tests import generate
from tests.conformance.test_routing_properties import Pair, message
from tests.conftest import FULL

ROUNDS = 40 if FULL else 3
CHANGES = 120
READERS = 3

Step = list[tuple[str, tuple[Any, ...], dict[str, Any]]]
Answers = dict[str, list[frozenset[str]]]  # of every exchange there is, to every message


@pytest.fixture(autouse=True)
def _threads_take_turns_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Recorded:
    """A topology that writes down how it was changed."""

    def __init__(self, topology: Topology) -> None:
        self._topology, self.step = topology, Step()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **given: Any) -> Any:
            args = tuple(arg if isinstance(arg, str) else list(arg) for arg in args)
            self.step.append((name, args, given))
            return getattr(self._topology, name)(*args, **given)

        return call


class Story:
    """Changes one after the other, and what a scan over all bindings answers before and after each."""

    def __init__(self, rng: Random) -> None:
        self.messages = [message(rng) for _ in range(12)]
        self.pair = Pair(rng)
        recorded = Recorded(Topology())
        self.steps: list[Step] = []
        self.answers: list[Answers] = []
        self.topology = self.pair.index
        self.exchanges = list(self.pair.exchanges)
        for name in self.exchanges:
            declared = self.topology.exchanges[name]
            recorded.declare_exchange(name, declared.type, alternate=declared.alternate)
        for name in self.topology.queues:
            recorded.declare_queue(name)
        self.pair.index = recorded  # type: ignore[assignment]
        self._remember()
        for _ in range(CHANGES):
            recorded.step = []
            self.pair.change()
            self.steps.append(recorded.step)
            self._remember()

    def _remember(self) -> None:
        scan = self.pair.scan
        self.answers.append(
            {x: [frozenset(scan.route(x, m)) for m in self.messages] for x in self.pair.exchanges}
        )


class Performance:
    """The changes of a story made by one thread while others ask."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.begun = self.done = 0  # changes
        self.over = Event()

    def change(self) -> None:
        try:
            for step in self.story.steps:
                self.begun += 1
                for name, args, given in step:
                    getattr(self.story.topology, name)(*args, **given)
                self.done += 1
        finally:
            self.over.set()

    def ask(self, rng: Random, question: Callable[[str, Random], Any]) -> int:
        """Ask until everything was changed; every answer is one that was true meanwhile."""
        asked = 0
        while not self.over.is_set():
            exchange = rng.choice(self.story.exchanges)
            before = self.done
            try:
                at, found = question(exchange, rng)
            except UnknownExchange:
                at, found = None, None
            possible = [self._true(v, exchange, at) for v in range(before, self.begun + 1)]
            assert found in possible
            asked += 1
        return asked

    def _true(self, version: int, exchange: str, at: int | None) -> Any:
        answers = self.story.answers[version].get(exchange)
        return answers if answers is None or at is None else answers[at]

    def route(self, exchange: str, rng: Random) -> tuple[int, frozenset[str]]:
        at = rng.randrange(len(self.story.messages))
        routed = self.story.topology.route(exchange, self.story.messages[at])
        return at, frozenset(routed.queues)

    def route_batch(self, exchange: str, rng: Random) -> tuple[None, list[frozenset[str]]]:
        routed = self.story.topology.route_batch(exchange, shred_messages(self.story.messages))
        rows: list[set[str]] = [set() for _ in self.story.messages]
        for queue, found in routed.selections().items():
            for at in found.tolist():
                rows[at].add(queue)
        return None, list(map(frozenset, rows))


@pytest.mark.parametrize("few", [0, 8])
@pytest.mark.parametrize("learning", [True, False])
def test_a_topology_that_changes_answers_as_a_scan_over_its_bindings_does(
    seed, monkeypatch, few, learning
):
    monkeypatch.setattr(index, "FEW", few)
    monkeypatch.setattr(cache, "FIRST", 1 << 10 if learning else 1)
    rng = Random(seed)
    for _ in range(ROUNDS):
        performance = Performance(Story(rng))
        topology, story = performance.story.topology, performance.story
        with ThreadPoolExecutor(READERS + 2) as pool:
            asking = [
                pool.submit(performance.ask, Random(rng.random()), question)
                for question in (*[performance.route] * READERS, performance.route_batch)
            ]
            pool.submit(performance.change).result()
            assert all(one.result() for one in asking)
        for exchange, answers in story.answers[-1].items():
            at_rest = [frozenset(topology.route(exchange, m).queues) for m in story.messages]
            assert at_rest == answers


class ChangingHeaders(dict[str, str]):
    """Headers that change the topology once, when `b` is read."""

    def __init__(self, headers: dict[str, str], change: Callable[[], object]) -> None:
        super().__init__(headers)
        self._changes = [change]

    def get(self, name: str, default: Any = None) -> Any:
        value = super().get(name, default)
        if name == "b" and self._changes:
            self._changes.pop()()
        return value


@pytest.mark.parametrize("few", [0, 8])
def test_an_answer_never_mixes_the_bindings_before_and_after_a_change(monkeypatch, few):
    """As if another thread had changed the topology between two steps of the question."""
    monkeypatch.setattr(index, "FEW", few)
    monkeypatch.setattr(cache, "FIRST", 1)
    topology = Topology()
    topology.declare_exchange("x", "headers")
    for queue in ("before", "after", "other"):
        topology.declare_queue(queue)
    topology.bind("x", queue="before", arguments={"a": "1"})
    topology.bind("x", queue="other", arguments={"b": "2"})
    for n in range(3):  # until the cache of answers rests
        topology.route("x", ("", {"a": str(n)}))

    def change() -> None:
        topology.unbind("x", queue="before", arguments={"a": "1"})
        topology.bind("x", queue="after", arguments={"b": "1"})

    headers = ChangingHeaders({"a": "1", "b": "1"}, change)
    assert set(topology.route("x", ("", headers)).queues) == {"after"}


def test_a_topology_can_be_listed_while_it_changes(seed):
    story = Story(Random(seed))
    performance, topology = Performance(story), story.topology
    with ThreadPoolExecutor(2) as pool:
        changing = pool.submit(performance.change)
        while not performance.over.is_set():
            assert len(topology.definitions().queues) <= 12
            assert len(list(topology.bindings())) >= 0
            assert len(topology) >= 0
            assert topology.queues.keys() <= {f"q{n}" for n in range(12)}
            topology.validate(), topology.advise()
        changing.result()


def test_a_matcher_that_changes_finds_the_handles_that_stay(seed):
    rng = Random(seed)
    staying = [(n, generate.timeless(rng)) for n in range(60)]
    # Each comes with a column of its own: how headers are read changes with every one.
    passing = [(100 + n, parse(f"s = 'a' AND x{n} = 'y'")) for n in range(60)]
    messages = generate.messages(rng, 40)
    matcher = Matcher(staying)
    wanted = [frozenset(Matcher(staying).match(m)) for m in messages]
    over = Event()

    def change() -> None:
        try:
            for _ in range(30 * ROUNDS):
                for handle, tree in passing:
                    matcher.add(handle, tree)
                for handle, tree in passing:
                    assert matcher.remove(handle, tree)
        finally:
            over.set()

    def ask() -> None:
        while not over.is_set():
            for number, sent in enumerate(messages):
                found = matcher.match(sent)
                assert {handle for handle in found if handle < 100} == wanted[number]

    with ThreadPoolExecutor(READERS + 1) as pool:
        for one in [*[pool.submit(ask) for _ in range(READERS)], pool.submit(change)]:
            one.result()
    assert [matcher.match(m) for m in messages] == wanted


def test_publishers_in_threads_find_equal_subscriptions(seed):
    rng = Random(seed)
    infos = [subscription(id, str(n)) for id, n in enumerate("abcdefgh", 1)]
    messages: list[Message] = [Message(headers={"a": rng.choice("abcdefgh")}) for _ in range(50)]
    wanted = [
        [i.id for i in QueueCatalog(1, infos).matching_subscriptions(m, None)] for m in messages
    ]
    for _ in range(ROUNDS):
        catalog = QueueCatalog(1, infos)

        def ask(catalog: QueueCatalog = catalog) -> list[list[int]]:
            return [[info.id for info in catalog.matching_subscriptions(m, None)] for m in messages]

        with ThreadPoolExecutor(READERS) as pool:
            found = [one.result() for one in [pool.submit(ask) for _ in range(READERS)]]
        assert found == [wanted] * READERS


def subscription(id: int, value: str) -> QueueInfo:
    return QueueInfo(
        id=id, name=f"s{id}", options=QueueOptions(), kind="durable", indexed=(),
        filter=f"a = '{value}'", source=None, version=1, paused=False, expires_at=None,
    )  # fmt: skip
