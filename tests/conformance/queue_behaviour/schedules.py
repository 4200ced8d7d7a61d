"""Schedules: messages that are published by a cron expression."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headgate.errors import QueueNotFound, QueueOptionsError
from tests.conformance.queue_behaviour.base import MINUTE, SECOND, QueueFixtures
from tests.patience import PATIENCE

HOUR = timedelta(hours=1)


def microseconds(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


class ScheduleBehaviour(QueueFixtures):
    @pytest.fixture
    def noon(self, time):
        """The clock stands at half past noon of a day in June."""
        pytest.importorskip("cronsim")
        moment = datetime(2031, 6, 3, 12, 30, tzinfo=UTC)
        time.wall_us = microseconds(moment)
        return moment

    def test_a_run_is_published_when_it_is_due_and_once(self, db, connect, orders, noon, time):
        db.schedule("hourly", "0 * * * *", b"tick", queue="orders", headers={"kind": "tick"})
        [state] = db.schedules()
        assert state.next_at == microseconds(noon.replace(hour=13, minute=0))
        scheduler = db.scheduler()
        assert scheduler.run_once() == 1800
        assert list(orders.browse()) == []
        time.advance(30 * MINUTE)
        with connect() as other:
            for each in (scheduler, other.scheduler(), scheduler):
                assert each.run_once() == 3600
        [published] = orders.browse()
        assert published.message.payload == b"tick"
        assert dict(published.message.headers) == {
            "kind": "tick",
            "schedule": "hourly",
            "scheduled_at": microseconds(noon.replace(hour=13, minute=0)),
            "missed_runs": 0,
        }
        [state] = db.schedules()
        assert (state.runs, state.missed_runs, state.last_at) == (
            1,
            0,
            state.next_at - 3_600_000_000,
        )

    @pytest.mark.parametrize(
        ("missed", "runs", "lost"),
        [("skip", [], 4), ("one", [(16, 3)], 3), ("all", [(13, 0), (14, 0), (15, 0), (16, 0)], 0)],
    )
    def test_missed_runs_are_skipped_made_up_for_by_one_or_all_published(
        self, db, orders, noon, time, missed, runs, lost
    ):
        db.schedule("hourly", "@hourly", queue="orders", missed=missed)
        time.advance(4 * HOUR)  # half past four: 13, 14, 15 and 16 o'clock are over
        assert db.scheduler().run_once() == 1800
        expected = [(microseconds(noon.replace(hour=at, minute=0)), n) for at, n in runs]
        headers = [each.message.headers for each in orders.browse()]
        assert [(each["scheduled_at"], each["missed_runs"]) for each in headers] == expected
        [state] = db.schedules()
        assert (state.runs, state.missed_runs) == (len(runs), lost)

    def test_a_run_that_is_a_little_late_is_not_missed(self, db, orders, noon, time):
        db.schedule("hourly", "@hourly", queue="orders", missed="skip")
        time.advance(30 * MINUTE + 59 * SECOND)
        db.scheduler().run_once()
        assert len(list(orders.browse())) == 1

    def test_times_are_those_of_the_time_zone(self, db, orders, noon):
        db.schedule("berlin", "0 15 * * *", queue="orders", timezone="Europe/Berlin")  # UTC + 2
        db.schedule("tokyo", "0 15 * * *", queue="orders", timezone="Asia/Tokyo")  # UTC + 9
        times = {state.schedule.name: state.next_at for state in db.schedules()}
        assert times == {
            "berlin": microseconds(noon.replace(hour=13, minute=0)),
            "tokyo": microseconds(noon.replace(day=4, hour=6, minute=0)),
        }

    def test_a_schedule_that_is_declared_again_keeps_its_next_run_unless_its_times_change(
        self, db, orders, noon, time
    ):
        db.schedule("s", "@hourly", b"old", queue="orders")
        time.advance(HOUR)
        db.schedule("s", "@hourly", b"new", queue="orders", missed="all")
        db.scheduler().run_once()
        assert [each.message.payload for each in orders.browse()] == [b"new"]
        db.schedule("s", "0 0 * * *", b"new", queue="orders")
        [state] = db.schedules()
        assert state.next_at == microseconds(noon.replace(day=4, hour=0, minute=0))
        assert state.runs == 1

    def test_without_a_queue_the_subscriptions_that_match_get_it(self, db, orders, noon, time):
        everything = db.subscription("all", pattern="clock.#")
        db.schedule("s", "@hourly", topic="clock.hour", priority=7, group="g", key="k")
        time.advance(HOUR)
        db.scheduler().run_once()
        [delivery] = everything.claim()
        assert (delivery.message.topic, delivery.message.priority) == ("clock.hour", 7)
        assert (delivery.group, delivery.message.key) == ("g", "k")
        assert list(orders.browse()) == []

    def test_a_schedule_that_publishes_nowhere_is_refused(self, db):
        with pytest.raises(QueueOptionsError, match="say where to publish: queue, or topic"):
            db.schedule("s", "@hourly", b"x")

    def test_a_schedule_whose_queue_was_deleted_tells_its_problem_and_the_others_run(
        self, db, orders, noon, time, caplog
    ):
        db.queue("gone")
        db.schedule("a", "@hourly", queue="gone")
        db.schedule("b", "@hourly", queue="orders")
        db.delete("gone")
        time.advance(HOUR)
        db.scheduler().run_once()
        assert len(list(orders.browse())) == 1
        first, second = db.schedules()
        assert (first.runs, first.missed_runs, second.runs) == (0, 1, 1)
        assert "there is no queue" in first.problem
        assert second.problem is None

    def test_a_deleted_schedule_runs_no_more(self, db, orders, noon, time):
        db.schedule("s", "@hourly", queue="orders")
        assert db.delete_schedule("s")
        assert not db.delete_schedule("s")
        time.advance(HOUR)
        assert db.scheduler().run_once() is None
        assert list(orders.browse()) == []

    def test_an_open_scheduler_publishes_by_itself(self, db, orders, noon, time, seen):
        db.schedule("s", "* * * * * *", queue="orders")
        with (
            db.scheduler(poll=SECOND / 100),
            orders.consumer(lambda d: seen.put(d.message.headers["schedule"]), poll=SECOND / 100),
        ):
            time.advance(SECOND)
            assert seen.get(timeout=PATIENCE) == "s"

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({"cron": "61 * * * *"}, "is no cron expression"),
            ({"cron": ""}, "is no cron expression"),
            ({"cron": "0 0 31 2 *"}, "is no cron expression|never runs"),
            ({"timezone": "Mars/Olympus"}, "there is no time zone"),
            ({"timezone": "../etc/passwd"}, "there is no time zone"),
            ({"missed": "some"}, "missed is one of skip, one, all"),
            ({"headers": {"schedule": "x"}}, "set by the schedule"),
            ({"name": ""}, "the name of a schedule"),
        ],
    )
    def test_a_schedule_that_cannot_be_run_is_refused(self, db, orders, noon, options, problem):
        given = {"name": "s", "cron": "@hourly", "queue": "orders", **options}
        with pytest.raises(QueueOptionsError, match=problem):
            db.schedule(**given)
        with pytest.raises(QueueNotFound):
            db.schedule("s", "@hourly", queue="nosuch")
        assert db.schedules() == []
