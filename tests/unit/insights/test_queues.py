"""Facts about queues and subscriptions, without the command line."""

from dataclasses import replace
from datetime import timedelta

import pytest

from headgate.errors import HeadgateError
from headgate.insights import QueueSamples, list_queues, list_subscriptions, queue_facts
from headgate.queues import Usage


@pytest.fixture
def shop(memory_database):
    """A queue with a filter header and one subscription to it."""
    memory_database.queue("orders", filter_headers=["type"], max_attempts=3)
    memory_database.subscription("paid", "type = 'paid'")
    return memory_database


def test_the_facts_of_a_queue_count_messages_by_state(shop, manual_clock):
    orders = shop.find("orders")
    orders.publish(b"ready")
    orders.publish(b"delayed", delay=timedelta(hours=1))
    orders.publish(b"leased", priority=9)
    assert len(orders.claim(1)) == 1
    manual_clock.advance(timedelta(seconds=5))
    facts = queue_facts(shop, "orders")
    assert (facts.ready, facts.delayed, facts.leased, facts.dead) == (1, 1, 1, 0)
    assert facts.oldest_ready_s == pytest.approx(5)
    assert (facts.kind, facts.filter_headers, facts.max_attempts) == ("queue", ("type",), 3)
    assert (facts.filter, facts.version) == (None, None)


def test_the_facts_of_a_subscription_have_its_filter_and_version(shop):
    shop.find("orders").publish(b"x", headers={"type": "paid"})
    [facts] = list_subscriptions(shop)
    assert (facts.name, facts.kind, facts.ready) == ("paid", "subscription", 1)
    assert (facts.filter, facts.version, facts.paused) == ("type = 'paid'", 1, False)


def test_queues_are_listed_with_subscriptions(shop):
    assert {facts.name: facts.kind for facts in list_queues(shop)} == {
        "orders": "queue",
        "paid": "subscription",
    }


def test_a_queue_that_does_not_exist_is_refused(shop):
    with pytest.raises(HeadgateError, match="nosuch"):
        queue_facts(shop, "nosuch")


def test_two_looks_at_a_queue_make_rates(shop):
    facts, samples = queue_facts(shop, "orders"), QueueSamples()

    def look(at_s, *counts):
        consumers = {
            str(n): Usage(rows=rows, acked=acked) for n, (rows, acked) in enumerate(counts)
        }
        return samples.rates(replace(facts, consumers=consumers), at_s)

    assert look(0.0) is None
    assert look(5.0, (50, 40)) is None  # too soon
    assert look(20.0, (150, 90), (50, 10)) == (10.0, 5.0)
    assert look(24.0, (900, 900)) == (10.0, 5.0)  # as before
    assert look(40.0, (200, 100)) == (0.0, 0.0)
    assert look(2_000.0, (900, 900)) is None  # too long ago
    assert look(2_020.0, (3, 3)) is None  # another queue of that name
    assert look(2_030.0, (13, 8)) == (1.0, 0.5)
