"""The queue of accepted messages: order, marks, and who has to be told."""

from headgate.message import Message
from headgate.streams.pending import Drained, Pending, last_ids

A, B, C, D = (Message(name) for name in (b"a", b"b", b"c", b"d"))


def test_messages_come_out_in_the_order_they_went_in_and_put_back_come_first():
    pending = Pending(10, 1000)
    pending.add_plain(A)
    pending.add(B, ("p", 1))
    pending.add_plain(C)
    drained = pending.drain()
    assert drained == ([A, B, C], [None, ("p", 1), None], False)
    pending.add_plain(D)
    pending.put_back(drained.after(1))
    assert pending.drain() == ([B, C, D], [("p", 1), None, None], False)


def test_plain_messages_put_back_are_plain_still():
    pending = Pending(10, 1000)
    for message in (A, B, C):
        pending.add_plain(message)
    drained = pending.drain()
    assert drained == ([A, B, C], (), True)
    pending.add_plain(D)
    pending.put_back(drained.after(2))
    assert pending.drain() == ([C, D], (), True)
    assert pending.drain().messages == []


def test_messages_that_were_never_marked_can_be_put_back():
    pending = Pending(10, 1000)
    pending.put_back(Drained([A, B], ()))
    assert pending.drain() == ([A, B], [None, None], False)


def test_full_is_by_number_or_by_bytes():
    pending = Pending(3, 1000)
    assert pending.add_plain(A)  # the committer has to be told of the first
    assert pending.notice()
    assert not pending.add_plain(B)
    assert not pending.full
    assert pending.add_plain(C)
    assert pending.full
    pending.drain()
    assert not pending.full
    pending.add(Message(b"x" * 1000), None)
    assert pending.full


def test_the_committer_is_told_once_and_again_after_it_found_nothing():
    pending = Pending(10, 1000)
    assert pending.waiting_since() is None
    pending.add_plain(A)
    assert pending.notice()
    assert not pending.notice()
    assert pending.waiting_since() is not None
    pending.add_plain(B)
    assert not pending.notice()  # it knows, and will look again
    pending.drain()
    assert pending.waiting_since() is None
    pending.add_plain(C)
    assert pending.notice()


def test_what_cannot_be_published_any_more_is_left_out():
    bad = Message(b"", headers={"a": 2**70})
    drained = Drained([A, bad, B], [("p", 1), ("p", 2), ("p", 3)])
    assert drained.valid() == ([A, B], [("p", 1), ("p", 3)], False)


def test_the_last_id_of_each_producer_counts():
    assert last_ids([None, ("p", 1), ("q", 7), ("p", 2), None]) == {"p": 2, "q": 7}
    assert last_ids([]) == {}
