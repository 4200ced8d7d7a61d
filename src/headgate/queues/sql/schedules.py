"""Schedules in a SQL database: one row each, read, written and locked."""

from __future__ import annotations

from headgate.queues.engine import (
    Operation,
    Publication,
    Row,
    Rows,
    Schedule,
    ScheduleState,
)
from headgate.queues.sql.dialect import QueueDialect
from headgate.queues.sql.message_rows import columns_of, message_of, row_of


class SqlSchedules:
    """The table of schedules. Its times are those of messages, which are set with the clock of the machine or server."""

    def __init__(self, dialect: QueueDialect) -> None:
        self._dialect = dialect

    def schedules(self, name: str | None = None) -> Operation[tuple[list[ScheduleState], int]]:
        """All schedules, or the one of that name; and the time."""
        rows = yield self._dialect.statement(
            "schedules", name, self._dialect.timestamp_us(), columns=columns_of("s")
        )
        now: int = rows[0][0]
        return [_state_of(row) for row in rows if row[1] is not None], now

    def due_schedules(self, limit: int) -> Operation[tuple[list[ScheduleState], int]]:
        """Schedules that are due, and that no other transaction runs; and the time."""
        rows = yield self._dialect.statement(
            "schedules_due", limit, self._dialect.timestamp_us(), columns=columns_of("s")
        )
        return [_state_of(row) for row in rows], rows[0][0] if rows else 0

    def next_schedule(self) -> Operation[int | None]:
        """Microseconds until the next run, 0 if one is due; None without schedules."""
        rows: Rows = yield self._dialect.statement("schedule_next", self._dialect.timestamp_us())
        return rows[0][0] if rows else None

    def declare_schedule(self, schedule: Schedule, next_at: int) -> Operation[None]:
        """Insert or change a schedule; one that is there keeps its next run, unless its times change."""
        publication = schedule.publication
        yield self._dialect.statement(
            "declare_schedule",
            schedule.name,
            schedule.cron,
            schedule.timezone,
            schedule.missed,
            schedule.queue,
            publication.group,
            next_at,
            *row_of(publication.message, None),
        )

    def note_run(self, state: ScheduleState) -> Operation[None]:
        """Store what became of the runs of a schedule."""
        yield self._dialect.statement(
            "schedule_ran",
            state.schedule.name,
            state.next_at,
            state.last_at,
            state.runs,
            state.missed_runs,
            state.problem,
        )

    def delete_schedule(self, name: str) -> Operation[bool]:
        """Delete a schedule; whether there was one."""
        rows = yield self._dialect.statement("delete_schedule", name)
        return bool(rows)


def _state_of(row: Row) -> ScheduleState:
    """The schedule in a row: the time, then the columns of the schedule, then those of its message."""
    _, name, cron, zone, missed, queue, group, next_at, last_at, runs, lost, problem, *message = row
    publication = Publication(message_of(message), group=group)
    schedule = Schedule(
        name=name, cron=cron, timezone=zone, missed=missed, queue=queue, publication=publication
    )
    return ScheduleState(
        schedule=schedule,
        next_at=next_at,
        last_at=last_at,
        runs=runs,
        missed_runs=lost,
        problem=problem,
    )
