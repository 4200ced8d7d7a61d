"""Consumers, their handlers and their groups."""

from __future__ import annotations

import logging
import queue as queues
import sys
from asyncio import CancelledError
from threading import Barrier, Event, Thread

import pytest

from headgate.errors import QueueOptionsError
from headgate.message import Message
from headgate.queues import Delivery, HandlerReport, Member, Retry, State
from tests.conformance.queue_behaviour.base import MINUTE, SECOND, QueueFixtures, payloads
from tests.patience import PATIENCE, wait_until


class ConsumerBehaviour(QueueFixtures):
    @pytest.mark.parametrize("mode", ["notify", "poll", "hybrid"])
    def test_a_handler_that_returns_acks(self, orders, mode, seen):
        orders.publish(b"before")
        with orders.consumer(lambda d: seen.put(d.message.payload), mode=mode, poll=SECOND / 100):
            assert seen.get(timeout=PATIENCE) == b"before"
            orders.publish(b"after")
            assert seen.get(timeout=PATIENCE) == b"after"
        assert list(orders.browse()) == []

    def test_a_consumer_takes_one_message_of_a_group_after_the_other_without_polling(
        self, orders, seen
    ):
        for at in range(4):
            orders.publish(b"%d" % at, group="g")
        with orders.consumer(lambda d: seen.put(d.message.payload), mode="notify"):
            assert [seen.get(timeout=PATIENCE) for _ in range(4)] == [b"0", b"1", b"2", b"3"]

    def test_consumers_that_come_too_late_miss_nothing_without_polling(self, connect, orders, seen):
        def handle(delivery):
            seen.put(delivery.message.payload)

        with (
            connect() as second,
            connect() as third,
            second.find("orders").consumer(handle, mode="notify", threads=2),
            third.find("orders").consumer(handle, mode="notify", threads=2) as last,
        ):
            for at in range(40):
                if at == 30:
                    last.close()
                payloads = {b"%d.%d" % (at, n) for n in range(1 + at % 3)}
                for payload in payloads:
                    orders.publish(payload)
                assert {seen.get(timeout=PATIENCE) for _ in payloads} == payloads

    @pytest.mark.parametrize("settle", [lambda d: d.ack(), lambda d: d.nack(requeue=False)])
    def test_a_consumer_is_woken_when_a_group_becomes_free(self, orders, seen, settle):
        for payload in (b"1", b"2"):
            orders.publish(payload, group="g")
        [first] = orders.claim()
        orders.publish(b"free")
        with orders.consumer(lambda d: seen.put(d.message.payload), mode="notify"):
            assert seen.get(timeout=PATIENCE) == b"free"
            wait_until(lambda: len(list(orders.browse())) == 2)  # acked by a claim of nothing
            settle(first)
            assert seen.get(timeout=PATIENCE) == b"2"

    def test_a_consumer_is_woken_when_others_make_a_due_message_ready(self, orders, time, seen):
        """It may have met the message while they had it locked, and found nothing."""
        orders.publish(b"late", delay=MINUTE)
        orders.publish(b"now")
        with orders.consumer(lambda d: seen.put(d.message.payload), mode="notify"):
            assert seen.get(timeout=PATIENCE) == b"now"
            wait_until(lambda: len(list(orders.browse())) == 1)
            time.advance(MINUTE)
            assert orders.claim(filter="region = 'EU'") == []
            assert seen.get(timeout=PATIENCE) == b"late"

    def test_a_handler_that_raises_nacks_with_a_growing_delay(self, orders, time, seen):

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

    def test_characters_that_no_database_stores_are_escaped_in_the_reason_of_a_failure(
        self, orders, caplog, seen
    ):
        caplog.set_level(logging.CRITICAL, "headgate")  # no report can hold what would be logged

        def fail(delivery: Delivery) -> None:
            seen.put(delivery.message.payload)
            raise ValueError("a\0b\ud800c")

        orders.publish_many([b"a", b"b"])
        with orders.consumer(fail):
            assert [seen.get(timeout=PATIENCE) for _ in range(2)] == [b"a", b"b"]
        reasons = [waiting.reason for waiting in orders.browse(state=State.DELAYED)]
        assert reasons == [r"ValueError: a\x00b\ud800c"] * 2

    def test_names_that_no_database_stores_are_refused(self, db, orders):
        for name in ("", "a\0b", "\ud800"):
            with pytest.raises(QueueOptionsError, match="name"):
                db.queue(name)
            with pytest.raises(QueueOptionsError, match="name"):
                orders.consumer(print, name=name)
            with pytest.raises(QueueOptionsError, match="dedup_key"):
                orders.publish(b"a", dedup_key=name)
            with pytest.raises(QueueOptionsError, match="group"):
                orders.publish(b"a", group=name)

    def test_a_handled_message_is_acked_while_the_handler_is_busy_with_the_next(self, orders):
        begun: queues.Queue[int] = queues.Queue()
        go_on: queues.Queue[None] = queues.Queue()

        def slow_at_last(delivery: Delivery) -> None:
            if delivery.message.payload == b"slow":
                begun.put(delivery.id)
                go_on.get(timeout=PATIENCE)

        orders.publish_many([b"quick"] * 9 + [b"slow"])
        with orders.consumer(slow_at_last):
            begun.get(timeout=PATIENCE)
            wait_until(lambda: [s.message.payload for s in orders.browse()] == [b"slow"])
            go_on.put(None)
        assert list(orders.browse()) == []

    @pytest.mark.parametrize(
        "ends", [SystemExit(3), CancelledError(), KeyboardInterrupt()], ids=repr
    )
    def test_a_handler_that_raises_system_exit_has_failed_and_the_next_message_is_handled(
        self, orders, caplog, ends, seen
    ):
        if isinstance(ends, KeyboardInterrupt) and orders.__module__.endswith("aio"):
            pytest.skip("Ctrl-C in a task ends the loop, loudly")

        def end_at_first(delivery: Delivery) -> None:
            if delivery.message.payload == b"ends":
                raise ends
            seen.put(delivery.message.payload)

        orders.publish_many([b"ends", b"next"])
        with orders.consumer(end_at_first, retry=Retry(first=MINUTE)):
            assert seen.get(timeout=PATIENCE) == b"next"
        [failed] = orders.browse()
        assert (failed.state, failed.attempts) == (State.DELAYED, 1)
        assert type(ends).__name__ in failed.reason
        assert "handler failed" in caplog.text

    def test_a_predicate_that_raises_system_exit_rejects_the_message(self, orders, seen):

        def wants(message: Message) -> bool:
            return message.payload == b"yes" or sys.exit("not mine")

        orders.publish_many([b"no", b"yes"])
        with orders.consumer(lambda d: seen.put(d.message.payload), predicate=wants):
            assert seen.get(timeout=PATIENCE) == b"yes"

    @pytest.mark.parametrize("elsewhere", [False, True])
    def test_a_consumer_of_a_resumed_queue_gets_the_messages_that_fell_due(
        self, connect, orders, time, elsewhere, seen
    ):
        orders.publish(b"a", delay=MINUTE)
        orders.pause()
        time.advance(MINUTE)
        with orders.consumer(lambda d: seen.put(d.message.payload), mode="notify"):
            with connect() as other:
                (other.queue("orders") if elsewhere else orders).resume()
            assert seen.get(timeout=PATIENCE) == b"a"

    def test_a_consumer_gets_the_messages_its_filter_matches(self, orders, seen):
        with orders.consumer(
            lambda d: seen.put(d.message.payload), filter="region IN ('EU', 'US')"
        ):
            for region in ("APAC", "EU", "US"):
                orders.publish(region.encode(), headers={"region": region})
            assert {seen.get(timeout=PATIENCE), seen.get(timeout=PATIENCE)} == {b"EU", b"US"}
        assert [s.message.payload for s in orders.peek()] == [b"APAC"]

    def test_a_message_that_a_predicate_rejects_has_no_attempts_and_is_never_dead(
        self, orders, seen
    ):
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

    def test_threads_share_the_messages_and_none_is_handled_twice(self, orders, seen):
        names = [b"%d" % at for at in range(200)]
        orders.publish_many(names)
        with orders.consumer(lambda d: seen.put(d.message.payload), threads=3, batch=7):
            found = [seen.get(timeout=PATIENCE) for _ in names]
        assert sorted(found) == sorted(names)
        assert list(orders.browse()) == []

    def test_a_group_offers_a_message_to_the_next_member_that_accepts_it(self, orders, seen):

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

    def test_a_round_robin_group_calls_every_member_in_turn(self, orders, seen):
        members = [Member(id, lambda d, id=id: seen.put(id)) for id in "ABC"]
        orders.publish_many([b"x"] * 9)
        with orders.consumer_group(members):
            assert sorted(seen.get(timeout=PATIENCE) for _ in range(9)) == [*"AAABBBCCC"]

    def test_a_sticky_group_gives_a_key_always_to_the_same_member(self, orders, seen):
        members = [Member(id, lambda d, id=id: seen.put((d.message.key, id))) for id in "ABC"]
        orders.publish_many(Message(b"", key=f"k{at % 10}") for at in range(60))
        with orders.consumer_group(members, strategy="sticky"):
            found = {seen.get(timeout=PATIENCE) for _ in range(60)}
        assert len(found) == 10

    def test_a_handler_may_settle_its_message(self, orders, seen):

        def later(delivery: Delivery) -> None:
            delivery.nack(delay=MINUTE)
            seen.put(delivery.id)

        orders.publish(b"a")
        with orders.consumer(later):
            seen.get(timeout=PATIENCE)
        assert [s.state for s in orders.browse()] == [State.DELAYED]

    def test_a_consumer_extends_the_leases_of_running_handlers(self, orders, time):
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

    def test_leases_are_extended_while_closing_waits_for_a_handler(self, orders, time, seen):
        go_on = Event()

        def slow(delivery: Delivery) -> None:
            seen.put(delivery.id)
            assert go_on.wait(PATIENCE)

        orders.publish(b"a")
        consumer = orders.consumer(slow, lease=SECOND / 4)
        consumer.start()
        seen.get(timeout=PATIENCE)
        closing = Thread(target=consumer.close)
        closing.start()
        for _ in range(3):
            end = next(orders.browse()).visible_at
            time.advance(SECOND / 8)
            wait_until(lambda end=end: next(orders.browse()).visible_at > end)
        go_on.set()
        closing.join(PATIENCE)
        assert list(orders.browse()) == []

    def test_a_handler_that_takes_too_long_has_failed_and_the_next_message_is_handled(
        self, orders, seen, caplog
    ):
        go_on, returned = Event(), Event()

        def hang_at_first(delivery: Delivery) -> None:
            if delivery.message.payload == b"hangs":
                go_on.wait(PATIENCE)
                returned.set()
            else:
                seen.put((delivery.message.payload, delivery.attempts))

        orders.publish_many([b"hangs", b"a", b"b"])
        with orders.consumer(hang_at_first, timeout=SECOND / 50, retry=Retry(first=MINUTE)):
            assert seen.get(timeout=PATIENCE) == (b"a", 1)
            assert seen.get(timeout=PATIENCE) == (b"b", 1)
        assert not returned.is_set()  # closing did not wait for it
        [failed] = orders.browse()
        assert (failed.message.payload, failed.state, failed.attempts) == (
            b"hangs",
            State.DELAYED,
            1,
        )
        assert failed.reason == "TimeoutError: the handler has not returned within 0.02 s"
        assert "handler failed" in caplog.text
        go_on.set()
        assert returned.wait(PATIENCE)
        assert [(each.state, each.attempts) for each in orders.browse()] == [(State.DELAYED, 1)]

    def test_a_handler_that_always_hangs_makes_a_dead_letter(self, orders, time):
        go_on = Event()
        orders.publish(b"hangs")
        options = {"timeout": SECOND / 50, "retry": Retry(first=SECOND)}
        with orders.consumer(lambda d: go_on.wait(PATIENCE), poll=SECOND / 100, **options):
            for attempts in (1, 2):
                wait_until(
                    lambda n=attempts: (
                        next(orders.browse()).attempts == n
                        and next(orders.browse()).state == State.DELAYED
                    )
                )
                time.advance(MINUTE)
            wait_until(lambda: list(orders.dead()) != [])
        go_on.set()
        [dead] = orders.dead()
        assert (dead.attempts, dead.reason[:13]) == (3, "TimeoutError:")

    def test_a_stopped_consumer_gives_back_what_it_holds(self, orders, seen):
        go_on = Event()

        def slow(delivery: Delivery) -> None:
            seen.put(delivery.message.payload)
            go_on.wait(PATIENCE)

        orders.publish_many([b"a", b"b", b"c"])
        consumer = orders.consumer(slow, threads=2, batch=2)
        consumer.start()
        assert {seen.get(timeout=PATIENCE), seen.get(timeout=PATIENCE)} == {b"a", b"c"}
        consumer.stop()
        assert [(s.state, s.attempts) for s in orders.browse()] == [(State.READY, 0)] * 3
        go_on.set()
        assert seen.empty()
        assert payloads(orders.claim(9)) == [b"a", b"b", b"c"]

    def test_draining_handles_what_is_ready_and_ends(self, orders, seen):
        orders.publish_many([b"%d" % at for at in range(50)])
        orders.publish(b"later", delay=MINUTE)
        orders.consumer(lambda d: seen.put(d.message.payload), threads=3, batch=4).drain()
        assert {seen.get_nowait() for _ in range(50)} == {b"%d" % at for at in range(50)}
        assert [s.message.payload for s in orders.browse()] == [b"later"]

    def test_an_observer_is_told_what_became_of_every_message(self, orders, seen, caplog):
        def handle(delivery: Delivery) -> None:
            if delivery.message.payload == b"bad":
                raise ValueError("no")

        def observe(report: HandlerReport) -> None:
            seen.put((report.queue, report.topic, report.attempts, report.outcome, report.problem))
            raise RuntimeError("a broken observer")

        orders.publish_many([b"good", Message(b"bad", "orders.bad")])
        orders.consumer(handle, observer=observe).drain()
        assert seen.get_nowait() == ("orders", "orders", 1, "done", None)
        *facts, problem = seen.get_nowait()
        assert facts == ["orders", "orders.bad", 1, "failed"]
        assert repr(problem) == "ValueError('no')"
        assert [s.message.payload for s in orders.browse()] == [b"bad"]
        assert "the observer failed" in caplog.text

    def test_statistics_tell_what_a_consumer_did(self, orders, seen):
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

    def test_a_consumer_is_woken_by_a_publish_from_another_connection(self, connect, orders, seen):
        with (
            connect() as elsewhere,
            orders.consumer(lambda d: seen.put(d.message.payload), mode="notify"),
        ):
            for name in (b"a", b"b"):
                elsewhere.queue("orders").publish(name)
                assert seen.get(timeout=PATIENCE) == name

    def test_a_consumer_of_a_subscription_is_woken(self, db, orders, seen):
        subscription = db.subscription("s", pattern="#")
        with subscription.consumer(lambda d: seen.put(d.message.payload), mode="notify"):
            orders.publish(b"a")
            assert seen.get(timeout=PATIENCE) == b"a"

    def test_an_unknown_mode_or_strategy_is_refused(self, orders):
        with pytest.raises(QueueOptionsError, match="hybrid"):
            orders.consumer(print, mode="sometimes")
        with pytest.raises(QueueOptionsError, match="round_robin"):
            orders.consumer_group([Member("a", print)], strategy="best")
        with pytest.raises(QueueOptionsError, match="timeout"):
            orders.consumer(print, timeout=SECOND * 0)
        with pytest.raises(QueueOptionsError, match="jitter"):
            Retry(jitter=2)

    def test_a_message_makes_few_empty_claims_however_many_threads_wait(self, orders, seen):
        threads, messages = 16, 12
        with orders.consumer(lambda d: seen.put(d.message.payload), mode="notify", threads=threads):
            for n in range(messages):
                orders.publish(b"%d" % n)
                assert seen.get(timeout=PATIENCE) == b"%d" % n
        usage = orders.stats().usage["consumer"]
        # Two a message, where all were woken 16; each thread claims at the beginning and as the last one before it ends.
        assert usage.empty_claims <= 3 * messages + 3 * threads

    def test_one_commit_of_several_messages_wakes_as_many_threads(self, orders):
        together = Barrier(4)
        with orders.consumer(lambda d: together.wait(PATIENCE), mode="notify", threads=8, batch=1):
            orders.publish_many([b"a", b"b", b"c", b"d"])
            wait_until(lambda: list(orders.browse()) == [])

    def test_consumers_with_different_filters_are_all_woken(self, orders, seen):
        def consumer(**options):
            return orders.consumer(lambda d: seen.put(d.message.payload), mode="notify", **options)

        with (
            consumer(filter="region = 'EU'", threads=2),
            consumer(filter="region = 'US'", threads=2),
            consumer(filter="region = 'APAC'", predicate=lambda m: m.priority > 0),
            consumer(filter="region = 'APAC'", predicate=lambda m: m.priority == 0),
        ):
            for _ in range(3):
                for region, priority in (("EU", 0), ("US", 0), ("APAC", 0), ("APAC", 1)):
                    payload = f"{region} {priority}".encode()
                    orders.publish(payload, headers={"region": region}, priority=priority)
                    assert seen.get(timeout=PATIENCE) == payload

    def test_the_end_of_a_consumer_leaves_its_wake_up_to_another(self, orders, seen):
        def consumer():
            return orders.consumer(lambda d: seen.put(d.message.payload), mode="notify", threads=2)

        with consumer():
            for n in range(10):
                with consumer():
                    orders.publish(b"%d" % n)
                assert seen.get(timeout=PATIENCE) == b"%d" % n
