"""Filters of consumers that examine a queue in slices of time, while messages come, go and come back."""

from __future__ import annotations

from tests.unit.broker.desk import Desk


def test_a_message_that_came_back_unexamined_is_found_by_a_filter_that_is_behind():
    desk = Desk()
    queue = desk.declare()
    desk.consume(queue, "n = 2")  # so that new messages wait to be examined
    desk.broker.slice_s = 0.0  # one message in each turn
    desk.publish(b"0", b"1", b"2", n=1)
    late = desk.consume(queue, "n = 1", room=0)
    anyone = desk.consume(queue, None)
    desk.publish(b"3", b"4", b"5", n=1)
    assert anyone.got == [b"0", b"1", b"2", b"3", b"4", b"5"]
    queue.remove_consumer(anyone)
    queue.requeue(anyone.entries)
    desk.wait(0)
    late.most = 100
    desk.broker.dirty.add(queue)
    desk.wait(0)
    assert sorted(late.got) == sorted(anyone.got)
