"""What a consumer does when the database does not."""

import queue as queues
import threading
from datetime import timedelta

import pytest

from headgate.errors import DatabaseUnavailable
from headgate.queues.database import Database, connect
from headgate.queues.engine import Operation
from headgate.queues.memory.engine import MemoryEngine

PATIENCE = 30


class Outage(MemoryEngine):
    """Out of reach for the next few operations."""

    left = 0

    def run(self, operation: Operation):
        if self.left:
            self.left -= 1
            operation.close()
            raise DatabaseUnavailable("nobody answers")
        return super().run(operation)


@pytest.fixture
def engine():
    return Outage()


@pytest.fixture
def queue(engine):
    with Database(engine) as db:
        yield db.queue("q")


def test_an_ack_that_cannot_be_said_is_said_later(engine, queue):
    seen: queues.Queue[bytes] = queues.Queue()

    def handle(delivery):
        if delivery.message.payload == b"a":
            engine.left = 2  # the ack, and the first try to say it again
        seen.put(delivery.message.payload)

    queue.publish_many([b"a", b"b"])
    with queue.consumer(handle, mode="poll", poll=timedelta(milliseconds=5)):
        assert [seen.get(timeout=PATIENCE) for _ in range(2)] == [b"a", b"b"]
        while engine.left:
            threading.Event().wait(0.001)
    assert seen.empty()
    assert list(queue.browse()) == []


def test_what_could_not_be_settled_is_not_held_for_ever(engine, queue, caplog):
    rejected = threading.Event()

    def reject(message):
        engine.left = 1  # giving it back fails
        rejected.set()
        return False

    queue.publish(b"a")
    consumer = queue.consumer(print, predicate=reject, lease=timedelta(hours=1))
    with consumer:
        assert rejected.wait(PATIENCE)
    assert "nobody answers" in caplog.text
    assert consumer._ledger.held() == []


def test_closing_ends_every_thread(tmp_path):
    before = set(threading.enumerate())
    with connect(f"sqlite:///{tmp_path}/q.db") as db:
        db.subscribe("#", print, id="s")
        with db.queue("q").consumer(print, threads=3):
            started = set(threading.enumerate()) - before
            assert len(started) >= 7
    for thread in started:
        thread.join(PATIENCE)
    assert not [thread for thread in started if thread.is_alive()]


def test_a_handler_that_is_at_work_is_waited_for(queue):
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
