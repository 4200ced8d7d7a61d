"""The entries of a queue, most of them in the store when they are many."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from headgate.amqp.codec import AmqpCodec
from headgate.amqp.content import make_content
from headgate.broker.interest import LaneInterest
from headgate.broker.lane import QueueLane
from headgate.broker.message import QueueEntry
from headgate.broker.records import make_record
from headgate.store import InMemoryStore

BOUND = 4


class Bench:
    """A lane over a store whose commits happen when the test says so."""

    def __init__(self) -> None:
        self.store = InMemoryStore(lambda call: call())
        self.lane = QueueLane(
            SimpleNamespace(ready_bytes=0), 1, 0, self.store, AmqpCodec().decode, BOUND
        )
        self.next = 1

    def push(self, count: int = 1, *, persistent: bool = False) -> None:
        for _ in range(count):
            properties = b"\x10\x00\x02" if persistent else b"\x00\x00"
            content = make_content(b"\x00\x01q", properties, b"%d" % self.next)
            entry = QueueEntry(self.next, content, 0, None)
            if persistent or self.lane.must_page:
                self.store.append(1, self.next, make_record(entry, *content.parts()))
                entry.stored = True
                self.lane.written = self.next
            self.lane.push(entry)
            self.next += 1

    def commit(self) -> None:
        self.store.commit()
        self.lane.commit_done(self.lane.written, -1)

    def take(self, count: int) -> list[int]:
        return [self.lane.take().position for _ in range(count)]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_entries_past_the_bound_leave_memory_when_they_are_stored(bench):
    bench.push(20)
    assert len(bench.lane) == 20
    assert len(bench.lane.tail) == 16
    bench.commit()
    assert (len(bench.lane.head), len(bench.lane.tail), bench.lane.gap) == (4, 0, 16)
    assert bench.take(20) == list(range(1, 21))
    assert len(bench.lane) == 0


def test_what_is_pushed_behind_the_gap_comes_after_it(bench):
    bench.push(10)
    bench.commit()
    bench.push(5)
    assert bench.take(15) == list(range(1, 16))


def test_rows_that_are_committed_and_still_in_memory_are_read_once(bench):
    bench.push(10)
    bench.commit()
    bench.push(5)
    bench.store.commit()  # the lane has not heard of it
    assert bench.take(15) == list(range(1, 16))


def test_entries_that_a_filter_took_from_the_gap_return_to_their_places(bench):
    bench.push(8)
    bench.commit()
    assert bench.take(4) == [1, 2, 3, 4]  # the head is empty, and the gap begins with 5
    chosen = bench.lane.read_gap([6, 8])
    for entry in chosen:
        bench.lane.remove_row(entry)
    for entry in reversed(chosen):  # by then the filter is gone with its consumer
        bench.lane.give_back(entry)
    assert bench.take(4) == [5, 6, 7, 8]


def test_entries_that_return_go_in_front_of_what_is_behind_them(bench):
    bench.push(12)
    bench.commit()
    taken = [bench.lane.take() for _ in range(6)]
    for index in (3, 0, 5):
        bench.lane.give_back(taken[index])
    assert bench.take(len(bench.lane)) == [1, 4, 6, 7, 8, 9, 10, 11, 12]


def test_clearing_deletes_what_is_ready_and_keeps_what_was_taken(bench):
    bench.push(12, persistent=True)
    bench.commit()
    taken = bench.lane.take()
    bench.lane.clear()
    bench.commit()
    assert len(bench.lane) == 0
    assert [row.position for row in bench.store.page(1, 0, 100, 1 << 20)] == [taken.position]


def test_a_restart_brings_back_what_is_persistent_and_flags_what_may_have_been_delivered(bench):
    bench.push(3, persistent=True)
    bench.push(6)  # of which those past the bound were paged out
    bench.push(1, persistent=True)
    bench.commit()
    facts = bench.store.read().lanes[1]
    lane = QueueLane(bench.lane.queue, 1, 0, bench.store, AmqpCodec().decode, BOUND)
    lane.restore(facts.rows, facts.last, mark=2)
    found = []
    while lane.peek() is not None:
        found.append(lane.take())
    assert [(entry.position, entry.redelivered) for entry in found] == [
        (1, True),
        (2, True),
        (3, False),
        (10, False),
    ]


def test_random_pushes_takes_returns_and_commits_keep_the_order(bench, seed):
    rng = random.Random(seed)
    expected: set[int] = set()
    taken: list[QueueEntry] = []
    for _ in range(2_000):
        match rng.randrange(5):
            case 0 | 1:
                before = bench.next
                bench.push(rng.randrange(1, 5), persistent=rng.random() < 0.5)
                expected |= set(range(before, bench.next))
            case 2 if expected:
                entry = bench.lane.take()
                assert entry.position == min(expected)
                expected.remove(entry.position)
                taken.append(entry)
            case 3 if taken:
                entry = taken.pop(rng.randrange(len(taken)))
                bench.lane.give_back(entry)
                expected.add(entry.position)
            case 4:
                bench.commit()
        assert len(bench.lane) == len(expected)
    assert bench.take(len(expected)) == sorted(expected)


def test_what_a_filter_takes_from_the_end_is_forgotten(bench):
    bench.lane.interest = LaneInterest(0)
    bench.push(4)
    first, second, third, last = bench.lane.head
    for entry in (second, third, last):
        bench.lane.remove(entry)
    assert list(bench.lane.head) == [first]
    assert len(bench.lane) == 1
    bench.lane.give_back(third)
    assert bench.take(2) == [1, 3]


def test_an_entry_that_came_back_is_examined_again_where_a_commit_moves_it(bench):
    lane = bench.lane
    bench.push(8, persistent=True)
    interest = lane.interest = LaneInterest(evaluated=8)
    entry = lane.tail[1]
    lane.remove(entry)
    entry.redelivered = True
    lane.give_back(entry)
    interest.fresh.clear()  # examined by the filters that had come so far
    bench.commit()
    assert [e.position for e in lane.returned] == [entry.position]
    assert list(interest.fresh) == [entry.position]
