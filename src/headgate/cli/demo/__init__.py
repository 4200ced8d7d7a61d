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
from headgate.cli.output import print_json, write_text
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
    console = Console(highlight=False, stderr=as_json)
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


# ---- tables ------------------------------------------------------------------------------------------


def _print(console: Console, findings: Findings) -> None:
    console.print()
    console.print(_received_table(findings))
    console.print(_skipped_table(findings))
    console.print(_rates_table(findings))
    console.print(findings.explained, markup=False)
    verdict = (
        "Every number equals the reference." if findings.right else "NOT equal to the reference."
    )
    style = "bold green" if findings.right else "bold red"
    console.print(Text(f"\n{verdict} {findings.seconds:.0f} s in all.", style=style))


def _received_table(findings: Findings) -> Table:
    table = Table(
        "subscriber", "way", "filter", title="What each subscriber got", title_justify="left"
    )
    table.add_column("reference", justify="right")
    table.add_column("received", justify="right")
    table.add_column("")
    for entry in findings.received:
        mark = Text("✓", style="green") if entry.right else Text("✗", style="bold red")
        counts = (f"{entry.expected:,}", f"{entry.got:,}")
        table.add_row(entry.subscriber, entry.way, Text(entry.filter), *counts, mark)
    return table


def _skipped_table(findings: Findings) -> Table:
    table = Table("filter", "stream", title="What each layer skipped", title_justify="left")
    for name in ("skipped", "passed whole", "masked", "bytes read", "ms"):
        table.add_column(name, justify="right")
    for entry in findings.skipped:
        stats = entry.stats
        counts = (stats.chunks_none, stats.chunks_all, stats.chunks_some)
        table.add_row(
            Text(entry.filter), entry.state, *map(str, counts),
            f"{entry.share_read:.1%}", f"{entry.seconds * 1000:,.0f}",
        )  # fmt: skip
    return table


def _rates_table(findings: Findings) -> Table:
    table = Table("step", title="How fast", title_justify="left")
    table.add_column("messages/s", justify="right")
    table.add_column("seconds", justify="right")
    for rate in findings.rates:
        table.add_row(rate.step, f"{rate.per_second:,.0f}", f"{rate.seconds:.1f}")
    sizes = ", ".join(f"{tier} {size_text(size)}" for tier, size in findings.sizes.items())
    table.caption, table.caption_justify = f"on disk: {sizes}", "left"
    return table
