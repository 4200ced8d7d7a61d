"""How long a consumer waits that found nothing."""

from datetime import timedelta

import pytest

from headgate.queues.consumer import Consumer
from headgate.queues.database import Database
from headgate.queues.memory.engine import MemoryEngine
from headgate.queues.waiting import Patience, Waiting


@pytest.mark.parametrize(
    ("poll", "due_us", "seconds"),
    [
        (None, None, None),
        (timedelta(seconds=5), None, 5.0),
        (timedelta(seconds=5), 2_000_000, 2.0),
        (timedelta(seconds=5), 7_000_000, 5.0),
        (None, 10**18, 86_400.0),
    ],
)
def test_the_earlier_of_poll_and_due_time_ends_a_wait(poll, due_us, seconds):
    assert Patience(poll).seconds(due_us) == seconds


def test_what_is_due_and_cannot_be_had_is_looked_for_ever_more_seldom():
    patience = Patience(None)
    pauses = [patience.seconds(0) for _ in range(12)]
    assert pauses[0] == 0.005
    assert pauses == sorted(pauses)
    assert pauses[-1] == 1.0
    assert patience.seconds(3_000_000) == 3.0
    assert patience.seconds(0) == 0.005


def test_a_consumer_of_a_paused_queue_waits_though_something_is_due(monkeypatch):
    waits: list[float | None] = []
    monkeypatch.setattr(
        Consumer, "_consume", lambda consumer, waiter: waits.append(timeout(waiter))
    )
    timeout = Waiting._timeout
    with Database(MemoryEngine()) as db:
        queue = db.queue("q")
        queue.publish(b"a")
        [delivery] = queue.claim(lease=timedelta(microseconds=1))
        queue.pause()
        with queue.consumer(print, mode="notify"):
            pass
    assert delivery.id
    assert waits == [None]
