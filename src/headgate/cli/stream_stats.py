"""What `headgate stream stats` prints."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from headgate.cli.arguments import size_text
from headgate.cli.messages import time_text
from headgate.columns import parse_field_key
from headgate.message import Scalar
from headgate.spark.jobs import Distinct, FieldStats, StreamStats

_TOP: Final = 3  # values in a table
_TOP_JSON: Final = 20
_SHARES: Final = (0.5, 0.9, 0.99)


def stats_tables(path: str, stats: StreamStats) -> Group:
    """Tables for a person: the stream, its tiers, topics and headers."""
    return Group(_overview(path, stats), _tiers(stats), fields_table(stats))


def _overview(path: str, stats: StreamStats) -> Table:
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
            f"{share:.0%} below {size_text(stats.size_below(share))}" for share in _SHARES
        )
        largest = size_text(stats.largest_payload)
        table.add_row("a payload", f"{mean} on average; {sizes}; {largest} at most")
    return table


def _tiers(stats: StreamStats) -> Table:
    table = Table("tier", "segments", "chunks", "size")
    for name, tier in sorted(stats.tiers.items()):
        table.add_row(name, f"{tier.segments:,}", f"{tier.chunks:,}", size_text(tier.nbytes))
    return table


def fields_table(stats: StreamStats) -> Table:
    """Every field with its kinds, how often it is there, and its values."""
    table = Table("field", "kinds", "present", "distinct", "lowest", "highest", "most frequent")
    for key, field in sorted(
        stats.fields.items(), key=lambda item: (parse_field_key(item[0]).scope != "sys", item[0])
    ):
        kinds = [*field.kinds, *(["opaque"] if field.opaque else [])]
        lows = ", ".join(_value(values.low) for values in field.kinds.values())
        highs = ", ".join(_value(values.high) for values in field.kinds.values())
        present = f"{field.present / max(stats.messages, 1):.1%}"
        distinct, top = distinct_text(field.distinct), _top(field, stats.messages)
        cells = (_name(key), ", ".join(kinds), present, distinct, lows, highs, top)
        table.add_row(*map(Text, cells))
    return table


def _name(key: str) -> str:
    """A header by its own name; a property and a field of the message as the stream calls it."""
    field = parse_field_key(key)
    return field.name if field.scope == "header" else key


def _value(value: Scalar | None) -> str:
    text = str(value) if not isinstance(value, bool) else str(value).upper()
    return text if len(text) <= 24 else text[:23] + "…"


def distinct_text(distinct: Distinct) -> str:
    """How many, and how sure that is."""
    if distinct.exact:
        return f"{distinct.estimate:,}"
    return f"~{distinct.estimate:,} ± {2 * distinct.error:.0%}"


def _top(field: FieldStats, messages: int) -> str:
    return ", ".join(
        f"{_value(value)} {count / messages:.1%}" for value, count in field.heavy.top(_TOP)
    )


# ---- JSON --------------------------------------------------------------------------------------------


def stats_json(stats: StreamStats) -> dict[str, Any]:
    """The same for a program."""
    return {
        "messages": stats.messages,
        "bytes": stats.nbytes,
        "payload_bytes": stats.payload_bytes,
        "largest_payload": stats.largest_payload,
        "payload_sizes": {f"p{share * 100:g}": stats.size_below(share) for share in _SHARES},
        "first_us": stats.first_us,
        "last_us": stats.last_us,
        "tiers": {name: asdict(tier) for name, tier in stats.tiers.items()},
        "fields": {key: _field_json(field) for key, field in stats.fields.items()},
    }


def _field_json(field: FieldStats) -> dict[str, Any]:
    distinct = field.distinct
    return {
        "present": field.present,
        "opaque": field.opaque,
        "distinct": distinct.estimate,
        "distinct_error": distinct.error,
        "kinds": {
            kind: {"present": values.present, "low": values.low, "high": values.high}
            for kind, values in field.kinds.items()
        },
        "top": [{"value": v, "messages": count} for v, count in field.heavy.top(_TOP_JSON)],
        "top_error": field.heavy.missed,
    }
