"""headgate exchange, binding and broker queue: declare and look, on a running broker."""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeAlias, get_args

import typer

from headgate.cli.arguments import AsJson, Headers, Yes, confirm, parse_headers
from headgate.cli.guessed_verbs import NounCommands
from headgate.cli.output import print_json, print_json_lines
from headgate.cli.remote.client import (
    ApiObject,
    BrokerApi,
    BrokerRefused,
    BrokerUrl,
    ShownColumns,
    Vhost,
    print_facts,
    print_rows,
    rate,
)
from headgate.errors import HeadgateError

exchange = typer.Typer(no_args_is_help=True)
binding = typer.Typer(no_args_is_help=True)
queue = typer.Typer(
    cls=NounCommands, no_args_is_help=True, help="Work with queues of a running broker."
)

ExchangeName: TypeAlias = Annotated[
    str, typer.Argument(help="The exchange's name.", metavar="EXCHANGE")
]
RemoteQueue: TypeAlias = Annotated[str, typer.Argument(help="The queue's name.", metavar="QUEUE")]
ArgumentTexts: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--argument",
        "-a",
        help="An argument: x-max-length=100; several times.",
        metavar="NAME=VALUE",
    ),
]
BindingFilter: TypeAlias = Annotated[
    str,
    typer.Option(
        "--filter", help="Only messages that match: the argument x-filter.", metavar="FILTER"
    ),
]
ConsumersFilter: TypeAlias = Annotated[
    str,
    typer.Option(
        "--filter",
        help="The filter of consumers that have none of their own: the argument x-filter.",
        metavar="FILTER",
    ),
]
Transient: TypeAlias = Annotated[
    bool, typer.Option("--transient", help="It is gone when the broker stops.")
]
IsExchange: TypeAlias = Annotated[
    bool, typer.Option("--to-exchange", help="The destination is an exchange.")
]

BindingDestination: TypeAlias = Annotated[
    str,
    typer.Argument(
        help="The queue that gets the messages; with --to-exchange, the exchange.",
        metavar="DESTINATION",
    ),
]
BindingKey: TypeAlias = Annotated[
    str, typer.Option("--key", "-k", help="The routing key, or pattern.")
]


def parse_argument_values(given: list[str], filter: str = "") -> ApiObject:
    """`name=value`: the value is JSON where it can be read as JSON, else text. A filter is the argument x-filter."""
    found: ApiObject = {"x-filter": filter} if filter else {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise HeadgateError(f"an argument is NAME=VALUE, not {text!r}")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


@exchange.command(name="ls")
def list_exchanges(vhost: Vhost = "/", url: BrokerUrl = None, as_json: AsJson = False) -> None:
    """List exchanges.

    Example: headgate exchange ls --vhost /
    """
    columns: ShownColumns = {
        "exchange": lambda row: row["name"] or "(default)",
        "type": "type",
        "durable": "durable",
        "internal": "internal",
        "arguments": "arguments",
        "in/s": rate("publish_in"),
        "out/s": rate("publish_out"),
    }
    print_rows(BrokerApi(url).get("exchanges", vhost), columns, as_json)


@exchange.command(name="declare")
def declare_exchange(
    name: ExchangeName,
    type: Annotated[
        str, typer.Option(help="direct, fanout, topic, headers or another.", metavar="TYPE")
    ] = "direct",
    transient: Transient = False,
    argument: ArgumentTexts = [],  # noqa: B006
    vhost: Vhost = "/",
    url: BrokerUrl = None,
) -> None:
    """Declare an exchange; one that exists must have been declared alike.

    Example: headgate exchange declare orders --type topic
    """
    body = {"type": type, "durable": not transient, "arguments": parse_argument_values(argument)}
    try:
        BrokerApi(url).put("exchanges", vhost, name, body=body)
    except BrokerRefused as refused:
        from headgate.routing import ExchangeType

        known = get_args(ExchangeType)
        if type in known:
            raise
        text = f"{refused}; the types are {', '.join(known)}"
        raise BrokerRefused(refused.status, text) from None
    typer.echo(f"declared exchange {name}")


@exchange.command(name="rm")
def remove_exchange(
    name: ExchangeName, yes: Yes = False, vhost: Vhost = "/", url: BrokerUrl = None
) -> None:
    """Delete an exchange with its bindings.

    Example: headgate exchange rm orders --yes
    """
    confirm(f"Delete exchange {name}?", yes)
    BrokerApi(url).delete("exchanges", vhost, name)
    typer.echo(f"deleted exchange {name}")


@exchange.command(name="publish")
def publish(
    name: ExchangeName,
    payload: Annotated[str, typer.Argument(help="The text of the message.", metavar="PAYLOAD")],
    key: Annotated[str, typer.Option("--key", "-k", help="The routing key.")] = "",
    header: Headers = [],  # noqa: B006
    transient: Transient = False,
    vhost: Vhost = "/",
    url: BrokerUrl = None,
    as_json: AsJson = False,
) -> None:
    """Publish one message, to try a route. Exit code 1: no queue took it.

    Example: headgate exchange publish orders 'order 1' --key orders.eu -H region=EU
    """
    properties: ApiObject = {
        "delivery_mode": 1 if transient else 2,
        "headers": parse_headers(header),
    }
    body = {
        "routing_key": key,
        "payload": payload,
        "payload_encoding": "string",
        "properties": properties,
    }
    answer = BrokerApi(url).post("exchanges", vhost, name or "amq.default", "publish", body=body)
    if as_json:
        print_json(answer)
    else:
        typer.echo("routed" if answer["routed"] else "no queue took it")
    raise typer.Exit(0 if answer["routed"] else 1)


# ---- bindings


@binding.command(name="ls")
def list_bindings(vhost: Vhost = "/", url: BrokerUrl = None, as_json: AsJson = False) -> None:
    """List bindings, except those of the default exchange.

    Example: headgate binding ls
    """
    rows = [row for row in BrokerApi(url).get("bindings", vhost) if row["source"]]
    columns: ShownColumns = {
        "exchange": "source",
        "to": lambda row: f"{row['destination_type']} {row['destination']}",
        "key": "routing_key",
        "arguments": "arguments",
    }
    print_rows(rows, columns, as_json)


def _between(source: str, destination: str, to_exchange: bool) -> tuple[str, ...]:
    return "e", source, "e" if to_exchange else "q", destination


@binding.command(name="add")
def add_binding(
    source: ExchangeName,
    destination: BindingDestination,
    key: BindingKey = "",
    filter: BindingFilter = "",
    argument: ArgumentTexts = [],  # noqa: B006
    to_exchange: IsExchange = False,
    vhost: Vhost = "/",
    url: BrokerUrl = None,
) -> None:
    """Bind a queue to an exchange, with a filter or without.

    Example: headgate binding add orders large --key orders.# --filter "amount > 1000"
    """
    body = {"routing_key": key, "arguments": parse_argument_values(argument, filter)}
    place = _between(source, destination, to_exchange)
    BrokerApi(url).post("bindings", vhost, *place, body=body)
    typer.echo(f"bound {destination} to {source}")


@binding.command(name="rm")
def remove_binding(
    source: ExchangeName,
    destination: BindingDestination,
    key: BindingKey = "",
    filter: BindingFilter = "",
    argument: ArgumentTexts = [],  # noqa: B006
    to_exchange: IsExchange = False,
    vhost: Vhost = "/",
    url: BrokerUrl = None,
) -> None:
    """Delete the binding with this key and these arguments. Exit code 1: there is none.

    Example: headgate binding rm orders large --key orders.#
    """
    api, place = BrokerApi(url), _between(source, destination, to_exchange)
    arguments = parse_argument_values(argument, filter)
    for row in api.get("bindings", vhost, *place):
        if (row["routing_key"], row["arguments"]) == (key, arguments):
            api.delete("bindings", vhost, *place, row["properties_key"])
            typer.echo(f"unbound {destination} from {source}")
            return
    typer.echo(f"there is no such binding from {source} to {destination}", err=True)
    raise typer.Exit(1)


# ---- queues


@queue.command(name="ls")
def list_queues(
    vhost: Annotated[
        str | None, typer.Option("--vhost", "-p", help="Only this virtual host.", metavar="VHOST")
    ] = None,
    url: BrokerUrl = None,
    as_json: AsJson = False,
) -> None:
    """List queues with their messages, consumers and rates.

    Example: headgate broker queue ls
    """
    rows = BrokerApi(url).get("queues", *([vhost] if vhost is not None else []))
    columns: ShownColumns = {
        "vhost": "vhost",
        "queue": "name",
        "type": "type",
        "ready": "messages_ready",
        "unacknowledged": "messages_unacknowledged",
        "unmatched": "unmatched",
        "consumers": "consumers",
        "in/s": rate("publish"),
        "out/s": rate("deliver_get"),
        "policy": "policy",
    }
    print_rows(rows, columns, as_json)


@queue.command(name="show")
def show_queue(
    name: RemoteQueue, vhost: Vhost = "/", url: BrokerUrl = None, as_json: AsJson = False
) -> None:
    """Show everything about one queue.

    Example: headgate broker queue show orders --json
    """
    print_facts(BrokerApi(url).get("queues", vhost, name), as_json)


@queue.command(name="declare")
def declare_queue(
    name: RemoteQueue,
    type: Annotated[str, typer.Option(help="classic, quorum or stream.", metavar="TYPE")] = "",
    transient: Transient = False,
    filter: ConsumersFilter = "",
    argument: ArgumentTexts = [],  # noqa: B006
    vhost: Vhost = "/",
    url: BrokerUrl = None,
) -> None:
    """Declare a queue; one that exists must have been declared alike.

    Example: headgate broker queue declare orders --type quorum -a x-max-length=100000
    """
    arguments = parse_argument_values(argument, filter)
    if type:
        arguments["x-queue-type"] = type
    body = {"durable": not transient, "arguments": arguments}
    BrokerApi(url).put("queues", vhost, name, body=body)
    typer.echo(f"declared queue {name}")


@queue.command(name="rm")
def remove_queue(
    name: RemoteQueue, yes: Yes = False, vhost: Vhost = "/", url: BrokerUrl = None
) -> None:
    """Delete a queue with its messages.

    Example: headgate broker queue rm orders --yes
    """
    confirm(f"Delete queue {name} with its messages?", yes)
    BrokerApi(url).delete("queues", vhost, name)
    typer.echo(f"deleted queue {name}")


@queue.command(name="purge")
def purge_queue(
    name: RemoteQueue, yes: Yes = False, vhost: Vhost = "/", url: BrokerUrl = None
) -> None:
    """Delete the ready messages of a queue.

    Example: headgate broker queue purge orders --yes
    """
    confirm(f"Delete all ready messages of queue {name}?", yes)
    BrokerApi(url).delete("queues", vhost, name, "contents")
    typer.echo(f"purged queue {name}")


@queue.command(name="get")
def get_messages(
    name: RemoteQueue,
    count: Annotated[int, typer.Option(help="How many messages.", min=1)] = 1,
    take: Annotated[
        bool, typer.Option("--take", help="Delete them from the queue; else they stay there.")
    ] = False,
    vhost: Vhost = "/",
    url: BrokerUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print the next messages of a queue; they stay in it, and are then marked as redelivered. Exit code 1: none.

    Example: headgate broker queue get orders --count 10
    """
    mode = "ack_requeue_false" if take else "ack_requeue_true"
    body = {"count": count, "ackmode": mode, "encoding": "auto"}
    rows: list[Any] = BrokerApi(url).post("queues", vhost, name, "get", body=body)
    columns: ShownColumns = {
        "exchange": "exchange",
        "key": "routing_key",
        "headers": "properties.headers",
        "payload": "payload",
    }
    print_rows(rows, columns, as_json)
    raise typer.Exit(0 if rows else 1)


@queue.command(name="browse")
def browse(
    name: RemoteQueue,
    filter: Annotated[
        str, typer.Option("--filter", help="Only messages that match.", metavar="FILTER")
    ] = "",
    limit: Annotated[int, typer.Option(help="How many messages, at most.", min=1)] = 20,
    vhost: Vhost = "/",
    url: BrokerUrl = None,
    as_json: AsJson = False,
) -> None:
    """Look at messages of a queue that match a filter; nothing is taken or marked.

    Example: headgate broker queue browse orders --filter "amount > 1000"
    """
    path = ("headgate", "queues", vhost, name, "messages")
    answer = BrokerApi(url).get(*path, filter=filter, limit=str(limit))
    if as_json:
        print_json_lines(answer["items"])
        return
    columns: ShownColumns = {"position": "position", "key": "routing_key", "headers": "headers", "payload": "payload"}  # fmt: skip
    print_rows(answer["items"], columns, False)
