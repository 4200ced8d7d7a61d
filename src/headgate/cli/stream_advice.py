"""What `headgate stream advise` prints."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import asdict
from itertools import groupby
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from headgate.cli.stream_stats import distinct_text
from headgate.spark.jobs import Outlook, SizeOutlook, StreamAdvice

_BAR: Final = 24  # characters from nothing to everything
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_STATES: Final = (("now", "bright_black"), ("hot", "cyan"), ("sealed", "green"))


def print_advice(advice: StreamAdvice, console: Console) -> None:
    """For a person: tables, a chart, and what to do."""
    console.print(_tables(advice))
    console.print(Text("Advice", style="bold cyan"))
    for line in recommendation(advice):
        console.print(Text(line), soft_wrap=True)  # a command stays on one line, to be copied


def _tables(advice: StreamAdvice) -> Group:
    parts: list[tuple[str, RenderableType]] = [
        (_where(advice), _headers(advice)),
        ("Skipped: now, advised before sealing, advised and sealed", _chart(advice.outlooks)),
        ("Sealed with these headers indexed, all filters counting the same", _tried(advice)),
    ]
    if advice.sizes:
        parts.append(("Before sealing, by the bytes of a chunk's filter", _sizes(advice.sizes)))
    if advice.restrictions:
        parts.append(("With batches restricted to one value (before sealing)", _restricted(advice)))
    return Group(*(Padding(_titled(title, body), (0, 0, 1, 0)) for title, body in parts))


def _titled(title: str, body: RenderableType) -> Group:
    return Group(Text(title, style="bold cyan"), body)


def _where(advice: StreamAdvice) -> str:
    return (
        f"{advice.path}: {advice.stats.messages:,} messages in {advice.sampled:,} of "
        f"{advice.segments:,} segments"
    )


def _headers(advice: StreamAdvice) -> Table:
    table = Table("header", "kinds", "present", "distinct", "most frequent")
    messages = advice.stats.messages
    for name, field in sorted(advice.stats.headers().items()):
        top = ", ".join(f"{count / messages:.1%}" for _, count in field.heavy.top(3))
        cells = (", ".join(field.kinds), f"{field.present / messages:.1%}")
        table.add_row(Text(name), *cells, distinct_text(field.distinct), top)
    return table


def _chart(outlooks: Iterable[Outlook]) -> Table:
    table = Table("filter", "matches", Column("", no_wrap=True, min_width=_BAR), "skipped")
    for outlook in outlooks:
        for line, (state, colour) in enumerate(_STATES):
            share = float(getattr(outlook, state))
            first = (Text(outlook.subject), f"{outlook.matches:.3%}") if not line else ("", "")
            table.add_row(*first, Text(bar(share), style=colour), f"{share:6.1%}")
        table.add_section()
    return table


def bar(share: float) -> str:
    """A bar of that share of its room, to an eighth of a character."""
    eighths = round(min(max(share, 0.0), 1.0) * _BAR * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _tried(advice: StreamAdvice) -> Table:
    table = Table("indexed", "skipped on average")
    best = sorted(advice.tried, key=lambda tried: -tried.skipped)[:8]
    for tried in best:
        table.add_row(Text(", ".join(tried.indexed) or "nothing"), f"{tried.skipped:.1%}")
    return table


def _sizes(sizes: Iterable[SizeOutlook]) -> Group:
    tables = []
    for mode, outlooks in groupby(sizes, key=lambda outlook: outlook.mode):
        found = list(outlooks)
        widths = sorted({outlook.nbytes for outlook in found})
        share = {(o.subject, o.nbytes): f"{o.skipped:.1%}" for o in found}
        table = Table(f"{mode}", *(f"{width} B" for width in widths))
        for subject in dict.fromkeys(outlook.subject for outlook in found):
            table.add_row(Text(subject), *(share[subject, width] for width in widths))
        tables.append(table)
    return Group(*tables)


def _restricted(advice: StreamAdvice) -> Table:
    table = Table("header", "values", "messages in a chunk", "skipped", "space", "worth it")
    for found in advice.restrictions:
        cells = (f"{found.rows_per_chunk:,.0f}", f"{found.skipped:.1%}", f"+{found.space:.1%}")
        worth = "yes" if found.advised else "no"
        table.add_row(Text(found.header), str(len(found.values)), *cells, worth)
    return table


# ---- the advice --------------------------------------------------------------------------------------


def recommendation(advice: StreamAdvice) -> list[str]:
    """What to do, what to expect of it, and the commands that do it."""
    names = ", ".join(advice.indexed) or "nothing"
    mean = sum(outlook.now for outlook in advice.outlooks) / len(advice.outlooks)
    lines = [
        f"Index {names}, with filters of {advice.filter_size} bytes. After sealing, {advice.expected:.1%} is "
        f"skipped on average (now {mean:.1%}).",
        f"It takes {advice.sealed_space:.2%} of the stream in sealed segments, {advice.hot_space:.2%} in hot ones.",
    ]
    lines += [f"  {command}" for command in commands(advice)]
    if not advice.changes:
        lines.append("The stream is set like this already; sealing is all that may be left to do.")
    settled = sum(advice.stats.tiers[t].segments for t in advice.stats.tiers if t != "hot")
    if settled and advice.changes:
        lines.append(
            f"{settled:,} of the segments looked at are sealed already and stay as they are; to store them anew, "
            "replay them into a stream that was created with these settings."
        )
    return lines


def commands(advice: StreamAdvice) -> list[str]:
    """What to type to follow the advice."""
    path = shlex.quote(advice.path)
    indexed = " ".join(f"--indexed {shlex.quote(name)}" for name in advice.indexed or ("",))
    restricted = [
        f"--restrict {shlex.quote(found.header + '=' + ','.join(map(str, found.values)))}"
        for found in advice.restrictions
        if found.advised and all(isinstance(value, str) for value in found.values)
    ]
    change = " ".join([indexed, f"--filter-size {advice.filter_size}", *restricted])
    return [f"headgate stream set {path} {change}", f"headgate stream seal {path} --all"]


def advice_json(advice: StreamAdvice) -> dict[str, Any]:
    """The same for a program."""
    return {
        "stream": advice.path,
        "messages": advice.stats.messages,
        "segments": advice.segments,
        "segments_looked_at": advice.sampled,
        "indexed": list(advice.indexed),
        "filter_size": advice.filter_size,
        "expected_skipped": advice.expected,
        "sealed_space": advice.sealed_space,
        "hot_space": advice.hot_space,
        "filters": [asdict(outlook) for outlook in advice.outlooks],
        "tried": [asdict(tried) for tried in advice.tried],
        "sizes": [asdict(size) for size in advice.sizes],
        "restrictions": [{**asdict(r), "advised": r.advised} for r in advice.restrictions],
        "commands": commands(advice),
    }
