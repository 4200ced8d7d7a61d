"""What a consumer of threads does when the database fails or its handler takes long."""

import queue as queues
import threading
from datetime import timedelta

import pytest

from headgate.queues import Database, connect
from tests.patience import PATIENCE
from tests.unit.queues.outage import OutageEngine


@pytest.fixture
def engine():
    return OutageEngine()


@pytest.fixture
def queue(engine):
    with Database(engine) as db:
        yield db.queue("q")


def test_an_ack_that_fails_is_retried(engine, queue):
    seen: queues.Queue[bytes] = queues.Queue()

    def handle(delivery):
        if delivery.message.payload == b"a":
            engine.left = 2  # the ack, and its first retry
        seen.put(delivery.message.payload)

    queue.publish_many([b"a", b"b"])
    with queue.consumer(handle, mode="poll", poll=timedelta(milliseconds=5)):
        assert [seen.get(timeout=PATIENCE) for _ in range(2)] == [b"a", b"b"]
        while engine.left:
            threading.Event().wait(0.001)
    assert seen.empty()
    assert list(queue.browse()) == []


def test_the_lease_of_a_message_whose_release_failed_is_not_extended(engine, queue, caplog):
    rejected = threading.Event()

    def reject(message):
        engine.left = 1  # the release fails
        rejected.set()
        return False

    queue.publish(b"a")
    consumer = queue.consumer(print, predicate=reject, lease=timedelta(hours=1))
    with consumer:
        assert rejected.wait(PATIENCE)
    assert "no answer from the database" in caplog.text
    assert consumer.leased == 0


def test_closing_ends_every_thread(tmp_path):
    before = set(threading.enumerate())
    with connect(f"sqlite:///{tmp_path}/q.db") as db:
        db.add_callback("#", print, id="s")
        with db.queue("q").consumer(print, threads=3):
            started = set(threading.enumerate()) - before
            assert len(started) >= 7
    for thread in started:
        thread.join(PATIENCE)
    assert not [thread for thread in started if thread.is_alive()]


def test_closing_waits_for_a_running_handler(queue):
    begun, finished = threading.Event(), threading.Event()
    go_on = threading.Event()

    def slow(delivery):
        begun.set()
        go_on.wait(PATIENCE)
        finished.set()

    queue.publish(b"a")
    consumer = queue.consumer(slow).start()
    assert begun.wait(PATIENCE)
    threading.Timer(0.01, go_on.set).start()
    consumer.close()
    assert finished.is_set()
    assert list(queue.browse()) == []


def test_a_handler_may_close_its_consumer(queue):
    queue.publish_many([b"a", b"b"])
    closed = threading.Event()

    def close(delivery):
        consumer.close()
        closed.set()

    consumer = queue.consumer(close, batch=1)
    with consumer:
        assert closed.wait(PATIENCE)
    assert [standing.message.payload for standing in queue.browse()] == [b"b"]
