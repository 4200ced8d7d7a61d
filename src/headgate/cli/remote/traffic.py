"""headgate connection, channel, consumer: who is connected to a running broker."""

from __future__ import annotations

from typing import Annotated

import typer

from headgate.cli.arguments import AsJson, Yes, confirm
from headgate.cli.remote.client import (
    BrokerApi,
    BrokerUrl,
    ShownColumns,
    Vhost,
    print_rows,
    rate,
    when,
)

connection = typer.Typer(no_args_is_help=True)
channel = typer.Typer(no_args_is_help=True)
consumer = typer.Typer(no_args_is_help=True)


@connection.command(name="ls")
def list_connections(url: BrokerUrl = None, as_json: AsJson = False) -> None:
    """List open connections.

    Example: headgate connection ls
    """
    columns: ShownColumns = {
        "connection": "name",
        "called": "user_provided_name",
        "user": "user",
        "vhost": "vhost",
        "state": "state",
        "channels": "channels",
        "received bytes/s": lambda row: row["recv_oct_details"]["rate"],
        "sent bytes/s": lambda row: row["send_oct_details"]["rate"],
        "since": lambda row: when(row["connected_at"]),
    }
    print_rows(BrokerApi(url).get("connections"), columns, as_json)


@connection.command(name="close")
def close_connection(
    name: Annotated[
        str, typer.Argument(help="Its name, as `connection ls` prints it.", metavar="CONNECTION")
    ],
    reason: Annotated[str, typer.Option(help="Told to the client.")] = "closed by an operator",
    yes: Yes = False,
    url: BrokerUrl = None,
) -> None:
    """Close a connection, and tell the client why.

    Example: headgate connection close '127.0.0.1:40000 -> 127.0.0.1:5672' --reason maintenance --yes
    """
    confirm(f"Close connection {name}?", yes)
    BrokerApi(url).delete("connections", name, headers={"X-Reason": reason})
    typer.echo(f"closed {name}")


@channel.command(name="ls")
def list_channels(url: BrokerUrl = None, as_json: AsJson = False) -> None:
    """List open channels.

    Example: headgate channel ls
    """
    columns: ShownColumns = {
        "channel": "name",
        "user": "user",
        "vhost": "vhost",
        "consumers": "consumer_count",
        "prefetch": "prefetch_count",
        "unacknowledged": "messages_unacknowledged",
        "confirms": "confirm",
        "in/s": rate("publish"),
        "out/s": rate("deliver_get"),
    }
    print_rows(BrokerApi(url).get("channels"), columns, as_json)


@consumer.command(name="ls")
def list_consumers(url: BrokerUrl = None, as_json: AsJson = False) -> None:
    """List consumers with their filters.

    Example: headgate consumer ls
    """
    columns: ShownColumns = {
        "queue": "queue.name",
        "vhost": "queue.vhost",
        "consumer": "consumer_tag",
        "user": "channel_details.user",
        "prefetch": "prefetch_count",
        "unacknowledged": "messages_unacknowledged",
        "active": "active",
        "filter": "filter",
    }
    print_rows(BrokerApi(url).get("consumers"), columns, as_json)


@consumer.command(name="set-filter")
def set_filter(
    queue: Annotated[str, typer.Argument(help="The queue's name.", metavar="QUEUE")],
    tag: Annotated[str, typer.Argument(help="The consumer's tag.", metavar="CONSUMER")],
    filter: Annotated[
        str, typer.Argument(help="The filter, in quotes; '' for none.", metavar="FILTER")
    ],
    vhost: Vhost = "/",
    url: BrokerUrl = None,
) -> None:
    """Give a consumer another filter while it goes on consuming.

    Example: headgate consumer set-filter orders ctag1 "region = 'EU'"
    """
    body = {"filter": filter or None}
    BrokerApi(url).put("headgate", "consumers", vhost, queue, tag, "filter", body=body)
    typer.echo(f"consumer {tag} of queue {queue} gets {filter or 'everything'}")
