"""Random histories of one queue with filters, judged by a model that knows nothing but lists.

Every delivery is judged when it happens: may this consumer get this message now? After every step, nothing may be left
that some consumer wants and has room for. Restarts lose what a store may lose, and nothing else.
"""

from __future__ import annotations

import heapq
import queue as threads
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from headgate.amqp.codec import AmqpCodec
from headgate.amqp.content import make_content
from headgate.amqp.properties import encode_properties
from headgate.broker import Broker, BrokerConsumer, QueueEntry
from headgate.broker.queue import ClassicQueue
from headgate.filters import evaluate, parse
from headgate.message import Message
from headgate.store import InMemoryStore, SqliteStore
from headgate.store.changes import Changes

FILTERS = [
    "a = 1", "a = 2", "a > 1", "b = 'x'", "a = 1 AND b = 'x'", "NOT a = 1", "b LIKE 'x%'", "a IN (1, 3) OR b = 'y'",
    "a IS NULL", "a = 1 OR b LIKE '_y'", "sys.priority > 2", "sys.topic MATCHES '#'",
]  # fmt: skip
HEADERS: list[dict[str, Any]] = [
    {name: value for name, value in (("a", a), ("b", b)) if value is not None}
    for a in (None, 1, 2, 3)
    for b in (None, "x", "y", "xy")
]
_known: dict[tuple[str, int, int], bool] = {}


def wants(text: str | None, kind: int, priority: int) -> bool:
    """Whether a filter matches messages of this kind, by the reference of the language."""
    if text is None:
        return True
    key = text, kind, priority
    if key not in _known:
        message = Message(b"", "q", HEADERS[kind], priority=priority)
        _known[key] = evaluate(parse(text), message, 0) is True
    return _known[key]


@dataclass
class Sent:
    """What the model knows of a message."""

    number: int
    kind: int
    priority: int
    level: int
    persistent: bool
    expires: int | None
    state: str = "ready"  # ready, unacked, gone
    is_stored: bool = False  # a commit has its row for certain
    delivered: bool = False
    is_noted: bool = True  # that it was delivered, durably: a get does not wait for that
    unsure: bool = False  # its settlement was perhaps not stored
    entry: QueueEntry | None = None
    consumer: HistoryConsumer | None = None


class HistoryConsumer(BrokerConsumer):
    """A consumer with as much credit as the history gives it."""

    def __init__(self, history: History, tag: str, text: str | None, **options: Any) -> None:
        super().__init__(tag, history.queue, exclusive=False, **options)
        self.history, self.text, self.credit = history, text, 0
        self.filter_text = text

    def room(self) -> int:
        return self.credit

    def deliver(self, entries: Sequence[QueueEntry]) -> None:
        for entry in entries:
            self.history.judge(self, entry)
        self.credit -= len(entries)

    def notify_cancel(self) -> None:
        raise AssertionError("nobody deleted the queue")


@dataclass
class Shape:
    """What kind of queue a history is about."""

    arguments: dict[str, Any] = field(default_factory=dict)
    durable: bool = True
    bound: int = 5
    slices: bool = False
    ttl: bool = False


def drain_in_order(queue: ClassicQueue, drain: Callable[[ClassicQueue], None]) -> None:
    """Drain a queue, and check the order of all that it delivered."""
    drain(queue)
    for consumer in queue.consumers[:1]:
        assert isinstance(consumer, HistoryConsumer)
        consumer.history.check_order()


def draw_shape(rng: Random) -> Shape:
    shape = Shape(bound=rng.choice([3, 5, 1_000]), slices=rng.random() < 0.2)
    kind = rng.randrange(8)
    if kind == 0:
        shape.arguments = {"x-queue-type": "quorum"}
    elif kind == 1:
        shape.arguments = {"x-max-priority": 3}
    elif kind == 2:
        shape.ttl = True
    elif kind == 3:
        shape.arguments = {"x-single-active-consumer": True}
    elif kind == 4:
        shape.arguments = {"x-filter": rng.choice(FILTERS)}
    elif kind == 5:
        shape.durable = False
    elif kind == 6:
        shape.arguments = {"x-max-length": 8}
    shape.arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    return shape


class History:
    """One queue, its broker, and what the model knows of both."""

    def __init__(self, rng: Random, place: Path | None) -> None:
        self.rng, self.shape = rng, draw_shape(rng)
        self.now = 1_000_000
        self.timers: list[tuple[int, int, Callable[[], None]]] = []
        self.posted: threads.SimpleQueue[Callable[[], None]] = threads.SimpleQueue()
        self.place = place
        self.store = self._open_store()
        self.sent: list[Sent] = []
        self.consumers: list[HistoryConsumer] = []
        # A message, one behind it that went first, and the consumer that got that.
        self.in_front: list[tuple[Sent, Sent, HistoryConsumer]] = []
        self.tags = 0
        self.restarts = 0
        self.log: list[str] = [f"{self.shape}"]
        self._start()
        vhost = self.broker.vhosts["/"]
        vhost.declare_queue("dead", durable=True)
        vhost.declare_queue("q", durable=self.shape.durable, arguments=self.shape.arguments)
        vhost.declare_exchange("gate", "fanout", durable=True)
        self.gate = rng.choice(FILTERS)
        vhost.bind("gate", "q", "", {"x-filter": self.gate})
        self.settle()

    def _open_store(self) -> InMemoryStore | SqliteStore:
        if self.place is None:
            return InMemoryStore(self.posted.put)
        return SqliteStore(self.place, self.posted.put, synchronous="OFF")

    def _start(self) -> None:
        self.broker = Broker(
            self.store, AmqpCodec(), self._call_later, now_ms=lambda: self.now, bound=self.shape.bound
        )  # fmt: skip
        self.broker.slice_s = 0.0 if self.shape.slices else 1e9

    @property
    def queue(self) -> ClassicQueue:
        found = self.broker.vhosts["/"].queues["q"]
        assert isinstance(found, ClassicQueue)
        return found

    # ---- time

    def _call_later(self, seconds: float, call: Callable[[], None]) -> None:
        due = self.now + round(seconds * 1000)
        heapq.heappush(self.timers, (due, len(self.timers) + id(call), call))

    def settle(self) -> None:
        """Let everything happen that needs no more time."""
        self.broker.flush()
        self.store.commit()
        while self._is_due() or self._is_committing():
            if self._is_due():
                heapq.heappop(self.timers)[2]()
            else:
                self.posted.get(timeout=20)()
            self.store.commit()
        for sent in self.sent:
            sent.is_stored = sent.is_stored or (sent.persistent and self.shape.durable)
            sent.is_noted = True

    def _is_committing(self) -> bool:
        if isinstance(self.store, SqliteStore) and self.store._committer.is_busy:
            return True
        return not self.posted.empty()

    def _is_due(self) -> bool:
        return bool(self.timers) and self.timers[0][0] <= self.now

    # ---- the model

    def is_alive(self, sent: Sent) -> bool:
        return sent.state == "ready" and (sent.expires is None or sent.expires > self.now)

    def text_of(self, consumer: HistoryConsumer) -> str | None:
        return consumer.text or self.shape.arguments.get("x-filter")

    def is_wanted(self, consumer: HistoryConsumer, sent: Sent) -> bool:
        return wants(self.text_of(consumer), sent.kind, sent.priority)

    def judge(self, consumer: HistoryConsumer, entry: QueueEntry) -> None:
        """Check one delivery against the model."""
        sent = self.sent[int(entry.message.parts()[1])]
        self.log.append(f"  {consumer.tag} gets {sent.number}")
        assert self.is_alive(sent), f"message {sent.number} is {sent.state}"
        assert self.is_wanted(consumer, sent), f"{consumer.tag} does not want {sent.number}"
        self._judge_order(consumer, sent)
        self.note_delivery(sent, entry, consumer)

    def note_delivery(
        self, sent: Sent, entry: QueueEntry, consumer: HistoryConsumer | None
    ) -> None:
        assert entry.redelivered or not sent.delivered, f"{sent.number} is not flagged"
        sent.delivered, sent.is_noted = True, consumer is not None
        sent.entry, sent.consumer = entry, consumer
        sent.state = "gone" if consumer is not None and consumer.no_ack else "unacked"
        sent.unsure = sent.state == "gone"

    def _judge_order(self, consumer: HistoryConsumer, sent: Sent) -> None:
        if self.shape.slices:  # what is not examined yet may go to whoever takes the next
            return
        for other in self.sent[: sent.number]:
            is_before = other.level == sent.level and self.is_alive(other)
            if is_before and self.is_wanted(consumer, other):
                self.in_front.append((other, sent, consumer))
        if self.shape.arguments.get("x-single-active-consumer"):
            assert self.queue.consumers[0] is consumer
            return
        if any(lane.is_waiting for lane in self.queue.lanes):
            return
        for better in self.consumers:
            if better.priority > consumer.priority and better.credit > 0:
                assert not self.is_wanted(better, sent), f"{better.tag} comes first"

    def check_order(self) -> None:
        """What was in front of a message that was delivered went to another consumer, in the same turn."""
        for other, sent, consumer in self.in_front:
            is_in_turn = not self.is_alive(other) and other.consumer is not consumer
            assert is_in_turn, f"{other.number} is in front of {sent.number}"
        self.in_front.clear()

    def check_nobody_starves(self) -> None:
        """Everybody with room has what it wants; the numbers of the queue are those of the model."""
        assert not self.in_front
        active = self.queue.consumers if self.consumers else []
        if self.shape.arguments.get("x-single-active-consumer"):
            active = active[:1]
        for consumer in active:
            assert isinstance(consumer, HistoryConsumer)
            if consumer.credit > 0:
                left = [
                    s.number
                    for s in self.sent
                    if self.is_alive(s) and self.is_wanted(consumer, s) and not s.unsure
                ]
                assert not left, f"{consumer.tag} starves: {left}"
        if not self.shape.ttl and not self.restarts:
            ready = sum(sent.state == "ready" for sent in self.sent)
            assert len(self.queue) == ready, f"{len(self.queue)} ready, not {ready}"
            assert self.queue.unacked == sum(sent.state == "unacked" for sent in self.sent)

    # ---- what happens

    def step(self) -> None:
        verbs = [self.publish] * 5 + [
            self.consume,
            self.add_credit,
            self.add_credit,
            self.ack,
            self.ack,
        ]
        verbs += [self.back, self.reject, self.cancel, self.change_filter, self.get, self.commit]
        if self.rng.random() < 0.04:
            verbs = [self.purge]
            if (
                "x-max-length" not in self.shape.arguments
            ):  # rows that do not survive count until they are read
                verbs += [self.restart, self.crash]
        verb = self.rng.choice(verbs)
        self.log.append(verb.__name__)
        verb()
        if self.rng.random() < 0.8:
            self.settle()
            self.check_nobody_starves()
        else:
            self.broker.flush()

    def publish(self) -> None:
        for _ in range(self.rng.choice([1, 1, 3, 9])):
            self._publish_one(through_gate=self.rng.random() < 0.2)
        self.now += self.rng.choice([0, 1, 40])

    def _publish_one(self, *, through_gate: bool) -> None:
        rng = self.rng
        kind, priority = rng.randrange(len(HEADERS)), rng.choice([0, 0, 1, 3, 7])
        ttl = rng.choice([None, 20, 100, 1_000]) if self.shape.ttl else None
        persistent = rng.random() < 0.6
        values: dict[str, Any] = {"headers": HEADERS[kind], "priority": priority}
        values |= {"delivery_mode": 2} if persistent else {}
        values |= {} if ttl is None else {"expiration": str(ttl)}
        number = len(self.sent)
        route = b"\x04gate\x01q" if through_gate else b"\x00\x01q"
        content = make_content(route, encode_properties(values), b"%d" % number)
        vhost = self.broker.vhosts["/"]
        targets = vhost.queues_for(content, "gate" if through_gate else "", ("q",))
        assert bool(targets) == (not through_gate or wants(self.gate, kind, priority))
        if not targets:
            return
        if self.shape.arguments.get("x-queue-type") == "quorum":
            level = int(priority > 4)
        else:
            level = min(priority, self.shape.arguments.get("x-max-priority", 0))
        expires = None if ttl is None else self.now + ttl
        self.sent.append(Sent(number, kind, priority, level, persistent, expires))
        self.log.append(f"  {self.sent[-1]}")
        vhost.deliver(content, targets)
        self._drop_head()

    def _drop_head(self) -> None:
        limit = self.shape.arguments.get("x-max-length")
        ready = [sent for sent in self.sent if sent.state == "ready"]
        if limit is not None and len(ready) > limit:
            for sent in ready[: len(ready) - limit]:
                sent.state = "gone"
                sent.unsure = True

    def consume(self) -> None:
        if len(self.consumers) >= 5:
            return
        self.tags += 1
        text = self.rng.choice([None, *self.rng.choices(FILTERS, k=4)])
        consumer = HistoryConsumer(
            self, f"c{self.tags}", text, no_ack=self.rng.random() < 0.2, priority=self.rng.choice([0, 0, 1])
        )  # fmt: skip
        consumer.credit = self.rng.choice([0, 1, 3, 100])
        self.log.append(f"  {consumer.tag}: {text} {consumer.credit} {consumer.no_ack}")
        self.consumers.append(consumer)
        self.queue.add_consumer(consumer)

    def add_credit(self) -> None:
        if self.consumers:
            self.rng.choice(self.consumers).credit += self.rng.choice([1, 2, 20])
            self.broker.dirty.add(self.queue)

    def _some_unacked(self) -> list[Sent]:
        unacked = [sent for sent in self.sent if sent.state == "unacked"]
        return self.rng.sample(unacked, min(len(unacked), self.rng.choice([1, 1, 2, 8])))

    def ack(self) -> None:
        for sent in self._some_unacked():
            assert sent.entry is not None
            sent.state, sent.unsure = "gone", True
            self.queue.ack(sent.entry)

    def reject(self) -> None:
        for sent in self._some_unacked():
            assert sent.entry is not None
            sent.state, sent.unsure = "gone", True
            self.queue.reject(sent.entry)

    def back(self) -> None:
        self._requeue(self._some_unacked())

    def _requeue(self, some: Sequence[Sent]) -> None:
        for sent in some:
            assert sent.entry is not None
            sent.state = "ready"
            if sent.entry.deliveries >= 20 and self.shape.arguments.get("x-queue-type") == "quorum":
                sent.state, sent.unsure = "gone", True
        entries = [sent.entry for sent in some if sent.entry is not None]
        self.queue.requeue(entries)
        self._drop_head()

    def cancel(self) -> None:
        if self.consumers:
            consumer = self.consumers.pop(self.rng.randrange(len(self.consumers)))
            self.queue.remove_consumer(consumer)
            if self.rng.random() < 0.5:
                self._requeue(
                    [s for s in self.sent if s.state == "unacked" and s.consumer is consumer]
                )

    def change_filter(self) -> None:
        if self.consumers:
            consumer = self.rng.choice(self.consumers)
            consumer.text = self.rng.choice([None, *FILTERS])
            self.log.append(f"  {consumer.tag}: {consumer.text}")
            self.queue.set_filter(consumer, consumer.text)

    def get(self) -> None:
        entry = self.queue.get()
        text = self.shape.arguments.get("x-filter")
        if entry is None:
            left = [s for s in self.sent if self.is_alive(s) and wants(text, s.kind, s.priority)]
            assert self.shape.slices or not [s for s in left if not s.unsure]
            return
        sent = self.sent[int(entry.message.parts()[1])]
        self.log.append(f"  {sent.number}")
        assert self.is_alive(sent)
        assert wants(text, sent.kind, sent.priority)
        self.note_delivery(sent, entry, None)

    def purge(self) -> None:
        self.queue.purge()
        for sent in self.sent:
            if sent.state == "ready":
                sent.state, sent.unsure = "gone", True

    def commit(self) -> None:
        """Let some callbacks of commits run, and not all."""
        self.broker.flush()
        for _ in range(self.rng.randrange(3)):
            if not self.posted.empty():
                self.posted.get()()

    # ---- restarts

    def restart(self) -> None:
        """Stop as SIGTERM does."""
        self.consumers.clear()
        for consumer in list(self.queue.consumers):
            self.queue.remove_consumer(consumer)
        self._requeue([sent for sent in self.sent if sent.state == "unacked"])
        self.settle()
        self.broker.close()
        self.store.commit()
        self._begin_again(clean=True)

    def crash(self) -> None:
        """Lose what no commit has stored."""
        self.consumers.clear()
        self._begin_again(clean=False)

    def _begin_again(self, *, clean: bool) -> None:
        self.restarts += 1
        if self.place is None:
            self.store._changes = Changes()
        else:
            if not clean:
                self.store._changes = Changes()
            self.store.close()
        self.posted, self.timers = threads.SimpleQueue(), []
        if self.place is None:
            assert isinstance(self.store, InMemoryStore)
            self.store._post = self.posted.put
        else:
            self.store = self._open_store()
        self._start()
        vhost = self.broker.vhosts["/"]
        if not self.shape.durable:
            vhost.declare_queue("q", durable=False, arguments=self.shape.arguments)
            vhost.bind("gate", "q", "", {"x-filter": self.gate})
        self._read_back(clean=clean)

    def _read_back(self, *, clean: bool) -> None:
        """Look what is there after a restart, and let the model go on with that."""
        there: dict[int, bool] = {}
        for lane in self.queue.lanes:
            for row in self.store.page(lane.number, -1, 10_000, 1 << 30) if lane.number else ():
                entry = lane.read_gap([row.position])[0]
                if entry.message.persistent:
                    there[int(entry.message.parts()[1])] = entry.redelivered
        for sent in self.sent:
            is_there = sent.number in there
            lives = sent.expires is None or sent.expires > self.now
            if sent.state in ("ready", "unacked") and sent.is_stored and lives:
                assert is_there, f"{sent.number} is lost"
            if sent.state == "gone":
                assert not is_there or sent.unsure, f"{sent.number} is back"
                assert not (is_there and clean and not self.shape.ttl), f"{sent.number} is back"
            if is_there:
                is_flagged = there[sent.number] or not sent.delivered or not sent.is_noted
                assert is_flagged, f"{sent.number} is not flagged"
            sent.state = "ready" if is_there else "gone"
            sent.delivered = sent.delivered and is_there
            sent.unsure = False
            sent.entry = sent.consumer = None


def run_history(seed: str, place: Path | None, steps: int = 40) -> None:
    """Run one history; what went wrong is told with everything that happened before."""
    history = History(Random(seed), place)
    try:
        for _ in range(steps):
            history.step()
        history.settle()
        history.check_nobody_starves()
    except Exception as problem:
        told = "\n".join(history.log)
        raise AssertionError(f"history {seed}: {problem!r}\n{told}") from problem
    finally:
        history.store.close()
