"""headgate explain: which layer answers which part of a filter."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from headgate import filters, insights
from headgate.cli.arguments import AsJson, DatabaseUrl, open_database
from headgate.cli.completion import complete_queue, complete_stream
from headgate.cli.output import print_json, print_table, titled
from headgate.insights import size_text

if TYPE_CHECKING:
    from headgate.filters import Explanation
    from headgate.filters.compile.sql import SqlDialect
    from headgate.insights import FilterFacts
    from headgate.streams.read import Measurement

_NAMES: Final[dict[SqlDialect, str]] = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


def explain(
    filter: Annotated[str, typer.Argument(help="The filter, in quotes.", metavar="FILTER")],
    stream: Annotated[
        Path | None,
        typer.Option(
            help="Measure the filter on this stream: what is skipped, passed and read.",
            autocompletion=complete_stream,
        ),
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option(
            help="Warn of names and kinds that the messages of this queue do not have.",
            autocompletion=complete_queue,
        ),
    ] = None,
    db: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show how a filter is understood, and term by term which layer answers what.

    The tree and its normal form, the SQL of both dialects with its parameters and the indexes that would
    serve it, the Bloom probes, the Spark expression, and what remains to be checked in Python and why.

    Example: headgate explain "region = 'EU' AND amount > 1000" --stream orders
    """
    with ExitStack() as stack:
        database = None if queue is None else stack.enter_context(open_database(db, "look"))
        found = None if database is None or queue is None else database.find(queue)
        facts = insights.explain_filter(filter, stream, queue=found)
    if as_json:
        print_json(_as_json(facts))
        return
    print_table(_draw(facts))
    if facts.measured is not None:
        table = _measured_table(facts.measured)
        print_table(titled(f"Measured on {stream}", table, indent=2))


def _as_json(facts: FilterFacts) -> dict[str, Any]:
    plan = facts.plan
    shown = {
        "filter": plan.text,
        "normal_form": plan.normal,
        "tree": list(plan.tree),
        "terms": [
            {
                "term": t.text,
                "within_or": t.within_or,
                "routing": t.routing,
                "hot": t.hot,
                "sealed": t.sealed,
                "sql": t.sql,
            }
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
            for dialect in filters.DIALECTS
        },
        "bloom_probes": list(plan.probes),
        "spark": facts.spark,
        "warnings": list(facts.warnings),
    }
    return shown if facts.measured is None else shown | {"measured": _measured_json(facts.measured)}


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
        ("ALL: passed without a mask", f"{stats.chunks_all:,}"),
        ("SOME: masked row by row", f"{stats.chunks_some:,}"),
        ("… of these without a match", f"{measured.false_positives:,}"),
        ("not read", f"{size_text(unread)} of {size_text(stats.bytes_total)} ({share:.1%})"),
        ("messages that match", f"{stats.rows_matched:,}"),
    ):
        table.add_row(name, value)
    return table


def _draw(facts: FilterFacts) -> Group:
    plan = facts.plan
    parts: list[RenderableType] = [Text(plan.text, style="bold"), Text("\n".join(plan.tree))]
    if plan.normal != plan.text:
        parts.append(titled("Normal form", Text(plan.normal), indent=2))
    parts.append(_terms_table(plan))
    for dialect in filters.DIALECTS:
        parts.append(titled(_NAMES[dialect], _draw_sql(plan, dialect), indent=2))
    probes = "\n".join(plan.probes) or "none: no equality of a header"
    parts.append(titled("Bloom probes", Text(probes), indent=2))
    parts.append(titled("Spark", Text(facts.spark), indent=2))
    if facts.warnings:
        notes = Text("\n".join(f"• {warning}" for warning in facts.warnings), style="yellow")
        parts.append(titled("Did you mean it?", notes, indent=2))
    return Group(*(Padding(part, (0, 0, 1, 0)) for part in parts))


def _terms_table(plan: Explanation) -> Table:
    table = Table(
        Column("term (all must hold)", overflow="fold"),
        "routing",
        "skips hot chunks by",
        "sealed ones by",
        *(_NAMES[d] for d in filters.DIALECTS),
    )
    for term in plan.terms:
        name = f"  or {term.text}" if term.within_or else term.text
        engines = (term.sql[dialect] for dialect in filters.DIALECTS)
        cells = (name, term.routing, term.hot, term.sealed, *engines)
        table.add_row(*map(Text, cells))
    return table


def _draw_sql(plan: Explanation, dialect: SqlDialect) -> Group:
    from rich.syntax import Syntax

    where = plan.sql[dialect].where
    lines: list[Any] = [Syntax(where.text, "sql", background_color="default", word_wrap=True)]
    if where.params:
        lines.append(Text(f"parameters: {list(where.params)!r}"))
    lines.extend(Text(f"index: {statement}", style="dim") for statement in plan.indexes[dialect])
    if plan.residual[dialect]:
        residual = f"checked in Python afterwards: {plan.residual[dialect]}"
        reasons = [f"  because {reason}" for reason in plan.sql[dialect].reasons]
        lines.extend(Text(line, style="yellow") for line in (residual, *reasons))
    return Group(*lines)
