"""Which messages a claim with a filter finds, also when no index answers it."""

from __future__ import annotations

import pytest

from headgate.errors import FilterSyntaxError
from headgate.filters.builder import header
from headgate.message import Message
from headgate.queues.queue import Queue
from tests.conformance.queue_behaviour.surroundings import SECOND, Surroundings, claim_all, payloads


class FilterBehaviour(Surroundings):
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

    def test_what_a_filter_does_not_match_stays_for_others(self, events):
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

    def test_what_only_python_can_decide_is_found_behind_many_others(self, orders):
        orders.publish_many(Message(b"x", headers={"n": 7.0}) for _ in range(1200))
        orders.publish(b"wanted", headers={"n": 7.5})
        assert payloads(orders.claim(5, filter="n % 5 = 2.5")) == [b"wanted"]

    def test_a_bad_filter_is_refused_where_it_is_declared(self, orders):
        with pytest.raises(FilterSyntaxError, match="column"):
            orders.claim(1, filter="type = = 'x'")

    def test_a_header_declared_later_is_found_in_what_was_there_before(self, orders):
        for at in range(5):
            orders.publish(b"%d" % at, headers={"size": at % 2, "type": "t"})
        orders.index_add("size")
        assert "size" in orders.info.indexed
        orders.publish(b"5", headers={"size": 1})
        assert claim_all(orders, "size = 1") == {b"1", b"3", b"5"}

    def test_a_publisher_that_does_not_know_of_a_new_header_copies_it_all_the_same(
        self, connect, orders
    ):
        with connect() as elsewhere:
            publisher = elsewhere.queue("orders")
            publisher.publish(b"before", headers={"size": 1})
            orders.index_add("size")
            publisher.publish(b"after", headers={"size": 1})
            assert claim_all(orders, "size = 1") == {b"before", b"after"}


class ExaminedBehaviour(Surroundings):
    """A filter that no index answers reads everything once; what it found is not forgotten, nor taken for granted."""

    WANTED = "colour = 'red'"

    def poll(self, orders: Queue) -> list[bytes]:
        return payloads(orders.claim(10, filter=self.WANTED))

    def fill(self, orders: Queue) -> None:
        orders.publish_many(Message(b"%d" % n, headers={"colour": "blue"}) for n in range(30))
        assert self.poll(orders) == self.poll(orders) == []

    def test_what_is_published_after_a_look_for_nothing_is_found(self, orders):
        self.fill(orders)
        for payload in (b"a", b"b"):
            orders.publish(payload, headers={"colour": "red"})
            assert self.poll(orders) == [payload]
            assert self.poll(orders) == []

    def test_the_most_urgent_of_what_came_later_is_first(self, orders):
        self.fill(orders)
        for priority in (1, 7, 3):
            orders.publish(b"%d" % priority, headers={"colour": "red"}, priority=priority)
        assert self.poll(orders) == [b"7", b"3", b"1"]

    def test_what_was_leased_during_the_look_is_found_when_it_is_given_back(self, orders):
        orders.publish(b"a", headers={"colour": "red"})
        [leased] = orders.claim()
        self.fill(orders)
        leased.release()
        assert self.poll(orders) == [b"a"]

    def test_what_was_leased_during_the_look_is_found_when_its_lease_ends(self, orders, time):
        orders.publish(b"a", headers={"colour": "red"})
        orders.claim(lease=SECOND)
        self.fill(orders)
        time.advance(SECOND * 2)
        assert self.poll(orders) == [b"a"]

    def test_what_was_delayed_during_the_look_is_found_when_it_is_due(self, orders, time):
        orders.publish(b"a", headers={"colour": "red"}, delay=SECOND)
        self.fill(orders)
        time.advance(SECOND * 2)
        assert self.poll(orders) == [b"a"]

    def test_what_was_dead_during_the_look_is_found_when_it_is_requeued(self, orders):
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

    def test_many_matches_in_other_hands_are_found_when_they_are_given_back(self, orders):
        orders.publish_many(Message(b"%d" % n, headers={"colour": "red"}) for n in range(150))
        leased = orders.claim(150)
        self.fill(orders)
        for delivery in leased[100:]:
            delivery.release()
        assert self.poll(orders) == [b"%d" % n for n in range(100, 110)]

    def test_a_subscription_finds_what_it_takes_from_the_past(self, db, orders):
        orders.publish(b"old", headers={"colour": "red"})
        late = db.subscription("late", "colour = 'blue'")
        orders.publish(b"new", headers={"colour": "blue"})
        assert late.claim(10, filter=self.WANTED) == []
        late.set_filter("colour = 'red'")
        orders.publish(b"newer", headers={"colour": "red"})
        assert payloads(late.claim(10, filter=self.WANTED)) == [b"newer"]

    def test_a_filter_that_asks_for_the_time_is_asked_anew(self, orders, time):
        orders.publish(b"a", headers={"until": time.wall_us + 5_000_000})
        assert orders.claim(filter="until < UTC()") == orders.claim(filter="until < UTC()") == []
        time.advance(SECOND * 10)
        assert payloads(orders.claim(filter="until < UTC()")) == [b"a"]

    def test_the_last_hour_is_what_was_published_within_it(self, db, orders, time):
        recent = "sys.timestamp > UTC() - INTERVAL '1h'"
        subscribed = db.subscription("recent", recent)
        an_hour_ago = time.wall_us - 3_600_000_000
        orders.publish(Message(b"old", timestamp=an_hour_ago - 1_000_000))
        orders.publish(Message(b"new", timestamp=an_hour_ago + 1_000_000))
        assert payloads(subscribed.claim(10)) == [b"new"]
        assert payloads(orders.claim(10, filter=recent)) == [b"new"]
        time.advance(SECOND * 2)
        assert orders.claim(10, filter=recent) == []
