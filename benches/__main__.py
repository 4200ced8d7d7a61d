"""Run all benches one after the other, each in its own process, and print a table of their figures.

    python benches [--quick] [--only GROUP] [--json PATH] [--into DOCUMENT] [--show PATH]

GROUP is filters, streams, routing, queues, broker, broker_filters or spark, or one part of them: spark/growth. With --only, --json adds to an
existing file. After a bench that fails the others still run, its figures up to the failure are kept, and the exit code is 1.
Ctrl-C ends the run; the figures so far are printed and written. A missed target is marked, and is not a failure.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import headlines
from figures import TIMES, Figure, measure, number
from reports import HERE, ORDER, PEERS, Report, load, save, verdict, version_of
from rich.console import Console
from rich.table import Table

LIMIT_S = 3 * 3600  # a bench that takes longer hangs
CLEAN_UP_S = 60
INTERRUPTED = 130  # the exit code of a program that Ctrl-C ended
console = Console(highlight=False, width=None if sys.stdout.isatty() else 150)


def main() -> int:
    given = arguments()
    if given.show:
        report, failed = load(given.show), []
    else:
        report, failed = run_benches(given.only or list(ORDER), given.quick)
    show(report.figures)
    console.print(f"\n{verdict(report.figures)}", markup=False)
    if given.json and given.only and given.json.exists():
        report = load(given.json).with_newer(report)
    if given.json:
        save(report, given.json)
        report = load(given.json)  # rounded, as in the file
    for document in given.into or ():
        headlines.write_tables(report, document)
    if given.into and (left_out := headlines.without_figure(report.figures)):
        console.print(f"\nNot measured, in no table: {'; '.join(left_out)}", markup=False)
    if given.into and (unknown := headlines.unexplained(report.figures)):
        console.print(
            f"\nMissed without a reason in benches/reasons.py: {'; '.join(unknown)}", markup=False
        )
    if failed:
        console.print(f"Did not finish: {', '.join(failed)}", style="red", markup=False)
    return 1 if failed else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python benches", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="less data, fewer rounds: minutes")
    parser.add_argument("--json", type=Path, help="write all figures here")
    help = "write the tables between their markers in this document; may be repeated"
    parser.add_argument("--into", type=_document, action="append", metavar="DOCUMENT", help=help)
    parser.add_argument(
        "--show", type=_file, help="measure nothing, print the figures in this file"
    )
    help = f"only these: {', '.join(ORDER)}, or one part: spark/growth"
    parser.add_argument("--only", type=_group, action="append", metavar="GROUP", help=help)
    return parser.parse_args()


def _group(text: str) -> str:
    if text.partition("/")[0] not in ORDER:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(ORDER)}")
    return text


def _file(text: str) -> Path:
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text}")
    return Path(text)


def _document(text: str) -> Path:
    """Check the document before an hour of measuring, not after it."""
    try:
        headlines.parts_of(Path(text))
    except (OSError, ValueError) as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None
    return Path(text)


# ---- running -------------------------------------------------------------------------------------------


def run_benches(names: list[str], quick: bool) -> tuple[Report, list[str]]:
    """Run these benches; return their figures, and the names of those that did not finish."""
    if absent := [name for name in (*PEERS, "psutil") if version_of(name) is None]:
        advice = "`pip install 'headgate[bench]'` installs them; spark needs psutil"
        console.print(f"Not installed, and left out: {', '.join(absent)}. {advice}", markup=False)
    report, failed, began = Report(), [], time.monotonic()
    for turn, name in enumerate(names, 1):
        spent = (time.monotonic() - began) / 60
        console.rule(f"{name}, {turn} of {len(names)}, after {spent:.0f} minutes", align="left")
        found, code = run_bench(name, quick)
        report = report.with_newer(found)
        if code:
            console.print(_describe_failure(name, found, code), style="red", markup=False)
            failed.append(name)
        if code == INTERRUPTED:
            return report, failed + names[turn:]
    return report, failed


def _describe_failure(name: str, found: Report, code: int) -> str:
    why = "it was interrupted" if code == INTERRUPTED else f"exit code {code}, its error is above"
    return f"{name} did not finish: {why}; figures kept: {len(found.figures)}"


def run_bench(name: str, quick: bool) -> tuple[Report, int]:
    """Run a bench in its own process: memory, threads and a JVM are not shared."""
    group, _, part = name.partition("/")
    with tempfile.TemporaryDirectory() as place:
        found = Path(place) / "figures.json"
        command = [sys.executable, str(HERE / f"{group}.py"), "--json", str(found)]
        command += ["--quick"] * quick + ["--only", part] * bool(part)
        code = run(command)
        return (load(found) if found.exists() else Report()), code


def run(command: list[str]) -> int:
    with subprocess.Popen(command) as process:
        try:
            return process.wait(LIMIT_S)
        except KeyboardInterrupt:  # the bench received it too
            _wait_for_clean_up(process)
            return INTERRUPTED
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            return _wait_for_clean_up(process) or 1


def _wait_for_clean_up(process: subprocess.Popen[bytes]) -> int | None:
    """The exit code of an interrupted bench, which writes its figures and cleans up; one that takes too long is killed."""
    try:
        return process.wait(CLEAN_UP_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()
        return None


# ---- the table -----------------------------------------------------------------------------------------


def show(figures: Iterable[Figure]) -> None:
    """Print the figures that have a target or a peer; the others were printed during the run."""
    table = Table("figure", box=None, pad_edge=False)
    for column in ("Headgate", "target", "", "its figure", "ratio"):
        table.add_column(column, justify="right")
    table.add_column("alternative")
    group = ""
    for figure in figures:
        if figure.met is None and figure.ratio is None:
            continue
        if figure.group != group:
            group = figure.group
            table.add_row(f"\n[bold]{group}[/]")
        table.add_row(*_cells(figure))
    console.print(table)


def _cells(figure: Figure) -> tuple[str, ...]:
    mark = {True: "[green]met[/]", False: "[red]MISSED[/]", None: ""}[figure.met]
    ratio = "" if figure.ratio is None else f"{number(figure.ratio, TIMES)} ×"
    theirs = measure(figure.theirs, figure.unit)
    ours = measure(figure.value, figure.unit)
    return figure.name, ours, figure.target, mark, theirs, ratio, figure.against


if __name__ == "__main__":
    sys.exit(main())
