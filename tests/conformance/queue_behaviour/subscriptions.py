"""Durable subscriptions."""

from __future__ import annotations

import pytest

from headgate.errors import FilterLimitError, QueueNotFound, QueueOptionsError
from headgate.filters import header
from headgate.message import Message
from headgate.queues.engine import Publication, State
from tests.conformance.queue_behaviour.base import MINUTE, QueueFixtures, payloads


class SubscriptionBehaviour(QueueFixtures):
    def test_a_subscription_gets_its_own_delivery_of_messages_that_match(self, db, orders):
        eu = db.subscription("eu", "region = 'EU'")
        orders.publish(b"a", headers={"region": "EU"})
        orders.publish(b"b", headers={"region": "US"})
        assert payloads(orders.claim(5)) == [b"a", b"b"]
        assert payloads(eu.claim(5)) == [b"a"]

    def test_a_subscription_has_its_own_leases_attempts_and_dead_letters(self, db, orders):
        everything = db.subscription("all", pattern="#", max_attempts=1)
        orders.publish(b"a")
        orders.claim()[0].ack()
        everything.claim()[0].nack()
        assert [s.message.payload for s in everything.dead()] == [b"a"]
        assert list(orders.dead()) == []

    def test_a_pattern_and_a_filter_must_both_match(self, db, orders):
        both = db.subscription("both", "region = 'EU'", pattern="orders.*")
        orders.publish(b"a", topic="orders.new", headers={"region": "EU"})
        orders.publish(b"b", topic="orders.new", headers={"region": "US"})
        orders.publish(b"c", topic="orders", headers={"region": "EU"})
        assert payloads(both.claim(5)) == [b"a"]

    def test_a_filter_that_prints_longer_than_one_may_write_is_kept(self, db, orders):
        built = db.subscription("built", header("id").is_in([f"{n:032}" for n in range(1000)]))
        flags = db.subscription("flags", " OR ".join(f"f{n}" for n in range(1500)))
        orders.publish(b"a", headers={"id": f"{999:032}"})
        orders.publish(b"b", headers={"f1499": True})
        assert payloads(built.claim(5)) == [b"a"]
        assert payloads(flags.claim(5)) == [b"b"]

    def test_a_filter_that_is_too_deep_with_its_pattern_is_refused_before_it_is_stored(
        self, db, orders
    ):
        with pytest.raises(FilterLimitError, match="65 levels of nesting"):
            db.subscription("deep", "NOT " * 62 + "a", pattern="orders.#")
        assert orders.publish(b"a", topic="orders.new") > 0

    def test_a_subscription_may_take_from_one_queue_only(self, db, orders):
        other = db.queue("other")
        mine = db.subscription("mine", pattern="#", queue="orders")
        orders.publish(b"a")
        other.publish(b"b")
        assert payloads(mine.claim(5)) == [b"a"]

    def test_a_message_may_be_published_to_subscriptions_alone(self, db):
        news = db.subscription("news", pattern="news.#")
        assert db.publish(b"a", topic="news.today") > 0
        assert db.publish(b"b", topic="elsewhere") == 0
        assert payloads(news.claim(5)) == [b"a"]

    def test_a_subscription_starts_at_the_next_message_or_at_the_first_stored(self, db, orders):
        orders.publish(b"before", headers={"region": "EU"})
        orders.publish(b"not this", headers={"region": "US"})
        late = db.subscription("late", "region = 'EU'")
        early = db.subscription("early", "region = 'EU'", start="first")
        orders.publish(b"after", headers={"region": "EU"})
        assert payloads(late.claim(5)) == [b"after"]
        assert payloads(early.claim(5)) == [b"before", b"after"]

    def test_stored_messages_keep_their_delay_and_group_in_a_subscription_that_starts_at_the_first(
        self, db, orders, time
    ):
        orders.publish_many([Publication(Message(b"%d" % n), group="g") for n in (1, 2)])
        orders.publish(b"later", delay=MINUTE)
        orders.publish(b"failed")
        for source in (None, "orders"):
            late = db.subscription(f"late {source}", pattern="#", queue=source, start="first")
            assert payloads(late.claim(5)) == [b"1", b"failed"]
            assert [s.message.payload for s in late.browse(State.DELAYED)] == [b"later"]
        time.advance(MINUTE)
        assert b"later" in payloads(late.claim(5))

    def test_an_unknown_start_is_refused(self, db):
        with pytest.raises(QueueOptionsError, match="next or first, not at 'last'"):
            db.subscription("s", "region = 'EU'", start="last")
        assert db.queues() == []

    def test_changing_a_filter_in_place_loses_and_repeats_nothing(self, connect, db, orders):
        subscription = db.subscription("s", "n % 2 = 0")
        with connect() as elsewhere:
            publisher = elsewhere.queue("orders")
            for at in range(10):
                publisher.publish(b"%d" % at, headers={"n": at})
            held = subscription.claim(2)
            version = subscription.info.version
            subscription.set_filter("n % 2 = 1")
            for at in range(10, 20):
                publisher.publish(b"%d" % at, headers={"n": at})
        assert subscription.info.version == version + 1
        for delivery in held:
            delivery.ack()
        rest = payloads(subscription.claim(100))
        even, odd = range(0, 10, 2), range(11, 20, 2)
        assert payloads(held) + rest == [b"%d" % at for at in (*even, *odd)]

    def test_a_subscription_may_have_filter_headers_too(self, db, orders):
        eu = db.subscription("eu", "region = 'EU'", filter_headers=["type"])
        orders.publish(b"a", headers={"region": "EU", "type": "x"})
        orders.publish(b"b", headers={"region": "EU", "type": "y"})
        assert payloads(eu.claim(5, filter="type = 'y'")) == [b"b"]

    def test_a_deleted_subscription_gets_nothing_more(self, db, orders):
        db.subscription("s", pattern="#")
        orders.publish(b"a")
        db.delete("s")
        orders.publish(b"b")
        assert payloads(orders.claim(5)) == [b"a", b"b"]
        with pytest.raises(QueueNotFound):
            db.subscription("s")

    def test_a_paused_subscription_keeps_receiving(self, db, orders):
        subscription = db.subscription("s", pattern="#")
        subscription.pause()
        orders.publish(b"a")
        assert subscription.claim() == []
        subscription.resume()
        assert payloads(subscription.claim()) == [b"a"]

    def test_a_queue_cannot_become_a_subscription(self, db, orders):
        with pytest.raises(QueueOptionsError, match="orders"):
            db.subscription("orders", pattern="#")
