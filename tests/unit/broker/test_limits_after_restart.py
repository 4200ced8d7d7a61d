"""Limits of a queue after a restart: messages that were only paged out to disk are gone, and count no more."""

from __future__ import annotations

import pytest

from headgate.amqp import AmqpCodec
from headgate.amqp.content import make_content
from headgate.amqp.properties import encode_properties
from headgate.broker import Broker, BrokerQueue
from headgate.broker.lane import PAGE_ROWS
from tests.unit.broker.desk import Desk, Taker, bodies


def publish(desk: Desk, *messages: tuple[bytes, int]) -> None:
    """Publish bodies with a delivery mode each."""
    for body, mode in messages:
        properties = encode_properties({"delivery_mode": mode})
        desk.vhost.queues["q"].publish(make_content(b"\x00\x01q", properties, body))
    desk.broker.flush()


def restart(desk: Desk) -> BrokerQueue:
    desk.broker = Broker(
        desk.broker.store, AmqpCodec(), desk._call_later, now_ms=lambda: desk.now, bound=1
    )
    desk.vhost = desk.broker.vhosts["/"]
    return desk.vhost.queues["q"]


@pytest.fixture
def desk() -> Desk:
    return Desk(bound=1)  # all but the first are paged out


@pytest.mark.parametrize("limit", [{"x-max-length": 3}, {"x-max-length-bytes": 3}])
def test_a_message_that_is_gone_takes_no_room_from_persistent_ones(desk, limit):
    queue = desk.vhost.declare_queue("q", durable=True, arguments=limit)
    publish(desk, (b"a", 2), (b"b", 1), (b"c", 1))
    held = Taker(queue, None, 3)  # what is held does not count against the limit
    queue.add_consumer(held)
    desk.broker.flush()
    assert held.got == [b"a", b"b", b"c"]
    publish(desk, (b"d", 1), (b"e", 1), (b"f", 2))
    queue = restart(desk)
    assert (len(queue), queue.ready_bytes) == (2, 2)
    publish(desk, (b"g", 2))
    assert bodies(queue.take_front(9, unmarked=True)) == [b"a", b"f", b"g"]
    assert queue.ready_bytes == 0


def test_a_broker_starts_where_many_paged_out_messages_exceeded_a_limit(desk):
    queue = desk.vhost.declare_queue("q", durable=True, arguments={"x-max-length": PAGE_ROWS * 2})
    queue.add_consumer(held := Taker(queue, None))
    publish(desk, (b"kept", 2), *[(b"gone", 1)] * (PAGE_ROWS * 2 - 1))
    held.most = 0
    publish(desk, *[(b"gone", 1)] * (PAGE_ROWS * 2))
    queue = restart(desk)
    assert len(queue) == 1
    assert bodies(queue.take_front(9, unmarked=True)) == [b"kept"]


def test_bytes_of_paged_out_messages_do_not_count_after_a_restart(desk):
    desk.vhost.declare_queue("q", durable=True)
    publish(desk, *[(b"%d" % number, 1) for number in range(6)], (b"kept", 2))
    queue = restart(desk)
    assert bodies(queue.take_front(9, unmarked=True)) == [b"kept"]
    assert queue.ready_bytes == 0
