"""Messages that no consumer wants, looking with a filter, and the way of a message told before it is published."""

from __future__ import annotations

import pytest

from headgate.broker import NotFound, PreconditionFailed
from tests.unit.broker.desk import Desk, Taker, bodies


@pytest.fixture(params=[1_000, 4], ids=["in memory", "mostly on disk"])
def desk(request: pytest.FixtureRequest) -> Desk:
    return Desk(request.param)


def fill(desk: Desk, count: int = 20) -> None:
    for number in range(count):
        desk.publish(b"%d" % number, n=number % 4)


def test_messages_that_no_consumer_wants_are_counted_and_it_is_known_since_when(desk):
    queue = desk.declare()
    fill(desk)
    assert (queue.unmatched, queue.unmatched_since) == (0, None)
    first = desk.consume(queue, "n = 1")
    assert len(first.got) == 5
    assert (queue.unmatched, queue.unmatched_since) == (15, 1_000_000)
    desk.wait(5_000)
    desk.consume(queue, "n = 2")
    desk.publish(b"late", n=7)
    assert (queue.unmatched, queue.unmatched_since) == (11, 1_000_000)
    everything = desk.consume(queue, None)
    assert len(everything.got) == 11
    assert (queue.unmatched, queue.unmatched_since) == (0, None)


def test_an_unknown_answer_to_unmatched_messages_is_refused_with_those_that_there_are(desk):
    with pytest.raises(PreconditionFailed, match="expected keep, dead-letter, drop, got 'discard'"):
        desk.declare(x_unmatched="discard")


@pytest.mark.parametrize("policy", ["keep", "dead-letter", "drop"])
def test_what_nobody_wants_is_kept_or_dropped_or_becomes_a_dead_letter_after_its_time(desk, policy):
    dead = desk.vhost.declare_queue("dead")
    queue = desk.declare(x_unmatched=policy, x_unmatched_after=10_000, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")  # fmt: skip
    fill(desk)
    taker = desk.consume(queue, "n = 1")
    desk.wait(6_000)
    desk.publish(b"young", n=9)
    assert len(queue) == 16
    desk.wait(5_000)
    assert len(queue) == (16 if policy == "keep" else 1)
    assert len(dead) == (15 if policy == "dead-letter" else 0)
    desk.wait(6_000)
    assert len(queue) == (16 if policy == "keep" else 0)
    desk.publish(b"wanted", n=1)
    assert taker.got[-1] == b"wanted"
    if policy == "dead-letter":
        assert dead.get().message.headers["x-death"][0]["reason"] == "unmatched"


def leave(desk: Desk, taker: Taker) -> None:
    """End a consumer, as with its connection: what it has not acknowledged goes back."""
    taker.queue.remove_consumer(taker)
    taker.queue.requeue(taker.entries)
    desk.broker.flush()


def test_what_a_consumer_gives_back_is_unmatched_from_then_on(desk):
    queue = desk.declare(x_unmatched="drop", x_unmatched_after=10_000)
    desk.consume(queue, "n = 2")
    taker = desk.consume(queue, "n = 1")
    fill(desk, 2)
    desk.publish(b"1", n=1)
    desk.wait(9_000)
    leave(desk, taker)
    desk.wait(2_000)
    assert len(queue) == 2  # the one that nobody ever wanted is dropped
    back = desk.consume(queue, "n = 1")
    assert back.got == [b"1", b"1"]
    leave(desk, back)
    desk.wait(11_000)
    desk.wait(11_000)
    assert len(queue) == 0


def test_nothing_is_unmatched_while_there_is_no_consumer(desk):
    queue = desk.declare(x_unmatched="drop")
    fill(desk)
    taker = Taker(queue, "n = 1")
    desk.wait(60_000)
    assert len(queue) == 20
    queue.add_consumer(taker)
    desk.broker.flush()
    queue.remove_consumer(taker)
    desk.wait(60_000)
    assert len(queue) == 15


def test_a_filter_is_changed_in_place_and_its_numbers_are_known(desk):
    queue = desk.declare()
    fill(desk)
    taker = desk.consume(queue, "n = 1")
    assert taker.filter.text == "n = 1"
    assert (taker.filter.examined, taker.filter.delivered, taker.filter.skipped) == (20, 5, 15)
    assert taker.filter.seconds > 0
    queue.set_filter(taker, "n = 2")
    desk.broker.flush()
    assert len(taker.got) == len(set(taker.got)) == 10
    queue.set_filter(taker, None)
    desk.broker.flush()
    assert sorted(map(int, taker.got)) == list(range(20))
    assert taker.filter is None


def test_browsing_takes_nothing_and_goes_on_behind_the_last(desk):
    queue = desk.declare()
    fill(desk)
    desk.consume(queue, "n = 3")
    assert bodies(queue.browse("n = 1", limit=3)) == [b"1", b"5", b"9"]
    assert bodies(queue.browse("n = 1", after=10)) == [b"13", b"17"]
    assert len(queue.browse()) == len(queue) == 15
    assert queue.browse("n = 3") == []


def test_a_trace_says_who_receives_a_message_and_for_others_why_not(desk):
    queue = desk.declare()
    desk.vhost.declare_queue("large")
    desk.vhost.bind("amq.topic", "q", "orders.#", {})
    desk.vhost.bind("amq.topic", "large", "orders.#", {"x-filter": "amount > 100"})
    desk.vhost.bind("amq.topic", "large", "bills.#", {})
    desk.consume(queue, "region = 'EU'")
    desk.consume(queue, "region = 'US'")
    desk.consume(queue, None)
    trace = desk.vhost.trace("amq.topic", "orders.new", {"region": "EU", "amount": 7}, {"priority": 3})  # fmt: skip
    assert trace.is_routed
    assert [found.name for found in trace.queues] == ["q"]
    failed = [binding.why_not for binding in trace.bindings if not binding.matched]
    assert failed == [
        "amount > 100 is FALSE: amount is 7",
        "the topic 'orders.new' does not match 'bills.#'",
    ]
    assert [(one.filter, one.matched) for one in trace.queues[0].consumers] == [
        ("region = 'EU'", True),
        ("region = 'US'", False),
        (None, True),
    ]
    assert "region is 'EU'" in trace.queues[0].consumers[1].why_not
    assert len(queue) == 0
    with pytest.raises(NotFound):
        desk.vhost.trace("nowhere", "")
