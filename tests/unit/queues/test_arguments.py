"""What callers may write."""

from datetime import timedelta

import pytest

from headgate.errors import InvalidMessage, QueueOptionsError, StaleLease
from headgate.filters.printer import to_text
from headgate.message import Message
from headgate.queues import arguments
from headgate.queues.consuming import Retry
from headgate.queues.engine import Outcome, Publication, QueueOptions, Receipt
from headgate.queues.members import Group, Member


def test_a_retry_waits_longer_each_time_and_never_too_long():
    retry = Retry(first=timedelta(seconds=1), factor=3, most=timedelta(seconds=20))
    seconds = [retry.delay(attempts).total_seconds() for attempts in (1, 2, 3, 4, 1000)]
    assert seconds == [1, 3, 9, 20, 20]


def test_options_that_are_not_given_stay():
    before = QueueOptions(filter_headers=("a",), max_attempts=7, archive=True)
    assert arguments.queue_options(otherwise=before) == before
    changed = arguments.queue_options(["b", "b"], archive=False, otherwise=before)
    assert changed == QueueOptions(filter_headers=("b",), max_attempts=7)


def test_one_filter_header_given_as_text_is_refused():
    with pytest.raises(QueueOptionsError, match=r"\['type'\]"):
        arguments.queue_options("type", otherwise=QueueOptions())


@pytest.mark.parametrize("span", [5, timedelta(seconds=-1)])
def test_a_span_is_a_timedelta_that_is_not_negative(span):
    with pytest.raises(QueueOptionsError, match="timedelta"):
        arguments.microseconds(span)


def test_a_subscription_needs_something_to_want():
    with pytest.raises(QueueOptionsError, match="pattern"):
        arguments.subscription_filter(None, None)
    both = arguments.subscription_filter("a = 1", "x.#")
    assert to_text(both) == "a = 1 AND sys.topic MATCHES 'x.#'"


def publication(payload, **given):
    unsaid = dict.fromkeys(["topic", "headers", "delay", "dedup_key", "group"])
    unsaid |= {"priority": 0, "default_topic": "q", "fields": {}}
    return arguments.publication(payload, **{**unsaid, **given})


@pytest.mark.parametrize(
    "given", [{"topic": "t"}, {"headers": {}}, {"priority": 1}, {"fields": {"key": "k"}}]
)
def test_a_message_brings_its_own_fields(given):
    with pytest.raises(QueueOptionsError, match="leave them out"):
        publication(Message(b""), **given)


def test_bytes_alone_are_the_message_that_is_built_of_their_fields():
    found = publication(b"x", group="g", delay=timedelta(seconds=1))
    assert found == Publication(Message(b"x", "q"), 1_000_000, None, "g")


@pytest.mark.parametrize(
    ("payload", "given", "field"),
    [
        ("text", {}, "payload"),
        (b"", {"priority": False}, "priority"),
        (b"", {"priority": 0.0}, "priority"),
        (b"", {"default_topic": "a\0b"}, "topic"),
        (b"", {"topic": ["a"]}, "topic"),
        (b"", {"headers": {"a": float("nan")}}, "header 'a'"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_name(payload, given, field):
    with pytest.raises(InvalidMessage, match=field):
        publication(payload, **given)


@pytest.mark.parametrize("given", [{"dedup_key": ""}, {"group": "a\0b"}, {"dedup_key": 5}])
def test_keys_are_text(given):
    with pytest.raises(QueueOptionsError, match=next(iter(given))):
        publication(b"", **given)


def test_only_an_ack_is_content_with_what_is_gone():
    receipts = [Receipt(1, 1), Receipt(2, 1)]
    arguments.check_settled("q", receipts, [Outcome.DONE, Outcome.DONE], "ack")
    with pytest.raises(StaleLease) as caught:
        arguments.check_settled("q", receipts, [Outcome.DONE, Outcome.GONE], "extend")
    assert caught.value.ids == (2,)


def test_a_group_wants_what_any_member_wants():
    group = Group([Member("a", print, "x = 1"), Member("b", print, "x = 2")], "first")
    assert to_text(group.filter) == "x = 1 OR x = 2"
    assert group.choose(Message(headers={"x": 2})).id == "b"
    assert group.choose(Message(headers={"x": 3})) is None
    assert Group([Member("a", print, "x = 1"), Member("b", print)], "first").filter is None


def test_a_predicate_that_raises_does_not_want_it(caplog):
    group = Group([Member("a", print, predicate=lambda m: 1 / 0), Member("b", print)], "first")
    assert group.choose(Message()).id == "b"
    assert "predicate failed" in caplog.text


@pytest.mark.parametrize("delay_us", [-1, 1.5, 2**62])
def test_a_publication_waits_no_longer_than_every_engine_can_count(delay_us):
    with pytest.raises(QueueOptionsError, match="delay_us"):
        arguments.checked(Publication(Message(b"a"), delay_us))
