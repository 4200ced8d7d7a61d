"""headgate queue: create, ls, info, stats, limit, pause, resume, rm, index, outbox. Commands on messages are in queue_messages."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from headgate import insights, queues
from headgate.cli.arguments import (
    AsJson,
    DatabaseUrl,
    QueueName,
    Yes,
    confirm,
    open_database,
    parse_duration,
    split_names,
)
from headgate.cli.completion import complete_header
from headgate.cli.output import (
    print_json,
    print_json_lines,
    print_table,
    print_warnings,
    value_text,
)
from headgate.cli.stop_signals import watch_stop_signals
from headgate.errors import HeadgateError
from headgate.quantities import counted

app = typer.Typer(no_args_is_help=True)
index_app = typer.Typer(no_args_is_help=True)
outbox_app = typer.Typer(no_args_is_help=True)
app.add_typer(
    outbox_app,
    name="outbox",
    help="The transactional outbox: move its entries, list and retry those that could not be moved.",
)
app.add_typer(index_app, name="index", help="Indexes for claims with a filter.")


@app.command()
def create(
    queue: QueueName,
    db: DatabaseUrl = None,
    filter_header: Annotated[
        list[str],
        typer.Option(
            help="A header that claims filter by, copied and indexed; several with commas, or repeat it.",
            autocompletion=complete_header,
        ),
    ] = [],  # noqa: B006
    max_attempts: Annotated[
        int | None,
        typer.Option(help="Claims before a message becomes a dead letter; 0: never."),
    ] = None,
    dedup_window: Annotated[
        str | None, typer.Option(help="How long a dedup key is remembered, for example 5m.")
    ] = None,
    archive: Annotated[
        bool | None, typer.Option(help="Keep acknowledged messages until they are pruned.")
    ] = None,
) -> None:
    """Create a queue, or change the options of one.

    Example: headgate queue create orders --filter-header region --max-attempts 5
    """
    with open_database(db, "create") as database:
        database.queue(
            queue,
            filter_headers=split_names(filter_header) or None,
            max_attempts=max_attempts,
            dedup_window=parse_duration(dedup_window),
            archive=archive,
        )
    typer.echo(f"queue {queue}")


@app.command(name="ls")
def list_all(db: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """List queues and durable subscriptions.

    Example: headgate queue ls --db sqlite:///orders.db
    """
    with open_database(db, "look") as database:
        found = insights.list_queues(database)
    if as_json:
        print_json_lines(map(facts_json, found))
        return
    table = Table("name", "kind", "ready", "delayed", "leased", "dead", "filter headers", "filter")
    for facts in found:
        counts = (f"{n:,}" for n in (facts.ready, facts.delayed, facts.leased, facts.dead))
        headers = ", ".join(facts.filter_headers)
        table.add_row(*map(Text, (facts.name, facts.kind, *counts, headers, facts.filter or "")))
    print_table(table)


def facts_json(facts: insights.QueueFacts) -> dict[str, Any]:
    """A queue or subscription for a program; a queue has no filter and no version."""
    return {name: value for name, value in asdict(facts).items() if value is not None}


@app.command()
def info(queue: QueueName, db: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show a queue: its options, and how many messages are in it.

    Example: headgate queue info orders
    """
    with open_database(db, "look") as database:
        shown = facts_json(insights.queue_facts(database, queue))
    if as_json:
        print_json(shown)
        return
    table = Table(show_header=False)
    for name, value in shown.items():
        if name != "consumers":
            table.add_row(name.replace("_", " "), Text(value_text(value)))
    print_table(table)


@app.command()
def stats(queue: QueueName, db: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show how many messages are in a queue, and what its consumers did: claims, time, failures.

    Example: headgate queue stats orders
    """
    with open_database(db, "look") as database:
        facts = insights.queue_facts(database, queue)
    if as_json:
        print_json(facts_json(facts))
        return
    counts = Table("ready", "delayed", "leased", "dead")
    counts.add_row(*(f"{n:,}" for n in (facts.ready, facts.delayed, facts.leased, facts.dead)))
    used = Table(
        "consumer", *(name.replace("_", " ") for name in queues.Usage.__dataclass_fields__)
    )
    for name, usage in facts.consumers.items():
        used.add_row(Text(name), *(Text(value_text(value)) for value in asdict(usage).values()))
    print_table(counts, *([used] if facts.consumers else []))


@app.command()
def limit(
    queue: QueueName,
    rate: Annotated[
        str,
        typer.Argument(
            help="Messages per time: 100/s, 5000/h, 1/10m; none: no limit.", metavar="RATE"
        ),
    ],
    db: DatabaseUrl = None,
) -> None:
    """Limit how fast all consumers of a queue together claim its messages.

    Example: headgate queue limit mails 100/m
    """
    count, per = _parse_rate(rate)
    with open_database(db) as database:
        database.find(queue).limit_rate(count, per)
    typer.echo(f"{queue}: {rate}")


def _parse_rate(text: str) -> tuple[int | None, timedelta]:
    if text == "none":
        return None, timedelta(seconds=1)
    count, slash, per = text.partition("/")
    if not slash or not count.isdecimal():
        raise HeadgateError(f"a rate is written like 100/s or 1/10m, or none; not {text!r}")
    return int(count), parse_duration(per if per[:1].isdigit() else f"1{per}")


@app.command()
def pause(queue: QueueName, db: DatabaseUrl = None) -> None:
    """Pause a queue: claims return nothing until it is resumed; messages keep arriving.

    Example: headgate queue pause orders
    """
    with open_database(db) as database:
        database.find(queue).pause()
    typer.echo(f"paused {queue}")


@app.command()
def resume(queue: QueueName, db: DatabaseUrl = None) -> None:
    """Resume a paused queue.

    Example: headgate queue resume orders
    """
    with open_database(db) as database:
        database.find(queue).resume()
    typer.echo(f"resumed {queue}")


@app.command()
def rm(queue: QueueName, db: DatabaseUrl = None, yes: Yes = False) -> None:
    """Delete a queue or subscription with everything in it, dead letters and archive too.

    Example: headgate queue rm orders --yes
    """
    with open_database(db) as database:
        found = database.find(queue)
        stats = found.stats()
        held = stats.ready + stats.delayed + stats.leased + stats.dead
        confirm(f"Delete {queue} with {counted(held, 'message')}?", yes)
        found.delete()
    typer.echo(f"deleted {queue}")


# ---- indexes -------------------------------------------------------------------------------------------


@index_app.command()
def add(
    queue: QueueName,
    header: Annotated[
        str,
        typer.Argument(
            help="The header that claims filter by.",
            metavar="HEADER",
            autocompletion=complete_header,
        ),
    ],
    db: DatabaseUrl = None,
) -> None:
    """Declare one more filter header: it is copied from the stored messages, and indexed.

    Example: headgate queue index add orders region
    """
    with open_database(db) as database:
        database.find(queue).index_add(header)
    typer.echo(f"claims on {queue} can look up {header}")


@index_app.command()
def advise(
    queue: QueueName,
    filter: Annotated[str, typer.Argument(help="The filter, in quotes.", metavar="FILTER")],
    db: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Say how a claim with this filter is answered, and which headers to declare. Exit code 1: it scans.

    Example: headgate queue index advise orders "region = 'EU'"
    """
    with open_database(db, "look") as database:
        found = database.find(queue)
        print_warnings(insights.warn_of_filter(filter, queue=found))
        advice = found.index_advise(filter)
    if as_json:
        print_json(asdict(advice))
    else:
        _print_advice(queue, advice)
    raise typer.Exit(1 if advice.scans and advice.suggestions else 0)


def _print_advice(queue: str, advice: queues.IndexAdvice) -> None:
    for line in advice.plan:
        typer.echo(f"  {line}")
    for reason in advice.residual:
        typer.echo(f"checked in Python afterwards: {reason}")
    typer.echo(
        "reads messages in order until enough match" if advice.scans else "looked up by index"
    )
    for header in advice.suggestions:
        typer.echo(f"would help: headgate queue index add {queue} {header}")


# ---- the outbox ----------------------------------------------------------------------------------------

OutboxFileOption = Annotated[
    Path | None,
    typer.Option("--file", help="The SQLite file of the application that has the outbox."),
]


@outbox_app.command(name="ls")
def list_outbox(
    db: DatabaseUrl = None, file: OutboxFileOption = None, as_json: AsJson = False
) -> None:
    """List the entries that relays could not move, and why, and count those that wait for a relay.

    Example: headgate queue outbox ls --file app.db
    """
    with open_database(db) as database:
        mover = database.relay(file)
        found, waiting = mover.parked(), mover.waiting()
    if as_json:
        print_json_lines(entry._asdict() for entry in found)
        return
    table = Table("id", "queue", "topic", "problem")
    for entry in found:
        table.add_row(*map(Text, (str(entry.id), entry.queue, entry.topic, entry.problem)))
    if found:
        print_table(table)
    waits = "waits" if waiting == 1 else "wait"
    typer.echo(f"{counted(waiting, 'entry', 'entries')} {waits} for a relay")


@outbox_app.command(name="retry")
def retry_outbox(
    ids: Annotated[list[int] | None, typer.Argument(help="The entries; without any, all.")] = None,
    db: DatabaseUrl = None,
    file: OutboxFileOption = None,
) -> None:
    """Let relays try again to move the entries they could not.

    Example: headgate queue outbox retry 17 18
    """
    with open_database(db) as database:
        typer.echo(f"to be moved again: {database.relay(file).retry(ids or None):,}")


@outbox_app.command()
def relay(
    db: DatabaseUrl = None,
    file: OutboxFileOption = None,
    once: Annotated[
        bool, typer.Option("--once", help="Move what is committed now, and stop.")
    ] = False,
) -> None:
    """Move committed entries into their queues, until Ctrl-C or SIGTERM. Several relays may run.

    Example: headgate queue outbox relay --file app.db
    """
    with open_database(db) as database:
        mover = database.relay(file)
        if once:
            typer.echo(f"moved {counted(mover.run_once(), 'entry', 'entries')}")
            return
        with watch_stop_signals() as signals, mover:
            typer.echo("moving entries of the outbox; Ctrl-C stops", err=True)
            signals.wait()
