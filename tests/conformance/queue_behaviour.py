"""What a queue does, written once; every engine takes the same tests, see test_queue_behaviour.py."""

from __future__ import annotations

import queue as queues
from collections.abc import Callable
from datetime import timedelta

import pytest

from headgate.errors import (
    DatabaseClosed,
    FilterSyntaxError,
    InvalidMessage,
    QueueNotFound,
    QueueOptionsError,
    StaleLease,
)
from headgate.filters.builder import header
from headgate.filters.parser import parse
from headgate.message import OPAQUE, Message
from headgate.queues.consumer import Member, Retry
from headgate.queues.contract import Publication, State
from headgate.queues.database import Database
from headgate.queues.delivery import Delivery
from headgate.queues.queue import Queue
from tests.manual_clock import ManualClock

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
PATIENCE = 20  # seconds until a thread that does nothing counts as broken

Connect = Callable[[], Database]


def payloads(deliveries: list[Delivery]) -> list[bytes]:
    return [delivery.message.payload for delivery in deliveries]


def claim_all(queue: Queue, filter: str | None = None) -> set[bytes]:
    return set(payloads(queue.claim(100, filter=filter)))


class Surroundings:
    """An engine brings the fixture `connect`, whose databases go by the clock `time`."""

    @pytest.fixture
    def time(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def db(self, connect: Connect):
        with connect() as database:
            yield database

    @pytest.fixture
    def orders(self, db: Database) -> Queue:
        return db.queue("orders", filter_headers=["type", "region"], max_attempts=3)


class PublishBehaviour(Surroundings):
    def test_what_is_published_comes_back_whole(self, orders):
        headers = {
            "type": "created",
            "n": 5,
            "price": 1.5,
            "big": 2**62,
            "tiny": 5e-324,
            "yes": True,
            "list": OPAQUE,
        }
        orders.publish(
            b"\x00\xff payload",
            topic="orders.eu",
            headers={**headers, "absent": None},
            priority=7,
            id="m-1",
            key="k",
            filter_value="f",
            timestamp=1_600_000_000_000_001,
            correlation_id="c",
        )
        [delivery] = orders.claim()
        message = delivery.message
        assert message.payload == b"\x00\xff payload"
        assert message.headers == headers
        assert {name: type(value) for name, value in message.headers.items()} == {
            name: type(value) for name, value in headers.items()
        }
        assert (message.topic, message.priority, message.id) == ("orders.eu", 7, "m-1")
        assert (message.key, message.filter_value) == ("k", "f")
        assert message.timestamp == 1_600_000_000_000_001
        assert message.correlation_id == "c"

    def test_the_topic_is_the_queues_name_unless_given(self, orders):
        orders.publish(b"a")
        orders.publish(b"b", topic="")
        assert [d.message.topic for d in orders.claim(2)] == ["orders", ""]

    def test_ids_ascend_and_are_never_used_again(self, orders):
        first = orders.publish(b"a")
        orders.claim()[0].ack()
        assert orders.publish(b"b") > first

    def test_a_batch_is_published_whole_or_not_at_all(self, orders):
        with pytest.raises(InvalidMessage):
            orders.publish_many([b"a", Message(b"b", headers={"n": float("nan")})])
        assert orders.peek() == []
        assert len(orders.publish_many([b"a", Message(b"b"), Publication(Message(b"c"))])) == 3

    def test_an_unpublishable_message_is_refused_with_the_field_named(self, orders):
        with pytest.raises(InvalidMessage, match="priority"):
            orders.publish(b"", priority=256)

    def test_a_delayed_message_waits(self, orders, time):
        orders.publish(b"later", delay=30 * SECOND)
        assert orders.claim() == []
        time.advance(29 * SECOND)
        assert orders.claim() == []
        time.advance(SECOND)
        assert payloads(orders.claim()) == [b"later"]

    def test_a_dedup_key_is_published_once_within_its_window(self, db, time):
        queue = db.queue("once", dedup_window=MINUTE)
        first = queue.publish(b"a", dedup_key="k")
        assert queue.publish(b"b", dedup_key="k") == first
        assert queue.publish_many([Publication(Message(b"c"), dedup_key="k")] * 2) == [first, first]
        [delivery] = queue.claim(10)
        assert delivery.message.payload == b"a"
        delivery.ack()
        time.advance(MINUTE)
        again = queue.publish(b"d", dedup_key="k")
        assert again > first
        assert payloads(queue.claim(10)) == [b"d"]

    def test_a_dedup_key_is_remembered_after_the_message_is_acked(self, orders):
        first = orders.publish(b"a", dedup_key="k")
        orders.claim()[0].ack()
        assert orders.publish(b"b", dedup_key="k") == first
        assert orders.claim() == []

    def test_a_dedup_key_twice_in_one_batch_is_one_message(self, orders):
        batch = [
            Publication(Message(b"a"), dedup_key="k"),
            Publication(Message(b"b"), dedup_key="k"),
        ]
        ids = orders.publish_many(batch)
        assert ids[0] == ids[1]
        assert payloads(orders.claim(10)) == [b"a"]

    def test_the_same_dedup_key_in_another_queue_is_another_message(self, db, orders):
        other = db.queue("other")
        orders.publish(b"a", dedup_key="k")
        other.publish(b"b", dedup_key="k")
        assert payloads(other.claim()) == [b"b"]


class ClaimBehaviour(Surroundings):
    def test_the_most_urgent_comes_first_and_then_the_oldest(self, orders):
        for at, priority in enumerate([0, 5, 0, 255, 5]):
            orders.publish(b"%d" % at, priority=priority)
        assert payloads(orders.claim(10)) == [b"3", b"1", b"4", b"0", b"2"]

    def test_nobody_else_gets_what_is_leased(self, orders):
        orders.publish_many([b"a", b"b"])
        assert payloads(orders.claim(1)) == [b"a"]
        assert payloads(orders.claim(5)) == [b"b"]
        assert orders.claim(5) == []

    def test_queues_do_not_mix(self, db, orders):
        other = db.queue("other")
        orders.publish(b"a")
        assert other.claim() == []
        assert payloads(orders.claim()) == [b"a"]

    def test_an_acked_message_is_gone(self, orders):
        orders.publish(b"a")
        orders.claim(lease=SECOND)[0].ack()
        assert list(orders.browse()) == []

    def test_a_lease_that_ends_gives_the_message_back_and_counts(self, orders, time):
        orders.publish(b"a")
        [first] = orders.claim(lease=30 * SECOND)
        time.advance(30 * SECOND - timedelta(microseconds=1))
        assert orders.claim() == []
        time.advance(timedelta(microseconds=1))
        [second] = orders.claim()
        assert (first.attempts, second.attempts) == (1, 2)
        assert second.token != first.token

    def test_a_stale_lease_can_neither_ack_nor_nack_nor_extend_nor_release(self, orders, time):
        orders.publish(b"a")
        [stale] = orders.claim(lease=SECOND)
        time.advance(2 * SECOND)
        [held] = orders.claim(lease=MINUTE)
        for settle in (stale.ack, stale.nack, lambda: stale.extend(MINUTE), stale.release):
            with pytest.raises(StaleLease, match="orders"):
                settle()
        assert orders.claim() == []
        held.ack()

    def test_an_ack_twice_is_harmless(self, orders):
        orders.publish(b"a")
        [delivery] = orders.claim()
        delivery.ack()
        delivery.ack()
        orders.delivery(delivery.id, delivery.token).ack()

    def test_an_id_is_never_given_again_though_the_last_message_is_gone(self, orders):
        ids = []
        for publish in (
            lambda: orders.publish(b"one"),
            lambda: orders.publish_many([b"two", b"three"])[-1],
            lambda: orders.publish(b"keyed", dedup_key="k"),
        ):
            ids.append(publish())
            for delivery in orders.claim(10):
                delivery.ack()
        orders.publish(b"purged")
        orders.purge()
        ids.append(orders.publish(b"last"))
        assert ids == sorted(set(ids))
        assert ids[-1] > ids[-2] + 1

    def test_what_is_gone_cannot_be_nacked_or_extended(self, orders):
        orders.publish(b"a")
        [delivery] = orders.claim()
        delivery.ack()
        again = orders.delivery(delivery.id, delivery.token)
        for settle in (again.nack, again.release, lambda: again.extend(MINUTE)):
            with pytest.raises(StaleLease):
                settle()

    def test_an_ack_after_the_lease_counts_when_nobody_took_over(self, orders, time):
        orders.publish(b"a")
        [delivery] = orders.claim(lease=SECOND)
        time.advance(MINUTE)
        delivery.ack()
        assert orders.claim() == []

    def test_a_nack_gives_it_back_at_once_or_after_a_delay(self, orders, time):
        orders.publish(b"a")
        orders.claim()[0].nack()
        orders.claim()[0].nack(delay=10 * SECOND)
        assert orders.claim() == []
        time.advance(10 * SECOND)
        assert [d.attempts for d in orders.claim()] == [3]

    def test_a_nack_without_requeue_is_a_dead_letter(self, orders):
        orders.publish(b"a")
        orders.claim()[0].nack(requeue=False, reason="not ours")
        [dead] = orders.dead()
        assert (dead.state, dead.reason, dead.message.payload) == (State.DEAD, "not ours", b"a")

    def test_an_extended_lease_lasts_longer(self, orders, time):
        orders.publish(b"a")
        [delivery] = orders.claim(lease=SECOND)
        delivery.extend(MINUTE)
        time.advance(59 * SECOND)
        assert orders.claim() == []
        time.advance(SECOND)
        assert len(orders.claim()) == 1

    def test_a_released_message_is_ready_at_once_and_not_counted(self, orders):
        orders.publish(b"a")
        for _ in range(10):
            [delivery] = orders.claim()
            assert delivery.attempts == 1
            delivery.release()
        assert list(orders.dead()) == []

    def test_ack_and_claim_is_one_step(self, orders):
        orders.publish_many([b"a", b"b"])
        first = orders.claim(1)
        second = orders.ack_and_claim(first, 1)
        assert payloads(second) == [b"b"]
        assert orders.ack_and_claim(second, 1) == []
        assert list(orders.browse()) == []

    def test_ack_and_claim_with_a_stale_lease_raises_and_keeps_nothing(self, orders, time):
        orders.publish_many([b"a", b"b"])
        stale = orders.claim(1, lease=SECOND)
        time.advance(MINUTE)
        assert payloads(orders.claim(1)) == [b"a"]
        with pytest.raises(StaleLease):
            orders.ack_and_claim(stale, 1)
        assert payloads(orders.claim(5)) == [b"b"]

    def test_skipped_ids_are_not_claimed(self, orders):
        first, second = orders.publish_many([b"a", b"b"])
        assert payloads(orders.claim(5, skip=[first])) == [b"b"]
        assert second > first

    def test_a_limit_or_lease_of_nothing_is_refused(self, orders):
        with pytest.raises(QueueOptionsError, match="limit"):
            orders.claim(0)
        with pytest.raises(QueueOptionsError, match="lease"):
            orders.claim(1, timedelta())

    def test_a_message_that_kills_its_consumers_becomes_a_dead_letter(self, orders, time):
        orders.publish(b"a")
        for attempt in (1, 2, 3):
            assert [d.attempts for d in orders.claim(lease=SECOND)] == [attempt]
            time.advance(2 * SECOND)
        assert orders.claim() == []
        [dead] = orders.dead()
        assert dead.attempts == 3
        assert "lease ended" in dead.reason

    def test_a_message_that_fails_too_often_becomes_a_dead_letter(self, orders):
        orders.publish(b"a")
        for _ in range(3):
            orders.claim()[0].nack(reason="broken")
        assert orders.claim() == []
        assert [dead.reason for dead in orders.dead()] == ["broken"]

    def test_without_a_limit_of_attempts_nothing_dies(self, db):
        queue = db.queue("patient", max_attempts=0)
        queue.publish(b"a")
        for _ in range(20):
            queue.claim()[0].nack()
        assert [d.attempts for d in queue.claim()] == [21]

    def test_delayed_and_leased_messages_are_not_in_the_way_of_the_others(self, orders):
        orders.publish_many([Publication(Message(b"z", priority=255), delay_us=10**9)] * 50)
        orders.publish(b"a")
        assert payloads(orders.claim(5)) == [b"a"]


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
            ("sys.timestamp <= (UTC() + 1) * 1000 AND region = 'US'", {b"created-us"}),
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


class GroupBehaviour(Surroundings):
    def test_a_group_has_one_message_at_work_at_a_time(self, orders):
        for name in (b"1", b"2", b"3"):
            orders.publish(name, group="g")
        orders.publish(b"other", group="h")
        orders.publish(b"free")
        assert payloads(orders.claim(10)) == [b"1", b"other", b"free"]
        assert orders.claim(10) == []

    def test_a_group_goes_on_in_order_after_an_ack(self, orders):
        orders.publish_many(Publication(Message(b"%d" % at), group="g") for at in range(3))
        seen = []
        while found := orders.claim(10):
            seen += payloads(found)
            found[0].ack()
        assert seen == [b"0", b"1", b"2"]

    def test_a_member_that_waits_for_its_retry_holds_its_group(self, orders, time):
        orders.publish_many(Publication(Message(b"%d" % at), group="g") for at in range(2))
        orders.claim()[0].nack(delay=MINUTE)
        assert orders.claim() == []
        time.advance(MINUTE)
        assert payloads(orders.claim()) == [b"0"]

    def test_a_member_that_does_not_match_holds_nobody(self, orders):
        orders.publish(b"eu", group="g", headers={"region": "EU"})
        orders.publish(b"us", group="g", headers={"region": "US"})
        assert payloads(orders.claim(10, filter="region = 'US'")) == [b"us"]
        assert orders.claim(10) == []

    def test_a_dead_member_holds_nobody(self, orders):
        orders.publish_many(Publication(Message(b"%d" % at), group="g") for at in range(2))
        orders.claim()[0].nack(requeue=False)
        assert payloads(orders.claim()) == [b"1"]

    def test_groups_of_different_queues_have_nothing_in_common(self, db, orders):
        other = db.queue("other")
        orders.publish(b"a", group="g")
        other.publish(b"b", group="g")
        orders.claim()
        assert payloads(other.claim()) == [b"b"]


class TidyingBehaviour(Surroundings):
    def test_peek_changes_nothing(self, orders):
        orders.publish(b"a")
        assert [s.message.payload for s in orders.peek()] == [b"a"]
        assert [s.attempts for s in orders.peek()] == [0]
        assert [d.attempts for d in orders.claim()] == [1]

    def test_browse_shows_every_state_by_id(self, orders):
        orders.publish(b"leased", priority=9)
        orders.claim()
        orders.publish(b"ready")
        orders.publish(b"delayed", delay=MINUTE)
        assert [(s.message.payload, s.state) for s in orders.browse(page=2)] == [
            (b"leased", State.LEASED),
            (b"ready", State.READY),
            (b"delayed", State.DELAYED),
        ]
        assert [s.message.payload for s in orders.browse(State.DELAYED)] == [b"delayed"]

    def test_browse_with_a_filter_reads_on_until_a_page_is_full(self, orders):
        orders.publish_many(Message(b"%d" % at, headers={"n": at}) for at in range(300))
        found = [s.message.payload for s in orders.browse(filter="n >= 290", page=3)]
        assert found == [b"%d" % at for at in range(290, 300)]

    def test_purge_deletes_what_waits_and_nothing_else(self, orders):
        orders.publish(b"leased", priority=9)
        [held] = orders.claim()
        orders.publish(b"ready")
        orders.publish(b"delayed", delay=MINUTE)
        assert orders.purge() == 2
        held.ack()
        assert list(orders.browse()) == []

    def test_purge_of_one_state_deletes_that_state(self, orders):
        orders.publish_many([b"a", b"b"])
        orders.claim()[0].nack(requeue=False)
        assert orders.purge(State.DEAD) == 1
        assert payloads(orders.claim(5)) == [b"b"]

    def test_prune_deletes_what_is_old(self, db, time):
        queue = db.queue("kept", archive=True)
        queue.publish_many([b"acked", b"old", b"held"])
        queue.claim(1)[0].ack()
        time.advance(timedelta(days=2))
        queue.publish(b"new")
        queue.claim(1, filter="sys.timestamp > 0")
        assert queue.prune(timedelta(days=1)) == 2
        assert [s.message.payload for s in queue.archived()] == []
        assert {s.message.payload for s in queue.browse()} == {b"old", b"new"}

    def test_an_archive_keeps_what_was_acked(self, db):
        queue = db.queue("kept", archive=True)
        queue.publish_many([b"a", b"b"])
        first, second = queue.claim(2)
        first.ack()
        queue.ack_and_claim([second])
        assert [s.message.payload for s in queue.archived(page=1)] == [b"a", b"b"]
        assert list(queue.browse()) == []

    def test_dead_letters_can_be_requeued_one_or_all(self, orders):
        orders.publish_many([b"a", b"b", b"c"])
        for delivery in orders.claim(3):
            delivery.nack(requeue=False)
        dead = list(orders.dead())
        assert orders.requeue([dead[1].id, 999]) == 1
        [delivery] = orders.claim(5)
        assert (delivery.message.payload, delivery.attempts) == (b"b", 1)
        assert orders.requeue() == 2
        assert list(orders.dead()) == []

    def test_a_paused_queue_gives_nothing_and_takes_everything(self, orders):
        orders.pause()
        orders.publish(b"a")
        assert orders.claim() == []
        orders.resume()
        assert payloads(orders.claim()) == [b"a"]

    def test_a_dropped_queue_is_gone_with_everything_in_it(self, db, orders):
        orders.publish(b"a")
        db.drop("orders")
        with pytest.raises(QueueNotFound, match="orders"):
            db.find("orders")
        with pytest.raises(QueueNotFound):
            orders.publish(b"b")
        assert db.queue("orders").claim() == []

    def test_queues_are_listed_with_their_options(self, db, orders):
        db.queue("b", archive=True)
        found = {info.name: info.options for info in db.queues()}
        assert found["orders"].filter_headers == ("type", "region")
        assert found["orders"].max_attempts == 3
        assert found["b"].archive

    def test_a_queue_that_exists_keeps_the_options_that_are_not_given(self, db, orders):
        again = db.queue("orders", max_attempts=9)
        assert again.info.options.max_attempts == 9
        assert again.info.options.filter_headers == ("type", "region")
        assert again.info.id == orders.info.id

    def test_a_header_name_that_cannot_be_indexed_is_refused(self, db):
        with pytest.raises(QueueOptionsError, match="a b"):
            db.queue("q", filter_headers=["a b"])

    def test_statistics_count_what_is_there(self, orders, time):
        orders.publish_many([b"a", b"b", b"c", b"d"])
        first, second = orders.claim(2)
        first.nack(requeue=False)
        second.nack(delay=MINUTE)
        orders.claim(1)
        time.advance(5 * SECOND)
        stats = orders.stats()
        assert (stats.ready, stats.delayed, stats.leased, stats.dead) == (1, 1, 1, 1)
        assert stats.oldest_ready_us == 5_000_000

    def test_a_closed_database_says_so(self, connect):
        database = connect()
        queue = database.queue("q")
        database.close()
        database.close()
        with pytest.raises(DatabaseClosed):
            queue.publish(b"a")


class SubscriptionBehaviour(Surroundings):
    def test_a_subscription_gets_its_own_copy_of_what_matches(self, db, orders):
        eu = db.subscription("eu", "region = 'EU'")
        orders.publish(b"a", headers={"region": "EU"})
        orders.publish(b"b", headers={"region": "US"})
        assert payloads(orders.claim(5)) == [b"a", b"b"]
        assert payloads(eu.claim(5)) == [b"a"]

    def test_it_has_its_own_leases_attempts_and_dead_letters(self, db, orders):
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

    def test_it_may_take_from_one_queue_only(self, db, orders):
        other = db.queue("other")
        mine = db.subscription("mine", pattern="#", queue="orders")
        orders.publish(b"a")
        other.publish(b"b")
        assert payloads(mine.claim(5)) == [b"a"]

    def test_a_message_may_be_published_to_subscribers_alone(self, db):
        news = db.subscription("news", pattern="news.#")
        assert db.publish(b"a", topic="news.today") > 0
        assert db.publish(b"b", topic="elsewhere") == 0
        assert payloads(news.claim(5)) == [b"a"]

    def test_it_begins_with_the_next_message_or_with_the_first_stored(self, db, orders):
        orders.publish(b"before", headers={"region": "EU"})
        orders.publish(b"not this", headers={"region": "US"})
        late = db.subscription("late", "region = 'EU'")
        early = db.subscription("early", "region = 'EU'", start="first")
        orders.publish(b"after", headers={"region": "EU"})
        assert payloads(late.claim(5)) == [b"after"]
        assert payloads(early.claim(5)) == [b"before", b"after"]

    def test_a_filter_changed_in_place_loses_and_repeats_nothing(self, connect, db, orders):
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

    def test_a_dropped_subscription_gets_nothing_more(self, db, orders):
        db.subscription("s", pattern="#")
        orders.publish(b"a")
        db.drop("s")
        orders.publish(b"b")
        assert payloads(orders.claim(5)) == [b"a", b"b"]
        with pytest.raises(QueueNotFound):
            db.subscription("s")

    def test_a_paused_subscription_collects(self, db, orders):
        subscription = db.subscription("s", pattern="#")
        subscription.pause()
        orders.publish(b"a")
        assert subscription.claim() == []
        subscription.resume()
        assert payloads(subscription.claim()) == [b"a"]

    def test_a_queue_cannot_become_a_subscription(self, db, orders):
        with pytest.raises(QueueOptionsError, match="orders"):
            db.subscription("orders", pattern="#")


class ConsumerBehaviour(Surroundings):
    @pytest.mark.parametrize("mode", ["notify", "poll", "hybrid"])
    def test_a_handler_that_returns_acks(self, orders, mode):
        seen: queues.Queue[bytes] = queues.Queue()
        orders.publish(b"before")
        with orders.consumer(lambda d: seen.put(d.message.payload), mode=mode, poll=SECOND / 100):
            assert seen.get(timeout=PATIENCE) == b"before"
            orders.publish(b"after")
            assert seen.get(timeout=PATIENCE) == b"after"
        assert list(orders.browse()) == []

    def test_a_handler_that_raises_nacks_with_a_growing_delay(self, orders, time):
        seen: queues.Queue[int] = queues.Queue()

        def fail(delivery: Delivery) -> None:
            seen.put(delivery.attempts)
            raise ValueError("not today")

        orders.publish(b"a")
        with orders.consumer(fail, retry=Retry(first=MINUTE)):
            assert seen.get(timeout=PATIENCE) == 1
        [waiting] = orders.browse()
        assert waiting.state == State.DELAYED
        assert waiting.reason == "ValueError: not today"
        time.advance(MINUTE)
        with orders.consumer(fail, retry=Retry(first=MINUTE)):
            assert seen.get(timeout=PATIENCE) == 2
        time.advance(MINUTE)
        assert orders.claim() == []
        time.advance(MINUTE)
        assert [d.attempts for d in orders.claim()] == [3]

    def test_a_consumer_gets_what_its_filter_matches(self, orders):
        seen: queues.Queue[bytes] = queues.Queue()
        with orders.consumer(
            lambda d: seen.put(d.message.payload), filter="region IN ('EU', 'US')"
        ):
            for region in ("APAC", "EU", "US"):
                orders.publish(region.encode(), headers={"region": region})
            assert {seen.get(timeout=PATIENCE), seen.get(timeout=PATIENCE)} == {b"EU", b"US"}
        assert [s.message.payload for s in orders.peek()] == [b"APAC"]

    def test_what_a_predicate_rejects_is_not_counted_and_never_dies(self, orders):
        seen: queues.Queue[bytes] = queues.Queue()
        orders.publish_many([b"no"] * 3)
        wanted = orders.consumer(
            lambda d: seen.put(d.message.payload), predicate=lambda m: m.payload == b"yes", batch=1
        )
        with wanted:
            for _ in range(5):
                orders.publish(b"yes")
                assert seen.get(timeout=PATIENCE) == b"yes"
        assert list(orders.dead()) == []
        assert [(s.message.payload, s.attempts) for s in orders.browse()] == [(b"no", 0)] * 3

    def test_threads_share_the_work_and_nothing_is_handled_twice(self, orders):
        seen: queues.Queue[bytes] = queues.Queue()
        names = [b"%d" % at for at in range(200)]
        orders.publish_many(names)
        with orders.consumer(lambda d: seen.put(d.message.payload), threads=3, batch=7):
            found = [seen.get(timeout=PATIENCE) for _ in names]
        assert sorted(found) == sorted(names)
        assert list(orders.browse()) == []

    def test_a_group_offers_a_message_to_the_next_who_wants_it(self, orders):
        seen: queues.Queue[tuple[str, bytes]] = queues.Queue()

        def member(id: str, wants: bytes) -> Member:
            return Member(
                id,
                lambda d: seen.put((id, d.message.payload)),
                predicate=lambda m: m.payload == wants,
            )

        orders.publish_many([b"a", b"b", b"c"] * 5)
        with orders.consumer_group([member("A", b"a"), member("B", b"b")]):
            found = [seen.get(timeout=PATIENCE) for _ in range(10)]
        assert sorted(found) == [("A", b"a")] * 5 + [("B", b"b")] * 5
        assert [(s.message.payload, s.attempts) for s in orders.browse()] == [(b"c", 0)] * 5

    def test_round_robin_gives_everybody_a_turn(self, orders):
        seen: queues.Queue[str] = queues.Queue()
        members = [Member(id, lambda d, id=id: seen.put(id)) for id in "ABC"]
        orders.publish_many([b"x"] * 9)
        with orders.consumer_group(members):
            assert sorted(seen.get(timeout=PATIENCE) for _ in range(9)) == [*"AAABBBCCC"]

    def test_a_sticky_group_gives_a_key_always_to_the_same_member(self, orders):
        seen: queues.Queue[tuple[str, str]] = queues.Queue()
        members = [Member(id, lambda d, id=id: seen.put((d.message.key, id))) for id in "ABC"]
        orders.publish_many(Message(b"", key=f"k{at % 10}") for at in range(60))
        with orders.consumer_group(members, strategy="sticky"):
            found = {seen.get(timeout=PATIENCE) for _ in range(60)}
        assert len(found) == 10

    def test_a_handler_may_settle_by_itself(self, orders):
        seen: queues.Queue[int] = queues.Queue()

        def later(delivery: Delivery) -> None:
            delivery.nack(delay=MINUTE)
            seen.put(delivery.id)

        orders.publish(b"a")
        with orders.consumer(later):
            seen.get(timeout=PATIENCE)
        assert [s.state for s in orders.browse()] == [State.DELAYED]

    def test_leases_at_work_can_be_extended(self, orders, time):
        begun: queues.Queue[int] = queues.Queue()
        go_on: queues.Queue[None] = queues.Queue()

        def slow(delivery: Delivery) -> None:
            begun.put(delivery.id)
            go_on.get(timeout=PATIENCE)

        orders.publish(b"a")
        consumer = orders.consumer(slow, lease=MINUTE)
        with consumer:
            begun.get(timeout=PATIENCE)
            for _ in range(5):
                time.advance(MINUTE / 2)
                consumer.extend_leases()
                assert orders.claim() == []
            go_on.put(None)
        assert list(orders.browse()) == []

    def test_statistics_tell_what_a_consumer_did(self, orders):
        seen: queues.Queue[int] = queues.Queue()
        orders.publish_many([Message(b"no", priority=9), b"a", b"b"])
        with orders.consumer(
            lambda d: seen.put(d.id),
            predicate=lambda m: m.payload != b"no",
            name="counted",
        ):
            seen.get(timeout=PATIENCE)
            seen.get(timeout=PATIENCE)
        usage = orders.stats().usage["counted"]
        assert (usage.acked, usage.failures) == (2, 0)
        assert (usage.rows, usage.unmatched) == (3, 1)
        assert usage.claims >= 1
        assert usage.claim_us > 0

    def test_a_consumer_is_woken_by_a_publish_from_another_connection(self, connect, orders):
        seen: queues.Queue[bytes] = queues.Queue()
        with (
            connect() as elsewhere,
            orders.consumer(lambda d: seen.put(d.message.payload), mode="notify"),
        ):
            for name in (b"a", b"b"):
                elsewhere.queue("orders").publish(name)
                assert seen.get(timeout=PATIENCE) == name

    def test_a_consumer_of_a_subscription_is_woken(self, db, orders):
        seen: queues.Queue[bytes] = queues.Queue()
        subscription = db.subscription("s", pattern="#")
        with subscription.consumer(lambda d: seen.put(d.message.payload), mode="notify"):
            orders.publish(b"a")
            assert seen.get(timeout=PATIENCE) == b"a"

    def test_an_unknown_mode_or_strategy_is_refused(self, orders):
        with pytest.raises(QueueOptionsError, match="hybrid"):
            orders.consumer(print, mode="sometimes")
        with pytest.raises(QueueOptionsError, match="round_robin"):
            orders.consumer_group([Member("a", print)], strategy="best")


class PushBehaviour(Surroundings):
    """Seed 001's testing list: same instance, patterns, errors, management, shutdown; see also DoorBehaviour."""

    def test_a_subscriber_is_called_for_what_matches(self, db, orders):
        seen: queues.Queue[Message] = queues.Queue()
        assert db.subscribe("orders.*.#", seen.put, id="audit")
        orders.publish(b"no")
        orders.publish(b"yes", topic="orders.eu.new", headers={"n": 1})
        message = seen.get(timeout=PATIENCE)
        assert (message.payload, message.topic, message.headers) == (
            b"yes",
            "orders.eu.new",
            {"n": 1},
        )

    @pytest.mark.parametrize(
        ("pattern", "topic", "wanted"),
        [
            ("orders.#", "orders", True),
            ("orders.*", "orders", False),
            ("orders.*", "orders.a", True),
            ("orders.*", "orders.a.b", False),
            ("#", "", True),
            ("*", "", False),
            ("orders.*.x", "orders.a.x", True),
            ("orders.+", "orders.a", False),
        ],
    )  # fmt: skip
    def test_wildcards(self, db, orders, pattern, topic, wanted):
        seen: queues.Queue[bytes] = queues.Queue()
        db.subscribe(pattern, lambda m: seen.put(m.payload), id="s")
        db.subscribe("end", lambda m: seen.put(m.payload), id="s")
        orders.publish(b"tested", topic=topic)
        orders.publish(b"end", topic="end")
        found = {seen.get(timeout=PATIENCE)}
        if wanted:
            found.add(seen.get(timeout=PATIENCE))
        assert found == ({b"tested", b"end"} if wanted else {b"end"})

    def test_what_was_published_before_is_not_told(self, db, orders):
        seen: queues.Queue[bytes] = queues.Queue()
        orders.publish(b"before")
        db.subscribe("#", lambda m: seen.put(m.payload), id="s")
        orders.publish(b"after")
        assert seen.get(timeout=PATIENCE) == b"after"

    def test_nothing_is_missed_because_somebody_acked_first(self, db, orders):
        seen: queues.Queue[bytes] = queues.Queue()
        db.subscribe("#", lambda m: seen.put(m.payload), id="s")
        names = [b"%d" % at for at in range(100)]
        for name in names:
            orders.publish(name)
            orders.claim()[0].ack()
        assert [seen.get(timeout=PATIENCE) for _ in names] == names

    def test_messages_are_told_in_the_order_of_publishing(self, db, orders):
        seen: queues.Queue[bytes] = queues.Queue()
        db.subscribe("#", lambda m: seen.put(m.payload), id="s")
        orders.publish_many(Message(b"%d" % at, priority=at % 7) for at in range(50))
        assert [seen.get(timeout=PATIENCE) for _ in range(50)] == [b"%d" % at for at in range(50)]

    def test_a_publish_from_another_connection_is_told(self, connect, db, orders):
        seen: queues.Queue[bytes] = queues.Queue()
        db.subscribe("orders", lambda m: seen.put(m.payload), id="s")
        with connect() as elsewhere:
            elsewhere.queue("orders").publish(b"a")
        assert seen.get(timeout=PATIENCE) == b"a"

    def test_a_subscriber_that_fails_hurts_nobody(self, db, orders, caplog):
        seen: queues.Queue[bytes] = queues.Queue()

        def fail(message: Message) -> None:
            seen.put(b"failing")
            raise RuntimeError("broken subscriber")

        db.subscribe("#", fail, id="bad")
        db.subscribe("#", lambda m: seen.put(m.payload), id="good")
        for name in (b"a", b"b"):
            orders.publish(name)
            assert {seen.get(timeout=PATIENCE), seen.get(timeout=PATIENCE)} == {b"failing", name}

    def test_a_subscriber_that_hangs_hurts_nobody(self, db, orders):
        seen: queues.Queue[bytes] = queues.Queue()
        forever: queues.Queue[None] = queues.Queue()
        db.subscribe("#", lambda m: forever.get(), id="hanging")
        db.subscribe("#", lambda m: seen.put(m.payload), id="good")
        orders.publish_many([b"a"] * 20)
        for _ in range(20):
            seen.get(timeout=PATIENCE)
        forever.put(None)

    def test_subscriptions_are_managed_by_pattern_and_id(self, db, orders):
        seen: queues.Queue[str] = queues.Queue()
        tell = {id: lambda m, id=id: seen.put(id) for id in "ab"}
        assert db.subscribe("x", tell["a"], id="a")
        assert not db.subscribe("x", tell["a"], id="a")
        assert db.subscribe("y", tell["a"], id="a")
        assert db.subscribe("x", tell["b"], id="b")
        assert db.unsubscribe("x", "a")
        assert not db.unsubscribe("x", "a")
        orders.publish(b"", topic="x")
        assert seen.get(timeout=PATIENCE) == "b"
        orders.publish(b"", topic="y")
        assert seen.get(timeout=PATIENCE) == "a"
        assert db.unsubscribe_all("a") == 1
        assert db.unsubscribe_all("a") == 0
        orders.publish(b"", topic="y")
        orders.publish(b"", topic="x")
        assert seen.get(timeout=PATIENCE) == "b"

    def test_closing_leaves_nothing_behind(self, connect, orders, db):
        with connect() as elsewhere:
            elsewhere.subscribe("#", print, id="s")
            infos = db.engine.run(db.engine.operations.queues())
            assert [info.kind for info in infos if info.name != "orders"] == ["push"]
        infos = db.engine.run(db.engine.operations.queues())
        assert [info.name for info in infos] == ["orders"]
        orders.publish(b"a")
        orders.claim()[0].ack()

    def test_subscribers_of_a_process_that_died_are_forgotten(self, db, orders, time):
        operations = db.engine.operations
        db.engine.run(operations.subscribe("push-dead", parse("TRUE"), lease_us=60_000_000))
        orders.publish(b"a")
        time.advance(30 * SECOND)
        assert db.engine.run(operations.keep_alive("push-dead", 60_000_000))
        time.advance(59 * SECOND)
        db.engine.run(operations.route())
        assert len(db.engine.run(operations.queues())) == 2
        time.advance(SECOND)
        db.engine.run(operations.route())
        assert [info.name for info in db.engine.run(operations.queues())] == ["orders"]
        assert not db.engine.run(operations.keep_alive("push-dead", 60_000_000))


class DoorBehaviour(Surroundings):
    """Plain SQL from any other program. The fixture `door` runs a statement elsewhere, and commits unless told not to."""

    def test_an_insert_into_the_inbox_is_a_publish(self, orders, door):
        door(
            "INSERT INTO inbox (queue, topic, headers, payload, priority) VALUES ('orders', 'orders.eu', "
            """'{"type": "created", "n": 5, "f": 0.1, "b": true, "list": [1], "gone": null}', 'hello', 3)"""
        )
        [delivery] = orders.claim(filter="type = 'created' AND n = 5")
        message = delivery.message
        assert (message.payload, message.topic, message.priority) == (b"hello", "orders.eu", 3)
        assert message.headers == {"type": "created", "n": 5, "f": 0.1, "b": True, "list": OPAQUE}
        delivery.ack()
        assert list(orders.browse()) == []

    def test_only_the_queue_is_needed(self, orders, door):
        door("INSERT INTO inbox (queue) VALUES ('orders')")
        [delivery] = orders.claim()
        assert (delivery.message.payload, delivery.message.topic) == (b"", "orders")

    def test_several_rows_are_several_messages(self, orders, door):
        door("INSERT INTO inbox (queue, payload) VALUES ('orders', 'a'), ('orders', 'b')")
        assert payloads(orders.claim(5)) == [b"a", b"b"]

    def test_delay_group_and_dedup_key_work_there_too(self, orders, door):
        door("INSERT INTO inbox (queue, payload, delay) VALUES ('orders', 'later', 60)")
        assert orders.claim() == []
        insert = "INSERT INTO inbox (queue, payload, group_key, dedup_key) VALUES ('orders', '{}', 'g', '{}')"
        for name, key in (("a", "1"), ("again", "1"), ("b", "2")):
            door(insert.format(name, key))
        assert payloads(orders.claim(5)) == [b"a"]

    @pytest.mark.parametrize(
        "row",
        [
            "('nowhere', '{}', 0)",
            "('orders', '[1]', 0)",
            "('orders', '{}', 256)",
        ],
    )
    def test_what_cannot_be_published_is_refused(self, orders, door, row):
        with pytest.raises(Exception, match="headgate"):
            door(f"INSERT INTO inbox (queue, headers, priority) VALUES {row}")
        assert list(orders.browse()) == []

    def test_a_consumer_is_woken(self, orders, door):
        seen: queues.Queue[bytes] = queues.Queue()
        with orders.consumer(lambda d: seen.put(d.message.payload), mode="notify"):
            for name in ("a", "b"):
                door(f"INSERT INTO inbox (queue, payload) VALUES ('orders', '{name}')")
                assert seen.get(timeout=PATIENCE) == name.encode()

    def test_subscriptions_and_subscribers_get_it(self, db, orders, door):
        seen: queues.Queue[bytes] = queues.Queue()
        eu = db.subscription("eu", "region = 'EU'")
        db.subscribe("orders", lambda m: seen.put(m.payload), id="s")
        for region in ("EU", "US"):
            door(
                "INSERT INTO inbox (queue, headers, payload) "
                f"""VALUES ('orders', '{{"region": "{region}"}}', '{region}')"""
            )
        assert [seen.get(timeout=PATIENCE) for _ in range(2)] == [b"EU", b"US"]
        assert payloads(eu.claim(5)) == [b"EU"]
        assert payloads(orders.claim(5)) == [b"EU", b"US"]

    def test_it_is_not_lost_when_a_consumer_acks_before_it_was_given_to_subscriptions(
        self, db, orders, door
    ):
        everything = db.subscription("all", pattern="#")
        door("INSERT INTO inbox (queue, payload) VALUES ('orders', 'a')")
        orders.claim()[0].ack()
        assert payloads(everything.claim()) == [b"a"]

    def test_what_was_rolled_back_wakes_nobody_and_is_told_to_nobody(self, db, orders, door):
        seen: queues.Queue[bytes] = queues.Queue()
        db.subscribe("#", lambda m: seen.put(m.payload), id="s")
        door("INSERT INTO inbox (queue, payload) VALUES ('orders', 'undone')", commit=False)
        orders.publish(b"done")
        assert seen.get(timeout=PATIENCE) == b"done"
        assert payloads(orders.claim(5)) == [b"done"]

    def test_what_waits_can_be_read_there(self, orders, door):
        orders.publish(b"a", headers={"n": 1}, priority=2)
        assert door("SELECT queue, topic, priority FROM inbox") == [("orders", "orders", 2)]


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
        orders.publish(b"a", headers={"until": time.wall_us // 1000 + 5_000})
        assert orders.claim(filter="until < UTC()") == orders.claim(filter="until < UTC()") == []
        time.advance(SECOND * 10)
        assert payloads(orders.claim(filter="until < UTC()")) == [b"a"]


class QueueBehaviour(
    PublishBehaviour,
    ClaimBehaviour,
    FilterBehaviour,
    ExaminedBehaviour,
    GroupBehaviour,
    TidyingBehaviour,
    SubscriptionBehaviour,
    ConsumerBehaviour,
    PushBehaviour,
):
    """All of it."""
