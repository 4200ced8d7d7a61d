"""The queue of accepted messages: order, marks, and when the committer is woken."""

from headgate.message import Message
from headgate.streams.write.pending import PendingMessages, messages_of, valid_items
from headgate.streams.write.publishing_ids import ProducerTable, last_ids

A, B, C, D = (Message(name) for name in (b"a", b"b", b"c", b"d"))


def add(pending: PendingMessages, message: Message) -> bool:
    """As a producer does."""
    pending.items.append(message)
    crowded = len(pending.items) >= pending.attend_at or len(message.payload) > pending.small
    return crowded and pending.count_payload(message)


def test_messages_are_drained_in_order_and_those_put_back_come_first():
    pending = PendingMessages(10, 1000)
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
    pending = PendingMessages(3, 1000)
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
    pending = PendingMessages(3, 300)
    add(pending, A)
    pending.start_waiting()
    assert not add(pending, Message(b"x" * 200))
    pending.drain()
    assert not add(pending, Message(b"x" * 200))
    assert add(pending, Message(b"x" * 101))
    assert pending.full


def test_the_committer_is_woken_once_and_again_after_it_found_nothing():
    pending = PendingMessages(10, 1000)
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
    assert last_ids([A, ("p", 1, B), ("q", 7), ("p", 2, C), D]) == {"p": 2, "q": 7}
    assert last_ids([]) == {}


def test_of_consecutive_ids_those_that_were_seen_are_counted():
    table = ProducerTable({"p": 4})
    assert [table.accept(("p", first), 3) for first in (2, 5, 5, 100)] == [3, 0, 3, 0]
    assert table.accept(("p", 101), 3) == 2
    assert table.last("p") == 103
    assert table.accept(("q", 0)) == 0
