"""headgate queue: create, ls, info, stats, index. What is done with messages is in queue_messages."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headgate.cli.arguments import parse_duration
from headgate.cli.database import DatabaseUrl, opened
from headgate.cli.options import AsJson, AsJsonLines, QueueName
from headgate.queues import IndexAdvice, QueueInfo, QueueStats, Usage

app = typer.Typer(no_args_is_help=True)
index_app = typer.Typer(no_args_is_help=True)
outbox_app = typer.Typer(no_args_is_help=True)
app.add_typer(outbox_app, name="outbox", help="What relays could not move: list it, try again.")
app.add_typer(index_app, name="index", help="What makes filtered claims cheap.")


@app.command()
def create(
    queue: QueueName,
    db: DatabaseUrl = None,
    filter_header: Annotated[
        list[str],
        typer.Option(help="A header that claims filter by, copied and indexed; may be repeated."),
    ] = [],  # noqa: B006
    max_attempts: Annotated[
        int | None, typer.Option(help="Claims before a message is a dead letter; 0: never.")
    ] = None,
    dedup_window: Annotated[
        str | None, typer.Option(help="How long a dedup key is remembered, for example 5m.")
    ] = None,
    archive: Annotated[
        bool | None, typer.Option(help="Keep what was acked until it is pruned.")
    ] = None,
) -> None:
    """Create a queue, or change the options of one."""
    with opened(db, "create") as database:
        database.queue(
            queue,
            filter_headers=filter_header or None,
            max_attempts=max_attempts,
            dedup_window=parse_duration(dedup_window),
            archive=archive,
        )
    typer.echo(f"queue {queue}")


@app.command(name="ls")
def list_queues(db: DatabaseUrl = None, as_json: AsJsonLines = False) -> None:
    """List queues and durable subscriptions."""
    with opened(db, "look") as database:
        found = [database.find(info.name).stats() for info in database.queues()]
    if as_json:
        for stats in found:
            typer.echo(json.dumps({**info_json(stats.info), **_counts(stats)}, ensure_ascii=False))
        return
    table = Table("name", "kind", "ready", "delayed", "leased", "dead", "filter headers", "filter")
    for stats in found:
        info = stats.info
        counts = (f"{count:,}" for count in _counts(stats).values())
        headers = ", ".join(info.options.filter_headers)
        table.add_row(*map(Text, (info.name, info.kind, *counts, headers, info.filter)))
    Console(highlight=False).print(table)


def info_json(info: QueueInfo) -> dict[str, Any]:
    """What a queue or subscription is, for a program."""
    options = info.options
    shown: dict[str, Any] = {"name": info.name, "kind": info.kind, "paused": info.paused}
    if info.kind == "subscription":
        shown |= {"filter": info.filter, "version": info.version}
    return shown | {
        "filter_headers": list(options.filter_headers),
        "max_attempts": options.max_attempts,
        "dedup_window_s": options.dedup_window_us / 1e6,
        "archive": options.archive,
    }


def _counts(stats: QueueStats) -> dict[str, int]:
    return {name: getattr(stats, name) for name in ("ready", "delayed", "leased", "dead")}


@app.command()
def info(queue: QueueName, db: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show a queue: its options and how much is in it."""
    with opened(db, "look") as database:
        stats = database.find(queue).stats()
    shown = {**info_json(stats.info), **_counts(stats)}
    if stats.oldest_ready_us is not None:
        shown["oldest_ready_s"] = stats.oldest_ready_us / 1e6
    if as_json:
        typer.echo(json.dumps(shown, ensure_ascii=False))
        return
    table = Table(show_header=False)
    for name, value in shown.items():
        table.add_row(name.replace("_", " "), Text(str(value)))
    Console(highlight=False).print(table)


@app.command()
def stats(queue: QueueName, db: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show what consumers of a queue did: claims, empty claims, time, failures."""
    with opened(db, "look") as database:
        found = database.find(queue).stats()
    if as_json:
        usage = {name: asdict(used) for name, used in found.usage.items()}
        shown = {**info_json(found.info), **_counts(found), "consumers": usage}
        typer.echo(json.dumps(shown, ensure_ascii=False))
        return
    table = Table("consumer", *(name.replace("_", " ") for name in Usage.__dataclass_fields__))
    for name, used in found.usage.items():
        table.add_row(Text(name), *(f"{count:,}" for count in asdict(used).values()))
    Console(highlight=False).print(table)


@index_app.command()
def add(
    queue: QueueName,
    header: Annotated[str, typer.Argument(help="The header that claims filter by.")],
    db: DatabaseUrl = None,
) -> None:
    """Declare one more filter header: it is copied for what is there, and indexed."""
    with opened(db) as database:
        database.find(queue).index_add(header)
    typer.echo(f"claims on {queue} can look up {header}")


@index_app.command()
def advise(
    queue: QueueName,
    filter: Annotated[str, typer.Argument(help="The filter, in quotes.", metavar="FILTER")],
    db: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Say how a claim with this filter is answered, and which headers to declare. Exit code 1: it scans."""
    with opened(db, "look") as database:
        advice = database.find(queue).index_advise(filter)
    if as_json:
        typer.echo(json.dumps(asdict(advice), ensure_ascii=False))
    else:
        _print_advice(queue, advice)
    raise typer.Exit(1 if advice.scans and advice.suggestions else 0)


def _print_advice(queue: str, advice: IndexAdvice) -> None:
    for line in advice.plan:
        typer.echo(f"  {line}")
    for reason in advice.residual:
        typer.echo(f"checked in Python afterwards: {reason}")
    typer.echo(
        "reads messages in order until enough match" if advice.scans else "looked up by index"
    )
    for header in advice.suggestions:
        typer.echo(f"would help: headgate queue index add {queue} {header}")


OutboxFile = Annotated[
    Path | None,
    typer.Option("--file", help="The SQLite file of an application whose outbox is meant."),
]


@outbox_app.command(name="ls")
def list_outbox(
    db: DatabaseUrl = None, file: OutboxFile = None, as_json: AsJsonLines = False
) -> None:
    """List what relays could not move, and why."""
    with opened(db) as database:
        found = database.relay(file).parked()
    if as_json:
        for entry in found:
            typer.echo(json.dumps(entry._asdict(), ensure_ascii=False))
        return
    table = Table("id", "queue", "topic", "problem")
    for entry in found:
        table.add_row(*map(Text, (str(entry.id), entry.queue, entry.topic, entry.problem)))
    Console(highlight=False).print(table)


@outbox_app.command(name="retry")
def retry_outbox(
    ids: Annotated[list[int] | None, typer.Argument(help="Which; without any, all.")] = None,
    db: DatabaseUrl = None,
    file: OutboxFile = None,
) -> None:
    """Let relays try again to move what they could not."""
    with opened(db) as database:
        typer.echo(f"to be moved again: {database.relay(file).retry(ids or None):,} entries")
