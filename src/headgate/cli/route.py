"""headgate route: who would receive this message, and why not the others?"""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headgate.cli.arguments import parse_headers
from headgate.cli.options import AsJson, Headers
from headgate.message import Message
from headgate.routing import X_FILTER, X_MATCH, Envelope, Explained, Reason, Topology


def route(
    topology: Annotated[
        Path,
        typer.Option(
            help="The topology: our .toml, or a .json of RabbitMQ's definitions.", metavar="FILE"
        ),
    ],
    exchange: Annotated[str, typer.Option(help="The exchange the message is published to.")],
    topic: Annotated[str, typer.Option(help="Its topic: the routing key.")] = "",
    header: Headers = [],  # noqa: B006
    priority: Annotated[int, typer.Option(help="Its priority, for filters that ask.")] = 0,
    vhost: Annotated[
        str | None,
        typer.Option(help="Which vhost of RabbitMQ's definitions, if there are several."),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(help="Print at most so many bindings that did not match; 0 for all.", min=0),
    ] = 50,
    as_json: AsJson = False,
) -> None:
    """Print who receives a message and, for every other binding, the first condition that failed.

    Nothing is published. Exit code 1 when no queue receives it.
    """
    loaded = Topology.load(topology, vhost=vhost)
    headers: dict[str, Any] = parse_headers(header)
    envelope = Envelope(topic, headers)
    asked = Envelope(
        topic, headers, lambda: Message(b"", topic, envelope.message.headers, priority)
    )
    explained = loaded.explain(exchange, asked)
    if as_json:
        typer.echo(json.dumps(_as_json(explained), ensure_ascii=False))
    else:
        _print(loaded, explained, limit)
    raise typer.Exit(1 if explained.routed.unroutable else 0)


def _print(topology: Topology, explained: Explained, limit: int) -> None:
    console = Console(highlight=False)
    routed = explained.routed
    matched = [reason for reason in explained.reasons if reason.matched]
    failed = [reason for reason in explained.reasons if not reason.matched]
    if matched:
        console.print(_table("matched", matched, topology))
    if failed:
        shown = failed[:limit] if limit else failed
        console.print(_table("did not match, and the first reason", shown, topology))
        if len(shown) < len(failed):
            console.print(f"… and {len(failed) - len(shown):,} more; --limit 0 prints all")
    console.print(f"via: {' → '.join(name or '(default)' for name in routed.via)}", markup=False)
    names = ", ".join(sorted(routed.queues)) if routed.queues else "nobody: it is unroutable"
    console.print(f"received by: {names}", markup=False, soft_wrap=True)


def _table(title: str, reasons: list[Reason], topology: Topology) -> Table:
    table = Table("exchange", "to", "binding", title=title, title_justify="left")
    why = any(reason.why_not for reason in reasons)
    if why:
        table.add_column("failed", overflow="fold")
    for source, part in groupby(reasons, key=lambda reason: reason.binding.source):
        kind = topology.exchanges[source].type
        for reason in part:
            cells = [f"{source} ({kind})", _target(reason), _condition(reason)]
            table.add_row(*map(Text, cells + ([reason.why_not] if why else [])))
    return table


def _target(reason: Reason) -> str:
    binding = reason.binding
    return binding.destination if binding.kind == "queue" else f"exchange {binding.destination}"


def _condition(reason: Reason) -> str:
    """What the binding asks for, in one line."""
    arguments = reason.binding.arguments
    match, text = arguments.pop(X_MATCH, None), arguments.pop(X_FILTER, None)
    pairs = [f"{k} is there" if v is None else f"{k} = {v!r}" for k, v in arguments.items()]
    said = [f"key {reason.binding.key!r}"] if reason.binding.key else []
    said += [(f"{match} of " if match else "") + ", ".join(pairs)] if pairs else []
    said += [f"filter {text}"] if text else []
    return "; ".join(said) or "everything"


def _as_json(explained: Explained) -> dict[str, Any]:
    routed = explained.routed
    return {
        "queues": sorted(routed.queues),
        "unroutable": routed.unroutable,
        "via": list(routed.via),
        "bindings": [
            {
                "source": reason.binding.source,
                "destination": reason.binding.destination,
                "destination_type": reason.binding.kind,
                "key": reason.binding.key,
                "arguments": {k: _sayable(v) for k, v in reason.binding.arguments.items()},
                "matched": reason.matched,
                "why_not": reason.why_not,
            }
            for reason in explained.reasons
        ],
    }


def _sayable(value: Any) -> Any:
    return (
        value if isinstance(value, str | int | float | bool | list | dict | None) else repr(value)
    )
