"""The same random life on the reference and on SQLite: they must agree on every answer."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from headgate.filters import Compare, Field, Literal
from headgate.message import InvalidMessage, validate
from headgate.queues.engine import (
    ClaimedMessage,
    ClaimRequest,
    DeliverySnapshot,
    Engine,
    Publication,
    QueueOptions,
    Receipt,
)
from headgate.queues.memory.engine import MemoryEngine
from headgate.queues.sqlite.engine import SqliteEngine
from headgate.testing import ManualClock
from tests import generate

LEASE_US = 1_000_000
DECLARED = tuple(generate.HEADERS[:2])


@dataclass
class Life:
    """One queue and one subscription on several engines, to which the same things happen."""

    engines: list[Engine]
    rng: Random
    time: ManualClock
    held: list[Receipt]
    limits: tuple[int, ...] = (1, 3, 50)

    def same(self, verb, *args, **kwargs):
        """Do it on every engine; the one answer all of them give."""
        return self.same_answer(
            lambda engine: engine.run(getattr(engine.operations, verb)(*args, **kwargs))
        )

    def same_answer(self, ask):
        """Ask every engine; the one answer all of them give."""
        answers = [ask(engine) for engine in self.engines]
        first, *others = map(_comparable, answers)
        assert all(other == first for other in others), (first, others)
        return answers[0]

    def publish(self, queue):
        publications = [
            Publication(
                _valid_message(self.rng),
                delay_us=self.rng.choice((0, 0, 0, 500_000)),
                dedup_key=self.rng.choice((None, None, None, "k1", "k2")),
                group=self.rng.choice((None, None, "g", "h")),
            )
            for _ in range(self.rng.randint(1, 6))
        ]
        self.same("publish", queue, publications)

    def claim(self, queue):
        filters = (None, self.lookup(queue), generate.filter(self.rng), generate.filter(self.rng))
        filter = self.rng.choice(filters)
        # Acks of a claim that scans come after it has searched: then a group may be free, or a lease over.
        acked = self.held[: self.rng.choice((0, 1, 3))] if filter in filters[:2] else []
        acks = list({receipt.id: receipt for receipt in acked}.values())
        self.held = [receipt for receipt in self.held if receipt not in acks]
        request = ClaimRequest(
            self.rng.choice(self.limits), LEASE_US, together=self.rng.random() < 0.3
        )
        claimed, _ = self.same_answer(lambda engine: engine.claim(queue, request, filter, acks))
        self.held += [one.receipt for one in claimed]

    def lookup(self, queue):
        """A filter that an index answers, and that a message matches if there is one."""
        header = self.rng.choice(DECLARED)
        found = [one.message.headers.get(header) for one in self.same("peek", queue, 20)]
        values = [value for value in found if isinstance(value, str)]
        value = self.rng.choice(values or generate.STRINGS)
        return Compare("=", Field("header", header), Literal(value))

    def settle(self, queue):
        self.rng.shuffle(self.held)
        chosen = {receipt.id: receipt for receipt in self.held[:2]}  # of one delivery, one receipt
        receipts = list(chosen.values())
        self.held = [receipt for receipt in self.held if receipt not in receipts]
        verb, *args = self.rng.choice(
            [
                ("ack",),
                ("ack",),
                ("nack", 0, "r"),
                ("nack", 700_000, None),
                ("bury", "b"),
                ("release",),
            ]
        )
        self.same(verb, queue, receipts, *args)
        if self.rng.random() < 0.2:
            self.held += receipts  # to be tried again: by then it is stale

    def extend(self, queue):
        self.same("extend", queue, self.held[:1], 2 * LEASE_US)

    def look(self, queue):
        self.same("peek", queue, 20, generate.filter(self.rng))
        self.same("browse", queue, 50)
        self.same("next_due", queue)
        self.same("stats", queue)

    def wait(self, queue):
        self.time.elapsed_us += self.rng.choice((100_000, 600_000, 1_500_000))

    def requeue(self, queue):
        self.same("requeue", queue)


def _valid_message(rng: Random):
    while True:
        message = generate.message(rng)
        try:
            validate(message)
            return message
        except InvalidMessage:
            continue


def _comparable(answer):
    """Without what engines may choose: tokens are theirs alone only in name, they count alike here too."""
    match answer:
        case ClaimedMessage() | DeliverySnapshot():
            return repr(answer)
        case list() | tuple():
            return [_comparable(one) for one in answer]
        case _:
            return repr(answer)


@pytest.fixture
def eager(monkeypatch):
    """Claims set members of busy groups aside as soon as they see one."""
    monkeypatch.setattr("headgate.queues.sql.groups._MOST_CLAIMS_BETWEEN_LOOKS", 0)
    monkeypatch.setattr("headgate.queues.sql.groups._IN_THE_WAY", 1)


# Several are claimed at once only if all can be: what is aside does not count, so that a claim may reach further.
@pytest.mark.parametrize("round", range(12))
def test_the_reference_and_sqlite_lead_the_same_life_with_members_of_groups_set_aside(
    tmp_path, seed, full, round, eager
):
    lead_the_same_life(tmp_path, Random(f"{seed}-{round}"), full, limits=(1, 1_000))


@pytest.mark.parametrize("round", range(12))
def test_the_reference_and_sqlite_lead_the_same_life(tmp_path, seed, full, round):
    lead_the_same_life(tmp_path, Random(f"{seed}-{round}"), full)


def lead_the_same_life(tmp_path, rng: Random, full: bool, **options):
    time = ManualClock()
    time.wall_us = time.elapsed_us  # so that both engines' times are the same numbers
    engines: list[Engine] = [
        MemoryEngine(clock=time.clock),
        SqliteEngine(tmp_path / "q.db", synchronous="OFF", clock=time.clock),
    ]
    life = Life(engines, rng, time, [], **options)
    options = QueueOptions(filter_headers=DECLARED, max_attempts=3)
    queue = life.same("declare", "q", options)
    subscription = life.same("subscribe", "s", generate.filter(rng), options=options)
    acts = (
        life.publish,
        life.claim,
        life.claim,
        life.settle,
        life.extend,
        life.look,
        life.wait,
        life.requeue,
    )
    for _ in range(400 if full else 80):
        rng.choice(acts)(queue)
        if rng.random() < 0.1:
            life.claim(subscription)
            life.held.clear()
        if rng.random() < 0.05:
            life.same("subscribe", "s", generate.filter(rng), options=options)
    for engine in engines:
        engine.close()
