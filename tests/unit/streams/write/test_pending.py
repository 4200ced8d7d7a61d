"""The queue of accepted messages: order, marks, and when the committer is woken."""

from headgate.message import Message
from headgate.streams.write.pending import Drained, PendingMessages
from headgate.streams.write.publishing_ids import last_ids

A, B, C, D = (Message(name) for name in (b"a", b"b", b"c", b"d"))


def add_plain(pending: PendingMessages, message: Message) -> bool:
    """As a producer does."""
    pending.items.append(message)
    crowded = len(pending.items) >= pending.attend_at or len(message.payload) > pending.small
    return crowded and pending.weigh(message)


def test_messages_are_drained_in_order_and_those_put_back_come_first():
    pending = PendingMessages(10, 1000)
    add_plain(pending, A)
    pending.add(B, ("p", 1))
    add_plain(pending, C)
    drained = pending.drain()
    assert drained == ([A, B, C], [None, ("p", 1), None], False)
    add_plain(pending, D)
    pending.put_back(drained.after(1))
    assert pending.drain() == ([B, C, D], [("p", 1), None, None], False)


def test_plain_messages_that_are_put_back_stay_plain():
    pending = PendingMessages(10, 1000)
    for message in (A, B, C):
        add_plain(pending, message)
    drained = pending.drain()
    assert drained == ([A, B, C], (), True)
    add_plain(pending, D)
    pending.put_back(drained.after(2))
    assert pending.drain() == ([C, D], (), True)
    assert pending.drain().messages == []


def test_messages_without_marks_can_be_put_back():
    pending = PendingMessages(10, 1000)
    pending.put_back(Drained([A, B], ()))
    assert pending.drain() == ([A, B], [None, None], False)


def test_the_queue_is_full_by_number_or_by_bytes():
    pending = PendingMessages(3, 1000)
    assert add_plain(pending, A)  # the first message wakes the committer
    assert pending.notice()
    assert not add_plain(pending, B)
    assert not pending.full
    assert add_plain(pending, C)
    assert pending.full
    pending.drain()
    assert not pending.full
    pending.add(Message(b"x" * 1000), None)
    assert pending.full


def test_payloads_above_the_average_are_counted_and_make_the_queue_full():
    pending = PendingMessages(3, 300)
    add_plain(pending, A)
    pending.notice()
    assert not add_plain(pending, Message(b"x" * 200))
    pending.drain()
    assert not add_plain(pending, Message(b"x" * 200))
    assert add_plain(pending, Message(b"x" * 101))
    assert pending.full


def test_the_committer_is_woken_once_and_again_after_it_found_nothing():
    pending = PendingMessages(10, 1000)
    assert pending.waiting_since() is None
    add_plain(pending, A)
    assert pending.notice()
    assert not pending.notice()
    assert pending.waiting_since() is not None
    add_plain(pending, B)
    assert not pending.notice()  # it knows, and will look again
    pending.drain()
    assert pending.waiting_since() is None
    add_plain(pending, C)
    assert pending.notice()


def test_messages_that_became_invalid_are_left_out():
    bad = Message(b"", headers={"a": 2**70})
    drained = Drained([A, bad, B], [("p", 1), ("p", 2), ("p", 3)])
    assert drained.valid() == ([A, B], [("p", 1), ("p", 3)], False)


def test_the_last_publishing_id_of_each_producer_is_kept():
    assert last_ids([None, ("p", 1), ("q", 7), ("p", 2), None]) == {"p": 2, "q": 7}
    assert last_ids([]) == {}
