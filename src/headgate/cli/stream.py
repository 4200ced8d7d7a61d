"""headgate stream: create, publish, tail, scan, seal, look after."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from headgate.cli import messages
from headgate.cli.arguments import (
    parse_duration,
    parse_headers,
    parse_restriction,
    parse_size,
    size_text,
)
from headgate.errors import StreamNotFound
from headgate.message import Message
from headgate.streams.cold.note import read_note
from headgate.streams.cold.tier import manifests
from headgate.streams.dump import dump_segment, lines
from headgate.streams.layout import OPTIONS_FILE, segment_files
from headgate.streams.plan import ScanStats
from headgate.streams.stream import Stream
from headgate.streams.verify import repair, verify

app = typer.Typer(no_args_is_help=True)

StreamPath: TypeAlias = Annotated[
    Path, typer.Argument(help="The stream's directory.", metavar="STREAM")
]
FilterText: TypeAlias = Annotated[
    str,
    typer.Option("--filter", "-f", help="Only messages that match this filter.", metavar="FILTER"),
]
From: TypeAlias = Annotated[
    str,
    typer.Option(
        "--from",
        help="Where to begin: first, last, next, an offset, a moment (2026-01-31T12:00:00Z) or how long ago (10m).",
        metavar="START",
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, a line each.")]
HeadersOnly: TypeAlias = Annotated[
    bool, typer.Option("--headers-only", help="Leave the payloads out.")
]


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
    max_age: Annotated[
        str | None, typer.Option(help="Keep messages this long, for example 7d.")
    ] = None,
    max_size: Annotated[str | None, typer.Option(help="Keep this much, for example 10GB.")] = None,
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


@app.command(name="ls")
def list_streams(
    directory: Annotated[Path, typer.Argument(help="Where to look.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """List the streams in a directory."""
    found = [path.parent for path in sorted(directory.glob(f"**/{OPTIONS_FILE}"))]
    rows = [_summary(path, directory) for path in found]
    if as_json:
        for row in rows:
            typer.echo(json.dumps(row, ensure_ascii=False))
        return
    table = Table(
        "stream", "messages", "first offset", "segments", "sealed", "cold", "size", "indexed"
    )
    for row in rows:
        table.add_row(
            row["stream"],
            f"{row['messages']:,}",
            f"{row['first_offset']:,}",
            str(row["segments"]),
            str(row["sealed"]),
            str(row["cold"]),
            size_text(row["bytes"]),
            ", ".join(row["indexed"]),
        )
    Console(highlight=False).print(table)


def _summary(path: Path, base: Path) -> dict[str, Any]:
    with Stream.open(path) as stream:
        files = segment_files(path)
        first, following = stream.first_offset, stream.next_offset
        return {
            "stream": str(path.relative_to(base)),
            "messages": following - first,
            "first_offset": first,
            "next_offset": following,
            "segments": len(files),
            "sealed": sum(file.sealed and not file.cold for file in files),
            "cold": sum(file.cold for file in files),
            "bytes": _bytes_in(path),
            "indexed": list(stream.options.indexed),
        }


def _bytes_in(path: Path) -> int:
    cold = sum(read_note(manifest).nbytes for manifest in manifests(path))
    return cold + sum(file.stat().st_size for file in path.iterdir() if file.is_file())


@app.command()
def info(stream: StreamPath, as_json: AsJson = False) -> None:
    """Show a stream: its options, its segments, and where its consumers stand."""
    facts = _facts(stream)
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False, default=str))
        return
    console = Console(highlight=False)
    options = Table(title=str(stream), title_justify="left", show_header=False)
    for name in ("messages", "first_offset", "next_offset", "segments", "sealed", "cold"):
        options.add_row(name.replace("_", " "), f"{facts[name]:,}")
    options.add_row("size", size_text(facts["bytes"]))
    options.add_section()
    for name, value in facts["options"].items():
        options.add_row(name.replace("_", " "), str(value))
    console.print(options)
    if facts["cursors"]:
        cursors = Table(
            "cursor", "position", "lag", "last commit", title="Consumers", title_justify="left"
        )
        for cursor in facts["cursors"]:
            cursors.add_row(
                cursor["name"], f"{cursor['position']:,}", f"{cursor['lag']:,}", cursor["updated"]
            )
        console.print(cursors)


def _facts(path: Path) -> dict[str, Any]:
    with Stream.open(path) as stream:
        options = {
            name: getattr(stream.options, name) for name in stream.options.__dataclass_fields__
        }
        following = stream.next_offset
        cursors = [
            {
                "name": cursor.name,
                "position": cursor.position,
                "lag": max(following - cursor.position, 0),
                "updated": messages.time_text(cursor.updated),
            }
            for cursor in stream.cursors().list()
        ]
    return {**_summary(path, path.parent), "options": options, "cursors": cursors}


@app.command()
def publish(
    stream: StreamPath,
    payload: Annotated[
        str | None, typer.Argument(help="The payload; without it, lines are read.")
    ] = None,
    topic: Annotated[str, typer.Option(help="The topic.")] = "",
    header: Annotated[
        list[str],
        typer.Option("--header", "-H", help="name=text, or name:=json for numbers and booleans."),
    ] = [],  # noqa: B006
    priority: Annotated[int, typer.Option(help="0 to 255, higher is more urgent.")] = 0,
    producer: Annotated[
        str | None, typer.Option(help="Publish under this producer's name.")
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Every line is a payload, not JSON.")] = False,
) -> None:
    """Publish one message, or every line of standard input.

    A line is a JSON object such as {"payload": "…", "topic": "orders.eu", "headers": {"amount": 1200}}; what
    `scan --json` prints can be published again. With --raw a line is a payload, with the given topic and headers.
    """
    common: dict[str, Any] = {
        "topic": topic,
        "headers": parse_headers(header),
        "priority": priority,
    }
    source = (
        iter([Message(payload.encode(), **common)]) if payload is not None else _lines(raw, common)
    )
    count = 0
    with Stream.open(stream) as opened, _progress("publishing") as progress:
        task = progress.add_task("messages", total=None)
        with opened.producer(producer) as out:
            while batch := list(islice(source, 4096)):
                out.send_many(batch)
                count += len(batch)
                progress.update(task, completed=count, description=f"{count:,} messages")
            out.flush()
    typer.echo(f"published {count:,} messages")


def _lines(raw: bool, common: dict[str, Any]) -> Iterator[Message]:
    for number, line in enumerate(sys.stdin, 1):
        text = line.rstrip("\n")
        if raw:
            yield Message(text.encode(), **common)
        elif text:
            yield messages.from_json_line(text, number)


@app.command()
def tail(
    stream: StreamPath,
    filter: FilterText = "",
    start: From = "",
    number: Annotated[
        int, typer.Option("-n", "--number", help="How many of the last messages to show.")
    ] = 10,
    follow: Annotated[
        bool, typer.Option("--follow", "-F", help="Go on with what is published.")
    ] = False,
    as_json: AsJson = False,
    headers_only: HeadersOnly = False,
) -> None:
    """Show the last messages, and with --follow those to come."""
    with Stream.open(stream) as opened:
        begin = start or str(_last(opened, filter, number))
        with opened.consume(filter, start=begin, follow=follow) as consumer:
            for record in consumer.records():
                _print_message(record.message, record.offset, as_json, headers_only)


def _last(stream: Stream, filter: str, number: int) -> int:
    """The offset of the n-th last match; segments are looked at from the newest back."""
    needed, end = number, stream.next_offset
    if needed <= 0:
        return end
    for file in reversed(segment_files(stream.path)):
        scan = stream.scan(filter, start=file.first_offset, end=end, columns=["offset"])
        offsets = [offset for batch in scan for offset in batch.column("offset").to_pylist()]
        if len(offsets) >= needed:
            return int(offsets[-needed])
        needed, end = needed - len(offsets), file.first_offset
    return stream.first_offset


@app.command()
def scan(
    stream: StreamPath,
    filter: FilterText = "",
    start: From = "first",
    limit: Annotated[int | None, typer.Option(help="Stop after so many messages.")] = None,
    count: Annotated[bool, typer.Option("--count", help="Print only how many match.")] = False,
    stats: Annotated[bool, typer.Option("--stats", help="Say what was skipped and read.")] = False,
    as_json: AsJson = False,
    headers_only: HeadersOnly = False,
) -> None:
    """Print the messages a filter selects, in the order of their offsets."""
    with Stream.open(stream) as opened:
        if count:
            counting = opened.scan(filter, start=start, columns=["offset"])
            typer.echo(str(sum(batch.num_rows for batch in counting)))
            found = counting.stats
        else:
            with opened.consume(filter, start=start) as consumer:
                for record in islice(consumer.records(), limit):
                    _print_message(record.message, record.offset, as_json, headers_only)
                found = consumer.stats
    if stats:
        Console(stderr=True, highlight=False).print(_stats_table(found))


def _print_message(message: Message, offset: int, as_json: bool, headers_only: bool) -> None:
    if as_json:
        shown = messages.as_json(message, offset=offset, payload=not headers_only)
        typer.echo(json.dumps(shown, ensure_ascii=False))
    else:
        line = messages.message_text(message, offset=offset, payload=not headers_only)
        Console(highlight=False, soft_wrap=True).print(line)


def _stats_table(stats: ScanStats) -> Table:
    table = Table(
        "chunks skipped", "passed whole", "looked into", "bytes read", "rows examined", "matched"
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


@app.command()
def seal(
    stream: StreamPath,
    everything: Annotated[
        bool, typer.Option("--all", help="Also the segment that is being written.")
    ] = False,
) -> None:
    """Seal what is full: cluster it, so that filters skip what they do not want."""
    with Stream.open(stream) as opened, _progress("sealing") as progress:
        progress.add_task(f"sealing {stream}", total=None)
        sealed = opened.seal(all=everything)
    for path in sealed:
        typer.echo(f"sealed {path.name} ({size_text(path.stat().st_size)})")
    if not sealed:
        typer.echo("nothing to seal; --all seals the segment that is being written too")


@app.command()
def dump(
    stream: StreamPath,
    segment: Annotated[
        int | None, typer.Option(help="Only the segment that holds this offset.")
    ] = None,
    chunks: Annotated[int | None, typer.Option(help="So many chunks of a segment at most.")] = None,
    sample: Annotated[int, typer.Option(help="So many messages of a chunk.")] = 3,
) -> None:
    """Print what is in a stream's files: segments, chunks, columns with their checksums, some messages."""
    Stream.open(stream).close()
    files = segment_files(stream)
    if segment is not None:
        files = [f for f in files if f.first_offset <= segment][-1:]
    for file in files:
        for line in lines(dump_segment(file.path, sample=sample, most_chunks=chunks)):
            typer.echo(line)


@app.command(name="verify")
def check_bytes(
    stream: StreamPath,
    heal: Annotated[
        bool,
        typer.Option("--repair", help="Heal what can be healed; damaged bytes are kept beside."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Read every byte of a stream and say what is not as it was written. Exit code 1: something is not."""
    with _progress("verifying") as progress:
        progress.add_task(str(stream), total=None)
        report = repair(stream) if heal else verify(stream)
    if as_json:
        problems = [{**asdict(problem)} for problem in report.problems]
        typer.echo(json.dumps({**asdict(report), "problems": problems}))
    else:
        for problem in report.problems:
            hint = " (--repair heals it)" if problem.healable else ""
            typer.echo(f"{problem}{hint}")
        typer.echo(
            f"{report.segments} segments, {report.chunks:,} chunks, {report.messages:,} messages, "
            f"{size_text(report.nbytes)}: {'fine' if report.fine else f'{len(report.problems)} problems'}"
        )
    raise typer.Exit(0 if report.fine else 1)


@app.command()
def trim(
    stream: StreamPath,
    max_age: Annotated[
        str | None, typer.Option(help="Drop segments older than this, for example 7d.")
    ] = None,
    max_size: Annotated[
        str | None, typer.Option(help="Drop the oldest until this much is left.")
    ] = None,
    before: Annotated[int, typer.Option(help="Drop segments that end before this offset.")] = 0,
) -> None:
    """Drop the oldest segments, by the given limits or by the stream's own; never the newest."""
    with Stream.open(stream) as opened:
        dropped = opened.trim(
            max_age=parse_duration(max_age), max_bytes=parse_size(max_size), before_offset=before
        )
    for segment in dropped:
        typer.echo(
            f"dropped offsets {segment.first_offset:,} to {segment.next_offset - 1:,} ({size_text(segment.nbytes)})"
        )
    if not dropped:
        typer.echo("nothing to drop")


@app.command()
def delete(
    stream: StreamPath,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete a stream and everything in it."""
    if not (stream / OPTIONS_FILE).exists():
        raise StreamNotFound(f"there is no stream in {stream}")
    if not yes and not typer.confirm(
        f"Delete {stream} with {size_text(_bytes_in(stream))} of messages?"
    ):
        raise typer.Exit(1)
    Stream.delete(stream)
    typer.echo(f"deleted {stream}")


def _progress(what: str) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn(f"{what}: {{task.description}}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
