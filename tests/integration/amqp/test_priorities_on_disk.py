"""Priorities of queues that are longer than what stays in memory."""

from __future__ import annotations

from contextlib import closing

import pika
import pytest

from headgate.testing import Broker

COUNT = 600
BOUND = 20  # messages of each priority in memory


@pytest.mark.parametrize(
    ("arguments", "levels"),
    [({"x-max-priority": 5}, 6), ({"x-queue-type": "quorum"}, 2)],
    ids=["classic", "quorum"],
)
@pytest.mark.parametrize("restarts", [False, True])
def test_high_priorities_come_first_and_each_in_its_order(tmp_path, arguments, levels, restarts):
    def level_of(number: int) -> int:
        return (number * 7) % levels

    def connect(broker):
        return closing(pika.BlockingConnection(pika.URLParameters(broker.url)))

    def take(channel, count: int) -> list[int]:
        found = []
        for method, _, body in channel.consume("q", inactivity_timeout=30):
            assert method is not None, f"{len(found)} of {count}"
            channel.basic_ack(method.delivery_tag)
            found.append(int(body))
            if len(found) == count:
                channel.cancel()
                break
        return found

    expected = sorted(range(COUNT), key=lambda number: (-level_of(number), number))
    with Broker(tmp_path, page_out_after=BOUND) as broker, connect(broker) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True, arguments=arguments)
        channel.confirm_delivery()
        for number in range(COUNT):
            priority = level_of(number) * (1 if levels > 2 else 9)  # quorum: above 4 is high
            properties = pika.BasicProperties(delivery_mode=2, priority=priority)
            channel.basic_publish("", "q", b"%d" % number, properties)
        if not restarts:
            channel.basic_qos(prefetch_count=10)
            assert take(channel, COUNT) == expected
    if restarts:
        with Broker(tmp_path, page_out_after=BOUND) as broker, connect(broker) as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=10)
            assert take(channel, COUNT) == expected
