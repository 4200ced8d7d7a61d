"""headgate broker super-stream: streams in partitions on a running broker, as rabbitmq-streams declares them."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import typer

from headgate.cli.arguments import AsJson, Yes, confirm
from headgate.cli.guessed_verbs import NounCommands
from headgate.cli.remote.client import BrokerApi, BrokerUrl, ShownColumns, Vhost, print_rows
from headgate.cli.remote.topology import ArgumentTexts, parse_argument_values
from headgate.errors import HeadgateError

super_stream = typer.Typer(
    cls=NounCommands, no_args_is_help=True, help="Work with super streams of a running broker."
)

SuperStreamName: TypeAlias = Annotated[
    str, typer.Argument(help="The super stream's name.", metavar="NAME")
]
MARK: Final = "x-super-stream"  # the argument of the exchange, and the type of one that hashes
ORDER: Final = "x-stream-partition-order"
MOST_PARTITIONS: Final = 1_000


@super_stream.command(name="add")
def add_super_stream(
    name: SuperStreamName,
    partitions: Annotated[
        int, typer.Option(help="How many streams.", min=1, max=MOST_PARTITIONS)
    ] = 3,
    binding_keys: Annotated[
        str, typer.Option(help="A partition for each of these keys, instead.", metavar="KEY,KEY,…")
    ] = "",
    hash: Annotated[
        bool, typer.Option("--hash", help="The broker hashes routing keys, as stream clients do.")
    ] = False,
    argument: ArgumentTexts = [],  # noqa: B006
    vhost: Vhost = "/",
    url: BrokerUrl = None,
) -> None:
    """Declare an exchange and the streams that are its partitions: NAME-0, NAME-1, … Arguments are those of the streams.

    Example: headgate broker super-stream add invoices --partitions 3 -a x-max-age=7D
    """
    keys = [key.strip() for key in binding_keys.split(",")] if binding_keys else []
    if hash and keys:
        raise HeadgateError("--hash chooses among numbered partitions: leave --binding-keys out")
    if len(set(keys)) < len(keys) or "" in keys:
        raise HeadgateError(f"binding keys are different texts, not {binding_keys!r}")
    api = BrokerApi(url)
    body = {"type": MARK if hash else "direct", "durable": True, "arguments": {MARK: True}}
    api.put("exchanges", vhost, name, body=body)
    arguments = {**parse_argument_values(argument), "x-queue-type": "stream"}
    keys = keys or [str(number) for number in range(partitions)]
    for number, key in enumerate(keys):
        partition = f"{name}-{key}"
        api.put("queues", vhost, partition, body={"durable": True, "arguments": arguments})
        bound: dict[str, Any] = {"routing_key": key, "arguments": {ORDER: number}}
        api.post("bindings", vhost, "e", name, "q", partition, body=bound)
    typer.echo(f"added super stream {name} with {len(keys)} partitions")


@super_stream.command(name="ls")
def list_super_streams(vhost: Vhost = "/", url: BrokerUrl = None, as_json: AsJson = False) -> None:
    """List super streams with their partitions, in order.

    Example: headgate broker super-stream ls
    """
    api = BrokerApi(url)
    rows = [
        {"name": row["name"], "partitions": _list_partitions(api, vhost, row["name"])}
        for row in api.get("exchanges", vhost)
        if MARK in row["arguments"]
    ]
    columns: ShownColumns = {
        "super stream": "name",
        "partitions": lambda row: ", ".join(row["partitions"]),
    }
    print_rows(rows, columns, as_json)


@super_stream.command(name="rm")
def remove_super_stream(
    name: SuperStreamName, yes: Yes = False, vhost: Vhost = "/", url: BrokerUrl = None
) -> None:
    """Delete a super stream: its exchange, and its partitions with their messages.

    Example: headgate broker super-stream rm invoices --yes
    """
    api = BrokerApi(url)
    if MARK not in api.get("exchanges", vhost, name)["arguments"]:
        raise HeadgateError(f"exchange {name} is no super stream: it has no argument {MARK}")
    partitions = _list_partitions(api, vhost, name)
    confirm(f"Delete super stream {name} with {len(partitions)} partitions?", yes)
    api.delete("exchanges", vhost, name)
    for partition in partitions:
        api.delete("queues", vhost, partition)
    typer.echo(f"deleted super stream {name}")


def _list_partitions(api: BrokerApi, vhost: str, name: str) -> list[str]:
    """The partitions of a super stream, in their order."""
    rows = [
        r
        for r in api.get("exchanges", vhost, name, "bindings", "source")
        if ORDER in r["arguments"]
    ]
    return [row["destination"] for row in sorted(rows, key=lambda row: row["arguments"][ORDER])]
