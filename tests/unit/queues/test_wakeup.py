"""How long a consumer waits whose claim found nothing."""

from datetime import timedelta

import pytest

from headgate.queues import Database
from headgate.queues.wakeup import Wakeup


def wakeup_of(db: Database, poll: timedelta | None = None) -> Wakeup:
    return Wakeup(db.engine, db.queue("q").info, notified=True, poll=poll)


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
def test_a_wait_ends_at_the_poll_or_the_due_time_whichever_is_earlier(
    memory_database, poll, due_us, seconds
):
    assert wakeup_of(memory_database, poll).timeout_until(due_us) == seconds


def test_pauses_grow_while_a_due_message_cannot_be_claimed(memory_database):
    wakeup = wakeup_of(memory_database)
    pauses = [wakeup.timeout_until(0) for _ in range(12)]
    assert pauses[0] == 0.005
    assert pauses == sorted(pauses)
    assert pauses[-1] == 1.0
    assert wakeup.timeout_until(3_000_000) == 3.0
    assert wakeup.timeout_until(0) == 0.005


def test_a_consumer_of_a_paused_queue_does_not_wait_for_due_messages(memory_database, manual_clock):
    queue = memory_database.queue("q")
    queue.publish(b"a")
    assert len(queue.claim(lease=timedelta(seconds=1))) == 1
    assert wakeup_of(memory_database).timeout() == 1.0
    manual_clock.advance(timedelta(seconds=1))
    queue.pause()
    assert wakeup_of(memory_database).timeout() is None


def test_a_late_consumer_waits_on_if_the_message_is_gone_and_claims_if_it_is_there(memory_database):
    queue, wakeup = memory_database.queue("q"), wakeup_of(memory_database)
    waiter = wakeup._waiter
    wakeup.prepare()
    waiter.delay_s = 0.001
    assert wakeup._is_too_late(waiter)
    waiter.delay_s = 0.001
    queue.publish(b"a")
    assert not wakeup._is_too_late(waiter)
    queue.delete()
    waiter.delay_s = 0.001
    assert not wakeup._is_too_late(waiter)  # it has to find that out
    wakeup.close()
