"""headgate demo: half a million orders through every part, each number checked against the reference."""

from __future__ import annotations

import io
import json
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

from headgate.cli.arguments import write_text
from headgate.cli.demo.figures import Findings
from headgate.cli.options import AsJson
from headgate.errors import HeadgateError


def demo(
    messages: Annotated[int, typer.Option(help="How many orders to make.", min=1_000)] = 500_000,
    directory: Annotated[
        Path | None, typer.Option(help="Keep the data here; else it is thrown away.")
    ] = None,
    report: Annotated[Path, typer.Option(help="Where the page with the charts goes.")] = Path(
        "demo-report.html"
    ),
    seed: Annotated[int, typer.Option(help="The same seed makes the same orders.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Publish orders, route them on Spark, be notified, read, seal, compact and replay; then check it all.

    Exit code 1 when any subscriber got anything but what the reference predicate says.
    """
    console = Console(highlight=False, stderr=as_json)
    with _place(directory) as place:
        findings = _tell(console, place, messages, seed)
    from headgate.cli.demo.page import page

    write_text(report, page(findings, _machine(), datetime.now(UTC)))
    if as_json:
        typer.echo(json.dumps(asdict(findings), indent=2))
    else:
        from headgate.cli.demo.terminal import show

        show(console, findings)
    console.print(f"The same with charts: {report}", markup=False)
    if not findings.right:
        raise typer.Exit(1)


def _tell(console: Console, place: Path, messages: int, seed: int) -> Findings:
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
    story.findings.explained = _explained(EU_LARGE.filter)
    story.findings.seconds = time.perf_counter() - began
    return story.findings


@contextmanager
def _place(directory: Path | None) -> Iterator[Path]:
    if directory is None:
        with tempfile.TemporaryDirectory(prefix="headgate-demo-") as place:
            yield Path(place)
        return
    if directory.exists() and any(directory.iterdir()):
        raise HeadgateError(f"{directory} is not empty; choose another or remove it")
    directory.mkdir(parents=True, exist_ok=True)
    yield directory.absolute()


def _explained(filter: str) -> str:
    from headgate.cli.explain import explain

    with redirect_stdout(io.StringIO()) as written:
        explain(filter)
    return written.getvalue().strip()


def _machine() -> str:
    cores = os.cpu_count()
    disk = shutil.disk_usage(Path()).total >> 30
    return (
        f"Python {platform.python_version()}, {platform.system()}, {cores} cores, {disk} GiB disk"
    )
