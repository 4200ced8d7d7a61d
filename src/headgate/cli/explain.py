"""headgate explain: which layer answers which part of a filter."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console, Group
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from headgate.cli.arguments import size_text
from headgate.cli.options import AsJson
from headgate.clock import now_us
from headgate.filters import DIALECTS, Explanation, Filter, depends_on_time, parse
from headgate.filters import explain as explain_filter
from headgate.filters.compile.sql import Dialect
from headgate.spark import to_expression_text
from headgate.streams import Stream
from headgate.streams.read import Measurement, measure

_NAMES: Final[dict[Dialect, str]] = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


def explain(
    filter: Annotated[str, typer.Argument(help="The filter, in quotes.", metavar="FILTER")],
    stream: Annotated[
        Path | None,
        typer.Option(help="Measure the filter on this stream: what is skipped, passed and read."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how a filter is understood, and term by term which layer answers what.

    The tree and its normal form, the SQL of both dialects with its parameters and the indexes that would
    serve it, the Bloom probes, the Spark expression, what stays to be checked in Python and why.
    """
    tree = parse(filter)
    now = now_us() if depends_on_time(tree) else 0
    plan = explain_filter(tree, now_us=now)
    spark = to_expression_text(tree, now_us=now)
    measured = None if stream is None else _measure(stream, tree)
    if as_json:
        found = {} if measured is None else {"measured": _measured_json(measured)}
        typer.echo(json.dumps(_as_json(plan, spark) | found, ensure_ascii=False, indent=2))
        return
    console = Console(highlight=False)
    console.print(_drawn(plan, spark))
    if measured is not None:
        console.print(_titled(f"Measured on {stream}", _measured_table(measured)))


def _measure(path: Path, tree: Filter) -> Measurement:
    with Stream.open(path) as stream:
        return measure(stream, tree)


def _measured_json(measured: Measurement) -> dict[str, Any]:
    return {
        **asdict(measured.stats),
        "chunks": measured.chunks,
        "false_positives": measured.false_positives,
    }


def _measured_table(measured: Measurement) -> Table:
    stats = measured.stats
    table = Table(show_header=False)
    unread = stats.bytes_total - stats.bytes_read
    share = unread / stats.bytes_total if stats.bytes_total else 0.0
    for name, value in (
        ("chunks", f"{measured.chunks:,}"),
        ("NONE: skipped", f"{stats.chunks_none:,}"),
        ("ALL: passed without a look", f"{stats.chunks_all:,}"),
        ("SOME: looked into", f"{stats.chunks_some:,}"),
        ("… of these without a match", f"{measured.false_positives:,}"),
        ("not read", f"{size_text(unread)} of {size_text(stats.bytes_total)} ({share:.1%})"),
        ("messages that match", f"{stats.rows_matched:,}"),
    ):
        table.add_row(name, value)
    return table


def _as_json(plan: Explanation, spark: str) -> dict[str, Any]:
    return {
        "filter": plan.text,
        "normal_form": plan.normal,
        "tree": list(plan.tree),
        "terms": [
            {"term": t.text, "routing": t.routing, "summary": t.summary, "sql": t.sql}
            for t in plan.terms
        ],
        "sql": {
            dialect: {
                "where": plan.sql[dialect].where.text,
                "parameters": list(plan.sql[dialect].where.params),
                "indexes": list(plan.indexes[dialect]),
                "residual": plan.residual[dialect],
                "reasons": list(plan.sql[dialect].reasons),
            }
            for dialect in DIALECTS
        },
        "bloom_probes": list(plan.probes),
        "spark": spark,
        "warnings": list(plan.warnings),
    }


def _drawn(plan: Explanation, spark: str) -> Group:
    parts: list[Any] = [Text(plan.text, style="bold"), Text("\n".join(plan.tree))]
    if plan.normal != plan.text:
        parts.append(_titled("Normal form", Text(plan.normal)))
    parts.append(_terms(plan))
    for dialect in DIALECTS:
        parts.append(_titled(_NAMES[dialect], _sql(plan, dialect)))
    probes = "\n".join(plan.probes) or "none: no equality that must hold"
    parts.append(_titled("Bloom probes", Text(probes)))
    parts.append(_titled("Spark", Text(spark)))
    if plan.warnings:
        notes = Text("\n".join(f"• {warning}" for warning in plan.warnings), style="yellow")
        parts.append(_titled("Did you mean it?", notes))
    return Group(*(Padding(part, (0, 0, 1, 0)) for part in parts))


def _titled(title: str, body: Any) -> Group:
    return Group(Text(title, style="bold cyan"), Padding(body, (0, 0, 0, 2)))


def _terms(plan: Explanation) -> Table:
    table = Table(
        "term (all must hold)", "routing", "chunk summary", *(_NAMES[d] for d in DIALECTS)
    )
    for term in plan.terms:
        cells = (term.text, term.routing, term.summary, *(term.sql[d] for d in DIALECTS))
        table.add_row(*map(Text, cells))
    return table


def _sql(plan: Explanation, dialect: Dialect) -> Group:
    where = plan.sql[dialect].where
    lines: list[Any] = [Syntax(where.text, "sql", background_color="default", word_wrap=True)]
    if where.params:
        lines.append(Text(f"parameters: {list(where.params)!r}"))
    lines.extend(Text(f"index: {statement}", style="dim") for statement in plan.indexes[dialect])
    if plan.residual[dialect]:
        lines.append(
            Text(f"checked in Python afterwards: {plan.residual[dialect]}", style="yellow")
        )
        lines.extend(
            Text(f"  because {reason}", style="yellow") for reason in plan.sql[dialect].reasons
        )
    return Group(*lines)
