"""headgate policy, parameter, definitions, broker: how a running broker behaves, as a whole."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer

from headgate.cli.arguments import AsJson, Headers, parse_headers
from headgate.cli.output import print_json, write_text
from headgate.cli.remote.client import (
    ApiObject,
    BrokerApi,
    BrokerUrl,
    Vhost,
    print_facts,
    print_rows,
)
from headgate.cli.remote.super_streams import super_stream
from headgate.cli.remote.topology import queue
from headgate.errors import HeadgateError

policy = typer.Typer(no_args_is_help=True)
parameter = typer.Typer(no_args_is_help=True)
definitions = typer.Typer(no_args_is_help=True)
broker = typer.Typer(no_args_is_help=True)
broker.add_typer(queue, name="queue")
broker.add_typer(super_stream, name="super-stream")

PolicyName: TypeAlias = Annotated[str, typer.Argument(help="The policy's name.", metavar="POLICY")]
OfOperator: TypeAlias = Annotated[
    bool,
    typer.Option("--operator", help="An operator policy, which limits what policies may say."),
]
GLOBAL: Final = "global-parameters"
JsonText: TypeAlias = Annotated[str, typer.Argument(help="The value, as JSON.", metavar="JSON")]


def _kind(of_operator: bool) -> str:
    return "operator-policies" if of_operator else "policies"


def parse_json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as problem:
        raise HeadgateError(f"{what} is not JSON: {problem}") from problem


@policy.command(name="ls")
def list_policies(
    operator: OfOperator = False, url: BrokerUrl = None, as_json: AsJson = False
) -> None:
    """List policies.

    Example: headgate policy ls
    """
    names = ("vhost", "name", "pattern", "apply-to", "priority", "definition")
    rows = BrokerApi(url).get(_kind(operator))
    print_rows(rows, {name: name for name in names}, as_json)


@policy.command(name="set")
def set_policy(
    name: PolicyName,
    pattern: Annotated[
        str,
        typer.Argument(
            help="A regular expression: the names it is for contain a match.", metavar="PATTERN"
        ),
    ],
    definition: Annotated[
        str, typer.Argument(help="Keys and values that it sets, as JSON.", metavar="JSON")
    ],
    priority: Annotated[int, typer.Option(help="Of several that match, the highest counts.")] = 0,
    apply_to: Annotated[
        str, typer.Option(help="all, queues, classic_queues, quorum_queues, streams or exchanges.")
    ] = "all",
    operator: OfOperator = False,
    vhost: Vhost = "/",
    url: BrokerUrl = None,
) -> None:
    """Set a policy; queues and exchanges that it matches change at once.

    Example: headgate policy set short '^cache\\.' '{"max-length": 1000}' --apply-to queues
    """
    body = {
        "pattern": pattern,
        "definition": parse_json(definition, "the definition"),
        "priority": priority,
        "apply-to": apply_to,
    }
    BrokerApi(url).put(_kind(operator), vhost, name, body=body)
    typer.echo(f"set policy {name}")


@policy.command(name="rm")
def remove_policy(
    name: PolicyName, operator: OfOperator = False, vhost: Vhost = "/", url: BrokerUrl = None
) -> None:
    """Delete a policy; what it said is undone.

    Example: headgate policy rm short
    """
    BrokerApi(url).delete(_kind(operator), vhost, name)
    typer.echo(f"deleted policy {name}")


# ---- parameters


ComponentName: TypeAlias = Annotated[
    str, typer.Argument(help="What the parameter is for, such as shovel.", metavar="COMPONENT")
]
ParameterName: TypeAlias = Annotated[
    str, typer.Argument(help="The parameter's name.", metavar="NAME")
]


@parameter.command(name="ls")
def list_parameters(
    of_all: Annotated[
        bool, typer.Option("--global", help="Those that belong to no virtual host.")
    ] = False,
    url: BrokerUrl = None,
    as_json: AsJson = False,
) -> None:
    """List runtime parameters.

    Example: headgate parameter ls
    """
    names = ("name", "value") if of_all else ("vhost", "component", "name", "value")
    rows = BrokerApi(url).get(GLOBAL if of_all else "parameters")
    print_rows(rows, {name: name for name in names}, as_json)


@parameter.command(name="set")
def set_parameter(
    component: ComponentName,
    name: ParameterName,
    value: JsonText,
    vhost: Vhost = "/",
    url: BrokerUrl = None,
) -> None:
    """Set a runtime parameter.

    Example: headgate parameter set shovel move '{"src-uri": "amqp://old", "src-queue": "q", "dest-uri": "amqp://", "dest-queue": "q"}'
    """
    body = {"value": parse_json(value, "the value")}
    BrokerApi(url).put("parameters", component, vhost, name, body=body)
    typer.echo(f"set parameter {name} of {component}")


@parameter.command(name="rm")
def remove_parameter(
    component: ComponentName, name: ParameterName, vhost: Vhost = "/", url: BrokerUrl = None
) -> None:
    """Clear a runtime parameter.

    Example: headgate parameter rm shovel move
    """
    BrokerApi(url).delete("parameters", component, vhost, name)
    typer.echo(f"cleared parameter {name} of {component}")


@parameter.command(name="set-global")
def set_global_parameter(name: ParameterName, value: JsonText, url: BrokerUrl = None) -> None:
    """Set a global parameter.

    Example: headgate parameter set-global cluster_tags '{"region": "eu"}'
    """
    BrokerApi(url).put(GLOBAL, name, body={"value": parse_json(value, "the value")})
    typer.echo(f"set global parameter {name}")


@parameter.command(name="rm-global")
def remove_global_parameter(name: ParameterName, url: BrokerUrl = None) -> None:
    """Clear a global parameter.

    Example: headgate parameter rm-global cluster_tags
    """
    BrokerApi(url).delete(GLOBAL, name)
    typer.echo(f"cleared global parameter {name}")


# ---- definitions


OneVhost: TypeAlias = Annotated[
    str | None, typer.Option("--vhost", "-p", help="Only this virtual host.", metavar="VHOST")
]


@definitions.command(name="export")
def export_definitions(
    file: Annotated[
        Path | None, typer.Argument(help="Where to; else standard output.", metavar="FILE")
    ] = None,
    vhost: OneVhost = None,
    url: BrokerUrl = None,
) -> None:
    """Write users, virtual hosts, permissions, policies, queues, exchanges and bindings as RabbitMQ's JSON.

    Example: headgate definitions export definitions.json
    """
    document = BrokerApi(url).get("definitions", *([vhost] if vhost is not None else []))
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    if file is None:
        typer.echo(text, nl=False)
    else:
        write_text(file, text)


@definitions.command(name="import")
def import_definitions(
    file: Annotated[
        Path, typer.Argument(help="RabbitMQ's definitions; - for standard input.", metavar="FILE")
    ],
    vhost: OneVhost = None,
    url: BrokerUrl = None,
) -> None:
    """Declare everything that definitions of RabbitMQ or Headgate name; what exists stays.

    Example: headgate definitions import definitions.json
    """
    text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    document = parse_json(text, str(file))
    BrokerApi(url).post("definitions", *([vhost] if vhost is not None else []), body=document)
    typer.echo(f"imported {file}")


# ---- the broker


@broker.command(name="overview")
def show_overview(url: BrokerUrl = None, as_json: AsJson = False) -> None:
    """Show how many objects and messages there are, and how fast messages flow.

    Example: headgate broker overview
    """
    row = BrokerApi(url).get("overview")
    if as_json:
        print_json(row)
        return
    stats: ApiObject = row.get("message_stats", {})
    facts = {
        "version": f"{row['headgate_version']}, to clients {row['product_name']} {row['product_version']}",
        "name": row["cluster_name"],
        **row["object_totals"],
        "ready": row["queue_totals"]["messages_ready"],
        "unacknowledged": row["queue_totals"]["messages_unacknowledged"],
        "published/s": stats["publish_details"]["rate"],
        "delivered/s": stats["deliver_get_details"]["rate"],
        "acknowledged/s": stats["ack_details"]["rate"],
    }
    print_facts(facts, False)


@broker.command(name="health")
def check_health(url: BrokerUrl = None, as_json: AsJson = False) -> None:
    """Ask whether an alarm blocks publishers. Exit code 1: one does; 2: the broker does not answer.

    Example: headgate broker health
    """
    api = BrokerApi(url)
    [node] = api.get("nodes")
    alarms = [name for name in ("mem_alarm", "disk_free_alarm") if node[name]]
    if as_json:
        print_json({"alarms": alarms})
    else:
        typer.echo(", ".join(alarms) or f"{api.place} is well")
    raise typer.Exit(1 if alarms else 0)


@broker.command(name="trace")
def trace(
    exchange: Annotated[str, typer.Argument(help="The exchange's name.", metavar="EXCHANGE")],
    key: Annotated[str, typer.Option("--key", "-k", help="The routing key.")] = "",
    header: Headers = [],  # noqa: B006
    vhost: Vhost = "/",
    url: BrokerUrl = None,
) -> None:
    """Print, as JSON, where a message would go, and why other bindings do not take it. Nothing is published.

    Example: headgate broker trace orders --key orders.eu -H region=EU
    """
    body = {"exchange": exchange, "routing_key": key, "headers": parse_headers(header)}
    print_json(BrokerApi(url).post("headgate", "trace", vhost, body=body))
