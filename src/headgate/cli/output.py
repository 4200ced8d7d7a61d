"""What commands print: JSON, tables, files, and progress on the terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from headgate.cli.arguments import parse_conf
from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.progress import Progress, ProgressColumn

    from headgate.spark.jobs import OnProgress


def print_json(value: object) -> None:
    """One JSON document on one line."""
    typer.echo(json.dumps(value, ensure_ascii=False, default=str))


def print_json_lines(values: Iterable[object]) -> None:
    """One JSON document per line."""
    for value in values:
        print_json(value)


def print_warnings(warnings: Iterable[str]) -> None:
    """One line for each warning, on stderr."""
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)


def terminal(*, stderr: bool = False, soft_wrap: bool = False, quiet: bool = False) -> Console:
    """Where commands print text as it is: a `:x:` in a name is no emoji, a number has no colour of its own."""
    return Console(stderr=stderr, soft_wrap=soft_wrap, quiet=quiet, highlight=False, emoji=False)


def print_table(*tables: RenderableType) -> None:
    """Tables, as wide as the terminal; one whose words would be cut there is printed row by row."""
    console = terminal()
    for table in tables:
        if isinstance(table, Table) and (needs := _measure(table, console)).minimum > console.width:
            if console.is_terminal or "COLUMNS" in os.environ:
                table = _as_records(table)
            else:  # a program reads it, line by line
                console.width = needs.maximum
        console.print(table)


def _measure(table: Table, console: Console) -> Measurement:
    """The widths of the longest words, and of the longest cells; 0 where there is nothing to cut."""
    if not table.show_header or not table.row_count:
        return Measurement(0, 0)
    return Measurement.get(console, console.options.update(width=10_000), table)


def _as_records(table: Table) -> Table:
    """For each row of a table, a row for each of its columns that has a value."""
    records = Table(title=table.title, title_justify="left", show_header=False)
    for row in zip(*(column.cells for column in table.columns), strict=True):
        for column, cell in zip(table.columns, row, strict=True):
            if str(cell):
                records.add_row(column.header, cell)
        records.add_section()
    return records


def value_text(value: object) -> str:
    """An option for a person: several values with commas between them, times in seconds or days."""
    match value:
        case None | () | []:
            return "-"
        case tuple() | list():
            return ", ".join(map(str, value))
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case timedelta():
            days, rest = divmod(value, timedelta(days=1))
            return f"{days:,} days" if days and not rest else f"{value.total_seconds():g} s"
        case Mapping():
            return "; ".join(f"{name}={value_text(held)}" for name, held in value.items()) or "-"
        case _:
            return str(value)


def titled(title: str, body: RenderableType, *, indent: int = 0) -> Group:
    """A heading above a table or text."""
    return Group(Text(title, style="bold cyan"), Padding(body, (0, 0, 0, indent)))


def write_text(path: Path, text: str) -> None:
    """Write a file, or say why that failed."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise HeadgateError(
            f"{path} cannot be written: {problem.strerror}; choose another place"
        ) from problem


# ---- progress ------------------------------------------------------------------------------------------


def spinner(what: str) -> Progress:
    """For work whose end is not known."""
    from rich.progress import SpinnerColumn, TextColumn

    return _progress(SpinnerColumn(), TextColumn(f"{what}: {{task.description}}"))


def _progress(*columns: str | ProgressColumn) -> Progress:
    """These columns and the elapsed time, on stderr if that is a terminal; removed at the end."""
    from rich.progress import Progress, TimeElapsedColumn

    return Progress(
        *columns,
        TimeElapsedColumn(),
        console=terminal(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )


@contextmanager
def spark_with_progress(
    what: str, master: str | None, conf: Iterable[str] | None = None
) -> Iterator[tuple[SparkSession, OnProgress | None]]:
    """A Spark session and a progress bar for one job. A session that was already running stays open."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

    from headgate.spark import command_session, running_session, stop_session

    settings = parse_conf(conf)
    bar = _progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    ours = running_session() is None
    with bar:
        task = bar.add_task("starting Spark", total=None)
        spark = command_session(master=master, config=settings)
        bar.update(task, description=what)

        def show(done: int, of: int) -> None:
            bar.update(task, completed=done, total=of or None)

        try:
            yield spark, None if bar.disable else show
        finally:
            if ours:
                stop_session(spark)
