"""headgate pipeline: run, check and show pipeline files."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.console import Console
from rich.live import Live

from headgate.cli.arguments import write_text
from headgate.cli.on_spark import Conf, Master, settings_of
from headgate.cli.pipeline_view import final_table, live_table
from headgate.errors import HeadgateError
from headgate.pipelines import (
    Account,
    Batch,
    Pipeline,
    QueueSource,
    StreamSource,
    Trigger,
    read_pipeline,
)

app = typer.Typer(no_args_is_help=True)

File: TypeAlias = Annotated[Path, typer.Argument(help="The pipeline: a TOML file.", metavar="FILE")]


@app.command()
def run(
    file: File,
    once: Annotated[bool, typer.Option("--once", help="Stop when all there is was read.")] = False,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Go on until stopped, as fast as it goes.")
    ] = False,
    master: Master = None,
    conf: Conf = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for every batch.")
    ] = False,
    metrics: Annotated[
        Path | None, typer.Option(help="Keep Prometheus metrics in this file.", metavar="FILE")
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Serve Prometheus metrics on this port.", min=0)
    ] = None,
) -> None:
    """Run a pipeline on Spark: every message arrives at its places exactly once.

    Ctrl-C or SIGTERM stops it; the next run goes on where it stood.
    """
    if once and continuous:
        raise HeadgateError("--once and --continuous exclude each other; give one of them")
    trigger: Trigger | None = "once" if once else "continuous" if continuous else None
    pipeline = read_pipeline(file)
    pipeline = replace(pipeline, trigger=trigger or pipeline.trigger)
    account = Account(pipeline.name)
    started = time.monotonic()
    with ExitStack() as stack:
        tell = stack.enter_context(_telling(account, as_json))
        if metrics_port is not None:
            stack.enter_context(_served(account, metrics_port))
        settings = {**_java(pipeline, master), **settings_of(conf)}
        _run(pipeline, master, settings, account, _also_written(tell, account, metrics))
    if not as_json:
        Console(highlight=False).print(final_table(account, time.monotonic() - started))


def _run(
    pipeline: Pipeline,
    master: str | None,
    settings: Mapping[str, str],
    account: Account,
    tell: Callable[[list[Batch]], None],
) -> None:
    from headgate.spark import running_session, session
    from headgate.spark.pipeline import check, follow, refuse_locked, start, stop

    # Both before Spark is started, which takes seconds.
    check(pipeline)
    refuse_locked(pipeline.checkpoint)
    with _asked_to_stop() as stopping:
        ours = running_session() is None
        spark = session(f"headgate pipeline {pipeline.name}", master, settings)
        try:
            query = start(pipeline, spark)
            for fresh in follow(query, account, stopping):
                tell(fresh)
            if ours and hasattr(spark, "sparkContext"):
                spark.sparkContext.setLogLevel("OFF")  # that a batch is cut off is no error
            stop(query)
        finally:
            if ours:
                spark.stop()


def _java(pipeline: Pipeline, master: str | None) -> dict[str, str]:
    """Java compiles quickly instead of well where it only passes descriptors on."""
    ours = isinstance(pipeline.source, StreamSource | QueueSource)
    small = ours and (master or "local").startswith("local")
    return {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"} if small else {}


@contextmanager
def _asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Whether somebody pressed Ctrl-C or sent SIGTERM; a second time ends at once."""
    asked: list[int] = []

    def note(number: int, frame: object) -> None:
        asked.append(number)
        if len(asked) > 1:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _telling(account: Account, as_json: bool) -> Iterator[Callable[[list[Batch]], None]]:
    """How batches are told: as lines of JSON, or as a table that changes in place where there is a terminal."""
    if as_json:
        yield _print_lines
        return
    console = Console(highlight=False)
    started = time.monotonic()
    if not console.is_terminal:
        yield lambda fresh: None
        return
    with Live(
        live_table(account, 0.0), console=console, transient=True, auto_refresh=False
    ) as live:
        yield lambda fresh: live.update(
            live_table(account, time.monotonic() - started), refresh=True
        )


def _print_lines(fresh: list[Batch]) -> None:
    for batch in fresh:
        typer.echo(batch.line())
    sys.stdout.flush()


def _also_written(
    tell: Callable[[list[Batch]], None], account: Account, file: Path | None
) -> Callable[[list[Batch]], None]:
    if file is None:
        return tell
    from headgate.spark.pipeline import write_metrics

    def both(fresh: list[Batch]) -> None:
        tell(fresh)
        write_metrics(account, file)

    return both


@contextmanager
def _served(account: Account, port: int) -> Iterator[None]:
    from headgate.spark.pipeline import serve_metrics

    with serve_metrics(account, port) as chosen:
        typer.echo(f"metrics: http://127.0.0.1:{chosen}/metrics", err=True)
        yield


@app.command()
def check(file: File) -> None:
    """Say everything that would keep a pipeline from running. Nothing is changed."""
    from headgate.spark.pipeline import check as check_pipeline
    from headgate.spark.pipeline import notes_on

    pipeline = read_pipeline(file)
    check_pipeline(pipeline)
    for note in notes_on(pipeline):
        typer.echo(f"note: {note}")
    bindings, places = len(pipeline.topology), len(pipeline.places())
    typer.echo(f"{file}: can run ({bindings:,} bindings, {places:,} places)")


@app.command()
def show(
    file: File,
    svg: Annotated[
        Path | None, typer.Option(help="Draw it into this SVG file instead.", metavar="FILE")
    ] = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print it as Mermaid.")] = False,
) -> None:
    """Draw source, exchanges, queues and places, and what has to hold on the way."""
    from headgate.pipelines import figure_of, to_lines, to_mermaid, to_svg

    drawn = figure_of(read_pipeline(file))
    if svg is not None:
        write_text(svg, to_svg(drawn))
    elif mermaid:
        typer.echo(to_mermaid(drawn), nl=False)
    else:
        typer.echo("\n".join(to_lines(drawn)))
