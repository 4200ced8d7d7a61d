"""demo-report.html: one page with its own style and charts, which loads nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape
from importlib.resources import files

from headgate.cli.demo.figures import Findings, Rate, Received, Skipped
from headgate.insights import size_text

LAYERS = (
    ("skip", "skipped by the summary", "chunks_none"),
    ("pass", "passed whole", "chunks_all"),
    ("look", "masked row by row", "chunks_some"),
)


def page(findings: Findings, machine: str, made: datetime) -> str:
    """The whole page."""
    style = files("headgate.cli.demo").joinpath("page.css").read_text()
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Headgate demo</title><meta name=viewport "
        f"content='width=device-width, initial-scale=1'><style>{style}</style><main>",
        f"<h1>Headgate: {findings.messages:,} orders through every part</h1>",
        f"<p class={_mark_class(findings.right)}>{escape(findings.verdict)}</p>",
        f"<p class=note>{escape(machine)}; {made:%Y-%m-%d %H:%M} UTC; {findings.seconds:.0f} s in all.</p>",
        _section("What each subscriber got", _received_table(findings.received)),
        _section(
            "How much of the stream each filter read",
            _legend(),
            *map(_skipped, findings.skipped_by_filter),
        ),
        _section("How fast", _rates(findings.rates)),
        _section("On disk", _sizes(findings)),
        _section("How one filter is understood", f"<pre>{escape(findings.explained)}</pre>"),
        "</main></html>",
    ]
    return "\n".join(parts)


def _section(title: str, *content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{''.join(content)}</section>"


def _mark_class(right: bool) -> str:
    return "right" if right else "wrong"


# ---- tables ------------------------------------------------------------------------------------------


def _received_table(received: Sequence[Received]) -> str:
    rows = [
        f"<tr><td>{escape(r.subscriber)} <span class=way>{escape(r.way)}</span><code>{escape(r.filter)}</code>"
        f"<td class=n>{r.expected:,}<td class=n>{r.got:,}<td class={_mark_class(r.right)}>"
        f"{'✓' if r.right else '✗'}"
        for r in received
    ]
    head = "<tr><th>subscriber<th class=n>reference<th class=n>received<th>"
    return f"<table>{head}{''.join(rows)}</table>"


def _sizes(findings: Findings) -> str:
    rows = [
        f"<tr><td>{escape(tier)}<td class=n>{size_text(size)}<td class=n>{size / findings.messages:.0f} B a message"
        for tier, size in findings.sizes.items()
    ]
    return f"<table>{''.join(rows)}</table>"


# ---- charts ------------------------------------------------------------------------------------------


def _legend() -> str:
    marks = "".join(
        f"<span class=key><i class={kind}></i>{name}</span> " for kind, name, _ in LAYERS
    )
    return f"<p class=note>{marks}(chunks; beside the bar the share of bytes read)</p>"


def _skipped(states: Sequence[Skipped]) -> str:
    """One filter: a bar for each state of the stream."""
    bars = []
    for entry in states:
        counts = [(kind, getattr(entry.stats, name)) for kind, _, name in LAYERS]
        read = f"{entry.share_read:.1%} in {entry.seconds * 1000:,.0f} ms"
        bars.append(_bar(entry.state, counts, read))
    return f"<h3><code>{escape(states[0].filter)}</code></h3>{''.join(bars)}"


def _rates(rates: Sequence[Rate]) -> str:
    """A bar for each step that messages flow through; one that only starts something shows its time."""
    most = max((rate.per_second for rate in rates), default=0.0)
    bars = []
    for rate in rates:
        parts = [("rate", rate.per_second), ("rest", most - rate.per_second)]
        flow = f"{_count(rate.per_second)}/s, " if rate.messages else ""
        bars.append(_bar(rate.step, parts, f"{flow}{rate.seconds:.1f} s"))
    return "".join(bars) + "<p class=note>messages a second, by the clock, and seconds</p>"


def _count(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.1f} M"
    return f"{value / 1e3:.1f} k" if value >= 1e3 else f"{value:.0f}"


def _bar(label: str, parts: Sequence[tuple[str, float]], value: str) -> str:
    """A label, a bar of parts that share its width, and a value; on a narrow screen the bar has a line of its own."""
    shares = "".join(
        f"<i class={kind} style='flex-grow:{size:.6g}' title='{_count(size)}'></i>"
        for kind, size in parts
        if size > 0
    )
    return (
        f"<div class=row><span>{escape(label)}</span><span class=bar>{shares}</span>"
        f"<span class=value>{escape(value)}</span></div>"
    )
