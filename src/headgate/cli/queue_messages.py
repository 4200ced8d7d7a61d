"""headgate queue publish, claim, peek, browse, archive, tail, purge, prune and dead: messages into a queue, and out of it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Annotated, Any, Final, TypeAlias
from uuid import uuid4

import typer

from headgate import filters, insights, queues
from headgate.cli.arguments import (
    AsJson,
    DatabaseUrl,
    FilterOption,
    Follow,
    Headers,
    HeadersOnly,
    Limit,
    Priority,
    QueueName,
    Yes,
    confirm,
    open_database,
    parse_duration,
    parse_headers,
)
from headgate.cli.messages import Printer, from_json_lines
from headgate.cli.output import print_json, print_warnings
from headgate.cli.stop_signals import watch_stop_signals
from headgate.errors import HeadgateError
from headgate.quantities import counted

app = typer.Typer()
dead_app = typer.Typer(no_args_is_help=True)
app.add_typer(dead_app, name="dead", help="Dead letters: list and requeue them.")

BrowseLimit: TypeAlias = Annotated[
    int | None,
    typer.Option("-n", "--limit", min=0, max=2**31 - 1, help="The largest number of messages."),
]

_BATCH: Final = 1000  # lines published in one transaction


@app.command()
def publish(
    queue: QueueName,
    payload: Annotated[
        str | None,
        typer.Argument(help="The payload; without it, JSON lines are read.", metavar="PAYLOAD"),
    ] = None,
    db: DatabaseUrl = None,
    topic: Annotated[
        str | None, typer.Option(help="The topic; by default the queue's name.")
    ] = None,
    header: Headers = [],  # noqa: B006
    priority: Priority = 0,
    delay: Annotated[
        str | None, typer.Option(help="Deliver it after this time, for example 30s.")
    ] = None,
    dedup_key: Annotated[
        str | None, typer.Option(help="Publish only one message with this key in the dedup window.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="Messages of a group are claimed one at a time, in order.")
    ] = None,
    ttl: Annotated[
        str | None, typer.Option(help="Delete it unless it was claimed within this time.")
    ] = None,
    unique: Annotated[
        str | None, typer.Option(help="Publish it only if no message with this key is pending.")
    ] = None,
    result: Annotated[
        bool, typer.Option("--result", help="Keep what the handler returns, see `queue result`.")
    ] = False,
) -> None:
    """Publish one message, or every JSON line of standard input.

    What `claim`, `peek` and `browse` print with --json can be published again. --topic, --header and --priority fill in
    what a line does not have; --delay, --group and --ttl apply to every line.

    Example: headgate queue publish orders hello -H region=EU --delay 30s
    """
    common: dict[str, Any] = {
        "topic": queue if topic is None else topic,
        "headers": parse_headers(header),
        "priority": priority,
    }
    span, life = parse_duration(delay), parse_duration(ttl)
    with open_database(db) as database:
        found = database.find(queue)
        if payload is not None:
            id = found.publish(
                payload.encode(),
                **common,
                delay=span,
                dedup_key=dedup_key,
                group=group,
                ttl=life,
                unique=unique,
                result=result,
            )
            typer.echo(f"published message {id}")
            return
        if dedup_key is not None or unique is not None:
            raise HeadgateError(
                "a dedup key is for one message; give its payload, or no --dedup-key and no --unique"
            )
        if result:
            raise HeadgateError("a result is for one message; give its payload, or no --result")
        messages = from_json_lines(sys.stdin, common)
        count = _publish_all(
            found,
            (
                queues.Publication(
                    m,
                    queues.microseconds("delay", span),
                    None,
                    group,
                    queues.microseconds("ttl", life) or None,
                )
                for m in messages
            ),
        )
        typer.echo(f"published {counted(count, 'message')}")


def _publish_all(queue: queues.Queue, publications: Iterator[queues.Publication]) -> int:
    count = 0
    while batch := list(islice(publications, _BATCH)):
        count += len(queue.publish_many(batch))
    return count


@app.command()
def result(
    id: Annotated[
        int, typer.Argument(help="The id that `publish --result` printed.", metavar="ID")
    ],
    db: DatabaseUrl = None,
    wait: Annotated[
        str | None, typer.Option(help="Wait up to this time until it is done or has failed.")
    ] = None,
) -> None:
    """Print what the handler of a message returned, as JSON. Exit code 1: it is not done.

    Example: headgate queue result 17 --wait 30s
    """
    with open_database(db, "look") as database:
        found = database.result(id, wait=parse_duration(wait))
    if found is None:
        raise HeadgateError(
            f"message {id} has no result: it was published without --result, or the result has expired"
        )
    if found.state == "done":
        print_json(found.value)
        return
    reason = f": {found.reason}" if found.reason else ""
    typer.echo(f"{found.state}{reason}", err=True)
    raise typer.Exit(1)


@app.command()
def claim(
    queue: QueueName,
    db: DatabaseUrl = None,
    limit: Limit = 1,
    lease: Annotated[str, typer.Option(help="How long the claim lasts.")] = "30s",
    filter: FilterOption = "",
    ack: Annotated[
        bool, typer.Option("--ack", help="Acknowledge each message after printing it.")
    ] = False,
    as_json: AsJson = False,
    headers_only: HeadersOnly = False,
) -> None:
    """Claim messages and print them; without --ack they are ready again when the lease ends. Exit code 1: none.

    Each line begins with ID:TOKEN, which `headgate queue ack` and `nack` take.

    Example: headgate queue claim orders -n 10 --filter "region = 'EU'" --ack
    """
    printer = Printer(as_json, headers_only)
    with open_database(db) as database:
        found = _find(database, queue, filter).claim(limit, parse_duration(lease), filter or None)
        for delivery in found:
            receipt = f"{delivery.id}:{delivery.token}"
            _print_claimed(delivery, printer, delivery.id if ack else receipt)
            if ack:
                delivery.ack()
    raise typer.Exit(0 if found else 1)


def _find(database: queues.Database, name: str, filter: str) -> queues.Queue:
    """The queue; on stderr, what is doubtful about the filter."""
    queue = database.find(name)
    print_warnings(insights.warn_of_filter(filter, queue=queue))
    return queue


def _print_claimed(delivery: queues.Delivery, printer: Printer, number: int | str) -> None:
    facts = {"id": delivery.id, "token": delivery.token, "attempts": delivery.attempts}
    printer.print(delivery.message, number, {"delivery": facts})


@app.command()
def peek(
    queue: QueueName,
    db: DatabaseUrl = None,
    limit: Limit = 10,
    filter: FilterOption = "",
    as_json: AsJson = False,
    headers_only: HeadersOnly = False,
) -> None:
    """Show the messages that a claim would take first; nothing changes.

    Example: headgate queue peek orders -n 3
    """
    with open_database(db, "look") as database:
        found = _find(database, queue, filter).peek(limit, filter or None)
        _print_snapshots(found, Printer(as_json, headers_only))


@app.command()
def browse(
    queue: QueueName,
    db: DatabaseUrl = None,
    state: Annotated[
        str | None, typer.Option(help="Only messages that are ready, delayed, leased or dead.")
    ] = None,
    limit: BrowseLimit = None,
    filter: FilterOption = "",
    as_json: AsJson = False,
    headers_only: HeadersOnly = False,
) -> None:
    """Show all messages of a queue, in the order they were published.

    Example: headgate queue browse orders --state leased --json
    """
    with open_database(db, "look") as database:
        found = _find(database, queue, filter).browse(_parse_state(state), filter or None)
        _print_snapshots(islice(found, limit), Printer(as_json, headers_only))


@app.command()
def archive(
    queue: QueueName,
    db: DatabaseUrl = None,
    limit: BrowseLimit = None,
    filter: FilterOption = "",
    as_json: AsJson = False,
    headers_only: HeadersOnly = False,
) -> None:
    """Show the acknowledged messages of a queue that keeps an archive (create --archive), by id.

    Example: headgate queue archive orders -n 20
    """
    matches = filters.compile_filter(filter)
    print_warnings(insights.warn_of_filter(filter))
    with open_database(db, "look") as database:
        found = database.find(queue)
        if not found.info.options.archive:
            typer.echo(
                f"{queue} keeps no archive now; `headgate queue create {queue} --archive` begins one",
                err=True,
            )
        shown = (each for each in found.archived() if matches(each.message))
        printer = Printer(as_json, headers_only)
        for each in islice(shown, limit):
            facts = {"id": each.id, "attempts": each.attempts}
            printer.print(each.message, each.id, {"delivery": facts})


def _parse_state(name: str | None) -> queues.State | None:
    if name is None:
        return None
    try:
        return queues.State[name.upper()]
    except KeyError:
        known = ", ".join(state.name.lower() for state in queues.State)
        raise HeadgateError(f"there is no state {name!r}; there are {known}") from None


def _print_snapshots(found: Iterable[queues.DeliverySnapshot], printer: Printer) -> None:
    for snapshot in found:
        facts = {
            "id": snapshot.id,
            "state": snapshot.state.name.lower(),
            "attempts": snapshot.attempts,
            **({"group": snapshot.group} if snapshot.group else {}),
            **({"reason": snapshot.reason} if snapshot.reason else {}),
        }
        note = "" if snapshot.state is queues.State.READY else _state_text(snapshot)
        printer.print(snapshot.message, snapshot.id, {"delivery": facts}, note=note)


def _state_text(snapshot: queues.DeliverySnapshot) -> str:
    """`dead after 3 attempts: ValueError: no address`."""
    state = snapshot.state.name.lower()
    after = f" after {counted(snapshot.attempts, 'attempt')}" if snapshot.attempts else ""
    return f"{state}{after}" + (f": {snapshot.reason}" if snapshot.reason else "")


@app.command()
def tail(
    queue: QueueName,
    db: DatabaseUrl = None,
    filter: FilterOption = "",
    follow: Follow = True,
    as_json: AsJson = False,
    headers_only: HeadersOnly = False,
) -> None:
    """Show messages as they are published to a queue, until interrupted; its consumers get them as well.

    It always follows; -f is accepted as in `tail -f`.

    Example: headgate queue tail orders --filter "amount > 1000"
    """
    name = f"tail-{uuid4().hex[:12]}"
    with open_database(db) as database:
        found = _find(database, queue, filter)
        tailed = database.subscription(name, filter, queue=found.name)
        try:
            _print_until_interrupted(tailed, Printer(as_json, headers_only))
        finally:
            database.delete(name)


def _print_until_interrupted(tailed: queues.Queue, printer: Printer) -> None:
    def show(delivery: queues.Delivery) -> None:
        _print_claimed(delivery, printer, delivery.id)

    with suppress(KeyboardInterrupt), watch_stop_signals() as signals, tailed.consumer(show):
        signals.wait()


@app.command()
def purge(
    queue: QueueName,
    db: DatabaseUrl = None,
    state: Annotated[
        str | None,
        typer.Option(
            help="Messages that are ready, delayed, leased or dead; without it, all that are ready or delayed."
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Delete the waiting messages of a queue, or all in one state.

    Example: headgate queue purge orders --state dead --yes
    """
    confirm(f"Purge {queue}?", yes)
    with open_database(db) as database:
        typer.echo(f"purged {counted(database.find(queue).purge(_parse_state(state)), 'message')}")


@app.command()
def prune(
    queue: QueueName,
    older_than: Annotated[
        str, typer.Option(help="Delete what was published longer ago than this, for example 7d.")
    ],
    db: DatabaseUrl = None,
    yes: Yes = False,
) -> None:
    """Delete old messages of a queue, dead letters and its archive included; leased ones stay.

    Example: headgate queue prune orders --older-than 7d
    """
    span = parse_duration(older_than)
    confirm(f"Delete everything in {queue} that is older than {older_than}?", yes)
    with open_database(db) as database:
        typer.echo(f"pruned {counted(database.find(queue).prune(span), 'message')}")


@dead_app.command(name="ls")
def list_dead(
    queue: QueueName,
    db: DatabaseUrl = None,
    filter: FilterOption = "",
    as_json: AsJson = False,
    headers_only: HeadersOnly = False,
) -> None:
    """Show the dead letters of a queue.

    Example: headgate queue dead ls orders
    """
    with open_database(db, "look") as database:
        found = _find(database, queue, filter).dead(filter or None)
        _print_snapshots(found, Printer(as_json, headers_only))


@dead_app.command()
def requeue(
    queue: QueueName,
    ids: Annotated[list[int] | None, typer.Argument(help="Their ids; without any, all.")] = None,
    db: DatabaseUrl = None,
) -> None:
    """Make dead letters ready again, with their attempts counted from zero.

    Example: headgate queue dead requeue orders 17
    """
    with open_database(db) as database:
        typer.echo(f"requeued {counted(database.find(queue).requeue(ids or None), 'message')}")
