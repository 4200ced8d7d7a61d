"""headgate demo: half a million orders through every part, each number checked against the reference predicate."""

from __future__ import annotations

import io
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from headgate.cli.arguments import AsJson
from headgate.cli.demo.figures import Findings
from headgate.cli.output import print_json, terminal, write_text
from headgate.errors import HeadgateError
from headgate.insights import size_text


def demo(
    messages: Annotated[int, typer.Option(help="How many orders to make.", min=1_000)] = 500_000,
    directory: Annotated[
        Path | None, typer.Option(help="Keep the data here; by default it is deleted.")
    ] = None,
    report: Annotated[Path, typer.Option(help="The file for the page with the charts.")] = Path(
        "demo-report.html"
    ),
    seed: Annotated[int, typer.Option(help="The same seed makes the same orders.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Publish orders, route them on Spark, notify, read, seal, compact and replay; then check every number.

    Exit code 1 when any subscriber received anything other than the reference predicate selects.

    Example: headgate demo --messages 50000
    """
    console = terminal(stderr=as_json)
    with _open_directory(directory) as place:
        findings = _run_story(console, place, messages, seed)
    from headgate.cli.demo.page import page

    write_text(report, page(findings, _describe_machine(), datetime.now(UTC)))
    if as_json:
        print_json(asdict(findings))
    else:
        _print(console, findings)
    console.print(f"A page with charts: {report}", markup=False)
    if not findings.right:
        raise typer.Exit(1)


def _run_story(console: Console, place: Path, messages: int, seed: int) -> Findings:
    from headgate.cli.demo.cast import EU_LARGE
    from headgate.cli.demo.story import STEPS, Story

    began = time.perf_counter()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("publish", total=len(STEPS) + 1)

        def announce(step: str) -> None:
            done = STEPS.index(step) if step in STEPS else None
            progress.update(task, description=f"{step:<12}", completed=done)

        story = Story(place, messages, seed, announce)
        story.run()
        progress.update(task, description="check       ", completed=len(STEPS))
        story.compare(lambda: progress.refresh())
        progress.update(task, description="done        ", completed=len(STEPS) + 1)
    story.findings.explained = _explain_text(EU_LARGE.filter)
    story.findings.seconds = time.perf_counter() - began
    return story.findings


@contextmanager
def _open_directory(directory: Path | None) -> Iterator[Path]:
    if directory is None:
        with tempfile.TemporaryDirectory(prefix="headgate-demo-") as place:
            yield Path(place)
        return
    if directory.exists() and any(directory.iterdir()):
        raise HeadgateError(f"{directory} is not empty; choose another directory or delete it")
    directory.mkdir(parents=True, exist_ok=True)
    yield directory.absolute()


def _explain_text(filter: str) -> str:
    from headgate.cli.explain import explain

    with redirect_stdout(io.StringIO()) as written:
        explain(filter)
    return written.getvalue().strip()


def _describe_machine() -> str:
    cores = os.cpu_count()
    disk = shutil.disk_usage(Path()).total >> 30
    return (
        f"Python {platform.python_version()}, {platform.system()}, {cores} cores, {disk} GiB disk"
    )


# ---- tables: they fit into 80 columns -----------------------------------------------------------------


def _print(console: Console, findings: Findings) -> None:
    """The verdict, then the numbers behind it."""
    style = "bold green" if findings.right else "bold red"
    console.print(Text(f"\n{findings.verdict}", style=style))
    console.print(f"{findings.messages:,} orders, {findings.seconds:.0f} s in all.\n")
    console.print(_received_table(findings))
    console.print(_skipped_table(findings))
    console.print(_rates_table(findings))
    console.print(_filters_table(findings))
    console.print(findings.explained, markup=False)


def _table(title: str, *names: str) -> Table:
    table = Table(*names, title=title, title_justify="left", title_style="bold")
    table.caption_justify = "left"
    return table


def _received_table(findings: Findings) -> Table:
    table = _table("What each subscriber got", "subscriber", "way")
    table.add_column("reference", justify="right")
    table.add_column("received", justify="right")
    table.add_column("")
    for entry in findings.received:
        mark = Text("✓", style="green") if entry.right else Text("✗", style="bold red")
        table.add_row(entry.subscriber, entry.way, f"{entry.expected:,}", f"{entry.got:,}", mark)
    return table


def _skipped_table(findings: Findings) -> Table:
    table = _table("How much of the stream each filter read", "reader", "stream")
    for name in ("skipped", "passed whole", "masked", "bytes read", "ms"):
        table.add_column(name, justify="right")
    for states in findings.skipped_by_filter:
        for entry in states:
            stats = entry.stats
            counts = (stats.chunks_none, stats.chunks_all, stats.chunks_some)
            table.add_row(
                entry.subscriber, entry.state, *map(str, counts),
                f"{entry.share_read:.1%}", f"{entry.seconds * 1000:,.0f}",
            )  # fmt: skip
        table.add_section()
    table.caption = "skipped, passed whole, masked row by row: chunks of the stream"
    return table


def _rates_table(findings: Findings) -> Table:
    table = _table("How fast, by the clock", "step")
    for name in ("messages", "seconds", "messages/s"):
        table.add_column(name, justify="right")
    for rate in findings.rates:
        flow = (f"{rate.messages:,}", f"{rate.per_second:,.0f}") if rate.messages else ("", "")
        table.add_row(rate.step, flow[0], f"{rate.seconds:.1f}", flow[1])
    sizes = ", ".join(f"{tier} {size_text(size)}" for tier, size in findings.sizes.items())
    table.caption = f"on disk: {sizes}"
    return table


def _filters_table(findings: Findings) -> Table:
    table = _table("The filters", "subscriber", "filter")
    for name, filter in {entry.subscriber: entry.filter for entry in findings.received}.items():
        table.add_row(name, Text(filter))
    return table
