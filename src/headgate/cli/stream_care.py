"""headgate stream seal, dump, verify, trim and delete: looking after a stream's files."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from headgate.cli.arguments import parse_duration, parse_size, size_text
from headgate.cli.options import AsJson, StreamPath, Yes, ask
from headgate.cli.progress import spinner
from headgate.cli.stream_facts import bytes_in
from headgate.errors import StreamNotFound
from headgate.streams import OPTIONS_FILE, Stream, segment_files
from headgate.streams.upkeep import VerifyReport, dump_lines, dump_segment, repair, verify

app = typer.Typer()


@app.command()
def seal(
    stream: StreamPath,
    everything: Annotated[
        bool, typer.Option("--all", help="Also the segment that is being written.")
    ] = False,
) -> None:
    """Seal what is full: cluster it, so that filters skip what they do not want."""
    with Stream.open(stream) as opened, spinner("sealing") as progress:
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
        for line in dump_lines(dump_segment(file.path, sample=sample, most_chunks=chunks)):
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
    with spinner("verifying") as progress:
        progress.add_task(str(stream), total=None)
        report = repair(stream) if heal else verify(stream)
    if as_json:
        typer.echo(json.dumps(asdict(report)))
    else:
        _print_report(report)
    raise typer.Exit(0 if report.fine else 1)


def _print_report(report: VerifyReport) -> None:
    for problem in report.problems:
        hint = " (--repair heals it)" if problem.healable else ""
        typer.echo(f"{problem}{hint}")
    typer.echo(
        f"{report.segments} segments, {report.chunks:,} chunks, {report.messages:,} messages, "
        f"{size_text(report.nbytes)}: {'fine' if report.fine else f'{len(report.problems)} problems'}"
    )


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
def delete(stream: StreamPath, yes: Yes = False) -> None:
    """Delete a stream and everything in it."""
    if not (stream / OPTIONS_FILE).exists():
        raise StreamNotFound(
            f"there is no stream in {stream}; `headgate stream ls` lists those in a directory"
        )
    ask(f"Delete {stream} with {size_text(bytes_in(stream))} of messages?", yes)
    Stream.delete(stream)
    typer.echo(f"deleted {stream}")
