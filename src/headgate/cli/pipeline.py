"""headgate pipeline: run, check and show pipeline files, and merge the Parquet files they write."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headgate import insights, pipelines
from headgate.cli.arguments import AsJson, Conf, Master, parse_conf, parse_size
from headgate.cli.output import print_json, print_table, terminal, write_text
from headgate.cli.stop_signals import watch_stop_signals
from headgate.cli.supervision import supervise
from headgate.errors import HeadgateError
from headgate.insights import size_text
from headgate.quantities import counted

if TYPE_CHECKING:
    from headgate.pipelines import Account, Batch, Pipeline, Trigger

app = typer.Typer(no_args_is_help=True)

File: TypeAlias = Annotated[Path, typer.Argument(help="The pipeline: a TOML file.", metavar="FILE")]
ShowBatches: TypeAlias = "Callable[[list[Batch]], None]"

_MOST_QUEUES: Final = 20  # shown while a pipeline runs


@app.command()
def run(
    file: File,
    once: Annotated[
        bool, typer.Option("--once", help="Stop when everything stored was read.")
    ] = False,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Run until stopped, one batch after the other.")
    ] = False,
    master: Master = None,
    conf: Conf = None,
    as_json: AsJson = False,
    metrics: Annotated[
        Path | None, typer.Option(help="Keep Prometheus metrics in this file.", metavar="FILE")
    ] = None,
    metrics_address: Annotated[
        str | None,
        typer.Option(
            "--metrics-address",
            "--metrics-port",
            help="Serve Prometheus metrics here: a port of this machine, or host:port.",
            metavar="ADDRESS",
        ),
    ] = None,
    restart: Annotated[
        bool,
        typer.Option("--restart", help="Start it again when it fails, after a pause that grows."),
    ] = False,
) -> None:
    """Run a pipeline on Spark: every message arrives at its places exactly once, at an exchange of a broker at least once.

    Ctrl-C or SIGTERM stops it; the next run continues at the same position. --json prints an object per batch.

    Example: headgate pipeline run orders.toml --once
    """
    if once and continuous:
        raise HeadgateError("--once and --continuous exclude each other; give one of them")
    trigger: Trigger | None = "once" if once else "continuous" if continuous else None
    pipeline = pipelines.read_pipeline(file)
    pipeline = replace(pipeline, trigger=trigger or pipeline.trigger)
    if restart:
        insights.check_pipeline(
            pipeline
        )  # what the file gets wrong is reported once, and not repeated
        raise typer.Exit(
            supervise(
                [
                    *("pipeline", "run", str(file)),
                    *(["--once"] if once else ["--continuous"] if continuous else []),
                    *(["--master", master] if master else []),
                    *(word for setting in conf or () for word in ("--conf", setting)),
                    *(["--json"] if as_json else []),
                    *(["--metrics", str(metrics)] if metrics else []),
                    *(["--metrics-address", metrics_address] if metrics_address else []),
                ]
            )
        )
    account = pipelines.Account(pipeline.name)
    started = time.monotonic()
    with ExitStack() as stack:
        show_batches = stack.enter_context(_open_display(account, as_json))
        if metrics_address is not None:
            stack.enter_context(_serve_metrics(account, metrics_address))
        settings = {**_java_settings(pipeline, master), **parse_conf(conf)}
        show_and_write = _write_metrics_too(show_batches, account, metrics)
        _run(pipeline, master, settings, account, show_and_write)
    if not as_json:
        print_table(final_table(insights.pipeline_facts(account, time.monotonic() - started)))


def _run(
    pipeline: Pipeline,
    master: str | None,
    settings: Mapping[str, str],
    account: Account,
    show_batches: ShowBatches,
) -> None:
    from headgate.spark import command_session, running_session, stop_session
    from headgate.spark.pipeline import check, follow, refuse_locked, start, stop

    # Both before Spark is started, which takes seconds.
    check(pipeline)
    refuse_locked(pipeline.checkpoint)
    with watch_stop_signals() as signals:
        ours = running_session() is None
        spark = command_session(f"headgate pipeline {pipeline.name}", master, settings)
        try:
            query = start(pipeline, spark)
            for fresh in follow(query, account, lambda: signals.count > 0):
                show_batches(fresh)
                if fresh:
                    pipelines.write_account(account, pipeline.checkpoint)
            if ours and hasattr(spark, "sparkContext"):
                spark.sparkContext.setLogLevel("OFF")  # an interrupted batch is not an error
            stop(query)
        finally:
            if ours:
                stop_session(spark)


def _java_settings(pipeline: Pipeline, master: str | None) -> dict[str, str]:
    """Let Java compile quickly instead of well where it only passes descriptors on."""
    ours = isinstance(pipeline.source, pipelines.StreamSource | pipelines.QueueSource)
    ours = ours and not pipeline.reading
    small = ours and (master or "local").startswith("local")
    return {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"} if small else {}


@contextmanager
def _open_display(account: Account, as_json: bool) -> Iterator[ShowBatches]:
    """Batches as JSON lines, as a table that changes in place, or not at all where there is no terminal."""
    if as_json:
        yield _print_lines
        return
    console = terminal()
    started = time.monotonic()
    if not console.is_terminal:
        yield lambda fresh: None
        return

    def draw() -> Table:
        return live_table(insights.pipeline_facts(account, time.monotonic() - started))

    with Live(draw(), console=console, transient=True, auto_refresh=False) as live:
        yield lambda fresh: live.update(draw(), refresh=True)


def _print_lines(fresh: list[Batch]) -> None:
    for batch in fresh:
        typer.echo(batch.line())
    sys.stdout.flush()


def _write_metrics_too(
    show_batches: ShowBatches, account: Account, file: Path | None
) -> ShowBatches:
    if file is None:
        return show_batches
    from headgate.spark.pipeline import write_metrics

    def both(fresh: list[Batch]) -> None:
        show_batches(fresh)
        write_metrics(account, file)

    return both


@contextmanager
def _serve_metrics(account: Account, address: str) -> Iterator[None]:
    from headgate.metrics import parse_address
    from headgate.spark.pipeline import serve_metrics

    host, port = parse_address(address)
    with serve_metrics(account, port, host) as bound:
        typer.echo(f"metrics: http://{host}:{bound}/metrics", err=True)
        yield


# ---- tables ------------------------------------------------------------------------------------------


def live_table(facts: insights.PipelineFacts) -> Table:
    """A pipeline that is running."""
    table = _table(facts, _MOST_QUEUES)
    last = facts.last
    table.caption = (
        "waiting for the first batch …"
        if last is None
        else f"batch {last.number}: {last.seconds:.2f} s, {last.messages_per_second:,.0f} messages/s"
    )
    return table


def final_table(facts: insights.PipelineFacts) -> Table:
    """A run that has ended."""
    table = _table(facts, len(facts.queues))
    table.caption = f"{counted(facts.batches, 'batch', 'batches')} in {facts.seconds:.1f} s"
    return table


def _table(facts: insights.PipelineFacts, most_queues: int) -> Table:
    table = Table("", title=Text(facts.pipeline), title_justify="left", caption_justify="left")
    table.add_column("messages", justify="right")
    table.add_column("")
    table.add_row("scanned", f"{facts.scanned:,}", f"{facts.messages_per_second:,.0f}/s")
    table.add_row("passed the filter", f"{facts.passed:,}")
    table.add_row("routed", f"{facts.routed:,}")
    style = "red" if facts.unroutable else ""
    table.add_row("unroutable", f"{facts.unroutable:,}", style=style)
    if facts.malformed:
        table.add_row("malformed", f"{facts.malformed:,}", style="red")
    if facts.lag is not None:
        table.add_row("lag", f"{facts.lag:,}")
    if facts.bytes_total:
        unread = f"{size_text(facts.bytes_skipped)} of {size_text(facts.bytes_total)} not read"
        table.add_row("chunks skipped", f"{facts.chunks_skipped:,}", unread)
    table.add_section()
    for queue, count in facts.queues[:most_queues]:
        table.add_row(Text(f"→ {queue}"), f"{count:,}")
    if rest := facts.queues[most_queues:]:
        table.add_row(f"→ {len(rest):,} more queues", f"{sum(count for _, count in rest):,}")
    return table


# ---- check, show and compact ------------------------------------------------------------------------


@app.command()
def check(file: File) -> None:
    """Report everything that would keep a pipeline from running. Nothing is changed.

    Example: headgate pipeline check orders.toml
    """
    found = insights.check_pipeline(pipelines.read_pipeline(file))
    for note in found.notes:
        typer.echo(f"note: {note}")
    typer.echo(
        f"{file}: can run ({counted(found.bindings, 'binding')}, {counted(found.places, 'place')})"
    )


@app.command()
def compact(
    folder: Annotated[
        Path, typer.Argument(help="The folder of a sink: PATH of parquet:PATH.", metavar="FOLDER")
    ],
    size: Annotated[
        str, typer.Option(help="The size of a merged file; larger than half of it stays as it is.")
    ] = "128MiB",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell what would be merged.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Merge the small Parquet files that pipelines wrote, also while one is running.

    A reader sees all old files of a folder or all new ones. A query that listed the old files and did not open them yet
    fails, and can be repeated.

    Example: headgate pipeline compact data/orders --size 256MiB --dry-run
    """
    from headgate.spark.sink import compact_table

    merged = compact_table(folder, max(parse_size(size) or 0, 2), dry_run=dry_run)
    if as_json:
        print_json(asdict(merged))
        return
    verb = "would merge" if dry_run else "merged"
    typer.echo(
        f"{verb} {merged.files_before:,} files into {merged.files_after:,} in {merged.folders:,} folders, "
        f"{size_text(merged.nbytes)}"
        if merged.files_before
        else "no small files to merge"
    )


@app.command()
def show(
    file: File,
    svg: Annotated[
        Path | None, typer.Option(help="Draw it into this SVG file instead.", metavar="FILE")
    ] = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print it as Mermaid.")] = False,
) -> None:
    """Draw the source, exchanges, queues and places of a pipeline, with the conditions between them.

    Example: headgate pipeline show orders.toml --svg orders.svg
    """
    drawn = pipelines.figure_of(pipelines.read_pipeline(file))
    if svg is not None:
        write_text(svg, pipelines.to_svg(drawn))
    elif mermaid:
        typer.echo(pipelines.to_mermaid(drawn), nl=False)
    else:
        typer.echo("\n".join(pipelines.to_lines(drawn)))
