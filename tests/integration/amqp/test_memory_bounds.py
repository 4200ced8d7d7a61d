"""Clients that never wait, or never read: the broker's memory stays bounded, others are served, nothing is lost."""

from __future__ import annotations

import threading

from benches.amqp_client import Client, connected, encode_publish
from headgate.amqp.blocking import MOST_ANSWERS
from headgate.amqp.connection import HIGH_WATER
from headgate.amqp.methods import METHODS, method_frame
from headgate.broker import alarms, broker
from headgate.testing import Broker
from tests.patience import wait_until

LARGE = b"x" * 100_000


def publish_large(client: Client, queue: str, count: int, durable: bool = False) -> None:
    for number in range(count):
        body = number.to_bytes(4, "big") + LARGE
        client.socket.sendall(encode_publish(queue, durable=durable, body=body))


def lengths(client: Client, queue: str) -> int:
    answer = client.call(1, "queue.declare", 0, queue, True, False, False, False, False, {})
    return int.from_bytes(answer[-8:-4], "big")


def unwritten_bytes(running) -> int:
    """What waits to be read by the connection that leaves most unread."""
    (listener,) = running.call(lambda: {c.client.listener for c in running.broker.connections.values()})  # fmt: skip
    connections = running.call(lambda: list(listener.connections))
    return max(running.call(c.transport.get_write_buffer_size) for c in connections)


def test_large_messages_of_a_long_queue_leave_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(broker, "BOUND_BYTES", 1_000_000)
    with Broker(tmp_path) as running, connected(running.port) as client:
        client.declare("q")
        publish_large(client, "q", 60)
        wait_until(lambda: lengths(client, "q") == 60)
        (lane,) = running.call(lambda: running.broker.vhosts["/"].queues["q"].lanes)
        assert len(lane.head) <= 11
        wait_until(lambda: not running.call(lambda: lane.tail))
        client.call(1, "basic.consume", 0, "q", "c", False, True, False, False, {})
        bodies = client.deliveries()
        assert [next(bodies)[:4] for _ in range(60)] == [n.to_bytes(4, "big") for n in range(60)]


def test_a_client_that_reads_no_answers_is_not_read_from_until_it_does():
    with Broker() as running, connected(running.port) as client, connected(running.port) as other:
        client.declare("q")
        publish_large(client, "q", 200)
        wait_until(lambda: lengths(other, "q") == 200)
        client.socket.sendall(method_frame(1, "basic.get", 0, "q", True) * 200)
        left = lengths(other, "q")
        while (now := lengths(other, "q")) != left:
            left = now
        assert left > 0
        assert unwritten_bytes(running) < MOST_ANSWERS + HIGH_WATER
        bodies = client.deliveries()
        assert [next(bodies)[:4] for _ in range(200)] == [n.to_bytes(4, "big") for n in range(200)]
        assert lengths(other, "q") == 0


def test_a_consumer_that_does_not_read_is_sent_little():
    with Broker() as running, connected(running.port) as deaf, connected(running.port) as client:
        client.declare("q")
        deaf.call(1, "basic.consume", 0, "q", "c", False, True, False, False, {})
        publish_large(client, "q", 300)
        wait_until(lambda: lengths(client, "q") > 0)
        publish_large(client, "q", 100)
        wait_until(lambda: lengths(client, "q") > 100)
        assert unwritten_bytes(running) < 4 * HIGH_WATER
        bodies = deaf.deliveries()
        for _ in range(400):
            next(bodies)


def test_a_publisher_in_a_transaction_is_stopped_by_an_alarm():
    with Broker() as running, connected(running.port) as client, connected(running.port) as other:
        client.declare("q")
        client.call(1, "tx.select")
        running.call(lambda: running.broker.alarms.set("memory", True))
        client.socket.sendall(encode_publish("q"))
        wait_until(lambda: running.call(lambda: is_blocked(running)))
        client.socket.sendall(method_frame(1, "tx.commit"))
        assert lengths(other, "q") == 0
        running.call(lambda: running.broker.alarms.set("memory", False))
        assert client.read()[1][:4] == METHODS["tx.commit-ok"].key
        assert lengths(other, "q") == 1


def is_blocked(running) -> bool:
    return any(c.client.is_blocked for c in running.broker.connections.values())


def test_publishers_wait_while_the_store_is_behind(tmp_path, monkeypatch):
    limit = 1_000_000
    monkeypatch.setattr(broker, "BACKLOG_BYTES", limit)
    with Broker(tmp_path) as running, connected(running.port) as client:
        client.declare("q", durable=True)
        client.call(1, "confirm.select", False)
        store, may_write = running.broker.store, threading.Event()
        write = store._committer._write

        def write_later(changes: object) -> None:
            may_write.wait(30)
            write(changes)

        monkeypatch.setattr(store._committer, "_write", write_later)
        sending = threading.Thread(target=publish_large, args=(client, "q", 200, True))
        sending.start()
        wait_until(lambda: running.call(lambda: is_blocked(running)))
        assert limit < running.call(lambda: store.waiting_bytes) < 2 * limit
        assert not running.call(lambda: running.broker.alarms.active)
        with connected(running.port) as other:
            assert lengths(other, "q") < 200
        may_write.set()
        sending.join(30)
        confirmed = 0
        while confirmed < 200:
            confirmed = int.from_bytes(client.read()[1][4:12], "big")
        assert lengths(client, "q") == 200
        assert not running.call(lambda: running.broker.alarms.behind)


def test_memory_that_messages_have_left_is_given_back_before_an_alarm_goes_on(monkeypatch):
    used = [300]
    monkeypatch.setattr(alarms, "used_bytes", lambda: used[0])
    monkeypatch.setattr(alarms, "release_free_memory", lambda: used.__setitem__(0, 100))
    found = alarms.Alarms()
    found.memory_limit_bytes = 200
    found.look()
    assert list(found.active) == ["memory"]
    found.look()
    assert not found.active


def test_an_alarm_of_memory_stays_while_nothing_can_be_read(monkeypatch):
    used, is_free = [300], [True]
    monkeypatch.setattr(alarms, "used_bytes", lambda: used[0] if is_free[0] else 0)
    monkeypatch.setattr(alarms, "has_free_descriptor", lambda: is_free[0])
    monkeypatch.setattr(alarms, "release_free_memory", lambda: None)
    found = alarms.Alarms()
    found.memory_limit_bytes = 200
    found.look()
    is_free[0] = False
    found.look()
    assert list(found.active) == ["memory"]
    used[0], is_free[0] = 100, True
    found.look()
    assert not found.active


def test_giving_memory_back_takes_a_small_part_of_the_time(monkeypatch):
    clock, releases = [0.0], []

    def release() -> None:
        releases.append(clock[0])
        clock[0] += 0.5

    monkeypatch.setattr(alarms, "used_bytes", lambda: 300)
    monkeypatch.setattr(alarms, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(alarms, "release_free_memory", release)
    found = alarms.Alarms()
    found.memory_limit_bytes = 200
    for _ in range(40):
        found.look()
        clock[0] += alarms.LOOK_S
    assert len(releases) == 4
    assert list(found.active) == ["memory"]
