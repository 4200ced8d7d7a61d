"""Which messages a claim with a filter finds, also when no index answers it."""

from __future__ import annotations

import pytest

from headgate.errors import FilterSyntaxError
from headgate.filters.builder import header
from headgate.message import Message
from headgate.queues.queue import Queue
from tests.conformance.queue_behaviour.base import SECOND, QueueFixtures, claim_all, payloads


class FilterBehaviour(QueueFixtures):
    """Seed 000's integration tests, by name, and what they leave out."""

    @pytest.fixture
    def events(self, orders: Queue) -> Queue:
        for name, headers in {
            "created-eu": {"type": "order-created", "region": "EU", "amount": 10},
            "created-us": {"type": "order-created", "region": "US", "amount": 2000},
            "cancelled-eu": {"type": "order-cancelled", "region": "EU", "amount": 1500.5},
            "shipped-apac": {"type": "order-shipped", "region": "APAC"},
            "bare": {},
            "number": {"type": 5, "region": True},
        }.items():
            orders.publish(name.encode(), headers=headers)
        return orders

    def test_server_side_filter_equals(self, events):
        assert claim_all(events, "type = 'order-created'") == {b"created-eu", b"created-us"}

    def test_server_side_filter_in(self, events):
        assert claim_all(events, "region IN ('US', 'APAC')") == {b"created-us", b"shipped-apac"}

    def test_server_side_filter_and(self, events):
        assert claim_all(events, "type = 'order-created' AND region = 'US'") == {b"created-us"}

    def test_server_side_filter_not_equals(self, events):
        assert claim_all(events, "type <> 'order-created'") == {b"cancelled-eu", b"shipped-apac"}

    def test_server_side_filter_or(self, events):
        found = claim_all(events, "type = 'order-shipped' OR region = 'US'")
        assert found == {b"shipped-apac", b"created-us"}

    def test_server_side_filter_like(self, events):
        assert claim_all(events, "type LIKE 'order-c%'") == {
            b"created-eu",
            b"created-us",
            b"cancelled-eu",
        }

    def test_server_side_filter_missing_header(self, events):
        assert claim_all(events, "type = 'x' OR amount = 10") == {b"created-eu"}
        assert claim_all(events, "amount IS NULL AND type = 'order-shipped'") == {b"shipped-apac"}

    @pytest.mark.parametrize(
        ("filter", "wanted"),
        [
            ("type = 5", {b"number"}),
            ("type = '5'", set()),
            ("type = 5.0", {b"number"}),
            ("region = TRUE", {b"number"}),
            ("type IN ('order-shipped', 5)", {b"shipped-apac", b"number"}),
            ("amount > 1000", {b"created-us", b"cancelled-eu"}),
            ("amount % 1000 = 500.5", {b"cancelled-eu"}),
            ("amount * 2 = 20 AND type = 'order-created'", {b"created-eu"}),
            ("NOT (type = 'order-created')", {b"cancelled-eu", b"shipped-apac"}),
            ("type LIKE 'ORDER%'", set()),
            ("EXISTS(type) AND amount IS NULL", {b"shipped-apac", b"number"}),
            ("sys.topic MATCHES 'orders.#' AND region = 'EU'", {b"created-eu", b"cancelled-eu"}),
            ("type = 'order-created' AND (region = 'EU' OR amount > 1000)", {b"created-eu", b"created-us"}),
            ("(type = 'order-created' OR type = 'order-shipped') AND amount IS NULL", {b"shipped-apac"}),
            ("sys.timestamp <= UTC() + 1000 AND region = 'US'", {b"created-us"}),
            ("TRUE", {b"created-eu", b"created-us", b"cancelled-eu", b"shipped-apac", b"bare", b"number"}),
            ("", {b"created-eu", b"created-us", b"cancelled-eu", b"shipped-apac", b"bare", b"number"}),
            ("FALSE", set()),
        ],
    )  # fmt: skip
    def test_a_claim_takes_exactly_what_its_filter_matches(self, events, filter, wanted):
        assert {standing.message.payload for standing in events.peek(100, filter)} == wanted
        assert claim_all(events, filter) == wanted

    def test_messages_that_a_filter_does_not_match_stay_for_others(self, events):
        claim_all(events, "region = 'EU'")
        assert claim_all(events) == {b"created-us", b"shipped-apac", b"bare", b"number"}

    def test_a_filter_may_be_built_in_python(self, events):
        deliveries = events.claim(10, filter=(header("region") == "EU") & (header("amount") > 100))
        assert payloads(deliveries) == [b"cancelled-eu"]

    def test_filtered_claims_keep_the_order_of_the_queue(self, orders):
        kinds = ["a", "b", "c"]
        for at in range(30):
            orders.publish(b"%02d" % at, priority=at % 4, headers={"type": kinds[at % 3], "n": at})
        for filter in ("type IN ('a', 'c')", "n % 3 <> 1", "type = 'a' OR n % 3.0 = 2"):
            found = [s.message for s in orders.peek(100, filter)]
            assert found == sorted(found, key=lambda m: (-m.priority, m.payload))
            assert len(found) == 20
            assert [s.message for s in orders.peek(7, filter)] == found[:7]

    def test_a_match_that_only_python_can_decide_is_found_behind_many_others(self, orders):
        orders.publish_many(Message(b"x", headers={"n": 7.0}) for _ in range(1200))
        orders.publish(b"wanted", headers={"n": 7.5})
        assert payloads(orders.claim(5, filter="n % 5 = 2.5")) == [b"wanted"]

    def test_a_claim_refuses_a_filter_with_a_syntax_error(self, orders):
        with pytest.raises(FilterSyntaxError, match="column"):
            orders.claim(1, filter="type = = 'x'")

    def test_a_filter_header_declared_later_is_indexed_for_older_messages(self, orders):
        for at in range(5):
            orders.publish(b"%d" % at, headers={"size": at % 2, "type": "t"})
        orders.index_add("size")
        assert "size" in orders.info.indexed
        orders.publish(b"5", headers={"size": 1})
        assert claim_all(orders, "size = 1") == {b"1", b"3", b"5"}

    def test_a_publisher_indexes_a_filter_header_that_another_connection_declared(
        self, connect, orders
    ):
        with connect() as elsewhere:
            publisher = elsewhere.queue("orders")
            publisher.publish(b"before", headers={"size": 1})
            orders.index_add("size")
            publisher.publish(b"after", headers={"size": 1})
            assert claim_all(orders, "size = 1") == {b"before", b"after"}


class ScanBehaviour(QueueFixtures):
    """A filter that no index answers scans the queue once; later claims read only what is new or has changed."""

    FILTER = "colour = 'red'"

    def poll(self, orders: Queue) -> list[bytes]:
        return payloads(orders.claim(10, filter=self.FILTER))

    def fill(self, orders: Queue) -> None:
        orders.publish_many(Message(b"%d" % n, headers={"colour": "blue"}) for n in range(30))
        assert self.poll(orders) == self.poll(orders) == []

    def test_a_message_published_after_a_scan_without_a_match_is_found(self, orders):
        self.fill(orders)
        for payload in (b"a", b"b"):
            orders.publish(payload, headers={"colour": "red"})
            assert self.poll(orders) == [payload]
            assert self.poll(orders) == []

    def test_later_messages_are_claimed_by_priority(self, orders):
        self.fill(orders)
        for priority in (1, 7, 3):
            orders.publish(b"%d" % priority, headers={"colour": "red"}, priority=priority)
        assert self.poll(orders) == [b"7", b"3", b"1"]

    def test_a_message_that_was_leased_during_the_scan_is_found_when_it_is_released(self, orders):
        orders.publish(b"a", headers={"colour": "red"})
        [leased] = orders.claim()
        self.fill(orders)
        leased.release()
        assert self.poll(orders) == [b"a"]

    def test_a_message_that_was_leased_during_the_scan_is_found_when_its_lease_ends(
        self, orders, time
    ):
        orders.publish(b"a", headers={"colour": "red"})
        orders.claim(lease=SECOND)
        self.fill(orders)
        time.advance(SECOND * 2)
        assert self.poll(orders) == [b"a"]

    def test_a_message_that_was_delayed_during_the_scan_is_found_when_it_is_due(self, orders, time):
        orders.publish(b"a", headers={"colour": "red"}, delay=SECOND)
        self.fill(orders)
        time.advance(SECOND * 2)
        assert self.poll(orders) == [b"a"]

    def test_a_dead_letter_is_found_when_it_is_requeued_after_the_scan(self, orders):
        orders.publish(b"a", headers={"colour": "red"})
        orders.claim()[0].nack(requeue=False)
        self.fill(orders)
        orders.requeue()
        assert self.poll(orders) == [b"a"]

    def test_a_busy_group_hides_a_match_only_while_it_is_busy(self, orders):
        orders.publish(b"first", group="g")
        orders.publish(b"second", headers={"colour": "red"}, group="g")
        [first] = orders.claim()
        self.fill(orders)
        first.ack()
        assert self.poll(orders) == [b"second"]

    def test_many_matches_that_were_leased_are_found_when_they_are_released(self, orders):
        orders.publish_many(Message(b"%d" % n, headers={"colour": "red"}) for n in range(150))
        leased = orders.claim(150)
        self.fill(orders)
        for delivery in leased[100:]:
            delivery.release()
        assert self.poll(orders) == [b"%d" % n for n in range(100, 110)]

    def test_a_scan_of_a_subscription_finds_what_its_new_filter_matches(self, db, orders):
        orders.publish(b"old", headers={"colour": "red"})
        late = db.subscription("late", "colour = 'blue'")
        orders.publish(b"new", headers={"colour": "blue"})
        assert late.claim(10, filter=self.FILTER) == []
        late.set_filter("colour = 'red'")
        orders.publish(b"newer", headers={"colour": "red"})
        assert payloads(late.claim(10, filter=self.FILTER)) == [b"newer"]

    def test_a_filter_on_the_current_time_is_evaluated_again(self, orders, time):
        orders.publish(b"a", headers={"until": time.wall_us + 5_000_000})
        assert orders.claim(filter="until < UTC()") == orders.claim(filter="until < UTC()") == []
        time.advance(SECOND * 10)
        assert payloads(orders.claim(filter="until < UTC()")) == [b"a"]

    def test_a_filter_on_the_last_hour_matches_what_was_published_within_it(self, db, orders, time):
        recent = "sys.timestamp > UTC() - INTERVAL '1h'"
        subscribed = db.subscription("recent", recent)
        an_hour_ago = time.wall_us - 3_600_000_000
        orders.publish(Message(b"old", timestamp=an_hour_ago - 1_000_000))
        orders.publish(Message(b"new", timestamp=an_hour_ago + 1_000_000))
        assert payloads(subscribed.claim(10)) == [b"new"]
        assert payloads(orders.claim(10, filter=recent)) == [b"new"]
        time.advance(SECOND * 2)
        assert orders.claim(10, filter=recent) == []
