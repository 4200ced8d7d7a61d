"""What callers may give, and what is refused."""

from datetime import timedelta

import pytest

from headgate.errors import InvalidMessage, QueueOptionsError, StaleLease
from headgate.filters.printer import to_text
from headgate.message import Message
from headgate.queues import arguments
from headgate.queues.engine import Outcome, Publication, QueueOptions, Receipt


def test_options_that_are_left_out_stay():
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
        arguments.microseconds("delay", span)


def test_a_subscription_needs_a_filter_or_a_pattern():
    with pytest.raises(QueueOptionsError, match="pattern"):
        arguments.subscription_filter(None, None)
    both = arguments.subscription_filter("a = 1", "x.#")
    assert to_text(both) == "a = 1 AND sys.topic MATCHES 'x.#'"


def publication(payload, **options):
    defaults = dict.fromkeys(["topic", "headers", "delay", "dedup_key", "group"])
    defaults |= {"priority": 0, "default_topic": "q", "fields": {}}
    return arguments.publication(payload, **{**defaults, **options})


@pytest.mark.parametrize(
    "given", [{"topic": "t"}, {"headers": {}}, {"priority": 1}, {"fields": {"key": "k"}}]
)
def test_a_message_brings_its_own_fields(given):
    with pytest.raises(QueueOptionsError, match="leave them out"):
        publication(Message(b""), **given)


def test_bytes_alone_become_a_message_with_the_default_topic():
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
def test_a_field_that_cannot_be_stored_is_named_in_the_error(payload, given, field):
    with pytest.raises(InvalidMessage, match=field):
        publication(payload, **given)


@pytest.mark.parametrize("given", [{"dedup_key": ""}, {"group": "a\0b"}, {"dedup_key": 5}])
def test_a_dedup_key_and_a_group_are_text(given):
    with pytest.raises(QueueOptionsError, match=next(iter(given))):
        publication(b"", **given)


def test_a_receipt_that_is_gone_raises_stale_lease_with_its_id():
    receipts = [Receipt(1, 1), Receipt(2, 1)]
    arguments.check_settled("q", receipts, [Outcome.DONE, Outcome.DONE], "ack")
    with pytest.raises(StaleLease) as caught:
        arguments.check_settled("q", receipts, [Outcome.DONE, Outcome.GONE], "extend")
    assert caught.value.ids == (2,)


@pytest.mark.parametrize("delay_us", [-1, 1.5, 2**62])
def test_a_delay_that_an_engine_cannot_store_is_refused(delay_us):
    with pytest.raises(QueueOptionsError, match="delay_us"):
        arguments.check_publication(Publication(Message(b"a"), delay_us))
