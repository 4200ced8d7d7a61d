"""headgate verify, backup and restore: the directory of a broker's data."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.arguments import AsJson
from headgate.cli.output import print_json, spinner
from headgate.insights import size_text
from headgate.server import (
    Backup,
    DirectoryReport,
    OnStep,
    back_up,
    repair_directory,
    restore_backup,
    verify_directory,
)

DataDirectory = Annotated[
    Path, typer.Argument(help="The directory of a broker's data.", metavar="DIR")
]


def verify(
    data: DataDirectory,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Save what can be read, with the broker stopped; damaged files are kept under another name.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Read everything in a broker's directory and report damage. Exit code 1: some was found.

    Without --repair nothing is written, and the broker may be running.

    Example: headgate verify /var/lib/headgate --repair
    """
    with spinner("verifying") as progress:
        on_step = _steps(progress)
        if repair:
            done = repair_directory(data, on_step)
            report = done.report
        else:
            report = verify_directory(data, on_step)
    if as_json:
        print_json(asdict(done if repair else report))
    else:
        if repair and done.salvaged is not None:
            typer.echo(
                f"saved {done.salvaged.rows:,} messages and {done.salvaged.definitions:,} definitions; "
                f"{done.salvaged.unreadable:,} places could not be read; the damaged file is {done.damaged}"
            )
        _print_report(report)
    raise typer.Exit(0 if report.fine else 1)


def backup(
    data: DataDirectory,
    to: Annotated[Path, typer.Argument(help="A new directory for the backup.", metavar="TO")],
    as_json: AsJson = False,
) -> None:
    """Copy a broker's directory while it runs; what was confirmed before is in the copy.

    Example: headgate backup /var/lib/headgate /backups/headgate-monday
    """
    with spinner("copying") as progress:
        done = back_up(data, to, _steps(progress))
    _print_done("backed up to", done, as_json)


def restore(
    backup: Annotated[Path, typer.Argument(help="The directory of a backup.", metavar="BACKUP")],
    data: Annotated[
        Path, typer.Argument(help="A new directory for the broker's data.", metavar="DIR")
    ],
    as_json: AsJson = False,
) -> None:
    """Verify a backup, and make a directory from it that a broker can serve.

    Example: headgate restore /backups/headgate-monday /var/lib/headgate
    """
    with spinner("restoring") as progress:
        done = restore_backup(backup, data, _steps(progress))
    _print_done("restored to", done, as_json)


def _steps(progress: object) -> OnStep:
    from rich.progress import Progress

    assert isinstance(progress, Progress)
    task = progress.add_task("", total=None)
    return lambda what: progress.update(task, description=what)


def _print_done(what: str, done: Backup, as_json: bool) -> None:
    if as_json:
        print_json(asdict(done))
    else:
        typer.echo(
            f"{what} {done.path}: the store and {done.streams} streams, {size_text(done.nbytes)}"
        )


def _print_report(report: DirectoryReport) -> None:
    for problem in report.store.problems:
        typer.echo(problem)
    for name, stream in report.streams.items():
        for found in stream.problems:
            typer.echo(f"{name}: {found}")
    streams = sum(stream.messages for stream in report.streams.values())
    state = "fine" if report.fine else "damaged; --repair saves what can be read"
    typer.echo(
        f"{report.store.rows:,} messages in queues, {streams:,} in {len(report.streams)} streams: {state}"
    )
