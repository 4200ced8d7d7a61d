"""headgate stream publish, tail and scan: messages into a stream, and out of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from headgate import insights, streams
from headgate.cli.arguments import (
    AsJson,
    FilterOption,
    Follow,
    From,
    Headers,
    HeadersOnly,
    OnLostOption,
    Priority,
    SkipCorrupt,
    StreamPath,
    parse_headers,
)
from headgate.cli.messages import Printer, from_json_lines
from headgate.cli.output import print_warnings, spinner, terminal
from headgate.errors import HeadgateError, StreamCorrupt
from headgate.insights import size_text
from headgate.message import Message
from headgate.quantities import counted

if TYPE_CHECKING:
    from headgate.streams.read import ScanStats

app = typer.Typer()


@app.command()
def publish(
    stream: StreamPath,
    payload: Annotated[
        str | None,
        typer.Argument(
            help="The payload; without it, lines of standard input are read.", metavar="PAYLOAD"
        ),
    ] = None,
    topic: Annotated[str, typer.Option(help="The topic.")] = "",
    header: Headers = [],  # noqa: B006
    priority: Priority = 0,
    producer: Annotated[
        str | None, typer.Option(help="Publish under this producer's name.")
    ] = None,
    first_id: Annotated[
        int | None,
        typer.Option(
            help="Number the messages from here: under one --producer, a number is stored once.",
            min=0,
        ),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Every line is a payload, not JSON.")] = False,
) -> None:
    """Publish one message, or every line of standard input.

    A line is a JSON object such as {"payload": "…", "topic": "orders.eu", "headers": {"amount": 1200}}; what
    `scan --json` prints can be published again. --topic, --header and --priority fill in what a line does not have.
    With --raw a line is a payload. A file that is published again after a failure, with the same --producer and
    --first-id 0, is stored once.

    Example: headgate stream publish orders hello --topic orders.eu -H region=EU -H amount:=1200
    """
    if first_id is not None and producer is None:
        raise HeadgateError(
            "--first-id numbers the messages of a producer; name it with --producer"
        )
    common: dict[str, Any] = {
        "topic": topic,
        "headers": parse_headers(header),
        "priority": priority,
    }
    source: Iterator[Message]
    if payload is not None:
        source = iter([Message(payload.encode(), **common)])
    elif raw:
        source = (Message(line.rstrip("\n").encode(), **common) for line in sys.stdin)
    else:
        raw_hint = ", or publish lines as they are with --raw"
        source = from_json_lines(sys.stdin, common, hint=raw_hint)
    count = fresh = 0
    with streams.Stream.open(stream) as opened, spinner("publishing") as progress:
        task = progress.add_task("messages", total=None)
        with opened.producer(producer) as out:
            while batch := list(islice(source, 4096)):
                number = None if first_id is None else first_id + count
                fresh += out.publish_many(batch, first_publishing_id=number)
                count += len(batch)
                progress.update(task, completed=count, description=f"{count:,} messages")
            out.flush()
    known = f"; {count - fresh:,} more were stored before" if fresh < count else ""
    typer.echo(f"published {counted(fresh, 'message')}{known}")


@app.command()
def tail(
    stream: StreamPath,
    filter: FilterOption = "",
    start: From = "",
    number: Annotated[
        int, typer.Option("-n", "--number", help="How many of the last messages to show.")
    ] = 10,
    follow: Follow = False,
    on_lost: OnLostOption = "error",
    skip_corrupt: SkipCorrupt = False,
    as_json: AsJson = False,
    headers_only: HeadersOnly = False,
) -> None:
    """Show the last messages, and with --follow new ones as they are published.

    Example: headgate stream tail orders -f --filter "region = 'EU'"
    """
    printer = Printer(as_json, headers_only)
    missing = _missing_options(on_lost, skip_corrupt)
    with streams.Stream.open(stream) as opened:
        print_warnings(insights.warn_of_filter(filter, stream=stream))
        begin = start or str(insights.find_last_matches(opened, filter, number, **missing))
        with opened.consume(filter, start=begin, follow=follow, **missing) as consumer:
            for record in consumer.records():
                printer.print(record.message, record.offset, {"offset": record.offset})


def _missing_options(on_lost: str, skip_corrupt: bool) -> dict[str, Any]:
    """The options of a consumer for messages that are deleted or damaged."""
    return {"on_lost": on_lost, "on_corrupt": _report_skipped if skip_corrupt else "error"}


def _report_skipped(damage: StreamCorrupt) -> None:
    typer.echo(f"skipped: {damage}", err=True)


@app.command()
def scan(
    stream: StreamPath,
    filter: FilterOption = "",
    start: From = "first",
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", "-n", min=0, max=2**31 - 1, help="Stop after this number of messages."
        ),
    ] = None,
    count: Annotated[
        bool, typer.Option("--count", help="Print only the number of matches.")
    ] = False,
    stats: Annotated[
        bool, typer.Option("--stats", help="Print what was skipped and read.")
    ] = False,
    on_lost: OnLostOption = "error",
    skip_corrupt: SkipCorrupt = False,
    as_json: AsJson = False,
    headers_only: HeadersOnly = False,
) -> None:
    """Print the messages a filter selects, in the order of their offsets.

    Example: headgate stream scan orders --filter "amount > 1000" --from 10m --stats
    """
    printer = Printer(as_json, headers_only)
    missing = _missing_options(on_lost, skip_corrupt)
    with streams.Stream.open(stream) as opened:
        print_warnings(insights.warn_of_filter(filter, stream=stream))
        if count:
            counting = opened.scan(filter, start=start, columns=["offset"], **missing)
            typer.echo(str(sum(batch.num_rows for batch in counting)))
            found = counting.stats
        else:
            with opened.consume(filter, start=start, **missing) as consumer:
                for record in islice(consumer.records(), limit):
                    printer.print(record.message, record.offset, {"offset": record.offset})
                found = consumer.stats
    if stats:
        terminal(stderr=True).print(_stats_table(found))


def _stats_table(stats: ScanStats) -> Table:
    table = Table(
        "chunks skipped", "passed whole", "masked", "bytes read", "rows examined", "matched"
    )
    share = stats.bytes_read / stats.bytes_total if stats.bytes_total else 0
    table.add_row(
        f"{stats.chunks_none:,}",
        f"{stats.chunks_all:,}",
        f"{stats.chunks_some:,}",
        f"{size_text(stats.bytes_read)} of {size_text(stats.bytes_total)} ({share:.1%})",
        f"{stats.rows_examined:,}",
        f"{stats.rows_matched:,}",
    )
    return table
