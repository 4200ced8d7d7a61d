"""Alarms stop publishers, and nothing else; what they had sent is not lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import pika
import pytest

from headgate.testing import Broker
from tests.patience import wait_until

NEVER = 1 << 60  # bytes that no disk has
COUNT = 200


def set_disk_limit(broker, size: int) -> None:
    def change() -> None:
        broker.server.reconfigure(replace(broker.server.options, alarms_disk_free=size))
        broker.broker.alarms.look()

    broker.call(change)


@contextmanager
def alarm(broker) -> Iterator[None]:
    """No disk has as much space as is asked for while the block runs."""
    set_disk_limit(broker, NEVER)
    try:
        yield
    finally:
        set_disk_limit(broker, 0)


@pytest.fixture
def stored(tmp_path):
    with Broker(tmp_path) as broker:
        yield broker


def connect(broker, **properties):
    parameters = pika.URLParameters(broker.url)
    parameters.client_properties = properties or None
    return pika.BlockingConnection(parameters)


def test_a_publisher_is_told_and_stopped_and_goes_on_without_a_loss(stored):
    told: list[str] = []
    with closing(connect(stored)) as connection, closing(connect(stored)) as consumer:
        connection.add_on_connection_blocked_callback(lambda _, method: told.append(method.method.reason))  # fmt: skip
        connection.add_on_connection_unblocked_callback(lambda *_: told.append("unblocked"))
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        with alarm(stored):
            assert list(stored.call(lambda: stored.broker.alarms.active)) == ["disk"]
            connection.process_data_events()
            assert told == []  # it has published nothing
            persistent = pika.BasicProperties(delivery_mode=2)
            channel.basic_publish("", "q", b"0", persistent)
            wait_until(lambda: bool(connection.process_data_events()) or bool(told))
            assert told == ["low on disk"]
            for number in range(1, COUNT):  # they stay in the socket
                channel.basic_publish("", "q", b"%d" % number, persistent)
            # Who does not publish is not stopped.
            reading = consumer.channel()
            assert (
                reading.queue_declare("q", passive=True).method.message_count <= 1
            )  # or its body is still to come
        wait_until(lambda: bool(connection.process_data_events()) or told[-1] == "unblocked")
        assert told == ["low on disk", "unblocked"]
        found = []
        for delivered, _, body in reading.consume("q", auto_ack=True, inactivity_timeout=30):
            assert delivered is not None, f"{len(found)} messages came"
            found.append(int(body))
            if len(found) == COUNT:
                break
        assert found == list(range(COUNT))


def test_a_client_that_does_not_know_alarms_is_stopped_without_a_word(stored):
    with closing(connect(stored, capabilities={"connection.blocked": False})) as connection:
        told: list[object] = []
        connection.add_on_connection_blocked_callback(lambda *_: told.append("blocked"))
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q")
        with alarm(stored):
            done = threading.Event()

            def publish() -> None:
                channel.basic_publish("", "q", b"1")  # handled, and then the connection is not read
                channel.basic_publish("", "q", b"2")
                done.set()

            publisher = threading.Thread(target=publish)
            publisher.start()
            assert not done.wait(0.5)
        publisher.join(30)
        assert done.is_set()
        assert told == []


def test_memory_raises_an_alarm():
    with Broker(alarms_memory="1MiB") as broker:
        assert list(broker.call(lambda: broker.broker.alarms.active)) == ["memory"]
        assert broker.call(lambda: broker.broker.alarms.reason) == "low on memory"


def test_a_store_that_cannot_commit_stops_publishers_until_it_can(stored, monkeypatch):
    store = stored.broker.store
    write, is_full = store._committer._write, threading.Event()

    def write_if_possible(changes: object) -> None:
        if is_full.is_set():
            raise OSError("the disk is full")
        write(changes)

    monkeypatch.setattr(store._committer, "_write", write_if_possible)
    with closing(connect(stored)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        is_full.set()
        timer = threading.Timer(1.5, is_full.clear)
        timer.start()
        channel.basic_publish("", "q", b"1", pika.BasicProperties(delivery_mode=2))  # waits
        assert not is_full.is_set()
        wait_until(lambda: not stored.call(lambda: dict(stored.broker.alarms.active)))
        channel.basic_publish("", "q", b"2", pika.BasicProperties(delivery_mode=2))
        assert channel.queue_declare("q", passive=True).method.message_count == 2
