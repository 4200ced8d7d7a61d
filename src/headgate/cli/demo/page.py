"""demo-report.html: one page with its own style and charts, which loads nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
_BAR, _ROW, _LEFT, _RIGHT = 18, 30, 110, 160
_WIDTH = 860


def page(findings: Findings, machine: str, made: datetime) -> str:
    """The whole page."""
    style = files("headgate.cli.demo").joinpath("page.css").read_text()
    verdict = (
        "every number equals the reference" if findings.right else "NOT equal to the reference"
    )
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Headgate demo</title><meta name=viewport "
        f"content='width=device-width, initial-scale=1'><style>{style}</style><main>",
        f"<h1>Headgate: {findings.messages:,} orders through every part</h1>",
        f"<p class={'right' if findings.right else 'wrong'}>{verdict}</p>",
        f"<p class=note>{escape(machine)}; {made:%Y-%m-%d %H:%M} UTC; {findings.seconds:.0f} s in all.</p>",
        _section("What each subscriber got", _received_table(findings.received)),
        _section(
            "What each layer skipped", _legend(), *map(_skipped, _by_filter(findings.skipped))
        ),
        _section("How fast", _rates(findings.rates)),
        _section("On disk", _sizes(findings)),
        _section("How one filter is understood", f"<pre>{escape(findings.explained)}</pre>"),
        "</main></html>",
    ]
    return "\n".join(parts)


def _section(title: str, *content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{''.join(content)}</section>"


# ---- tables ------------------------------------------------------------------------------------------


def _received_table(received: Sequence[Received]) -> str:
    rows = [
        f"<tr><td>{escape(r.subscriber)}<td>{escape(r.way)}<td><code>{escape(r.filter)}</code>"
        f"<td class=n>{r.expected:,}<td class=n>{r.got:,}<td class={'right' if r.right else 'wrong'}>"
        f"{'✓' if r.right else '✗'}"
        for r in received
    ]
    head = "<tr><th>subscriber<th>way<th>filter<th class=n>reference<th class=n>received<th>"
    return f"<div class=wide><table>{head}{''.join(rows)}</table></div>"


def _sizes(findings: Findings) -> str:
    rows = [
        f"<tr><td>{escape(tier)}<td class=n>{size_text(size)}<td class=n>{size / findings.messages:.0f} B a message"
        for tier, size in findings.sizes.items()
    ]
    return f"<table>{''.join(rows)}</table>"


# ---- charts ------------------------------------------------------------------------------------------


def _legend() -> str:
    marks = "".join(f"<span class='mark {kind}'></span>{name} " for kind, name, _ in LAYERS)
    return f"<p class=legend>{marks}(chunks; at the right the share of bytes read)</p>"


def _by_filter(skipped: Iterable[Skipped]) -> list[list[Skipped]]:
    groups: dict[str, list[Skipped]] = {}
    for entry in skipped:
        groups.setdefault(entry.filter, []).append(entry)
    return list(groups.values())


def _skipped(states: Sequence[Skipped]) -> str:
    """One filter: a bar for each state of the stream."""
    bars = []
    for number, entry in enumerate(states):
        y = number * _ROW
        counts = [getattr(entry.stats, name) for _, _, name in LAYERS]
        bars.append(_label(entry.state, y))
        bars.append(_stacked(counts, y, [kind for kind, _, _ in LAYERS]))
        read = f"{entry.share_read:.1%} in {entry.seconds * 1000:,.0f} ms"
        bars.append(_value(read, y))
    title = f"<h3><code>{escape(states[0].filter)}</code></h3>"
    return title + _svg(len(states), bars)


def _rates(rates: Sequence[Rate]) -> str:
    if not rates:
        return ""
    most = max(rate.per_second for rate in rates)
    bars = []
    for number, rate in enumerate(rates):
        y = number * _ROW
        bars.append(_label(rate.step, y))
        bars.append(_stacked([rate.per_second, most - rate.per_second], y, ["rate", "rest"]))
        bars.append(_value(f"{_count(rate.per_second)}/s", y))
    return _svg(len(rates), bars) + "<p class=note>messages a second, wall time</p>"


def _count(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.1f} M"
    return f"{value / 1e3:.1f} k" if value >= 1e3 else f"{value:.0f}"


def _svg(rows: int, content: Iterable[str]) -> str:
    height = rows * _ROW
    return f"<svg viewBox='0 0 {_WIDTH} {height}' role=img>{''.join(content)}</svg>"


def _label(text: str, y: int) -> str:
    return f"<text class=label x={_LEFT - 10} y={y + _BAR - 4}>{escape(text)}</text>"


def _value(text: str, y: int) -> str:
    return f"<text class=value x={_WIDTH - _RIGHT + 8} y={y + _BAR - 4}>{escape(text)}</text>"


def _stacked(values: Sequence[float], y: int, kinds: Sequence[str]) -> str:
    room, total = _WIDTH - _LEFT - _RIGHT, sum(values) or 1
    x, parts = float(_LEFT), []
    for value, kind in zip(values, kinds, strict=True):
        width = room * value / total
        if width > 0:
            parts.append(
                f"<rect class={kind} x={x:.1f} y={y} width={max(width, 1):.1f} height={_BAR}>"
                f"<title>{_count(value)}</title></rect>"
            )
        x += width
    return "".join(parts)
