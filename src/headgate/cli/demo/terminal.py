"""The findings in a terminal: compact, and no number that was not checked."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headgate.cli.arguments import size_text
from headgate.cli.demo.figures import Findings


def show(console: Console, findings: Findings) -> None:
    console.print()
    console.print(_received(findings))
    console.print(_skipped(findings))
    console.print(_rates(findings))
    console.print(findings.explained, markup=False)
    verdict = (
        "Every number equals the reference." if findings.right else "NOT equal to the reference."
    )
    style = "bold green" if findings.right else "bold red"
    console.print(Text(f"\n{verdict} {findings.seconds:.0f} s in all.", style=style))


def _received(findings: Findings) -> Table:
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


def _skipped(findings: Findings) -> Table:
    table = Table("filter", "stream", title="What each layer spared", title_justify="left")
    for name in ("skipped", "passed whole", "looked into", "bytes read", "ms"):
        table.add_column(name, justify="right")
    for entry in findings.skipped:
        stats = entry.stats
        counts = (stats.chunks_none, stats.chunks_all, stats.chunks_some)
        table.add_row(
            Text(entry.filter), entry.state, *map(str, counts),
            f"{entry.share_read:.1%}", f"{entry.seconds * 1000:,.0f}",
        )  # fmt: skip
    return table


def _rates(findings: Findings) -> Table:
    table = Table("step", title="How fast", title_justify="left")
    table.add_column("messages/s", justify="right")
    table.add_column("seconds", justify="right")
    for rate in findings.rates:
        table.add_row(rate.step, f"{rate.per_second:,.0f}", f"{rate.seconds:.1f}")
    sizes = ", ".join(f"{tier} {size_text(size)}" for tier, size in findings.sizes.items())
    table.caption, table.caption_justify = f"on disk: {sizes}", "left"
    return table
