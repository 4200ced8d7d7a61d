"""headgate stream: create, set, ls, info. What is done with messages, with files and on Spark has its own modules."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headgate.cli.arguments import parse_duration, parse_restriction, parse_size, size_text
from headgate.cli.options import AsJson, AsJsonLines, StreamPath
from headgate.cli.stream_facts import facts, summary
from headgate.errors import HeadgateError
from headgate.streams import OPTIONS_FILE, Stream

app = typer.Typer(no_args_is_help=True)

MaxAge: TypeAlias = Annotated[
    str | None, typer.Option(help="Keep messages this long, for example 7d.")
]
MaxSize: TypeAlias = Annotated[str | None, typer.Option(help="Keep this much, for example 10GB.")]


@app.command()
def create(
    stream: StreamPath,
    indexed: Annotated[
        list[str],
        typer.Option(help="A header the chunks' summaries know by value; may be repeated."),
    ] = [],  # noqa: B006
    filter_size: Annotated[
        int, typer.Option(help="Bytes of a chunk's Bloom filter; 0 chooses.")
    ] = 0,
    restrict: Annotated[
        list[str],
        typer.Option(help="Batches hold equal values of a header: region=us,eu; may be repeated."),
    ] = [],  # noqa: B006
    fsync: Annotated[
        str, typer.Option(help="When bytes reach the disk: always, interval or never.")
    ] = "interval",
    chunk_messages: Annotated[int, typer.Option(help="Messages in a chunk at most.")] = 4096,
    chunk_size: Annotated[str, typer.Option(help="Bytes in a chunk at most.")] = "1MiB",
    segment_size: Annotated[
        str, typer.Option(help="Bytes in a segment before the next begins.")
    ] = "64MiB",
    max_age: MaxAge = None,
    max_size: MaxSize = None,
) -> None:
    """Create a stream."""
    options: dict[str, Any] = {
        "indexed": tuple(indexed),
        "filter_size": filter_size,
        "restrict_same_values": dict(map(parse_restriction, restrict)),
        "fsync": fsync,
        "chunk_messages": chunk_messages,
        "chunk_bytes": parse_size(chunk_size),
        "segment_bytes": parse_size(segment_size),
        "max_age": parse_duration(max_age),
        "max_bytes": parse_size(max_size),
    }
    Stream.create(stream, **options).close()
    typer.echo(f"created {stream}")


@app.command(name="set")
def set_options(
    stream: StreamPath,
    indexed: Annotated[
        list[str] | None,
        typer.Option(help="Index these headers and no others; repeat it, or give '' for none."),
    ] = None,
    filter_size: Annotated[
        int | None, typer.Option(help="Bytes of a chunk's Bloom filter; 0 chooses.")
    ] = None,
    restrict: Annotated[
        list[str] | None,
        typer.Option(
            help="Batches hold equal values of a header: region=us,eu; repeat it, or give '' for none."
        ),
    ] = None,
    max_age: MaxAge = None,
    max_size: MaxSize = None,
) -> None:
    """Change a stream's options; what says how messages are stored holds from the next segment on, and for seal."""
    given: dict[str, Any] = {
        "indexed": None if indexed is None else tuple(name for name in indexed if name),
        "filter_size": filter_size,
        "restrict_same_values": None
        if restrict is None
        else dict(parse_restriction(text) for text in restrict if text),
        "max_age": parse_duration(max_age),
        "max_bytes": parse_size(max_size),
    }
    changes = {name: value for name, value in given.items() if value is not None}
    if not changes:
        raise HeadgateError("say what to change, for example --indexed region; --help lists it all")
    with Stream.open(stream) as opened:
        opened.reconfigure(**changes)
    shown = ", ".join(f"{name} = {value!r}" for name, value in changes.items())
    typer.echo(f"changed {stream / OPTIONS_FILE}: {shown}")


@app.command(name="ls")
def list_streams(
    directory: Annotated[Path, typer.Argument(help="Where to look.")] = Path(),
    as_json: AsJsonLines = False,
) -> None:
    """List the streams in a directory."""
    if not os.access(directory, os.R_OK | os.X_OK) or not directory.is_dir():
        raise HeadgateError(
            f"{directory} is no directory that this user can read; name one with streams in it"
        )
    found = [path.parent for path in sorted(directory.glob(f"**/{OPTIONS_FILE}"))]
    rows = [summary(path, directory) for path in found]
    if as_json:
        for row in rows:
            typer.echo(json.dumps(row, ensure_ascii=False))
        return
    table = Table(
        "stream", "messages", "first offset", "segments", "sealed", "cold", "size", "indexed"
    )
    for row in rows:
        table.add_row(
            Text(row["stream"]),
            f"{row['messages']:,}",
            f"{row['first_offset']:,}",
            str(row["segments"]),
            str(row["sealed"]),
            str(row["cold"]),
            size_text(row["bytes"]),
            Text(", ".join(row["indexed"])),
        )
    Console(highlight=False).print(table)


@app.command()
def info(stream: StreamPath, as_json: AsJson = False) -> None:
    """Show a stream: its options, its segments, and where its consumers stand."""
    found = facts(stream)
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False, default=str))
        return
    console = Console(highlight=False)
    console.print(_options_table(stream, found))
    if found["cursors"]:
        console.print(_cursors_table(found["cursors"]))


def _options_table(stream: Path, found: Mapping[str, Any]) -> Table:
    table = Table(title=Text(str(stream)), title_justify="left", show_header=False)
    for name in ("messages", "first_offset", "next_offset", "segments", "sealed", "cold"):
        table.add_row(name.replace("_", " "), f"{found[name]:,}")
    table.add_row("size", size_text(found["bytes"]))
    table.add_section()
    for name, value in found["options"].items():
        table.add_row(name.replace("_", " "), Text(str(value)))
    return table


def _cursors_table(cursors: Iterable[Mapping[str, Any]]) -> Table:
    table = Table(
        "cursor", "position", "lag", "last commit", title="Consumers", title_justify="left"
    )
    for cursor in cursors:
        numbers = (f"{cursor['position']:,}", f"{cursor['lag']:,}")
        table.add_row(Text(cursor["name"]), *numbers, cursor["updated"])
    return table
