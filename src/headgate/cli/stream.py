"""headgate stream: create, set, ls, info. Commands on messages, on files and on Spark have modules of their own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from rich.table import Table
from rich.text import Text

from headgate import insights, streams
from headgate.cli.arguments import (
    AsJson,
    StreamPath,
    parse_duration,
    parse_restriction,
    parse_size,
    split_names,
)
from headgate.cli.completion import complete_header
from headgate.cli.output import print_json, print_json_lines, print_table, value_text
from headgate.errors import HeadgateError
from headgate.insights import size_text, time_text

app = typer.Typer(no_args_is_help=True)

MaxAge: TypeAlias = Annotated[
    str | None, typer.Option(help="Keep messages this long, for example 7d.")
]
MaxSize: TypeAlias = Annotated[
    str | None, typer.Option(help="Keep at most this much, for example 10GB.")
]


@app.command()
def create(
    stream: StreamPath,
    indexed: Annotated[
        list[str],
        typer.Option(
            help="A header whose values the chunk summaries hold; several with commas, or repeat it."
        ),
    ] = [],  # noqa: B006
    filter_size: Annotated[
        int, typer.Option(help="Bytes of a chunk's Bloom filter; 0 for the default.")
    ] = 0,
    restrict: Annotated[
        list[str],
        typer.Option(
            help="Keep messages with these values of a header in separate chunks: region=us,eu; may be repeated."
        ),
    ] = [],  # noqa: B006
    fsync: Annotated[
        str, typer.Option(help="When bytes reach the disk: always, interval or never.")
    ] = "interval",
    chunk_messages: Annotated[
        int, typer.Option(help="The largest number of messages in a chunk.")
    ] = 4096,
    chunk_size: Annotated[str, typer.Option(help="The largest size of a chunk.")] = "1MiB",
    segment_size: Annotated[
        str, typer.Option(help="The size at which a segment ends and the next begins.")
    ] = "64MiB",
    max_age: MaxAge = None,
    max_size: MaxSize = None,
) -> None:
    """Create a stream.

    Example: headgate stream create orders --indexed region --max-age 7d
    """
    options: dict[str, Any] = {
        "indexed": split_names(indexed),
        "filter_size": filter_size,
        "restrict_same_values": dict(map(parse_restriction, restrict)),
        "fsync": fsync,
        "chunk_messages": chunk_messages,
        "chunk_bytes": parse_size(chunk_size),
        "segment_bytes": parse_size(segment_size),
        "max_age": parse_duration(max_age),
        "max_bytes": parse_size(max_size),
    }
    streams.Stream.create(stream, **options).close()
    typer.echo(f"created {stream}")


@app.command(name="set")
def set_options(
    stream: StreamPath,
    indexed: Annotated[
        list[str] | None,
        typer.Option(
            help="Index these headers and no others; repeat it, or give '' for none.",
            autocompletion=complete_header,
        ),
    ] = None,
    filter_size: Annotated[
        int | None, typer.Option(help="Bytes of a chunk's Bloom filter; 0 for the default.")
    ] = None,
    restrict: Annotated[
        list[str] | None,
        typer.Option(
            help="Keep messages with these values of a header in separate chunks: region=us,eu; repeat it, or give '' for none."
        ),
    ] = None,
    max_age: MaxAge = None,
    max_size: MaxSize = None,
) -> None:
    """Change a stream's options; those about storage apply from the next segment on, and to sealing.

    Example: headgate stream set orders --indexed region --indexed type
    """
    values: dict[str, Any] = {
        "indexed": None if indexed is None else split_names(indexed),
        "filter_size": filter_size,
        "restrict_same_values": None
        if restrict is None
        else dict(parse_restriction(text) for text in restrict if text),
        "max_age": parse_duration(max_age),
        "max_bytes": parse_size(max_size),
    }
    changes = {name: value for name, value in values.items() if value is not None}
    if not changes:
        raise HeadgateError(
            "say what to change, for example --indexed region; --help lists all options"
        )
    with streams.Stream.open(stream) as opened:
        opened.reconfigure(**changes)
    shown = ", ".join(f"{name} = {value!r}" for name, value in changes.items())
    typer.echo(f"changed {stream / streams.OPTIONS_FILE}: {shown}")


@app.command(name="ls")
def list_all(
    directory: Annotated[Path, typer.Argument(help="The directory to search.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """List the streams in a directory.

    Example: headgate stream ls data
    """
    found = insights.list_streams(directory)
    if as_json:
        print_json_lines(map(asdict, found))
        return
    table = Table(
        "stream", "messages", "first offset", "segments", "sealed", "cold", "size", "indexed"
    )
    for facts in found:
        table.add_row(
            Text(facts.stream),
            f"{facts.messages:,}",
            f"{facts.first_offset:,}",
            str(facts.segments),
            str(facts.sealed),
            str(facts.cold),
            size_text(facts.bytes),
            Text(", ".join(facts.indexed)),
        )
    print_table(table)


@app.command()
def info(stream: StreamPath, as_json: AsJson = False) -> None:
    """Show a stream: its options, its segments, and how far its consumers have read.

    Example: headgate stream info orders
    """
    details = insights.stream_details(stream)
    if as_json:
        print_json(_details_json(details))
        return
    print_table(_options_table(stream, details))
    if details.cursors:
        print_table(_cursors_table(details.cursors))


def _details_json(details: insights.StreamDetails) -> dict[str, Any]:
    cursors = [
        {
            "name": cursor.name,
            "position": cursor.position,
            "lag": cursor.lag,
            "updated": time_text(cursor.updated_us),
        }
        for cursor in details.cursors
    ]
    return {**asdict(details.facts), "options": details.options, "cursors": cursors}


def _options_table(stream: Path, details: insights.StreamDetails) -> Table:
    table = Table(title=Text(str(stream)), title_justify="left", show_header=False)
    for name in ("messages", "first_offset", "next_offset", "segments", "sealed", "cold"):
        table.add_row(name.replace("_", " "), f"{getattr(details.facts, name):,}")
    table.add_row("size", size_text(details.facts.bytes))
    table.add_section()
    for name, value in details.options.items():
        table.add_row(name.replace("_", " "), Text(value_text(value)))
    return table


def _cursors_table(cursors: Iterable[insights.CursorFacts]) -> Table:
    table = Table(
        "cursor", "position", "lag", "last commit", title="Consumers", title_justify="left"
    )
    for cursor in cursors:
        numbers = (f"{cursor.position:,}", f"{cursor.lag:,}")
        table.add_row(Text(cursor.name), *numbers, time_text(cursor.updated_us))
    return table
