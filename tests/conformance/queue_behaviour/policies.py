"""Messages that expire, unique messages, results, and rates of claims."""

from __future__ import annotations

import time
from threading import Timer

import pytest

from headgate.errors import QueueOptionsError
from headgate.message import Message
from headgate.queues import JobResult, Publication, RateLimit, State
from headgate.queues.arguments import microseconds
from tests.conformance.queue_behaviour.base import MINUTE, SECOND, QueueFixtures, payloads
from tests.patience import PATIENCE


class PolicyBehaviour(QueueFixtures):
    # -- time to live --

    def test_a_message_that_was_not_claimed_within_its_time_to_live_is_deleted(self, orders, time):
        orders.publish(b"short", ttl=MINUTE)
        orders.publish(b"long", ttl=5 * MINUTE)
        orders.publish(b"ever")
        time.advance(MINUTE - SECOND)
        assert [s.message.payload for s in orders.peek()] == [b"short", b"long", b"ever"]
        time.advance(SECOND)
        assert payloads(orders.claim(9)) == [b"long", b"ever"]
        assert b"short" not in [s.message.payload for s in orders.browse()]

    def test_a_leased_message_does_not_expire_until_it_is_given_back(self, orders, time):
        orders.publish(b"a", ttl=MINUTE)
        [delivery] = orders.claim(lease=10 * MINUTE)
        time.advance(2 * MINUTE)
        assert orders.claim() == []
        assert [s.state for s in orders.browse()] == [State.LEASED]
        delivery.nack()
        assert orders.claim() == []
        assert list(orders.browse()) == []

    def test_a_message_whose_lease_has_ended_after_its_time_to_live_is_not_claimed_again(
        self, orders, time
    ):
        orders.publish(b"a", ttl=MINUTE)
        orders.publish(b"b", ttl=MINUTE)
        orders.claim(2, lease=MINUTE)  # whoever claimed them is gone
        time.advance(MINUTE)
        assert orders.claim() == []
        assert list(orders.browse()) == []

    def test_a_message_that_was_handled_until_after_its_end_is_acked_with_the_next_claim(
        self, orders, time
    ):
        orders.publish_many([Publication(Message(b"a"), ttl_us=microseconds("ttl", MINUTE)), b"b"])
        handled = orders.claim(lease=MINUTE)
        time.advance(2 * MINUTE)
        assert payloads(orders.ack_and_claim(handled)) == [b"b"]

    def test_a_lease_that_ends_after_the_time_to_live_and_the_last_attempt_makes_a_dead_letter(
        self, db, time
    ):
        once = db.queue("once", max_attempts=1)
        once.publish(b"a", ttl=MINUTE)
        once.claim(lease=2 * MINUTE)
        time.advance(2 * MINUTE)
        assert once.claim() == []
        assert [s.state for s in once.browse()] == [State.DEAD]

    def test_delayed_and_many_messages_expire(self, orders, time):
        span = microseconds("ttl", MINUTE)
        messages = [Publication(Message(b"%d" % at), ttl_us=span) for at in range(1200)]
        assert len(set(orders.publish_many([*messages, b"stays"]))) == 1201
        orders.publish(b"late", delay=5 * MINUTE, ttl=MINUTE)
        time.advance(2 * MINUTE)
        assert payloads(orders.claim(9)) == [b"stays"]
        assert [s.message.payload for s in orders.browse()] == [b"stays"]

    def test_what_expires_in_a_queue_expires_in_subscriptions(self, db, orders, time):
        everything = db.subscription("all", pattern="#")
        orders.publish(b"a", ttl=MINUTE)
        db.publish(b"b", topic="x")
        time.advance(MINUTE)
        assert payloads(everything.claim(9)) == [b"b"]
        assert orders.claim() == []

    def test_a_handle_from_before_the_first_time_to_live_returns_no_expired_message(
        self, connect, orders, time
    ):
        orders.publish(b"a")
        [first] = orders.claim()
        with connect() as other:
            other.find("orders").publish(b"expires", ttl=MINUTE)
            other.find("orders").publish(b"stays")
        time.advance(MINUTE)
        assert payloads(orders.ack_and_claim([first], 9)) == [b"stays"]
        assert [(s.message.payload, s.attempts) for s in orders.browse()] == [(b"stays", 1)]

    def test_a_claim_with_a_filter_meets_no_expired_message(self, orders, time):
        for region, ttl in (("EU", MINUTE), ("EU", None), ("US", None)):
            orders.publish(region.encode(), headers={"region": region, "x": 1}, ttl=ttl)
        time.advance(MINUTE)
        assert len(orders.claim(9, filter="region = 'EU' AND x = 1")) == 1
        assert len(orders.claim(9, filter="x = 1")) == 1

    @pytest.mark.parametrize("source", [None, "orders"])
    def test_stored_messages_keep_their_time_to_live_in_a_subscription_that_starts_at_the_first(
        self, db, orders, time, source
    ):
        orders.publish(b"expired", ttl=SECOND)
        orders.publish(b"short", ttl=MINUTE)
        orders.publish(b"ever")
        time.advance(SECOND)
        early = db.subscription("early", pattern="#", queue=source, start="first")
        assert [s.message.payload for s in early.browse()] == [b"short", b"ever"]
        time.advance(MINUTE - 2 * SECOND)
        assert [s.message.payload for s in early.peek()] == [b"short", b"ever"]
        time.advance(SECOND)
        assert payloads(early.claim(9)) == [b"ever"]
        assert payloads(orders.claim(9)) == [b"ever"]

    # -- unique messages --

    def test_a_unique_message_is_published_once_while_it_is_pending(self, orders, time):
        first = orders.publish(b"a", unique="job")
        assert orders.publish(b"b", unique="job") == first
        assert orders.publish(b"c", unique="other") != first
        [delivery] = orders.claim(filter="sys.priority = 0")
        assert orders.publish(b"d", unique="job") == first
        time.advance(10 * MINUTE)  # longer than any dedup window
        delivery.nack(delay=MINUTE)
        assert orders.publish(b"e", unique="job") == first
        time.advance(MINUTE)
        for claimed in orders.claim(9):
            claimed.ack()
        again = orders.publish(b"f", unique="job")
        assert again > first
        assert [s.message.payload for s in orders.browse()] == [b"f"]

    def test_after_a_dead_letter_a_unique_message_is_published_again(self, orders):
        first = orders.publish(b"a", unique="job")
        orders.claim()[0].nack(requeue=False)
        assert orders.publish(b"b", unique="job") != first

    def test_unique_keys_belong_to_a_queue(self, db, orders):
        orders.publish(b"a", unique="job")
        others = db.queue("others")
        others.publish(b"a", unique="job")
        assert len(list(others.browse())) == len(list(orders.browse())) == 1

    def test_unique_messages_of_one_call_are_told_apart(self, orders):
        jobs = [Publication(Message(b"%d" % n), unique=f"k{n % 3}") for n in range(9)]
        ids = orders.publish_many(jobs)
        assert ids == [*ids[:3]] * 3
        assert len(list(orders.browse())) == 3

    def test_keys_of_messages_that_are_done_are_forgotten(self, db, orders):
        for n in range(60):
            orders.publish(b"", unique=f"k{n}")
            orders.claim()[0].ack()
        again = orders.publish(b"x", unique="k59")
        assert orders.publish(b"y", unique="k59") == again

    # -- results --

    def test_what_a_handler_returned_is_the_result(self, db, orders, time):
        id = orders.publish(b"2", result=True)
        assert db.result(id) == JobResult("pending")
        orders.consumer(lambda d: {"square": int(d.message.payload) ** 2}).drain()
        assert db.result(id) == JobResult("done", {"square": 4})
        assert list(orders.browse()) == []
        time.advance(24 * 60 * MINUTE)
        assert db.result(id) is None

    def test_a_result_is_kept_as_long_as_its_publisher_wants(self, db, orders, time):
        id = orders.publish(b"", result=MINUTE)
        [delivery] = orders.claim()
        time.advance(5 * MINUTE)
        delivery.ack(result=[1, None, "x"])
        assert db.result(id).value == [1, None, "x"]
        time.advance(MINUTE)
        assert db.result(id) is None
        orders.publish(b"", result=MINUTE)  # forgets what has expired
        assert db.result(id) is None

    def test_a_dead_letter_has_failed_and_a_deleted_message_is_gone(self, db, orders):
        failed, gone = orders.publish(b"a", result=True), orders.publish(b"b", result=True)
        orders.claim()[0].nack(requeue=False, reason="it burns")
        orders.purge()
        assert db.result(failed) == JobResult("failed", None, "it burns")
        assert db.result(gone) == JobResult("gone")

    def test_a_message_without_the_wish_for_a_result_has_none(self, db, orders):
        id = orders.publish(b"")
        orders.consumer(lambda d: object()).drain()
        assert db.result(id) is None
        assert list(orders.browse()) == []

    def test_a_result_that_is_no_json_is_a_failure(self, db, orders, caplog):
        id = orders.publish(b"", result=True)
        orders.consumer(lambda d: object()).drain()
        assert db.result(id).state == "pending"
        assert "a result must be JSON" in db.result(id).reason

    def test_waiting_for_a_result_ends_when_it_is_there(self, db, orders):
        id = orders.publish(b"", result=True)
        assert db.result(id, wait=SECOND / 100).state == "pending"
        with orders.consumer(lambda d: 7):
            assert db.result(id, wait=PATIENCE * SECOND) == JobResult("done", 7)

    def test_a_stored_result_wakes_who_waits_for_it(self, db, orders, monkeypatch):
        for module in ("headgate.queues.database", "headgate.queues.aio.database"):
            monkeypatch.setattr(f"{module}.RESULT_POLL_S", 10 * PATIENCE)
        id = orders.publish(b"", result=True)
        worker = Timer(0.2, lambda: orders.claim()[0].ack(result=7))
        worker.start()
        began = time.monotonic()
        assert db.result(id, wait=5 * PATIENCE * SECOND) == JobResult("done", 7)
        assert time.monotonic() - began < PATIENCE
        worker.join()

    def test_an_ack_in_a_subscription_is_no_result(self, db, orders):
        copies = db.subscription("copies", pattern="#")
        id = orders.publish(b"", result=True)
        copies.consumer(lambda d: "copy").drain()
        assert db.result(id) == JobResult("pending")
        orders.consumer(lambda d: "original").drain()
        assert db.result(id).value == "original"

    # -- rates --

    def test_no_more_messages_are_claimed_than_the_rate_allows(self, orders, connect, time):
        orders.publish_many([b"%d" % n for n in range(40)])
        orders.limit_rate(10, MINUTE)
        assert orders.rate_limit() == RateLimit(10, 60_000_000)
        assert len(orders.claim(4)) == 4
        with connect() as other:
            assert len(other.find("orders").claim(99)) == 6
        assert orders.claim() == []
        time.advance(5 * SECOND)
        assert orders.claim() == []
        time.advance(SECOND)  # a tenth of the minute
        assert len(orders.claim(9)) == 1
        time.advance(10 * MINUTE)
        assert len(orders.claim(99, lease=60 * MINUTE)) == 10  # the bucket holds no more
        orders.limit_rate(None)
        assert orders.rate_limit() is None
        assert len(orders.claim(99)) == 30  # 19 were never claimed, and 11 leases have ended

    def test_acks_are_settled_although_the_rate_allows_no_claim(self, orders):
        orders.publish_many([b"a", b"b"])
        orders.limit_rate(1, MINUTE)
        [first] = orders.claim(9)
        assert orders.ack_and_claim([first]) == []
        assert [s.message.payload for s in orders.browse()] == [b"b"]

    def test_a_consumer_waits_until_the_rate_allows_the_next(self, orders, time, seen):
        orders.publish_many([b"a", b"b", b"c"])
        orders.limit_rate(1, SECOND / 20)
        with orders.consumer(lambda d: seen.put(d.message.payload), poll=SECOND / 100):
            for name in (b"a", b"b", b"c"):
                assert seen.get(timeout=PATIENCE) == name
                time.advance(SECOND / 20)

    def test_a_new_limit_counts_for_handles_from_before(self, orders, connect):
        orders.publish_many([b"%d" % n for n in range(9)])
        [first] = orders.claim()
        with connect() as other:
            other.find("orders").limit_rate(2, MINUTE)
        assert len(orders.claim(9)) == 2
        assert orders.claim(9) == []
        first.ack()

    @pytest.mark.parametrize("filter", ["region = 'EU'", "x = 1"])
    def test_a_limit_holds_for_claims_with_a_filter(self, orders, filter):
        for _ in range(5):
            orders.publish(b"a", headers={"region": "EU", "x": 1})
        orders.limit_rate(3, MINUTE)
        assert len(orders.claim(9, filter=filter)) == 3
        assert orders.claim(9, filter=filter) == []

    def test_what_is_no_policy_is_refused(self, db, orders):
        for count, per in (
            (0, SECOND),
            (-1, SECOND),
            (1.5, SECOND),
            (1, SECOND * 0),
            (True, SECOND),
        ):
            with pytest.raises(QueueOptionsError):
                orders.limit_rate(count, per)
        for options in ({"ttl": SECOND * 0}, {"ttl": 5}, {"unique": ""}, {"result": SECOND * 0}):
            with pytest.raises((QueueOptionsError, TypeError)):
                orders.publish(b"", **options)
        with pytest.raises(QueueOptionsError, match="reply_to"):
            orders.publish(b"", result=True, reply_to="me")
        assert list(orders.browse()) == []

    def test_a_deleted_queue_leaves_no_policy_behind(self, db, orders):
        orders.publish(b"a", unique="k", result=True, ttl=MINUTE)
        orders.limit_rate(1, MINUTE)
        db.delete("orders")
        again = db.queue("orders")
        assert again.rate_limit() is None
        assert again.publish(b"b", unique="k")
        again.publish(b"c")
        assert len(again.claim(9)) == 2
