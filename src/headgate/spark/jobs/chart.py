"""Advice as a picture: what each filter skips now, before and after sealing, and what a larger filter would buy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import log2
from typing import Final
from xml.sax.saxutils import escape

from headgate.spark.jobs.advice import Advice, Outlook, SizeOutlook

WIDTH: Final = 860
_LEFT: Final = 250  # where bars and axes begin
_SPAN: Final = 460  # from nothing to everything
_LINE: Final = 14
_PANEL: Final = 220  # the height of the lines' panel
STATES: Final = ("now", "hot", "sealed")
_LABELS: Final = {"now": "now", "hot": "advised, before sealing", "sealed": "advised, sealed"}
_STYLE: Final = """\
  :root { color-scheme: light dark }
  text { font: 13px system-ui, sans-serif; fill: #1b2430 } .h { font-weight: 600; font-size: 15px }
  .soft { fill: #5b6878 } .n { font-variant-numeric: tabular-nums; font-size: 12px }
  .now { fill: #b4bec8 } .hot { fill: #8fc1bc } .sealed { fill: #2f7f79 } .axis { stroke: #cfd6dc }
  .line { fill: none; stroke: #2f7f79; stroke-width: 2 } .seed { stroke-dasharray: 5 4 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e7ebf0 } .soft { fill: #9aa7b6 } .axis { stroke: #39454f }
    .now { fill: #5b6878 } .hot { fill: #2b5f5a } .sealed { fill: #4fb3aa } .line { stroke: #4fb3aa }
  }
"""


def svg(advice: Advice) -> str:
    """The whole picture; it needs nothing but a browser, light or dark."""
    bars_end = 74 + len(advice.outlooks) * (3 * _LINE + 12)
    height = bars_end + (_PANEL + 90 if advice.sizes else 10)
    body = [*_bars(advice.outlooks), *(_lines(advice.sizes, bars_end + 40) if advice.sizes else ())]
    title = escape(f"What filters skip on {advice.path}")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
            f'aria-labelledby="t">',
            f'<title id="t">{title}</title>',
            f"<style>\n{_STYLE}</style>",
            _text(16, 26, f"What filters skip on {advice.path}", "h"),
            *body,
            "</svg>\n",
        ]
    )


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return (
        f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def shortened(text: str, most: int) -> str:
    """As much of the text as there is room for."""
    return text if len(text) <= most else text[: most - 1] + "…"


# ---- bars --------------------------------------------------------------------------------------------


def _bars(outlooks: Sequence[Outlook]) -> Iterator[str]:
    for at, state in enumerate(STATES):
        x = _LEFT + at * 180
        yield f'<rect class="{state}" x="{x}" y="42" width="12" height="12" rx="2"/>'
        yield _text(x + 18, 53, _LABELS[state], "soft")
    top = 70
    for outlook in outlooks:
        yield _text(_LEFT - 12, top + 2 * _LINE - 4, shortened(outlook.subject, 30), "", "end")
        for line, state in enumerate(STATES):
            share, y = float(getattr(outlook, state)), top + line * _LINE
            width = max(share * _SPAN, 1)
            yield f'<rect class="{state}" x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_LINE - 3}" rx="2"/>'
            yield _text(_LEFT + width + 6, y + _LINE - 4, f"{share:.1%}", "n soft")
        top += 3 * _LINE + 12


# ---- lines -------------------------------------------------------------------------------------------


def _lines(sizes: Sequence[SizeOutlook], top: int) -> Iterator[str]:
    yield _text(16, top, "Before sealing, by the size of a chunk's filter", "h")
    yield _text(_LEFT, top + 20, "bytes; dashed: the header as filter value", "soft")
    bottom = top + 30 + _PANEL
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * _PANEL
        yield f'<path class="axis" d="M{_LEFT} {y:.0f}h{_SPAN}"/>'
        yield _text(_LEFT - 12, y + 4, f"{share:.0%}", "n soft", "end")
    for size in sorted({outlook.nbytes for outlook in sizes}):
        yield _text(_place(size), bottom + 20, str(size), "n soft", "middle")
    for outlooks in _by_line(sizes):
        yield from _line(outlooks, bottom)


def _by_line(sizes: Sequence[SizeOutlook]) -> Iterator[list[SizeOutlook]]:
    ordered = sorted(sizes, key=lambda o: (o.mode, o.subject, o.nbytes))
    for _, outlooks in groupby(ordered, key=lambda o: (o.mode, o.subject)):
        yield list(outlooks)


def _line(outlooks: Sequence[SizeOutlook], bottom: float) -> Iterator[str]:
    points = [(_place(o.nbytes), bottom - o.skipped * _PANEL) for o in outlooks]
    kind = "line seed" if outlooks[0].mode == "filter value" else "line"
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    title = escape(f"{outlooks[0].subject}: {outlooks[-1].skipped:.1%}")
    yield f'<polyline class="{kind}" points="{path}"><title>{title}</title></polyline>'
    if outlooks[-1].skipped > 0.02:
        x, y = points[-1]
        yield _text(x + 6, y + 4, shortened(outlooks[0].subject, 18), "n soft")


def _place(nbytes: int) -> float:
    """Doubling moves a step: 16 bytes to the left, 4096 to the right."""
    return _LEFT + (log2(nbytes) - 4) / 8 * _SPAN
