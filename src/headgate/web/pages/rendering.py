"""Templates, and their values as text. Everything is escaped: no value of a message becomes markup."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from headgate.insights import ConsumerFacts, FilterProblem, HeatCell, size_text, time_text
from headgate.message import OPAQUE
from headgate.quantities import counted

_HERE: Final = Path(__file__).parent.parent
STATIC: Final = _HERE / "static"
PREVIEW: Final = 96  # letters of a payload in a table
_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86_400


def make_environment() -> Environment:
    """Templates that escape every value and refuse a name that is not given."""
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "caret": caret_text,
        "cell_text": cell_text,
        "count": count_text,
        "counted": counted,
        "matched_share": matched_share,
        "moment": time_text,
        "moment_short": short_time_text,
        "option": option_text,
        "preview": preview_text,
        "query": query_text,
        "quoted": repr,
        "rate": rate_text,
        "share": share_text,
        "shell": shlex.quote,
        "shorten": shorten,
        "size": size_text,
        "span": span_text,
        "urlencode_all": path_part,
        "value": value_text,
        "without_deaths": without_deaths,
    }
    return environment


def count_text(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"


def rate_text(rate: float | None) -> str:
    """Messages a second."""
    if rate is None:
        return "–"
    return f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}"


def short_time_text(microseconds: int | None) -> str:
    """A time to the second, without the year."""
    return "–" if microseconds is None else time_text(microseconds)[5:19].replace("T", " ")


def span_text(seconds: float | None) -> str:
    """How long something takes: `3 min`."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds else "0 s"
    for size, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.0f} s"


def option_text(value: Any) -> str:
    if value is None or value in ((), "", {}):
        return "–"
    if isinstance(value, timedelta):
        return span_text(value.total_seconds())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    return count_text(value) if isinstance(value, int) else str(value)


def value_text(value: Any) -> str:
    """The value of a header; text in quotes is text that looks like a number."""
    if value is OPAQUE:
        return "(not comparable)"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False) if _looks_typed(value) else value
    return json.dumps(value, ensure_ascii=False, default=str)


def _looks_typed(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text in ("true", "false", "null", "")
    return True


def preview_text(payload: bytes) -> str:
    """The beginning of a payload on one line."""
    text = payload[: PREVIEW * 4].decode("utf-8", "replace")
    shown = "".join(letter if letter.isprintable() else "·" for letter in text[:PREVIEW])
    return shown + ("…" if len(text) > PREVIEW or len(payload) > PREVIEW * 4 else "")


def shorten(text: str, most: int) -> str:
    """The end of a long text, which tells paths apart."""
    return text if len(text) <= most else "…" + text[-most:]


def query_text(values: Mapping[str, Any]) -> str:
    """The query of a link; what is empty is left out."""
    given = {name: value for name, value in values.items() if value not in (None, "")}
    return "?" + urlencode(given) if given else ""


def without_deaths(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Headers without the history of a dead letter, which its reason sums up."""
    history = ("x-death", "x-first-death-", "x-last-death-")
    return {name: value for name, value in headers.items() if not name.startswith(history)}


def path_part(text: str) -> str:
    """A name as one part of a path, with its special characters encoded."""
    return quote(text, safe="")


def matched_share(consumer: ConsumerFacts) -> float | None:
    """The share of messages that the filter of a consumer matched, of those it was tested on; None: of none."""
    counts = consumer.filter_counts
    examined = counts.get("examined", 0)
    if consumer.filter is None or not examined:
        return None
    skipped = counts.get("skipped", examined - counts.get("delivered", 0))
    return max(examined - skipped, 0) / examined


def share_text(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def caret_text(problem: FilterProblem) -> str:
    """The line of a filter with a caret below the place, and what is wrong there."""
    expected = f"; expected {', '.join(problem.expected[:6])}" if problem.expected else ""
    if problem.at is None:
        return problem.problem
    start = problem.text.rfind("\n", 0, problem.at) + 1
    line = problem.text[start:].partition("\n")[0]
    return f"{line}\n{' ' * (problem.at - start)}^ {problem.problem}{expected}"


def cell_text(cell: HeatCell) -> str:
    """A cell of the heat strip in words."""
    counts = (
        (cell.hits, "hit"),
        (cell.passed, "passed whole"),
        (cell.scanned, "scanned without a match"),
        (cell.skipped, "skipped"),
        (cell.open, "not read yet"),
    )
    what = ", ".join(f"{number:,} {name}" for number, name in counts if number)
    return (
        f"{cell.tier}, offsets {cell.first_offset:,} to {cell.next_offset - 1:,}: {counted(cell.chunks, 'chunk')}, {what}; "
        f"{counted(cell.matches, 'match', 'matches')}; {size_text(cell.bytes_read)} of {size_text(cell.bytes)} read"
    )
