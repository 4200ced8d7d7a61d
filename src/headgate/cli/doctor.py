"""headgate doctor: check whether this machine has what Headgate needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Table
from rich.text import Text

from headgate.cli.arguments import AsJson
from headgate.cli.output import print_json_lines, terminal
from headgate.errors import HeadgateError
from headgate.insights import Finding, Health, diagnose
from headgate.settings import load_settings

_MARKS: Final[dict[Health, str]] = {
    "fine": "[green]✓[/]",
    "absent": "[dim]–[/]",
    "weak": "[yellow]![/]",
    "missing": "[red]✗[/]",
}


def doctor(
    directory: Annotated[
        Path, typer.Argument(help="Where streams and databases will be stored.")
    ] = Path(),
    db: Annotated[
        str | None,
        typer.Option("--db", help="A PostgreSQL server to check: postgresql://…", metavar="URL"),
    ] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Also start Spark and run a job.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check Python, Java, Spark, PostgreSQL, disk, limits and versions, and say what to do.

    Exit code 1 when something is missing that keeps a part from working.

    Example: headgate doctor /var/lib/headgate --db postgresql://localhost/orders
    """
    if db is not None and not db.startswith(("postgresql:", "postgres:")):
        raise HeadgateError(
            "--db checks a PostgreSQL server, postgresql://…; for a SQLite file, name its directory instead: "
            "headgate doctor DIRECTORY"
        )
    console = terminal(stderr=as_json)
    with console.status("checking …"):
        url = load_settings(database=db).database
        findings = list(diagnose(directory, url, start_spark=deep))
    if as_json:
        print_json_lines(finding._asdict() for finding in findings)
    else:
        console.print(_table(findings))
        console.print(_summary(findings), markup=False)
    if any(finding.state == "missing" for finding in findings):
        raise typer.Exit(1)


def _table(findings: list[Finding]) -> Table:
    table = Table("", "part", "found", "what to do", box=None, pad_edge=False)
    for finding in findings:
        cells = (finding.part, finding.found, finding.advice)
        table.add_row(_MARKS[finding.state], *map(Text, cells))
    return table


def _summary(findings: list[Finding]) -> str:
    missing = [finding.part for finding in findings if finding.state == "missing"]
    weak = [finding.part for finding in findings if finding.state == "weak"]
    if missing:
        return f"\n{', '.join(missing)}: not usable as it is."
    if weak:
        return f"\nEverything works; {', '.join(weak)} could be better."
    return "\nEverything is fine."
