"""headgate sub: durable subscriptions."""

from __future__ import annotations

import json
from typing import Annotated, TypeAlias

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headgate.cli.database import DatabaseUrl, opened
from headgate.cli.options import AsJsonLines, Yes, ask
from headgate.cli.queue import info_json

app = typer.Typer(no_args_is_help=True)

SubscriptionName: TypeAlias = Annotated[
    str, typer.Argument(help="The subscription's name.", metavar="SUBSCRIPTION")
]
Filter: TypeAlias = Annotated[
    str | None, typer.Argument(help="What it wants, in quotes.", metavar="FILTER")
]
Pattern: TypeAlias = Annotated[
    str | None, typer.Option(help="A topic pattern, instead of a filter or on top of it.")
]


@app.command(name="ls")
def list_subscriptions(db: DatabaseUrl = None, as_json: AsJsonLines = False) -> None:
    """List durable subscriptions with their filters and what waits for them."""
    with opened(db, "look") as database:
        found = [
            database.find(info.name).stats()
            for info in database.queues()
            if info.kind == "subscription"
        ]
    if as_json:
        for stats in found:
            typer.echo(
                json.dumps({**info_json(stats.info), "ready": stats.ready}, ensure_ascii=False)
            )
        return
    table = Table("subscription", "filter", "version", "waiting", "dead", "state")
    for stats in found:
        info, state = stats.info, "paused" if stats.info.paused else "active"
        counts = (str(info.version), f"{stats.ready:,}", f"{stats.dead:,}")
        table.add_row(Text(info.name), Text(info.filter), *counts, state)
    Console(highlight=False).print(table)


@app.command()
def add(
    subscription: SubscriptionName,
    filter: Filter = None,
    db: DatabaseUrl = None,
    pattern: Pattern = None,
    queue: Annotated[str | None, typer.Option(help="Only what is published to this queue.")] = None,
    start: Annotated[
        str,
        typer.Option(
            "--from", help="Where to begin: next, or first for what is stored already too."
        ),
    ] = "next",
) -> None:
    """Subscribe: from now on it gets a delivery of its own of every message that matches."""
    with opened(db, "create") as database:
        made = database.subscription(
            subscription,
            filter or ("" if pattern is None else None),
            pattern=pattern,
            queue=queue,
            start=start,  # type: ignore[arg-type]  # refused when it is neither
        )
    typer.echo(f"{subscription} gets {made.filter}")


@app.command(name="set-filter")
def set_filter(
    subscription: SubscriptionName,
    filter: Filter = None,
    db: DatabaseUrl = None,
    pattern: Pattern = None,
) -> None:
    """Change what a subscription wants, in place: what it holds stays, nothing is lost or repeated."""
    with opened(db) as database:
        found = database.subscription(subscription)
        found.set_filter(filter or ("" if pattern is None else None), pattern=pattern)
        typer.echo(f"{subscription} gets {found.filter}")


@app.command()
def pause(subscription: SubscriptionName, db: DatabaseUrl = None) -> None:
    """Pause a subscription: claims find nothing until it is resumed; messages keep arriving."""
    with opened(db) as database:
        database.subscription(subscription).pause()
    typer.echo(f"paused {subscription}")


@app.command()
def resume(subscription: SubscriptionName, db: DatabaseUrl = None) -> None:
    """Go on with a paused subscription."""
    with opened(db) as database:
        database.subscription(subscription).resume()
    typer.echo(f"resumed {subscription}")


@app.command()
def rm(
    subscription: SubscriptionName,
    db: DatabaseUrl = None,
    yes: Yes = False,
) -> None:
    """Remove a subscription with everything that waits for it."""
    ask(f"Remove {subscription}?", yes)
    with opened(db) as database:
        database.delete(database.subscription(subscription).name)
    typer.echo(f"removed {subscription}")
