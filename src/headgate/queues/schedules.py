"""Schedules: messages that are published repeatedly, by a cron expression; and which of their runs are due.

A schedule is a row in the database, with the time of its next run. A scheduler publishes what is due and sets the time of the
next run in one transaction that locks the row: so any number of schedulers may run, and each run is published once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from headgate.errors import QueueNotFound, QueueOptionsError
from headgate.message import HeaderValue
from headgate.queues.engine import Operation, Publication, Schedule, ScheduleState
from headgate.queues.operations import Operations
from headgate.queues.sql.publish import check_is_queue

if TYPE_CHECKING:
    from cronsim import CronSim

_log = logging.getLogger(__name__)

MISSED: Final = ("skip", "one", "all")
# Headers of a message that a schedule has published: its name, the time of the run, and how many runs before it were missed.
HEADERS: Final = ("schedule", "scheduled_at", "missed_runs")
LATE_US: Final = 60_000_000  # a run that is published within this time is not missed
MOST_RUNS: Final = 1000  # of one schedule that are published in one transaction
MOST_DUE: Final = 100  # schedules that run in one transaction
_MOST_COUNTED: Final = 100_000  # missed runs
_WORDS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class DueRuns(NamedTuple):
    """The runs of a schedule to publish now, how many are given up, and when it runs next."""

    times: list[int]
    missed: int
    next_at: int


# ---- deciding --------------------------------------------------------------------------------------------


def check_schedule(schedule: Schedule) -> Schedule:
    """Return the schedule; refuse one whose time zone or cron expression is invalid, or that never runs."""
    if schedule.missed not in MISSED:
        raise QueueOptionsError(f"missed is one of {', '.join(MISSED)}, not {schedule.missed!r}")
    taken = [name for name in HEADERS if name in schedule.publication.message.headers]
    if taken:
        raise QueueOptionsError(
            f"the header {taken[0]!r} is set by the schedule; choose another name"
        )
    if schedule.queue is None and not schedule.publication.message.topic:
        raise QueueOptionsError(
            "say where to publish: queue, or topic for the subscriptions that match it"
        )
    next_run(schedule, 0)
    return schedule


def next_run(schedule: Schedule, after_us: int) -> int:
    """Return the time of the first run after that time."""
    return next(_runs(schedule, after_us))


def due_runs(schedule: Schedule, next_at: int, now_us: int) -> DueRuns:
    """Decide which of the runs from `next_at` until now to publish."""
    if next_at > now_us:
        return DueRuns([], 0, next_at)
    if schedule.missed == "all":
        times = [next_at, *islice(_runs(schedule, next_at), MOST_RUNS)]
        due = [time for time in times[:MOST_RUNS] if time <= now_us]
        return DueRuns(due, 0, times[len(due)])
    last, before, after = _count_runs(schedule, next_at, now_us)
    if schedule.missed == "skip" and now_us - last > LATE_US:
        return DueRuns([], before + 1, after)
    return DueRuns([last], before, after)


def _count_runs(schedule: Schedule, first_us: int, now_us: int) -> tuple[int, int, int]:
    """Return the last of the runs until now, how many came before it, the first one included, and the next run."""
    last, before = first_us, 0
    for time in islice(_runs(schedule, first_us), _MOST_COUNTED):
        if time > now_us:
            return last, before, time
        last, before = time, before + 1
    latest = max(last, next(_runs(schedule, now_us + 1, reverse=True)))
    return latest, before + 1, next_run(schedule, now_us)


def _runs(schedule: Schedule, from_us: int, *, reverse: bool = False) -> Iterator[int]:
    """Yield the times of the runs after that time, or, in reverse, before it."""
    start = (_EPOCH + timedelta(microseconds=from_us)).astimezone(_zone(schedule.timezone))
    for run in _cron(schedule.cron, start, reverse):
        time = (run.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
        # In the hour that the clock repeats, the first may be a time of the hour before.
        if time < from_us if reverse else time > from_us:
            yield time
    raise QueueOptionsError(f"{schedule.cron!r} never runs; check its day and month")


def _cron(expression: str, start: datetime, reverse: bool) -> CronSim:
    from cronsim import CronSim, CronSimError

    try:
        return CronSim(_WORDS.get(expression, expression), start, reverse=reverse)
    except (CronSimError, AttributeError, TypeError) as problem:
        raise QueueOptionsError(
            f"{expression!r} is no cron expression ({problem}); write it like '0 * * * *' (minute, hour, day, month, weekday)"
        ) from problem


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError) as problem:
        raise QueueOptionsError(
            f"there is no time zone {name!r}; write it like UTC or Europe/Berlin"
        ) from problem


# ---- storing and running ---------------------------------------------------------------------------------


def declare(operations: Operations, schedule: Schedule) -> Operation[None]:
    """Store a schedule, or change one. Unless its times change, it keeps its next run, also one that is overdue."""
    check_schedule(schedule)
    if schedule.queue is not None:
        check_is_queue((yield from operations.find(schedule.queue)))
    _, now = yield from operations.schedules(schedule.name)
    yield from operations.declare_schedule(schedule, next_run(schedule, now))


def run_due(operations: Operations) -> Operation[int | None]:
    """Publish all runs that are due; return microseconds until the next, None if there is no schedule."""
    while True:
        left: int | None = yield from operations.next_schedule()
        if left is None or left > 0:
            return left
        ran: int = yield from operations.atomically(lambda: _run_some(operations))
        if not ran:  # another scheduler is publishing them
            return left


def _run_some(operations: Operations) -> Operation[int]:
    states, now = yield from operations.due_schedules(MOST_DUE)
    for state in states:
        ran = yield from _run(operations, state, now)
        yield from operations.note_run(ran)
    return len(states)


def _run(operations: Operations, state: ScheduleState, now_us: int) -> Operation[ScheduleState]:
    """Publish the due runs of one schedule; return its new state."""
    schedule = state.schedule
    due = due_runs(schedule, state.next_at, now_us)
    runs, problem = len(due.times), None
    try:
        yield from _publish(operations, schedule, due)
    except (QueueNotFound, QueueOptionsError) as refused:
        _log.warning("schedule %r: %s", schedule.name, refused)
        runs, problem = 0, str(refused)
    missed = due.missed + len(due.times) - runs
    if due.missed:
        _log.warning("schedule %r: %d runs were missed", schedule.name, due.missed)
    return replace(
        state,
        next_at=due.next_at,
        last_at=due.times[-1] if runs else state.last_at,
        runs=state.runs + runs,
        missed_runs=state.missed_runs + missed,
        problem=problem,
    )


def _publish(operations: Operations, schedule: Schedule, due: DueRuns) -> Operation[None]:
    info = None if schedule.queue is None else (yield from operations.find(schedule.queue))
    publications = [_publication_of(schedule, time, due.missed) for time in due.times]
    if publications:
        yield from operations.publish(info, publications)


def _publication_of(schedule: Schedule, time_us: int, missed: int) -> Publication:
    given = schedule.publication
    values: tuple[HeaderValue, ...] = (schedule.name, time_us, missed)
    facts = dict(zip(HEADERS, values, strict=True))
    message = replace(given.message, headers={**given.message.headers, **facts})
    return replace(given, message=message)
