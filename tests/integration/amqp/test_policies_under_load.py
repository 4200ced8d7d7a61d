"""A policy that is set and cleared while messages come and go takes effect at once, and is undone."""

from __future__ import annotations

import threading
from contextlib import closing

import pika

from headgate.testing import Broker

LIMIT = 50


def publish_until(stop: threading.Event, url: str) -> None:
    with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        channel = connection.channel()
        while not stop.is_set():
            for _ in range(100):
                channel.basic_publish("", "load", b"m")
            connection.process_data_events(0)


def test_a_policy_changes_queues_while_they_are_used() -> None:
    with Broker() as broker:
        broker.call(lambda: broker.broker.vhosts["/"].declare_queue("load"))
        queue = broker.broker.vhosts["/"].queues["load"]
        stop = threading.Event()
        publisher = threading.Thread(target=publish_until, args=(stop, broker.url))
        publisher.start()
        try:
            policies = broker.broker.policies
            for _ in range(20):
                broker.call(lambda: policies.set("/", "p", "^load$", {"max-length": LIMIT}))
                assert broker.call(lambda: len(queue)) <= LIMIT
                before = broker.call(lambda: queue.published)
                while broker.call(lambda: queue.published) < before + 2 * LIMIT:
                    assert broker.call(lambda: len(queue)) <= LIMIT
                broker.call(lambda: policies.clear("/", "p"))
                while broker.call(lambda: len(queue)) < 2 * LIMIT:
                    pass
        finally:
            stop.set()
            publisher.join()
