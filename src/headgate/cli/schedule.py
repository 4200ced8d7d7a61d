"""headgate schedule: add, ls, rm, run. A schedule publishes a message repeatedly, by a cron expression."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import typer
from rich.table import Table
from rich.text import Text

from headgate import insights, queues
from headgate.cli.arguments import (
    AsJson,
    DatabaseUrl,
    Headers,
    Priority,
    open_database,
    parse_headers,
)
from headgate.cli.completion import complete_queue
from headgate.cli.output import print_json_lines, print_table
from headgate.cli.stop_signals import watch_stop_signals
from headgate.errors import HeadgateError

app = typer.Typer(no_args_is_help=True)

ScheduleName: TypeAlias = Annotated[
    str, typer.Argument(help="The schedule's name.", metavar="SCHEDULE")
]


@app.command()
def add(
    schedule: ScheduleName,
    cron: Annotated[
        str,
        typer.Argument(
            help="When: minute, hour, day, month, weekday, in quotes; or @hourly, @daily, …",
            metavar="CRON",
        ),
    ],
    payload: Annotated[str, typer.Argument(help="The payload.", metavar="PAYLOAD")] = "",
    db: DatabaseUrl = None,
    queue: Annotated[
        str | None,
        typer.Option(help="The queue to publish to.", autocompletion=complete_queue),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            help="The topic; without --queue, all subscriptions that match get the message."
        ),
    ] = None,
    header: Headers = [],  # noqa: B006
    priority: Priority = 0,
    timezone: Annotated[str, typer.Option(help="In which the times are meant.")] = "UTC",
    missed: Annotated[
        str,
        typer.Option(
            help="What to do about runs that were due while no scheduler ran: skip, one (for all) or all."
        ),
    ] = "one",
) -> None:
    """Publish a message repeatedly, while a worker or `headgate schedule run` runs; or change a schedule.

    Example: headgate schedule add report "30 4 * * 1-5" daily --queue reports --timezone Europe/Berlin
    """
    if queue is None and topic is None:
        raise HeadgateError("say where to publish: --queue, or --topic for subscriptions")
    # A queue is in a database that exists: a new one would only hide a typing error in the URL.
    with open_database(db, "create" if queue is None else "change") as database:
        database.schedule(
            schedule,
            cron,
            payload.encode(),
            queue=queue,
            topic=topic,
            headers=parse_headers(header),
            priority=priority,
            timezone=timezone,
            missed=missed,  # type: ignore[arg-type]  # refused if unknown
        )
        [state] = [each for each in database.schedules() if each.schedule.name == schedule]
    typer.echo(f"{schedule} runs next at {insights.time_text(state.next_at)}")


@app.command(name="ls")
def list_all(db: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """List schedules: when they run next, how often they ran, and which runs were missed.

    Example: headgate schedule ls
    """
    with open_database(db, "look") as database:
        found = database.schedules()
    if as_json:
        print_json_lines(map(_as_json, found))
        return
    table = Table(
        "schedule", "cron", "time zone", "to", "next", "last", "runs", "missed", "problem"
    )
    for state in found:
        schedule = state.schedule
        to = schedule.queue or f"topic {schedule.publication.message.topic}"
        last = "" if state.last_at is None else insights.time_text(state.last_at)
        counts = (f"{state.runs:,}", f"{state.missed_runs:,}", state.problem or "")
        times = (insights.time_text(state.next_at), last)
        row = (schedule.name, schedule.cron, schedule.timezone, to, *times, *counts)
        table.add_row(*map(Text, row))
    print_table(table)


def _as_json(state: queues.ScheduleState) -> dict[str, Any]:
    schedule = state.schedule
    return {
        "name": schedule.name,
        "cron": schedule.cron,
        "timezone": schedule.timezone,
        "missed": schedule.missed,
        "queue": schedule.queue,
        "topic": schedule.publication.message.topic,
        "next_at": state.next_at,
        "last_at": state.last_at,
        "runs": state.runs,
        "missed_runs": state.missed_runs,
        "problem": state.problem,
    }


@app.command()
def rm(schedule: ScheduleName, db: DatabaseUrl = None) -> None:
    """Delete a schedule.

    Example: headgate schedule rm report
    """
    with open_database(db) as database:
        found = database.delete_schedule(schedule)
    if not found:
        raise HeadgateError(f"there is no schedule {schedule}; `headgate schedule ls` names them")
    typer.echo(f"deleted {schedule}")


@app.command()
def run(
    db: DatabaseUrl = None,
    once: Annotated[
        bool, typer.Option("--once", help="Publish what is due now, and stop.")
    ] = False,
) -> None:
    """Publish what is due, until Ctrl-C or SIGTERM. Workers do it as well; several do not disturb each other.

    Example: headgate schedule run --once
    """
    with open_database(db) as database:
        scheduler = database.scheduler()
        if once:
            scheduler.run_once()
            return
        with watch_stop_signals() as signals, scheduler:
            typer.echo("publishing what is due; Ctrl-C stops", err=True)
            signals.wait()
