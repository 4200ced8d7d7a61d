"""Handles that were opened before somebody changed what they stand for."""

from __future__ import annotations

import queue as queues

import pytest

from headgate.errors import QueueNotFound, QueueOptionsError
from tests.conformance.queue_behaviour.surroundings import PATIENCE, Surroundings, payloads


class HandleBehaviour(Surroundings):
    def test_an_archive_that_was_turned_on_elsewhere_keeps_what_an_older_handle_acks(
        self, connect, orders
    ):
        with connect() as other:
            other.queue("orders", archive=True)
        orders.publish_many([b"a", b"b"])
        first = orders.claim(1)
        second = orders.ack_and_claim(first, 1)
        second[0].ack()
        assert [s.message.payload for s in orders.archived()] == [b"a", b"b"]

    def test_an_archive_that_was_turned_off_elsewhere_keeps_nothing_more(self, connect, db):
        kept = db.queue("kept", archive=True)
        kept.publish(b"a")
        with connect() as other:
            other.queue("kept", archive=False)
        kept.claim()[0].ack()
        assert list(kept.archived()) == []

    def test_a_filter_header_that_was_added_elsewhere_is_used_by_an_older_handle(
        self, connect, orders
    ):
        with connect() as other:
            other.queue("orders").index_add("colour")
        orders.publish(b"a", headers={"colour": "red"})
        assert payloads(orders.claim(filter="colour = 'red'")) == [b"a"]
        operations = orders._engine.operations
        assert "colour" in operations.last_known(orders.info).indexed

    def test_a_queue_that_was_dropped_and_made_again_is_the_one_an_older_handle_uses(
        self, connect, orders
    ):
        orders.publish(b"old")
        [held] = orders.claim()
        with connect() as other:
            other.delete("orders")
            anew = other.queue("orders")
            anew.publish(b"new")
            assert [s.message.payload for s in orders.browse()] == [b"new"]
            [delivery] = orders.claim(5)
            assert delivery.message.payload == b"new"
            delivery.ack()
            orders.publish(b"newer")
            assert payloads(anew.claim(5)) == [b"newer"]
            with pytest.raises(Exception, match="cannot ack"):
                held.ack()

    def test_a_consumer_goes_on_with_a_queue_that_was_made_again(self, connect, orders):
        seen: queues.Queue[bytes] = queues.Queue()
        with orders.consumer(lambda d: seen.put(d.message.payload), mode="notify"):
            orders.publish(b"a")
            assert seen.get(timeout=PATIENCE) == b"a"
            with connect() as other:
                other.delete("orders")
                anew = other.queue("orders")
                for name in (b"b", b"c"):
                    anew.publish(name)
                    assert seen.get(timeout=PATIENCE) == name

    def test_a_dropped_queue_is_not_found_whatever_is_asked_of_it(self, db, orders):
        orders.publish(b"a")
        [held] = orders.claim()
        db.delete("orders")
        for ask in (
            orders.claim,
            orders.peek,
            orders.purge,
            orders.requeue,
            orders.stats,
            held.ack,
            held.nack,
            lambda: list(orders.browse()),
            lambda: orders.publish(b"b"),
        ):
            with pytest.raises(QueueNotFound):
                ask()

    # -- subscriptions --

    def test_a_subscription_to_one_queue_is_not_widened_because_nobody_named_it(self, db, orders):
        db.queue("others")
        eu = db.subscription("eu", "region = 'EU'", queue="orders")
        with pytest.raises(QueueOptionsError, match="only from the queue 'orders'"):
            db.subscription("eu", "region = 'US'")
        assert db.find("eu").filter == eu.filter
        db.subscription("eu", "region = 'US'", queue="others")

    def test_a_subscription_to_a_queue_that_was_dropped_is_not_widened(self, db, orders):
        eu = db.subscription("eu", "region = 'EU'", queue="orders")
        db.delete("orders")
        with pytest.raises(QueueOptionsError, match="was deleted"):
            eu.set_filter("region = 'US'")
        with pytest.raises(QueueOptionsError, match="was deleted"):
            db.subscription("eu", "region = 'US'")
        db.queue("others").publish(b"a", headers={"region": "US"})
        assert eu.claim() == []
        db.subscription("eu", "region = 'US'", queue="others")
        db.queue("others").publish(b"b", headers={"region": "US"})
        assert payloads(eu.claim()) == [b"b"]

    def test_nothing_is_published_to_a_subscription_itself(self, db):
        eu = db.subscription("eu", "region = 'EU'")
        with pytest.raises(QueueOptionsError, match="is a subscription"):
            eu.publish(b"a", headers={"region": "US"})
        with pytest.raises(QueueOptionsError, match="is a subscription"):
            eu.publish_many([b"a", b"b"])
        assert list(eu.browse()) == []
