"""Facts about queues and subscriptions, without the command line."""

from datetime import timedelta

import pytest

from headgate.errors import HeadgateError
from headgate.insights import list_queues, list_subscriptions, queue_facts


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
