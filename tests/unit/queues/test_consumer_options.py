"""Which member of a consumer gets a message, and when a failed one is retried."""

from datetime import timedelta

from headgate.filters.printer import to_text
from headgate.message import Message
from headgate.queues import Member, Retry
from headgate.queues.consumer_options import ConsumerGroup


def test_a_retry_waits_longer_each_time_up_to_a_limit():
    retry = Retry(first=timedelta(seconds=1), factor=3, most=timedelta(seconds=20))
    seconds = [retry.delay(attempts).total_seconds() for attempts in (1, 2, 3, 4, 1000)]
    assert seconds == [1, 3, 9, 20, 20]


def test_jitter_makes_a_retry_wait_shorter_by_up_to_its_part():
    retry = Retry(first=timedelta(seconds=8), factor=2, jitter=0.25)
    assert retry.delay(1, random=lambda: 0.0) == timedelta(seconds=8)
    assert retry.delay(2, random=lambda: 0.5) == timedelta(seconds=14)
    assert retry.delay(1, random=lambda: 1.0) == timedelta(seconds=6)


def test_a_group_accepts_what_any_of_its_members_accepts():
    group = ConsumerGroup([Member("a", print, "x = 1"), Member("b", print, "x = 2")], "first")
    assert to_text(group.filter) == "x = 1 OR x = 2"
    assert group.choose(Message(headers={"x": 2})).id == "b"
    assert group.choose(Message(headers={"x": 3})) is None
    assert ConsumerGroup([Member("a", print, "x = 1"), Member("b", print)], "first").filter is None


def test_a_predicate_that_raises_rejects_the_message(caplog):
    members = [Member("a", print, predicate=lambda m: 1 / 0), Member("b", print)]
    assert ConsumerGroup(members, "first").choose(Message()).id == "b"
    assert "predicate failed" in caplog.text
