"""Claims, leases and how they are settled; message groups."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headgate.errors import QueueOptionsError, StaleLease
from headgate.filters.parser import parse
from headgate.message import HeaderValue, Message
from headgate.queues.engine import Publication, State
from headgate.queues.sql.search import RejectedIds
from tests.conformance.queue_behaviour.base import MINUTE, SECOND, QueueFixtures, payloads

LEASE_US = 30_000_000


class ClaimBehaviour(QueueFixtures):
    def test_messages_are_claimed_by_priority_and_then_by_age(self, orders):
        for at, priority in enumerate([0, 5, 0, 255, 5]):
            orders.publish(b"%d" % at, priority=priority)
        assert payloads(orders.claim(10)) == [b"3", b"1", b"4", b"0", b"2"]

    def test_a_leased_message_is_not_claimed_again(self, orders):
        orders.publish_many([b"a", b"b"])
        assert payloads(orders.claim(1)) == [b"a"]
        assert payloads(orders.claim(5)) == [b"b"]
        assert orders.claim(5) == []

    def test_a_claim_takes_messages_of_its_own_queue_only(self, db, orders):
        other = db.queue("other")
        orders.publish(b"a")
        assert other.claim() == []
        assert payloads(orders.claim()) == [b"a"]

    def test_an_acked_message_is_gone(self, orders):
        orders.publish(b"a")
        orders.claim(lease=SECOND)[0].ack()
        assert list(orders.browse()) == []

    def test_a_message_whose_lease_ended_is_claimed_again_and_the_attempt_counted(
        self, orders, time
    ):
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

    def test_a_second_ack_of_a_delivery_does_nothing(self, orders):
        orders.publish(b"a")
        [delivery] = orders.claim()
        delivery.ack()
        delivery.ack()
        assert list(orders.browse()) == []

    def test_an_ack_of_a_message_that_another_consumer_has_acked_is_refused(self, orders, time):
        orders.publish_many([b"a", b"b"])
        [stale] = orders.claim(1, lease=SECOND)
        time.advance(2 * SECOND)
        [held] = orders.claim(1)
        held.ack()
        for settle in (stale.ack, lambda: orders.ack_and_claim([stale], 1)):
            with pytest.raises(StaleLease, match="settled or purged"):
                settle()
        assert stale.settled is None
        assert payloads(orders.claim(5)) == [b"b"]

    def test_an_ack_of_a_purged_message_is_refused(self, orders):
        orders.publish(b"a")
        [held] = orders.claim()
        assert orders.purge(State.LEASED) == 1
        with pytest.raises(StaleLease, match="settled or purged"):
            held.ack()

    def test_an_id_is_never_used_again_even_after_its_message_was_deleted(self, orders):
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

    def test_a_message_that_was_acked_cannot_be_settled_again(self, orders):
        orders.publish(b"a")
        [delivery] = orders.claim()
        delivery.ack()
        again = orders.delivery(delivery.id, delivery.token)
        for settle in (again.ack, again.nack, again.release, lambda: again.extend(MINUTE)):
            with pytest.raises(StaleLease):
                settle()

    def test_an_ack_after_the_end_of_the_lease_counts_unless_the_message_was_claimed_again(
        self, orders, time
    ):
        orders.publish(b"a")
        [delivery] = orders.claim(lease=SECOND)
        time.advance(MINUTE)
        delivery.ack()
        assert orders.claim() == []

    def test_a_nacked_message_is_ready_at_once_or_after_a_delay(self, orders, time):
        orders.publish(b"a")
        orders.claim()[0].nack()
        orders.claim()[0].nack(delay=10 * SECOND)
        assert orders.claim() == []
        time.advance(10 * SECOND)
        assert [d.attempts for d in orders.claim()] == [3]

    def test_a_message_nacked_without_requeue_is_a_dead_letter(self, orders):
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

    def test_numbers_that_no_engine_can_store_are_refused(self, db, orders):
        orders.publish(b"a")
        [held] = orders.claim()
        for ask in (
            lambda: orders.publish(b"b", delay=timedelta.max),
            lambda: orders.claim(lease=timedelta.max),
            lambda: orders.claim(2**31),
            lambda: orders.claim(skip=[2**63]),
            lambda: orders.peek(2**63),
            lambda: list(orders.browse(page=2**63)),
            lambda: orders.requeue([2**63]),
            lambda: orders.prune(timedelta.max),
            lambda: orders.delivery(2**63, 0).ack(),
            lambda: orders.delivery(0, -(2**63) - 1).ack(),
            lambda: held.nack(timedelta.max),
            lambda: held.extend(timedelta.max),
            lambda: db.queue("orders", max_attempts=2**31),
            lambda: db.queue("orders", max_attempts=1.5),
            lambda: db.queue("orders", dedup_window=timedelta.max),
        ):
            with pytest.raises(QueueOptionsError):
                ask()
        held.ack()

    def test_a_message_with_the_lowest_timestamp_has_an_age(self, orders, time):
        orders.publish(b"a", timestamp=-(2**63))
        assert orders.stats().oldest_ready_us > 0

    def test_a_lease_is_never_made_shorter(self, orders, time):
        orders.publish(b"a")
        [delivery] = orders.claim(lease=MINUTE)
        delivery.extend(SECOND)
        time.advance(59 * SECOND)
        assert orders.claim() == []
        delivery.extend(2 * SECOND)
        time.advance(SECOND)
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

    def test_ack_and_claim_acks_and_claims_in_one_call(self, orders):
        orders.publish_many([b"a", b"b"])
        first = orders.claim(1)
        second = orders.ack_and_claim(first, 1)
        assert payloads(second) == [b"b"]
        assert orders.ack_and_claim(second, 1) == []
        assert list(orders.browse()) == []

    def test_ack_and_claim_with_a_stale_lease_raises_and_leases_nothing(self, orders, time):
        orders.publish_many([b"a", b"b"])
        stale = orders.claim(1, lease=SECOND)
        time.advance(MINUTE)
        assert payloads(orders.claim(1)) == [b"a"]
        with pytest.raises(StaleLease):
            orders.ack_and_claim(stale, 1)
        assert [delivery.settled for delivery in stale] == [None]
        assert payloads(orders.claim(5)) == [b"b"]

    def test_ack_and_claim_skips_deliveries_that_are_acked_already(self, orders, time):
        orders.publish_many([b"a", b"b"])
        [first] = orders.claim(1)
        first.ack()
        [second] = orders.ack_and_claim([first], 1)
        assert (first.settled, second.message.payload) == ("acked", b"b")

    def test_ack_and_claim_acks_deliveries_of_several_claims(self, orders, time):
        orders.publish_many([b"a", b"b", b"c", b"d"])
        [stale] = orders.claim(1, lease=SECOND)
        [second] = orders.claim(1, lease=MINUTE)
        third = orders.claim(1, lease=MINUTE)
        assert payloads(orders.ack_and_claim([*third, second], 1, MINUTE)) == [b"d"]
        time.advance(2 * SECOND)
        [held] = orders.claim(1, lease=MINUTE)
        assert held.id == stale.id
        with pytest.raises(StaleLease):
            orders.ack_and_claim([orders.delivery(stale.id, stale.token)], 1)
        assert len(list(orders.browse())) == 2

    def test_one_claim_returns_messages_of_all_sizes_in_order(self, orders):
        sizes = [0, 1, 3_000_000, 1_000, 2_000_000]
        for size in sizes:
            orders.publish(b"x" * size)
        orders.publish(b"headers", headers={"long": "y" * 3_000_000})
        orders.publish(b"first", priority=1)
        first, *others, last = orders.claim(100)
        assert first.message.payload == b"first"
        assert [len(one.message.payload) for one in others] == sizes
        assert last.message.headers == {"long": "y" * 3_000_000}
        assert orders.ack_and_claim([first, *others, last], 100) == []

    def test_skipped_ids_are_not_claimed(self, orders):
        first, second = orders.publish_many([b"a", b"b"])
        assert payloads(orders.claim(5, skip=[first])) == [b"b"]
        assert second > first

    @pytest.mark.parametrize("filter", [None, "type = 'a'", "type IN ('a', 'b')", "colour = 'red'"])
    def test_many_skipped_ids_are_not_claimed(self, db, orders, filter):
        headers = {"type": "a", "colour": "red"}
        ids = orders.publish_many([Message(b"no", headers=headers)] * 1_200)
        skip = RejectedIds(ids)
        assert orders.claim(filter=filter, skip=ids) == []

        def claim() -> list[bytes]:
            claimed, _ = db.engine.run(
                db.engine.operations.claim(
                    orders.info, 3, LEASE_US, filter=filter and parse(filter), skip=skip
                )
            )
            return [one.message.payload for one in claimed]

        assert claim() == []
        orders.publish_many(Message(b"%d" % at, headers=headers) for at in range(5))
        assert claim() == [b"0", b"1", b"2"]
        orders.publish(b"urgent", headers=headers, priority=9)
        assert sorted(claim() + claim()) == [b"3", b"4", b"urgent"]
        assert claim() == []

    def test_a_limit_or_lease_of_zero_is_refused(self, orders):
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

    def claim_together(self, db, orders, limit=10):
        """Claim several messages as one consumer does."""
        operation = db.engine.operations.claim(orders.info, limit, LEASE_US, together=True)
        claimed, _ = db.engine.run(operation)
        return [(one.message.payload, one.attempts) for one in claimed]

    def test_a_consumer_that_dies_while_it_holds_several_messages_counts_as_an_attempt_for_none(
        self, db, orders, time
    ):
        orders.publish_many([b"a", b"b", b"c"])
        assert self.claim_together(db, orders) == [(b"a", 1), (b"b", 1), (b"c", 1)]
        time.advance(MINUTE)
        assert self.claim_together(db, orders) == [(b"a", 1)]
        assert self.claim_together(db, orders) == [(b"b", 1)]
        assert self.claim_together(db, orders) == [(b"c", 1)]
        assert self.claim_together(db, orders) == []

    def test_a_message_that_kills_its_consumers_is_a_dead_letter_and_its_neighbours_are_not(
        self, db, orders, time
    ):
        given: list[bytes] = []
        orders.publish_many([b"a", b"poison", b"b"])
        while claimed := db.engine.run(
            db.engine.operations.claim(orders.info, 10, LEASE_US, together=True)
        )[0]:
            for one in claimed:
                given.append(one.message.payload)
                if one.message.payload == b"poison":
                    time.advance(MINUTE)  # the consumer is dead
                    break
                orders.delivery(one.id, one.token).ack()
        assert [(dead.message.payload, dead.attempts) for dead in orders.dead()] == [(b"poison", 3)]
        assert list(orders.browse(state=State.READY)) == []
        assert sorted(given) == [b"a", b"b", *[b"poison"] * 4]

    def test_the_attempt_is_counted_when_a_consumer_dies_while_it_holds_one_message(
        self, db, orders, time
    ):
        orders.publish(b"a")
        for attempt in (1, 2, 3):
            assert self.claim_together(db, orders) == [(b"a", attempt)]
            time.advance(MINUTE)
        assert self.claim_together(db, orders) == []
        assert [dead.attempts for dead in orders.dead()] == [3]

    def test_a_suspect_message_is_claimed_alone_and_in_order(self, db, orders, time):
        orders.publish_many([b"a", b"b"])
        self.claim_together(db, orders)
        time.advance(MINUTE)
        orders.publish_many([Message(b"urgent", priority=9), b"c", b"d"])
        assert self.claim_together(db, orders) == [(b"urgent", 1)]
        assert self.claim_together(db, orders) == [(b"a", 1)]
        assert self.claim_together(db, orders) == [(b"b", 1)]
        assert self.claim_together(db, orders) == [(b"c", 1), (b"d", 1)]

    def test_messages_that_were_leased_together_are_found_by_a_filter_without_an_index(
        self, db, orders, time
    ):
        orders.publish_many(Message(name, headers={"colour": "red"}) for name in (b"a", b"b"))
        for found in ([b"a", b"b"], [b"a"], [b"b"]):
            claimed, _ = db.engine.run(
                db.engine.operations.claim(
                    orders.info, 10, LEASE_US, filter=parse("colour = 'red'"), together=True
                )
            )
            assert [(one.message.payload, one.attempts) for one in claimed] == [
                (name, 1) for name in found
            ]
            if len(found) == 2:
                time.advance(MINUTE)

    @pytest.mark.parametrize("filter", [None, "colour = 'red'"])
    def test_a_claim_finds_a_due_message_behind_many_dead_ones(self, db, time, filter):
        once = db.queue("once", max_attempts=1)
        once.publish_many([Message(b"dying", headers={"colour": "red"})] * 1_100)
        assert len(once.claim(2_000, MINUTE)) == 1_100
        once.publish(b"wanted", headers={"colour": "red"}, delay=MINUTE + SECOND)
        time.advance(2 * MINUTE)
        assert payloads(once.claim(filter=filter)) == [b"wanted"]

    def test_no_message_of_a_paused_queue_falls_due(self, db, orders, time):
        due_in = lambda: db.engine.run(db.engine.operations.next_due(orders.info))  # noqa: E731
        orders.publish(b"a", delay=MINUTE)
        assert due_in() == 60_000_000
        time.advance(MINUTE)
        assert due_in() == 0
        orders.pause()
        assert due_in() is None
        orders.resume()
        assert due_in() == 0

    def test_a_message_that_fails_too_often_becomes_a_dead_letter(self, orders):
        orders.publish(b"a")
        for _ in range(3):
            orders.claim()[0].nack(reason="broken")
        assert orders.claim() == []
        assert [dead.reason for dead in orders.dead()] == ["broken"]

    def test_a_queue_without_a_limit_of_attempts_has_no_dead_letters(self, db):
        queue = db.queue("patient", max_attempts=0)
        queue.publish(b"a")
        for _ in range(20):
            queue.claim()[0].nack()
        assert [d.attempts for d in queue.claim()] == [21]

    def test_delayed_and_leased_messages_do_not_delay_others(self, orders):
        orders.publish_many([Publication(Message(b"z", priority=255), delay_us=10**9)] * 50)
        orders.publish(b"a")
        assert payloads(orders.claim(5)) == [b"a"]


class GroupBehaviour(QueueFixtures):
    def test_a_group_has_one_leased_message_at_a_time(self, orders):
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

    @pytest.mark.parametrize("filter", [None, "region = 'EU'", "colour = 'red'"])
    def test_a_group_goes_on_with_the_claim_that_acks(self, orders, filter):
        headers = {"region": "EU", "colour": "red"}
        orders.publish_many(
            Publication(Message(b"%d" % at, headers=headers), group="g") for at in range(4)
        )
        seen, held = [], []
        while held := orders.ack_and_claim(held, 2, filter=filter):
            seen += payloads(held)
        assert seen == [b"0", b"1", b"2", b"3"]

    def test_a_message_that_waits_for_its_retry_blocks_its_group(self, orders, time):
        orders.publish_many(Publication(Message(b"%d" % at), group="g") for at in range(2))
        orders.claim()[0].nack(delay=MINUTE)
        assert orders.claim() == []
        time.advance(MINUTE)
        assert payloads(orders.claim()) == [b"0"]

    def test_a_message_that_does_not_match_does_not_block_its_group(self, orders):
        orders.publish(b"eu", group="g", headers={"region": "EU"})
        orders.publish(b"us", group="g", headers={"region": "US"})
        assert payloads(orders.claim(10, filter="region = 'US'")) == [b"us"]
        assert orders.claim(10) == []

    def test_a_dead_letter_does_not_block_its_group(self, orders):
        orders.publish_many(Publication(Message(b"%d" % at), group="g") for at in range(2))
        orders.claim()[0].nack(requeue=False)
        assert payloads(orders.claim()) == [b"1"]

    def test_groups_of_different_queues_are_independent(self, db, orders):
        other = db.queue("other")
        orders.publish(b"a", group="g")
        other.publish(b"b", group="g")
        orders.claim()
        assert payloads(other.claim()) == [b"b"]


class AsideBehaviour(QueueFixtures):
    """Groups as GroupBehaviour, where claims set members of busy groups aside as soon as they see one."""

    @pytest.fixture(autouse=True)
    def eager(self, monkeypatch):
        monkeypatch.setattr("headgate.queues.sql.groups._MOST_CLAIMS_BETWEEN_LOOKS", 0)
        monkeypatch.setattr("headgate.queues.sql.groups._IN_THE_WAY", 1)

    @pytest.fixture
    def busy(self, orders):
        """The first of five members of a group, leased; the others are aside, a sixth is not."""
        orders.publish_many(
            Publication(Message(b"%d" % at, headers=_region(at)), group="g") for at in range(5)
        )
        [first] = orders.claim(1)
        assert orders.claim(10) == []
        orders.publish(b"5", group="g", headers=_region(5))
        return first

    @pytest.mark.parametrize("settle", ["ack", "nack", "bury", "release", "expire"])
    def test_a_group_goes_on_in_order_whatever_ends_its_lease(self, orders, busy, time, settle):
        match settle:
            case "bury":
                busy.nack(requeue=False)
            case "expire":
                time.advance(MINUTE)
            case _:
                getattr(busy, settle)()
        seen = []
        while found := orders.claim(10):
            seen += payloads(found)
            found[0].ack()
        again = [] if settle in ("ack", "bury") else [b"0"]
        assert seen == [*again, b"1", b"2", b"3", b"4", b"5"]

    def test_a_retry_goes_before_what_is_aside(self, orders, busy, time):
        busy.nack(delay=SECOND)
        assert orders.claim(10) == []
        time.advance(SECOND)
        [again] = orders.claim(10)
        assert again.message.payload == b"0"
        again.ack()
        assert payloads(orders.claim(10)) == [b"1"]

    @pytest.mark.parametrize("filter", ["region = 'US'", "colour = 'US'", "NOT region = 'EU'"])
    def test_a_filter_finds_what_is_aside_in_order(self, orders, busy, filter):
        assert orders.claim(10, filter=filter) == []
        busy.ack()
        seen = []
        while found := orders.claim(10, filter=filter):
            seen += payloads(found)
            found[0].ack()
        assert seen == [b"1", b"3", b"5"]
        while found := orders.claim(10):
            seen += payloads(found)
            found[0].ack()
        assert seen[3:] == [b"2", b"4"]

    def test_what_a_consumer_skips_does_not_hide_what_is_aside(self, db, orders, busy):
        first = busy.id
        busy.ack()
        engine, claim = db.engine, db.engine.operations.claim
        for many in (RejectedIds([first + 1, *range(10**6, 10**6 + 1_500)]), [first + 1]):
            claimed, _ = engine.run(claim(orders.info, 1, LEASE_US, skip=many))
            assert [one.message.payload for one in claimed] == [b"2"]
            engine.run(engine.operations.release(orders.info, [one.receipt for one in claimed]))

    def test_what_is_aside_is_counted_peeked_and_purged(self, orders, busy):
        assert orders.stats().ready == 5
        busy.ack()
        assert [each.message.payload for each in orders.peek(10)] == [
            b"%d" % n for n in range(1, 6)
        ]
        orders.publish(b"last", group="g")
        assert orders.purge() == 6
        orders.publish(b"new", group="g")
        assert payloads(orders.claim(10)) == [b"new"]

    def test_others_are_claimed_while_a_group_is_busy(self, orders, busy):
        orders.publish(b"other", group="h")
        orders.publish(b"free")
        orders.publish(b"urgent", priority=9, group="g")
        assert payloads(orders.claim(10)) == [b"other", b"free"]
        busy.ack()
        assert payloads(orders.claim(10)) == [b"urgent"]


def _region(at: int) -> dict[str, HeaderValue]:
    region = "US" if at % 2 else "EU"
    return {"region": region, "colour": region}
