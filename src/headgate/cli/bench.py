"""headgate bench: measure this machine, next to the programs one would use instead."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

import headgate
from headgate.errors import HeadgateError

_CLONE: Final = Path(headgate.__file__).parents[2]  # with pip install -e, the clone


def bench(
    quick: Annotated[
        bool, typer.Option("--quick", help="Less data and fewer rounds: minutes, not an hour.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GROUP",
            help="Only filters, streams, routing, queues, broker, broker_filters or spark, or a part: spark/growth.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write every figure into this JSON file; --only adds to it."),
    ] = None,
    into: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DOCUMENT",
            help="Write the table between its markers in this document; may be repeated.",
        ),
    ] = None,
    show: Annotated[
        Path | None, typer.Option(help="Measure nothing: print the figures in this file.")
    ] = None,
) -> None:
    """Measure filters, streams, routing, queues, the broker and Spark next to the programs one would use instead.

    The benches are in a clone of the repository; peers that are not installed are left out. Exit code 1 when a bench
    did not finish; a missed target is marked, and is not a failure.

    Example: headgate bench --quick --only queues
    """
    command = [sys.executable, str(_find_benches(_CLONE))]
    command += ["--quick"] * quick
    for group in only or ():
        command += ["--only", group]
    for document in into or ():
        command += ["--into", str(document)]
    for option, path in (("--json", out), ("--show", show)):
        command += [option, str(path)] if path else []
    if code := _run(command):
        raise typer.Exit(code)


def _run(command: list[str]) -> int:
    with subprocess.Popen(command) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                continue  # the benches received it too, and end by printing and writing their figures


def _find_benches(clone: Path) -> Path:
    found = clone / "benches"
    if not (found / "__main__.py").exists():
        raise HeadgateError(
            "the benches are not part of the package: clone the repository and run `make bench` there, "
            "or `pip install -e '.[all,dev,bench]'` in the clone and then `headgate bench`"
        )
    return found
