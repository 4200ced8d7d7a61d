"""headgate sub: durable subscriptions."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer
from rich.table import Table
from rich.text import Text

from headgate import insights
from headgate.cli.arguments import AsJson, DatabaseUrl, Yes, confirm, open_database
from headgate.cli.completion import complete_queue, complete_subscription
from headgate.cli.output import print_json_lines, print_table, print_warnings
from headgate.cli.queue import facts_json

app = typer.Typer(no_args_is_help=True)

SubscriptionName: TypeAlias = Annotated[
    str,
    typer.Argument(
        help="The subscription's name.",
        metavar="SUBSCRIPTION",
        autocompletion=complete_subscription,
    ),
]
SubscriptionFilter: TypeAlias = Annotated[
    str | None, typer.Argument(help="The filter, in quotes.", metavar="FILTER")
]
SubscriptionFilterOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--filter", help="The filter, as other commands take it.", metavar="FILTER"),
]
Pattern: TypeAlias = Annotated[
    str | None, typer.Option(help="A topic pattern, instead of a filter or in addition to it.")
]


@app.command(name="ls")
def list_all(db: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """List durable subscriptions with their filters and the messages that wait for them.

    Example: headgate sub ls
    """
    with open_database(db, "look") as database:
        found = insights.list_subscriptions(database)
    if as_json:
        print_json_lines(map(facts_json, found))
        return
    table = Table("subscription", "filter", "version", "ready", "dead", "state")
    for facts in found:
        counts = (str(facts.version), f"{facts.ready:,}", f"{facts.dead:,}")
        state = "paused" if facts.paused else "active"
        table.add_row(Text(facts.name), Text(facts.filter or ""), *counts, state)
    print_table(table)


def _the_filter(argument: str | None, option: str | None) -> str | None:
    if argument is not None and option is not None:
        raise typer.BadParameter("give the filter once: as an argument, or with --filter")
    return argument if option is None else option


@app.command()
def add(
    subscription: SubscriptionName,
    filter: SubscriptionFilter = None,
    db: DatabaseUrl = None,
    filter_option: SubscriptionFilterOption = None,
    pattern: Pattern = None,
    queue: Annotated[
        str | None,
        typer.Option(
            help="Only messages that are published to this queue.", autocompletion=complete_queue
        ),
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            "--from", help="Where to begin: next, or first to include the stored messages."
        ),
    ] = "next",
) -> None:
    """Create a subscription: it gets its own delivery of every message that matches.

    Example: headgate sub add eu-orders "region = 'EU'" --queue orders
    """
    filter = _the_filter(filter, filter_option)
    # A queue is in a database that exists: a new one would only hide a typing error in the URL.
    with open_database(db, "create" if queue is None else "change") as database:
        source = None if queue is None else database.find(queue)
        print_warnings(insights.warn_of_filter(filter or "", queue=source))
        created = database.subscription(
            subscription,
            filter or ("" if pattern is None else None),
            pattern=pattern,
            queue=queue,
            start=start,  # type: ignore[arg-type]  # refused when it is neither
        )
    typer.echo(f"{subscription} gets {created.filter}")


@app.command(name="set-filter")
def set_filter(
    subscription: SubscriptionName,
    filter: SubscriptionFilter = None,
    db: DatabaseUrl = None,
    filter_option: SubscriptionFilterOption = None,
    pattern: Pattern = None,
) -> None:
    """Change a subscription's filter in place: its deliveries stay, and no message is lost or repeated.

    Example: headgate sub set-filter eu-orders "region = 'EU' AND amount > 100"
    """
    filter = _the_filter(filter, filter_option)
    with open_database(db) as database:
        found = database.subscription(subscription)
        print_warnings(insights.warn_of_filter(filter or ""))
        found.set_filter(filter or ("" if pattern is None else None), pattern=pattern)
        typer.echo(f"{subscription} gets {found.filter}")


@app.command()
def pause(subscription: SubscriptionName, db: DatabaseUrl = None) -> None:
    """Pause a subscription: claims return nothing until it is resumed; messages keep arriving.

    Example: headgate sub pause eu-orders
    """
    with open_database(db) as database:
        database.subscription(subscription).pause()
    typer.echo(f"paused {subscription}")


@app.command()
def resume(subscription: SubscriptionName, db: DatabaseUrl = None) -> None:
    """Resume a paused subscription.

    Example: headgate sub resume eu-orders
    """
    with open_database(db) as database:
        database.subscription(subscription).resume()
    typer.echo(f"resumed {subscription}")


@app.command()
def delete(
    subscription: SubscriptionName,
    db: DatabaseUrl = None,
    yes: Yes = False,
) -> None:
    """Delete a subscription and its deliveries.

    Example: headgate sub delete eu-orders --yes
    """
    confirm(f"Delete {subscription}?", yes)
    with open_database(db) as database:
        database.delete(database.subscription(subscription).name)
    typer.echo(f"deleted {subscription}")
