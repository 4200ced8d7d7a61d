"""headgate queue: declare, publish, claim, look, tidy."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from threading import Event
from typing import Annotated, Any, TypeAlias
from uuid import uuid4

import typer
from rich.console import Console
from rich.table import Table

from headgate.cli import messages
from headgate.cli.arguments import parse_duration, parse_headers
from headgate.errors import HeadgateError
from headgate.message import Message
from headgate.queues.contract import QueueInfo, Standing, State, Usage
from headgate.queues.database import Database, connect
from headgate.queues.delivery import Delivery
from headgate.queues.queue import Queue
from headgate.settings import load_settings

app = typer.Typer(no_args_is_help=True)
dead_app = typer.Typer(no_args_is_help=True)
index_app = typer.Typer(no_args_is_help=True)
app.add_typer(dead_app, name="dead", help="Dead letters: look at them, give them another life.")
app.add_typer(index_app, name="index", help="What makes filtered claims cheap.")

QueueName: TypeAlias = Annotated[str, typer.Argument(help="The queue's name.", metavar="QUEUE")]
DatabaseUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--db",
        help="sqlite:///orders.db or postgresql://…; by default the setting `database`.",
        metavar="URL",
    ),
]
FilterText: TypeAlias = Annotated[
    str,
    typer.Option("--filter", "-f", help="Only messages that match this filter.", metavar="FILTER"),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, a line each.")]
HeadersOnly: TypeAlias = Annotated[
    bool, typer.Option("--headers-only", help="Leave the payloads out.")
]


@contextmanager
def opened(url: str | None) -> Iterator[Database]:
    with connect(load_settings(database=url).database) as database:
        yield database


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
    with opened(db) as database:
        database.queue(
            queue,
            filter_headers=filter_header or None,
            max_attempts=max_attempts,
            dedup_window=parse_duration(dedup_window),
            archive=archive,
        )
    typer.echo(f"queue {queue}")


@app.command(name="ls")
def list_queues(db: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """List queues and durable subscriptions."""
    with opened(db) as database:
        found = [database.find(info.name).stats() for info in database.queues()]
    if as_json:
        for stats in found:
            typer.echo(json.dumps({**info_json(stats.info), **_counts(stats)}, ensure_ascii=False))
        return
    table = Table("name", "kind", "ready", "delayed", "leased", "dead", "filter headers", "filter")
    for stats in found:
        counts = (f"{count:,}" for count in _counts(stats).values())
        headers = ", ".join(stats.info.options.filter_headers)
        table.add_row(stats.info.name, stats.info.kind, *counts, headers, stats.info.filter)
    Console(highlight=False).print(table)


def info_json(info: QueueInfo) -> dict[str, Any]:
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


def _counts(stats: Any) -> dict[str, int]:
    return {name: getattr(stats, name) for name in ("ready", "delayed", "leased", "dead")}


@app.command()
def info(queue: QueueName, db: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show a queue: its options and how much is in it."""
    with opened(db) as database:
        stats = database.find(queue).stats()
    shown = {**info_json(stats.info), **_counts(stats)}
    if stats.oldest_ready_us is not None:
        shown["oldest_ready_s"] = stats.oldest_ready_us / 1e6
    if as_json:
        typer.echo(json.dumps(shown, ensure_ascii=False))
        return
    table = Table(show_header=False)
    for name, value in shown.items():
        table.add_row(name.replace("_", " "), str(value))
    Console(highlight=False).print(table)


@app.command()
def publish(
    queue: QueueName,
    payload: Annotated[
        str | None, typer.Argument(help="The payload; without it, lines are read.")
    ] = None,
    db: DatabaseUrl = None,
    topic: Annotated[
        str | None, typer.Option(help="The topic; by default the queue's name.")
    ] = None,
    header: Annotated[
        list[str],
        typer.Option("--header", "-H", help="name=text, or name:=json for numbers and booleans."),
    ] = [],  # noqa: B006
    priority: Annotated[int, typer.Option(help="0 to 255, higher is more urgent.")] = 0,
    delay: Annotated[str | None, typer.Option(help="Not before so long, for example 30s.")] = None,
    dedup_key: Annotated[str | None, typer.Option(help="Published once under this key.")] = None,
    group: Annotated[str | None, typer.Option(help="One message of a group at a time.")] = None,
) -> None:
    """Publish one message, or every JSON line of standard input."""
    with opened(db) as database:
        face = database.find(queue)
        if payload is None:
            lines = enumerate((line for line in sys.stdin if line.strip()), 1)
            source = (messages.from_json_line(line, number) for number, line in lines)
            count = 0
            while batch := list(islice(source, 1000)):
                count += len(face.publish_many(batch))
            typer.echo(f"published {count:,} messages")
            return
        id = face.publish(
            payload.encode(),
            topic=topic,
            headers=parse_headers(header),
            priority=priority,
            delay=parse_duration(delay),
            dedup_key=dedup_key,
            group=group,
        )
    typer.echo(f"published {id}")


@app.command()
def claim(
    queue: QueueName,
    db: DatabaseUrl = None,
    limit: Annotated[int, typer.Option("-n", "--limit", help="So many at most.")] = 1,
    lease: Annotated[str, typer.Option(help="How long they are ours.")] = "30s",
    filter: FilterText = "",
    ack: Annotated[bool, typer.Option("--ack", help="Ack what was printed.")] = False,
    as_json: AsJson = False,
    headers_only: HeadersOnly = False,
) -> None:
    """Claim messages and print them; without --ack they come back when the lease ends. Exit code 1: none."""
    with opened(db) as database:
        span = parse_duration(lease)
        assert span is not None
        found = database.find(queue).claim(limit, span, filter or None)
        for delivery in found:
            _print_claimed(delivery, as_json, headers_only)
            if ack:
                delivery.ack()
    raise typer.Exit(0 if found else 1)


def _print_claimed(delivery: Delivery, as_json: bool, headers_only: bool) -> None:
    facts = {"id": delivery.id, "token": delivery.token, "attempts": delivery.attempts}
    _print(delivery.message, delivery.id, facts, as_json, headers_only)


def _print(
    message: Message, id: int, facts: dict[str, Any], as_json: bool, headers_only: bool
) -> None:
    if as_json:
        shown = messages.as_json(message, payload=not headers_only)
        typer.echo(json.dumps({"delivery": facts, **shown}, ensure_ascii=False))
    else:
        line = messages.message_text(message, offset=id, payload=not headers_only)
        Console(highlight=False, soft_wrap=True).print(line)


@app.command()
def peek(
    queue: QueueName,
    db: DatabaseUrl = None,
    limit: Annotated[int, typer.Option("-n", "--limit", help="So many at most.")] = 10,
    filter: FilterText = "",
    as_json: AsJson = False,
    headers_only: HeadersOnly = False,
) -> None:
    """Show what a claim would take first; nothing changes."""
    with opened(db) as database:
        _print_standings(database.find(queue).peek(limit, filter or None), as_json, headers_only)


@app.command()
def browse(
    queue: QueueName,
    db: DatabaseUrl = None,
    state: Annotated[
        str | None, typer.Option(help="Only those that are ready, delayed, leased or dead.")
    ] = None,
    limit: Annotated[int | None, typer.Option("-n", "--limit", help="So many at most.")] = None,
    filter: FilterText = "",
    as_json: AsJson = False,
    headers_only: HeadersOnly = False,
) -> None:
    """Show everything in a queue, in the order it was published."""
    with opened(db) as database:
        found = database.find(queue).browse(_state(state), filter or None)
        _print_standings(islice(found, limit), as_json, headers_only)


def _state(name: str | None) -> State | None:
    if name is None:
        return None
    try:
        return State[name.upper()]
    except KeyError:
        known = ", ".join(state.name.lower() for state in State)
        raise HeadgateError(f"there is no state {name!r}; there are {known}") from None


def _print_standings(found: Iterable[Standing], as_json: bool, headers_only: bool) -> None:
    for standing in found:
        facts = {
            "id": standing.id,
            "state": standing.state.name.lower(),
            "attempts": standing.attempts,
            **({"group": standing.group} if standing.group else {}),
            **({"reason": standing.reason} if standing.reason else {}),
        }
        _print(standing.message, standing.id, facts, as_json, headers_only)


@app.command()
def tail(
    queue: QueueName,
    db: DatabaseUrl = None,
    filter: FilterText = "",
    as_json: AsJson = False,
    headers_only: HeadersOnly = False,
) -> None:
    """Show what is published to a queue from now on, whoever consumes it, until interrupted."""
    name = f"tail-{uuid4().hex[:12]}"
    with opened(db) as database:
        watching = database.subscription(name, filter, queue=database.find(queue).name)
        try:
            _follow(watching, as_json, headers_only)
        finally:
            database.drop(name)


def _follow(watching: Queue, as_json: bool, headers_only: bool) -> None:
    stopped = Event()

    def show(delivery: Delivery) -> None:
        _print_claimed(delivery, as_json, headers_only)

    with watching.consumer(show), suppress(KeyboardInterrupt):
        stopped.wait()


@app.command()
def purge(
    queue: QueueName,
    db: DatabaseUrl = None,
    state: Annotated[
        str | None, typer.Option(help="Everything that is ready, delayed, leased or dead.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete what waits in a queue, or everything in one state."""
    if not yes and not typer.confirm(f"Purge {queue}?"):
        raise typer.Exit(1)
    with opened(db) as database:
        typer.echo(f"purged {database.find(queue).purge(_state(state)):,} messages")


@app.command()
def stats(queue: QueueName, db: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show what consumers of a queue did: claims, empty claims, time, failures."""
    with opened(db) as database:
        found = database.find(queue).stats()
    if as_json:
        usage = {name: _usage_json(used) for name, used in found.usage.items()}
        typer.echo(json.dumps({**info_json(found.info), **_counts(found), "consumers": usage}))
        return
    table = Table("consumer", *(name.replace("_", " ") for name in Usage.__dataclass_fields__))
    for name, used in found.usage.items():
        table.add_row(name, *(f"{count:,}" for count in _usage_json(used).values()))
    Console(highlight=False).print(table)


def _usage_json(usage: Usage) -> dict[str, int]:
    return {name: getattr(usage, name) for name in Usage.__dataclass_fields__}


@dead_app.command(name="ls")
def list_dead(
    queue: QueueName,
    db: DatabaseUrl = None,
    filter: FilterText = "",
    as_json: AsJson = False,
    headers_only: HeadersOnly = False,
) -> None:
    """Show the dead letters of a queue."""
    with opened(db) as database:
        _print_standings(database.find(queue).dead(filter or None), as_json, headers_only)


@dead_app.command()
def requeue(
    queue: QueueName,
    ids: Annotated[list[int] | None, typer.Argument(help="Which; without any, all.")] = None,
    db: DatabaseUrl = None,
) -> None:
    """Give dead letters another life: ready again, with no attempts counted."""
    with opened(db) as database:
        typer.echo(f"requeued {database.find(queue).requeue(ids or None):,} messages")


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
    with opened(db) as database:
        advice = database.find(queue).index_advise(filter)
    if as_json:
        shown = {name: getattr(advice, name) for name in advice.__dataclass_fields__}
        typer.echo(json.dumps(shown, ensure_ascii=False))
    else:
        for line in advice.plan:
            typer.echo(f"  {line}")
        for reason in advice.residual:
            typer.echo(f"checked in Python afterwards: {reason}")
        typer.echo(
            "reads messages in order until enough match" if advice.scans else "looked up by index"
        )
        for header in advice.suggestions:
            typer.echo(f"would help: headgate queue index add {queue} {header}")
    raise typer.Exit(1 if advice.scans and advice.suggestions else 0)
