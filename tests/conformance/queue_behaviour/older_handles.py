"""Handles of a queue that another connection changes or deletes after they were made."""

from __future__ import annotations

import pytest

from headgate.errors import QueueNotFound, QueueOptionsError
from tests.conformance.queue_behaviour.base import QueueFixtures, payloads
from tests.patience import PATIENCE


class OlderHandleBehaviour(QueueFixtures):
    def test_an_archive_turned_on_by_another_connection_keeps_what_an_older_handle_acks(
        self, connect, orders
    ):
        with connect() as other:
            other.queue("orders", archive=True)
        orders.publish_many([b"a", b"b"])
        first = orders.claim(1)
        second = orders.ack_and_claim(first, 1)
        second[0].ack()
        assert [s.message.payload for s in orders.archived()] == [b"a", b"b"]

    def test_an_archive_turned_off_by_another_connection_keeps_nothing_more(self, connect, db):
        kept = db.queue("kept", archive=True)
        kept.publish(b"a")
        with connect() as other:
            other.queue("kept", archive=False)
        kept.claim()[0].ack()
        assert list(kept.archived()) == []

    def test_an_older_handle_uses_a_filter_header_that_another_connection_added(
        self, connect, db, orders
    ):
        with connect() as other:
            other.queue("orders").index_add("colour")
        orders.publish(b"a", headers={"colour": "red"})
        assert payloads(orders.claim(filter="colour = 'red'")) == [b"a"]
        assert "colour" in db.engine.operations.last_known(orders.info).indexed

    def test_an_older_handle_uses_the_queue_that_was_deleted_and_created_again(
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

    def test_a_consumer_goes_on_with_a_queue_that_was_deleted_and_created_again(
        self, connect, orders, seen
    ):
        with orders.consumer(lambda d: seen.put(d.message.payload), mode="notify"):
            orders.publish(b"a")
            assert seen.get(timeout=PATIENCE) == b"a"
            with connect() as other:
                other.delete("orders")
                anew = other.queue("orders")
                for name in (b"b", b"c"):
                    anew.publish(name)
                    assert seen.get(timeout=PATIENCE) == name

    def test_every_verb_of_a_deleted_queue_raises_queue_not_found(self, db, orders):
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

    @pytest.mark.parametrize("limit", [1, 5])
    @pytest.mark.parametrize("filter", [None, "region = 'EU'", "x = 1"])
    def test_each_claim_of_a_deleted_queue_raises_queue_not_found(
        self, connect, orders, limit, filter
    ):
        with connect() as other:
            other.delete("orders")
        for _ in range(3):
            with pytest.raises(QueueNotFound):
                orders.claim(limit, filter=filter)

    # -- subscriptions --

    def test_a_subscription_to_one_queue_is_not_widened_when_the_queue_is_left_out(
        self, db, orders
    ):
        db.queue("others")
        eu = db.subscription("eu", "region = 'EU'", queue="orders")
        with pytest.raises(QueueOptionsError, match="only from the queue 'orders'"):
            db.subscription("eu", "region = 'US'")
        assert db.find("eu").filter == eu.filter
        db.subscription("eu", "region = 'US'", queue="others")

    def test_a_subscription_to_a_deleted_queue_is_not_widened(self, db, orders):
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

    def test_publishing_to_a_subscription_is_refused(self, db):
        eu = db.subscription("eu", "region = 'EU'")
        with pytest.raises(QueueOptionsError, match="is a subscription"):
            eu.publish(b"a", headers={"region": "US"})
        with pytest.raises(QueueOptionsError, match="is a subscription"):
            eu.publish_many([b"a", b"b"])
        assert list(eu.browse()) == []
