"""headgate filter: run tables of cases through every engine."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.status import Status
from rich.table import Table
from rich.text import Text

from headgate.check import (
    ENGINES,
    LOCAL,
    CheckReport,
    Disagreement,
    Expected,
    check_cases,
    load_cases,
    open_engine,
    unknown_engine,
)
from headgate.cli.arguments import AsJson
from headgate.cli.output import print_json, print_table, terminal

app = typer.Typer(no_args_is_help=True)


@app.command()
def check(
    cases: Annotated[Path, typer.Argument(help="A JSON table of cases.", metavar="CASES.json")],
    engine: Annotated[
        list[str],
        typer.Option(
            "--engine",
            "-e",
            help=f"An engine: {', '.join(ENGINES)}, or all; may be repeated.",
            show_default=", ".join(LOCAL),
        ),
    ] = list(LOCAL),  # noqa: B006  (typer reads the default, it never changes)
    db: Annotated[
        str | None,
        typer.Option(
            "--db",
            help="The PostgreSQL server to use; without it, one is started.",
            metavar="URL",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run every case through the engines and print where an answer differs from the expected one.

    A case is {"expr": "region = 'EU'", "message": {"headers": {"region": "EU"}}, "expect": true}, or
    {"pattern": "orders.#", "topic": "orders.eu", "expect": true}; "expect": "error" means that the filter
    must be refused. Exit code 1 when any case fails.

    Example: headgate filter check cases.json --engine python --engine postgres
    """
    table = load_cases(cases)
    report = CheckReport(table, ())
    for name in _parse_engines(engine):
        with _status(name, quiet=as_json), open_engine(name, postgres_url=db) as opened:
            report = report + check_cases(table, opened)
    if as_json:
        print_json(_as_json(report))
    else:
        _print(report)
    raise typer.Exit(1 if report.failed else 0)


def _parse_engines(names: list[str]) -> tuple[str, ...]:
    parts = [part for name in names for part in name.split(",") if part]
    unknown = [name for name in parts if name not in (*ENGINES, "all")]
    if unknown:
        raise unknown_engine(unknown[0])
    return ENGINES if "all" in parts else tuple(dict.fromkeys(parts))


def _status(name: str, *, quiet: bool) -> Status:
    return terminal(stderr=True, quiet=quiet).status(f"running on {name} …")


def _print(report: CheckReport) -> None:
    if report.disagreements:
        print_table(_table(report.disagreements))
    typer.echo(f"engines: {', '.join(report.engines)}")
    typer.echo(f"{report.passed} passed, {report.failed} failed")


def _table(disagreements: Iterable[Disagreement]) -> Table:
    columns = ("case", "engine", "expected", "got", "filter")
    table = Table(*columns, title="Disagreements", title_justify="left")
    for d in disagreements:
        answers = (_answer_text(d.case.expected), _answer_text(d.got))
        table.add_row(*map(Text, (str(d.case.number), d.engine, *answers, d.case.text)))
    return table


def _answer_text(value: Expected) -> str:
    return str(value).lower() if isinstance(value, bool) else value


def _as_json(report: CheckReport) -> dict[str, object]:
    return {
        "engines": report.engines,
        "passed": report.passed,
        "failed": report.failed,
        "disagreements": [_disagreement_json(d) for d in report.disagreements],
    }


def _disagreement_json(d: Disagreement) -> dict[str, object]:
    return {
        "case": d.case.number,
        "engine": d.engine,
        "text": d.case.text,
        "expected": d.case.expected,
        "got": d.got,
        "detail": d.detail,
    }
