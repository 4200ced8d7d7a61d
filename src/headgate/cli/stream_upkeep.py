"""headgate stream seal, dump, verify, compact, trim and delete: the upkeep of a stream's files."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from headgate import insights, streams
from headgate.cli.arguments import (
    AsJson,
    Conf,
    Master,
    StreamPath,
    Yes,
    confirm,
    parse_duration,
    parse_size,
)
from headgate.cli.output import print_json, spark_with_progress, spinner
from headgate.clock import now_us
from headgate.errors import HeadgateError, StreamError, StreamNotFound
from headgate.insights import size_text
from headgate.quantities import counted
from headgate.streams import cold, upkeep

app = typer.Typer()


@app.command()
def seal(
    stream: StreamPath,
    everything: Annotated[
        bool, typer.Option("--all", help="Also the segment that is being written.")
    ] = False,
) -> None:
    """Seal full segments: cluster their messages, so that filters skip most of them.

    Example: headgate stream seal orders --all
    """
    with streams.Stream.open(stream) as opened, spinner("sealing") as progress:
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
    chunks: Annotated[
        int | None, typer.Option(help="The largest number of chunks of a segment.")
    ] = None,
    sample: Annotated[int, typer.Option(help="The number of messages of a chunk.")] = 3,
) -> None:
    """Print a stream's files: segments, chunks, columns with their checksums, some messages.

    Example: headgate stream dump orders --chunks 2
    """
    streams.Stream.open(stream).close()
    files = streams.segment_files(stream)
    if segment is not None:
        files = [f for f in files if f.first_offset <= segment][-1:]
    for file in files:
        for line in upkeep.dump_lines(
            upkeep.dump_segment(file.path, sample=sample, most_chunks=chunks)
        ):
            typer.echo(line)


@app.command(name="verify")
def verify_stream(
    stream: StreamPath,
    repair_too: Annotated[
        bool,
        typer.Option(
            "--repair", help="Repair what can be repaired; a copy of the damaged bytes is kept."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Read every byte of a stream and report damage. Exit code 1: some was found.

    Example: headgate stream verify orders --repair
    """
    with spinner("verifying") as progress:
        progress.add_task(str(stream), total=None)
        report = upkeep.repair(stream) if repair_too else upkeep.verify(stream)
    if as_json:
        print_json(asdict(report))
    else:
        _print_report(report)
    raise typer.Exit(0 if report.fine else 1)


def _print_report(report: upkeep.VerifyReport) -> None:
    for problem in report.problems:
        hint = " (--repair repairs it)" if problem.healable else ""
        typer.echo(f"{problem}{hint}")
    typer.echo(
        f"{counted(report.segments, 'segment')}, {counted(report.chunks, 'chunk')}, "
        f"{counted(report.messages, 'message')}, {size_text(report.nbytes)}: "
        f"{'fine' if report.fine else counted(len(report.problems), 'problem')}"
    )


@app.command()
def compact(
    stream: StreamPath,
    to: Annotated[
        str | None,
        typer.Option(
            help="Where the Parquet files go: a directory or a URI such as s3://bucket/events; "
            "by default cold/ in the stream."
        ),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(help="Only segments whose messages are older than this, for example 7d."),
    ] = None,
    before: Annotated[
        int | None, typer.Option(help="Only segments that end before this offset.")
    ] = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="All segments: the one that is being written is sealed first."),
    ] = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Rewrite sealed segments as Parquet that any engine reads; the stream reads them as before.

    By default all sealed segments are compacted. Messages can be published and read meanwhile.

    Example: headgate stream compact orders --older-than 7d --to s3://bucket/orders
    """
    streams.load_options(stream)
    age = parse_duration(older_than)
    if sum((age is not None, before is not None, everything)) > 1:
        raise HeadgateError("give one of --older-than, --before and --all")
    if everything:
        with streams.Stream.open(stream) as opened:
            opened.seal(all=True)
    now = now_us()
    horizon = None if age is None else now - age // timedelta(microseconds=1)
    if not cold.select_candidates(
        cold.list_candidates(stream), now_us=now, horizon_us=horizon, before_offset=before
    ):
        _print_compacted(stream, cold.clean_up(stream))  # without starting Spark
        return
    with spark_with_progress("compacting", master, conf) as (spark, on_progress):
        from headgate.spark.jobs import compact as run

        done = run(
            spark, stream, to=to, older_than=age, before_offset=before, on_progress=on_progress
        )
    _print_compacted(stream, done)


def _print_compacted(stream: Path, done: cold.CompactionResult) -> None:
    for written in done.added:
        typer.echo(
            f"compacted offsets {written.first_offset:,} to {written.next_offset - 1:,} into {written.file} "
            f"({written.rows:,} messages, {size_text(written.nbytes)})"
        )
    for written in done.abandoned:
        first, last = written.first_offset, written.next_offset - 1
        typer.echo(f"offsets {first:,} to {last:,} were deleted by retention meanwhile")
    if not done.added and not done.abandoned and not done.problems:
        typer.echo(
            "nothing to compact; `headgate stream seal` makes segments that can be compacted"
        )
    if done.removed:
        plural = "" if len(done.removed) == 1 else "s"
        typer.echo(f"deleted {len(done.removed)} file{plural} of segments that are cold now")
    if done.holder is not None and done.added:
        holder = ", ".join(f"{name} {value}" for name, value in done.holder.items())
        typer.echo(
            f"the sealed segments stay until the next compact, seal or trim: {stream} is being written ({holder})"
        )
    if done.problems:
        raise StreamError("\n".join(done.problems))


@app.command()
def trim(
    stream: StreamPath,
    max_age: Annotated[
        str | None, typer.Option(help="Delete segments older than this, for example 7d.")
    ] = None,
    max_size: Annotated[
        str | None, typer.Option(help="Delete the oldest segments until at most this much is left.")
    ] = None,
    before: Annotated[int, typer.Option(help="Delete segments that end before this offset.")] = 0,
) -> None:
    """Delete the oldest segments, by these limits or by the stream's own; never the newest.

    Example: headgate stream trim orders --max-age 30d
    """
    with streams.Stream.open(stream) as opened:
        deleted = opened.trim(
            max_age=parse_duration(max_age), max_bytes=parse_size(max_size), before_offset=before
        )
    for segment in deleted:
        typer.echo(
            f"deleted offsets {segment.first_offset:,} to {segment.next_offset - 1:,} ({size_text(segment.nbytes)})"
        )
    if not deleted:
        typer.echo("nothing to delete")


@app.command()
def delete(stream: StreamPath, yes: Yes = False) -> None:
    """Delete a stream and everything in it.

    Example: headgate stream delete orders --yes
    """
    if not (stream / streams.OPTIONS_FILE).exists():
        raise StreamNotFound(
            f"there is no stream in {stream}; `headgate stream ls` lists those in a directory"
        )
    confirm(f"Delete {stream} with {size_text(insights.stored_bytes(stream))} of messages?", yes)
    streams.Stream.delete(stream)
    typer.echo(f"deleted {stream}")
