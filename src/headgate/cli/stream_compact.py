"""headgate stream compact: sealed segments to the cold tier."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.arguments import parse_duration, size_text
from headgate.cli.on_spark import Conf, Master, on_spark
from headgate.cli.options import StreamPath
from headgate.clock import now_us
from headgate.errors import HeadgateError, StreamError
from headgate.streams import Stream, load_options
from headgate.streams.cold import CompactionResult, clean_up, list_candidates, select_candidates

app = typer.Typer()


@app.command()
def compact(
    stream: StreamPath,
    to: Annotated[
        str | None,
        typer.Option(
            help="Where the Parquet files go: a directory or a URI such as s3://bucket/events; "
            "cold/ in the stream unless said otherwise."
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
        typer.Option("--all", help="Everything: what is being written is sealed first."),
    ] = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Rewrite sealed segments as Parquet that any engine reads; the stream reads them as before.

    Without a choice, all sealed segments are taken. Messages can be published and read meanwhile.
    """
    load_options(stream)
    age = parse_duration(older_than)
    if sum((age is not None, before is not None, everything)) > 1:
        raise HeadgateError("give one of --older-than, --before and --all")
    if everything:
        with Stream.open(stream) as opened:
            opened.seal(all=True)
    now = now_us()
    horizon = None if age is None else now - age // timedelta(microseconds=1)
    if not select_candidates(
        list_candidates(stream), now_us=now, horizon_us=horizon, before_offset=before
    ):
        _tell(stream, clean_up(stream))  # without starting Spark
        return
    with on_spark("compacting", master, conf) as (spark, on_progress):
        from headgate.spark.jobs import compact as run

        done = run(
            spark, stream, to=to, older_than=age, before_offset=before, on_progress=on_progress
        )
    _tell(stream, done)


def _tell(stream: Path, done: CompactionResult) -> None:
    for written in done.added:
        typer.echo(
            f"compacted offsets {written.first_offset:,} to {written.next_offset - 1:,} into {written.file} "
            f"({written.rows:,} messages, {size_text(written.nbytes)})"
        )
    for written in done.abandoned:
        first, last = written.first_offset, written.next_offset - 1
        typer.echo(f"offsets {first:,} to {last:,} were dropped by retention meanwhile")
    if not done.added and not done.abandoned and not done.problems:
        typer.echo("nothing to compact; `headgate stream seal` makes segments that can be")
    if done.removed:
        plural = "" if len(done.removed) == 1 else "s"
        typer.echo(f"removed {len(done.removed)} file{plural} of segments that are cold now")
    if done.holder is not None and done.added:
        who = ", ".join(f"{name} {value}" for name, value in done.holder.items())
        typer.echo(
            f"the sealed segments stay until the next compact, seal or trim: {stream} is being written ({who})"
        )
    if done.problems:
        raise StreamError("\n".join(done.problems))
