"""Messages of high priority come first, also while they wait for a commit that notes their delivery."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headgate.amqp import AmqpCodec
from headgate.amqp.content import make_content
from headgate.amqp.properties import encode_properties
from headgate.broker import Broker
from headgate.broker.lane import AHEAD
from headgate.store import InMemoryStore
from tests.unit.broker.desk import Taker


@pytest.mark.parametrize("filter", [None, "n = 1"])
@pytest.mark.parametrize("arguments", [{"x-max-priority": 9}, {"x-queue-type": "quorum"}])
def test_low_priorities_do_not_overtake_high_ones_that_wait_for_a_commit(filter, arguments):
    commits: list[Callable[[], None]] = []
    broker = Broker(InMemoryStore(commits.append), AmqpCodec(), lambda seconds, call: None)
    broker.slice_s = 60.0
    queue = broker.vhosts["/"].declare_queue("q", durable=True, arguments=arguments)

    def commit() -> None:
        broker.flush()
        while commits:
            commits.pop(0)()

    count = 2 * AHEAD
    for body, times in ((b"high", count), (b"low", 5)):
        fields = {"delivery_mode": 2, "priority": 9 if body == b"high" else 0, "headers": {"n": 1}}
        for _ in range(times):
            queue.publish(make_content(b"\x00\x01q", encode_properties(fields), body))
    commit()
    taker = Taker(queue, filter, 2 * count)
    queue.add_consumer(taker)
    commit()
    assert taker.got == [b"high"] * count + [b"low"] * 5
