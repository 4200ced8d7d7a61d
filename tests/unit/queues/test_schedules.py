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


@pytest.mark.parametrize("missed", ["one", "skip", "all"])
def test_in_the_hour_that_comes_twice_the_next_run_is_never_one_that_was(missed):
    berlin = Schedule(name="s", cron="30 2 * * *", timezone="Europe/Berlin", missed=missed)
    first = at(2026, 10, 25, 0, 30)
    again = at(2026, 10, 25, 1, 10)  # 2:10 for the second time
    assert text(next_run(berlin, again)) == "10-26 01:30"
    due = due_runs(berlin, first, again)
    assert due.times == ([] if missed == "skip" else [first])
    assert text(due.next_at) == "10-26 01:30"


def test_of_runs_that_were_missed_around_the_hour_that_comes_twice_the_last_is_published():
    york = Schedule(name="s", cron="15 1,2,3 * * *", timezone="America/New_York")
    due = due_runs(york, at(2026, 10, 31, 6, 15), at(2026, 11, 1, 6, 14))
    assert list(map(text, due.times)) == ["11-01 05:15"]
    assert due.missed == 2
    assert text(due.next_at) == "11-01 07:15"


def test_a_clock_that_goes_back_half_an_hour_hides_no_run():
    howe = Schedule(name="s", cron="45 */2 * * *", timezone="Australia/Lord_Howe")
    due = due_runs(howe, at(2026, 4, 4, 11, 45), at(2026, 4, 4, 15, 16))
    assert list(map(text, due.times)) == ["04-04 13:45"]
    assert due.missed == 1


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
