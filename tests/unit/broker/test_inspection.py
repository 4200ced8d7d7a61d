"""Looking at messages without taking them, and taking one from anywhere."""

from __future__ import annotations

from itertools import islice

import pytest

from headgate.amqp import AmqpCodec
from headgate.amqp.content import make_content
from headgate.broker import Broker, delete_entry, latest_entries, requeue_dead_letter
from headgate.broker.refusals import PreconditionFailed
from headgate.store import InMemoryStore

BOUND = 8


@pytest.fixture
def paging_broker() -> Broker:
    """A broker that keeps only a few entries of a queue in memory."""
    store = InMemoryStore(lambda call: call())
    return Broker(store, AmqpCodec(), lambda seconds, call: None, bound=BOUND)


def publish(broker, queue, count):
    for number in range(1, count + 1):
        queue.publish(make_content(b"\x00\x01q", b"\x00\x00", b"%d" % number))
    broker.flush()


def positions(queue, before=None, limit=1000):
    return [entry.position for entry in islice(latest_entries(queue, before), limit)]


@pytest.fixture
def long_queue(paging_broker):
    queue = paging_broker.vhosts["/"].declare_queue("q")
    publish(paging_broker, queue, 300)
    return queue


def test_the_latest_come_first_from_memory_and_from_the_store(long_queue):
    assert positions(long_queue) == list(range(300, 0, -1))
    assert positions(long_queue, before=101, limit=3) == [100, 99, 98]
    assert len(long_queue) == 300


@pytest.mark.parametrize("position", [1, 150, 300])
def test_one_message_is_deleted_wherever_it_is(long_queue, position):
    assert delete_entry(long_queue, position).position == position
    assert len(long_queue) == 299
    assert position not in positions(long_queue)
    taken = [long_queue.get().position for _ in range(299)]
    assert taken == [each for each in range(1, 301) if each != position]
    assert long_queue.get() is None
    with pytest.raises(PreconditionFailed, match="not ready"):
        delete_entry(long_queue, position)


def test_a_dead_letter_goes_back_to_the_queue_it_died_in_without_its_history(broker):
    vhost = broker.vhosts["/"]
    vhost.declare_queue("dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    work = vhost.declare_queue("work", arguments=arguments)
    publish(broker, work, 2)
    work.reject(work.get())
    broker.flush()
    dead = vhost.queues["dead"]
    assert (len(work), len(dead)) == (1, 1)
    [position] = positions(dead)
    assert requeue_dead_letter(dead, position) == "work"
    broker.flush()
    assert (len(work), len(dead)) == (2, 0)
    back = next(latest_entries(work)).message
    assert not [name for name in back.headers if "death" in name]
    with pytest.raises(PreconditionFailed, match="x-first-death-queue"):
        requeue_dead_letter(work, positions(work)[0])
