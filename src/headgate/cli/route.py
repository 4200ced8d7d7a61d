"""headgate route: who would receive this message, and why not the others?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from headgate import insights, routing
from headgate.cli.arguments import AsJson, Headers, parse_headers
from headgate.cli.output import print_json, terminal


def route(
    topology: Annotated[
        Path,
        typer.Option(
            help="The topology: a .toml of Headgate, or a .json of RabbitMQ's definitions.",
            metavar="FILE",
        ),
    ],
    exchange: Annotated[str, typer.Option(help="The exchange the message is published to.")],
    topic: Annotated[str, typer.Option(help="Its topic: the routing key.")] = "",
    header: Headers = [],  # noqa: B006
    priority: Annotated[int, typer.Option(help="Its priority, for filters that read it.")] = 0,
    vhost: Annotated[
        str | None,
        typer.Option(help="Which vhost of RabbitMQ's definitions, if there are several."),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            help="Print at most this number of bindings that did not match; 0 for all.", min=0
        ),
    ] = 50,
    as_json: AsJson = False,
) -> None:
    """Print who receives a message and, for every other binding, the first condition that failed.

    Nothing is published. Exit code 1 when no queue receives it.

    Example: headgate route --topology orders.toml --exchange orders --topic orders.eu -H region=EU
    """
    loaded = routing.Topology.load(topology, vhost=vhost)
    headers = parse_headers(header)
    facts = insights.explain_route(
        loaded, exchange, topic=topic, headers=headers, priority=priority
    )
    if as_json:
        print_json(_as_json(facts))
    else:
        _print(facts, limit)
    raise typer.Exit(1 if facts.unroutable else 0)


def _print(facts: insights.RouteFacts, limit: int) -> None:
    console = terminal()
    matched = [binding for binding in facts.bindings if binding.matched]
    failed = [binding for binding in facts.bindings if not binding.matched]
    if matched:
        console.print(_table("matched", matched))
    if failed:
        shown = failed[:limit] if limit else failed
        console.print(_table("did not match, and the first reason", shown))
        if len(shown) < len(failed):
            console.print(f"… and {len(failed) - len(shown):,} more; --limit 0 prints all")
    console.print(f"via: {' → '.join(name or '(default)' for name in facts.via)}", markup=False)
    names = ", ".join(facts.queues) or "no queue: the message is unroutable"
    console.print(f"received by: {names}", markup=False, soft_wrap=True)


def _table(title: str, bindings: Sequence[insights.BindingFacts]) -> Table:
    table = Table("exchange", "to", "binding", title=title, title_justify="left")
    why = any(binding.why_not for binding in bindings)
    if why:
        table.add_column("failed", overflow="fold")
    for binding in bindings:
        to_queue = binding.destination_type == "queue"
        target = binding.destination if to_queue else f"exchange {binding.destination}"
        cells = [f"{binding.source} ({binding.source_type})", target, binding.condition]
        table.add_row(*map(Text, cells + ([binding.why_not] if why else [])))
    return table


def _as_json(facts: insights.RouteFacts) -> dict[str, Any]:
    return {
        "queues": list(facts.queues),
        "unroutable": facts.unroutable,
        "via": list(facts.via),
        "bindings": [_binding_json(binding) for binding in facts.bindings],
    }


def _binding_json(binding: insights.BindingFacts) -> dict[str, Any]:
    return {
        "source": binding.source,
        "destination": binding.destination,
        "destination_type": binding.destination_type,
        "key": binding.key,
        "arguments": {name: _json_value(value) for name, value in binding.arguments.items()},
        "matched": binding.matched,
        "why_not": binding.why_not,
    }


def _json_value(value: Any) -> Any:
    plain = isinstance(value, str | int | float | bool | list | dict | None)
    return value if plain else repr(value)
