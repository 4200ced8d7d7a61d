"""The queue of accepted messages: order, marks, and when the committer is woken."""

import pytest

from headgate.message import Message
from headgate.streams.write.pending import (
    Consecutive,
    PendingMessages,
    last_ids,
    messages_of,
    valid_items,
)
from headgate.streams.write.publishing_ids import ProducerTable

A, B, C, D = (Message(name) for name in (b"a", b"b", b"c", b"d"))


def add(pending: PendingMessages, message: Message) -> bool:
    """As a producer does."""
    pending.items.append(message)
    crowded = len(pending.items) >= pending.attend_at or len(message.payload) > pending.small
    return crowded and pending.count_payload(message)


def test_messages_are_drained_in_order_and_those_put_back_come_first():
    pending = PendingMessages(10, 1000, ProducerTable({}))
    pending.add_many([A, ("p", 1, B), C])
    drained = pending.drain()
    assert drained == pending.taken == [A, ("p", 1, B), C]
    assert messages_of(drained) == [A, B, C]
    add(pending, D)
    pending.put_back(drained[1:])
    assert pending.taken is None
    assert pending.drain() == [("p", 1, B), C, D]
    assert pending.drain() == []


def test_messages_without_marks_are_their_own_items():
    items = [A, B]
    assert messages_of(items) is items


def test_the_queue_is_full_by_number_or_by_bytes():
    pending = PendingMessages(3, 1000, ProducerTable({}))
    assert add(pending, A)  # the first message wakes the committer
    assert pending.start_waiting()
    assert not add(pending, B)
    assert not pending.full
    assert add(pending, C)
    assert pending.full
    pending.drain()
    assert not pending.full
    pending.add_many([Message(b"x" * 1000)])
    assert pending.full


def test_payloads_above_the_average_are_counted_and_make_the_queue_full():
    pending = PendingMessages(3, 300, ProducerTable({}))
    add(pending, A)
    pending.start_waiting()
    assert not add(pending, Message(b"x" * 200))
    pending.drain()
    assert not add(pending, Message(b"x" * 200))
    assert add(pending, Message(b"x" * 101))
    assert pending.full


def test_the_committer_is_woken_once_and_again_after_it_found_nothing():
    pending = PendingMessages(10, 1000, ProducerTable({}))
    assert pending.waiting_since() is None
    add(pending, A)
    assert pending.start_waiting()
    assert not pending.start_waiting()
    assert pending.waiting_since() is not None
    add(pending, B)
    assert not pending.start_waiting()  # it knows, and will look again
    pending.drain()
    assert pending.waiting_since() is None
    add(pending, C)
    assert pending.start_waiting()


def test_messages_that_became_invalid_are_left_out():
    bad = Message(b"", headers={"a": 2**70})
    items = [("p", 1, A), ("p", 2, bad), B, bad]
    assert valid_items(items) == [("p", 1, A), B]


def test_the_last_publishing_id_of_each_producer_is_kept():
    assert last_ids([A, ("p", 1, B), ("q", 7), ("p", 3, C), ("p", 2, D)]) == {"p": 3, "q": 7}
    assert last_ids(Consecutive("p", 4, [A, B])) == {"p": 5}
    assert last_ids(Consecutive("p", 4, [])) == {}
    assert last_ids([]) == {}


def test_of_consecutive_ids_only_those_that_were_not_seen_are_new():
    pending = PendingMessages(10, 1000, ProducerTable({"p": 4}))

    def publish(name, first):
        items = pending.select_new([A, B, C], name, first)
        pending.add_many(items)
        return len(items)

    assert [publish("p", first) for first in (2, 5, 5, 100)] == [0, 3, 0, 3]
    assert publish("p", 101) == 1
    assert pending.last_id("p") == 103
    assert publish("q", None) == 3
    assert pending.last_id("q") == 2


def test_consecutive_ids_are_cut_like_the_messages():
    run = Consecutive("p", 5, [A, B, C, D])
    assert list(run) == [("p", 5, A), ("p", 6, B), ("p", 7, C), ("p", 8, D)]
    assert list(run[1:3]) == [("p", 6, B), ("p", 7, C)]
    assert run[-1] == ("p", 8, D)
    assert messages_of(run[2:]) == [C, D]
    assert last_ids(run[:3]) == {"p": 7}


@pytest.fixture
def named():
    """A queue whose messages without a mark are those of the producer "p", whose last id is 4."""
    pending = PendingMessages(10, 1000, ProducerTable({"p": 4}))
    assert pending.claim_unmarked("p")
    assert not pending.claim_unmarked("q")
    assert not pending.claim_unmarked(None)
    return pending


def test_messages_without_a_mark_get_the_next_ids_of_their_producer(named):
    add(named, A)
    add(named, B)
    assert list(named.drain()) == [("p", 5, A), ("p", 6, B)]
    add(named, C)
    assert named.last_id("p") == 7
    add(named, D)
    assert list(named.drain()) == [("p", 7, C), ("p", 8, D)]
    assert named.last_id("p") == 8


def test_a_given_id_counts_the_messages_before_it(named):
    add(named, A)
    assert not named.add(B, "p", 5)
    assert named.add(B, "p", 6)
    add(named, C)
    items = named.select_new([A, B, D], "p", 6)
    assert list(items) == [("p", 8, D)]
    named.add_many(items)
    assert list(named.drain()) == [("p", 5, A), ("p", 6, B), ("p", 7, C), ("p", 8, D)]


def test_messages_of_others_keep_their_marks_among_those_without(named):
    add(named, A)
    named.add(B, None, None)
    assert named.add(C, "q", None)
    named.add_many([D])
    assert named.drain() == [("p", 5, A), B, ("q", 0, C), D]


def test_messages_that_were_put_back_keep_their_ids(named):
    add(named, A)
    named.add(B, None, None)
    add(named, C)
    drained = named.drain()
    add(named, D)
    named.put_back(drained[1:])
    assert named.drain() == [B, ("p", 6, C), ("p", 7, D)]
    add(named, A)
    named.put_back(named.drain())
    assert named.drain() == [("p", 8, A)]
    assert named.last_id("p") == 8


def test_an_id_that_is_accepted_during_a_commit_is_not_taken_back():
    class Accepted(dict):
        """Another thread accepts an id as soon as the last one was read."""

        def get(self, name, default):
            seen = super().get(name, default)
            self[name] = 6
            return seen

    table = ProducerTable({"p": 4})
    table.accepted = Accepted(p=5)
    table.append({"p": 5})
    table.commit(0)
    assert dict(table.accepted) == {"p": 6}
