"""Which runs of a schedule are due."""

from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("cronsim")

from headgate.queues.engine import Schedule
from headgate.queues.schedules import MOST_RUNS, due_runs, next_run

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = 60_000_000


def at(*moment: int) -> int:
    return (datetime(*moment, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


def text(time_us: int) -> str:
    return (EPOCH + timedelta(microseconds=time_us)).strftime("%m-%d %H:%M")


def test_a_time_that_the_clock_skips_in_spring_comes_at_the_next_one():
    berlin = Schedule(name="s", cron="30 2 * * *", timezone="Europe/Berlin")
    assert text(next_run(berlin, at(2026, 3, 28, 12))) == "03-29 01:00"  # 3:00 in summer time
    assert text(next_run(berlin, at(2026, 3, 29, 12))) == "03-30 00:30"


def test_a_time_that_comes_twice_in_autumn_runs_once():
    berlin = Schedule(name="s", cron="30 2 * * *", timezone="Europe/Berlin")
    first = next_run(berlin, at(2026, 10, 24, 12))
    assert text(first) == "10-25 00:30"
    assert text(next_run(berlin, first)) == "10-26 01:30"


def test_a_run_at_the_very_microsecond_is_due_and_the_next_one_comes_after_it():
    minutely = Schedule(name="s", cron="* * * * *")
    now = at(2030, 1, 1)
    assert due_runs(minutely, now, now) == ([now], 0, now + MINUTE)
    assert due_runs(minutely, now + 1, now) == ([], 0, now + 1)


def test_all_runs_are_published_in_portions():
    minutely = Schedule(name="s", cron="* * * * *", missed="all")
    first, now = at(2030, 1, 1), at(2030, 1, 2)
    times, next_at = [], first
    while next_at <= now:
        due = due_runs(minutely, next_at, now)
        assert 0 < len(due.times) <= MOST_RUNS
        times, next_at = times + due.times, due.next_at
    assert times == [first + n * MINUTE for n in range(1441)]


def test_after_years_without_a_scheduler_the_runs_that_were_missed_are_counted_up_to_a_bound():
    minutely = Schedule(name="s", cron="* * * * *")
    due = due_runs(minutely, at(2020, 1, 1), at(2030, 1, 1))
    assert due.times == [at(2030, 1, 1)]
    assert due.missed == 100_001
