"""headgate queue ack and nack: settle what `headgate queue claim` printed."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Final, TypeAlias

import typer

from headgate import queues
from headgate.cli.arguments import DatabaseUrl, QueueName, open_database, parse_duration
from headgate.errors import HeadgateError, StaleLease
from headgate.quantities import counted

app = typer.Typer()

Receipts: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(
        help="ID:TOKEN of each message; without any, the lines that claim --json printed are read.",
        metavar="[ID:TOKEN]...",
    ),
]

_RECEIPT: Final = re.compile(r"(\d{1,19}):(\d{1,19})")
_EXAMPLE: Final = '{"delivery": {"id": 17, "token": 3}}'


@app.command()
def ack(queue: QueueName, receipts: Receipts = None, db: DatabaseUrl = None) -> None:
    """Acknowledge claimed messages: they are done. Exit code 1: the lease of one had ended.

    headgate queue claim orders --json > claimed.jsonl, and later: headgate queue ack orders < claimed.jsonl

    Example: headgate queue ack orders 17:3
    """
    _settle_all(queue, receipts, db, "acked", queues.Delivery.ack)


@app.command()
def nack(
    queue: QueueName,
    receipts: Receipts = None,
    db: DatabaseUrl = None,
    delay: Annotated[
        str | None, typer.Option(help="Retry after this time, for example 30s.")
    ] = None,
    reason: Annotated[
        str | None, typer.Option(help="Why it failed; a dead letter shows it.")
    ] = None,
    dead: Annotated[
        bool, typer.Option("--dead", help="Do not retry: make it a dead letter now.")
    ] = False,
) -> None:
    """Give claimed messages back as failed: they are retried, or are dead letters after their last attempt.

    Exit code 1: the lease of one had ended.

    Example: headgate queue nack orders 17:3 --delay 30s
    """
    span = parse_duration(delay)
    _settle_all(
        queue,
        receipts,
        db,
        "nacked",
        lambda delivery: delivery.nack(span, reason=reason, requeue=not dead),
    )


def _settle_all(
    queue: str,
    receipts: list[str] | None,
    url: str | None,
    done: str,
    settle: Callable[[queues.Delivery], None],
) -> None:
    """Settle each receipt as soon as it is read: the lines may come from a program that is still working."""
    given = read_lines(sys.stdin) if not receipts else map(parse_receipt, receipts)
    settled, stale = 0, []
    with open_database(url) as database:
        found = database.find(queue)
        for id, token in given:
            try:
                settle(found.delivery(id, token))
                settled += 1
            except StaleLease:
                stale.append(id)
    typer.echo(f"{done} {counted(settled, 'message')}")
    if stale:
        ids = ", ".join(map(str, stale))
        typer.echo(f"not {done}, for the lease had ended or the message is gone: {ids}", err=True)
    raise typer.Exit(1 if stale else 0)


def parse_receipt(text: str) -> tuple[int, int]:
    """`17:3`: the id of a delivery, and the token of its lease."""
    found = _RECEIPT.fullmatch(text)
    if found is None:
        raise HeadgateError(f"{text!r} is no receipt; write ID:TOKEN, as claim prints it")
    return int(found[1]), int(found[2])


def read_lines(lines: Iterable[str]) -> Iterator[tuple[int, int]]:
    """The receipt of each line that is not empty, as claim --json prints it."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            delivery = _delivery_of(line, number)
            id, token = delivery.get("id"), delivery.get("token")
            if type(id) is not int or type(token) is not int:
                raise HeadgateError(
                    f"line {number}: a delivery has an id and a token: {_EXAMPLE}; only what `claim` printed has a token"
                )
            yield id, token


def _delivery_of(line: str, number: int) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise HeadgateError(
            f"line {number} is not valid JSON: {problem}; give what claim --json printed, such as {_EXAMPLE}"
        ) from None
    delivery = found.get("delivery") if isinstance(found, dict) else None
    if not isinstance(delivery, dict):
        raise HeadgateError(
            f"line {number} has no delivery; give what claim --json printed, such as {_EXAMPLE}"
        )
    return delivery
