"""The tables that `headgate stream stats` and `headgate stream advise` print."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from headgate.cli.output import titled
from headgate.columns import parse_field_key
from headgate.insights import PERCENTILES, advice_commands, size_text, time_text
from headgate.message import Scalar
from headgate.spark.jobs import (
    Distinct,
    FieldStats,
    Outlook,
    SizeOutlook,
    StreamAdvice,
    StreamStats,
)

_TOP: Final = 3  # frequent values of a field
_BAR: Final = 24  # characters of a full bar
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_STATES: Final = (("now", "bright_black"), ("hot", "cyan"), ("sealed", "green"))

# ---- statistics ----------------------------------------------------------------------------------------


def stats_tables(path: str, stats: StreamStats) -> Group:
    """A stream, its tiers, and the values of its fields."""
    return Group(_overview_table(path, stats), _tiers_table(stats), _fields_table(stats))


def _overview_table(path: str, stats: StreamStats) -> Table:
    table = Table(title=Text(path), title_justify="left", show_header=False)
    table.add_row("messages", f"{stats.messages:,}")
    if stats.first_us is not None and stats.last_us is not None:
        table.add_row("from", time_text(stats.first_us))
        table.add_row("to", time_text(stats.last_us))
    table.add_row("size", size_text(stats.nbytes))
    table.add_row("payloads", size_text(stats.payload_bytes))
    if stats.messages:
        mean = size_text(round(stats.payload_bytes / stats.messages))
        sizes = ", ".join(
            f"{share:.0%} below {size_text(stats.size_below(share))}" for share in PERCENTILES
        )
        largest = size_text(stats.largest_payload)
        table.add_row("a payload", f"{mean} on average; {sizes}; {largest} at most")
    return table


def _tiers_table(stats: StreamStats) -> Table:
    table = Table("tier", "segments", "chunks", "size")
    for name, tier in sorted(stats.tiers.items()):
        table.add_row(name, f"{tier.segments:,}", f"{tier.chunks:,}", size_text(tier.nbytes))
    return table


def _fields_table(stats: StreamStats) -> Table:
    """Every field with its kinds, its share of messages, and its values."""
    table = Table("field", "kinds", "present", "distinct", "lowest", "highest", "most frequent")
    for key, field in sorted(
        stats.fields.items(), key=lambda item: (parse_field_key(item[0]).scope != "sys", item[0])
    ):
        kinds = [*field.kinds, *(["opaque"] if field.opaque else [])]
        lows = ", ".join(_value_text(values.low) for values in field.kinds.values())
        highs = ", ".join(_value_text(values.high) for values in field.kinds.values())
        present = f"{field.present / max(stats.messages, 1):.1%}"
        distinct, top = _distinct_text(field.distinct), _top_values(field, stats.messages)
        cells = (_field_name(key), ", ".join(kinds), present, distinct, lows, highs, top)
        table.add_row(*map(Text, cells))
    return table


def _field_name(key: str) -> str:
    """A header by its own name; a property or system field by the name of its column."""
    field = parse_field_key(key)
    return field.name if field.scope == "header" else key


def _value_text(value: Scalar | None) -> str:
    text = str(value) if not isinstance(value, bool) else str(value).upper()
    return text if len(text) <= 24 else text[:23] + "…"


def _distinct_text(distinct: Distinct) -> str:
    """The number of distinct values, with its error if it is an estimate."""
    if distinct.exact:
        return f"{distinct.estimate:,}"
    return f"~{distinct.estimate:,} ± {2 * distinct.error:.0%}"


def _top_values(field: FieldStats, messages: int) -> str:
    return ", ".join(
        f"{_value_text(value)} {count / messages:.1%}" for value, count in field.heavy.top(_TOP)
    )


# ---- advice --------------------------------------------------------------------------------------------


def print_advice(advice: StreamAdvice, console: Console) -> None:
    """Print the tables, a chart, and the commands that follow the advice."""
    console.print(_tables(advice))
    console.print(Text("Advice", style="bold cyan"))
    for line in recommendation(advice):
        console.print(Text(line), soft_wrap=True)  # a command stays on one line, to be copied


def _tables(advice: StreamAdvice) -> Group:
    parts: list[tuple[str, RenderableType]] = [
        (_scope(advice), _headers_table(advice)),
        ("Skipped: now, advised before sealing, advised and sealed", _chart(advice.outlooks)),
        ("Sealed with these headers indexed, mean over all filters", _tried_table(advice)),
    ]
    if advice.sizes:
        parts.append(
            ("Before sealing, by the bytes of a chunk's filter", _sizes_tables(advice.sizes))
        )
    if advice.restrictions:
        parts.append(
            ("With batches restricted to one value (before sealing)", _restrictions_table(advice))
        )
    return Group(*(Padding(titled(title, body), (0, 0, 1, 0)) for title, body in parts))


def _scope(advice: StreamAdvice) -> str:
    return (
        f"{advice.path}: {advice.stats.messages:,} messages in {advice.sampled:,} of "
        f"{advice.segments:,} segments"
    )


def _headers_table(advice: StreamAdvice) -> Table:
    table = Table("header", "kinds", "present", "distinct", "most frequent")
    messages = advice.stats.messages
    for name, field in sorted(advice.stats.headers().items()):
        top = ", ".join(f"{count / messages:.1%}" for _, count in field.heavy.top(3))
        cells = (", ".join(field.kinds), f"{field.present / messages:.1%}")
        table.add_row(Text(name), *cells, _distinct_text(field.distinct), top)
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
    """A bar whose length is the share, to an eighth of a character."""
    eighths = round(min(max(share, 0.0), 1.0) * _BAR * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _tried_table(advice: StreamAdvice) -> Table:
    table = Table("indexed", "skipped on average")
    best = sorted(advice.tried, key=lambda tried: -tried.skipped)[:8]
    for tried in best:
        table.add_row(Text(", ".join(tried.indexed) or "nothing"), f"{tried.skipped:.1%}")
    return table


def _sizes_tables(sizes: Iterable[SizeOutlook]) -> Group:
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


def _restrictions_table(advice: StreamAdvice) -> Table:
    table = Table("header", "values", "messages in a chunk", "skipped", "space", "worth it")
    for found in advice.restrictions:
        cells = (f"{found.rows_per_chunk:,.0f}", f"{found.skipped:.1%}", f"+{found.space:.1%}")
        worth = "yes" if found.advised else "no"
        table.add_row(Text(found.header), str(len(found.values)), *cells, worth)
    return table


# ---- sentences --------------------------------------------------------------------------------------


def recommendation(advice: StreamAdvice) -> list[str]:
    """The advice in sentences: options, expected effect, and the commands."""
    names = ", ".join(advice.indexed) or "nothing"
    mean = sum(outlook.now for outlook in advice.outlooks) / len(advice.outlooks)
    lines = [
        f"Index {names}, with filters of {advice.filter_size} bytes. After sealing, {advice.expected:.1%} is "
        f"skipped on average (now {mean:.1%}).",
        f"It takes {advice.sealed_space:.2%} of the stream in sealed segments, {advice.hot_space:.2%} in hot ones.",
    ]
    lines += [f"  {command}" for command in advice_commands(advice)]
    if not advice.changes:
        lines.append("The stream has these options already; only sealing may remain to be done.")
    settled = sum(advice.stats.tiers[t].segments for t in advice.stats.tiers if t != "hot")
    if settled and advice.changes:
        lines.append(
            f"{settled:,} of the simulated segments are sealed already and stay as they are; to store them anew, "
            "replay them into a stream that was created with these options."
        )
    return lines
