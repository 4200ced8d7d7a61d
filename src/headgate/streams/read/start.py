"""Where reading begins.

    "first"              the oldest message in the stream
    "last"               the newest message in the stream
    "next"               the next message to be published
    42                   that offset; `on_lost` decides when the stream does not have it
    datetime             the first message stamped at or after that moment
    "1h", timedelta      the first message stamped since that long ago: s, m, h, d, w; RabbitMQ's D, M (30 days)
                         and Y (365 days) too

A text may also be an offset ("42") or a moment ("2026-11-15T10:00:00Z"), for command lines.

`on_lost` applies where a reader would begin, or go on, at an offset that retention has dropped or that was never
published: "error" raises PositionLost, "first" goes on at the oldest message, "next" at the next one to be published.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, TypeAlias
from typing import Literal as OneOf

from headgate.errors import PositionLost, StreamOptionsError
from headgate.filters import Compare, Field, Literal, normalize
from headgate.message import INT64_MAX
from headgate.streams.read.catalog import SegmentCatalog
from headgate.streams.read.query import StreamQuery
from headgate.streams.read.scan import Scan

Start: TypeAlias = str | int | datetime | timedelta
OnLost: TypeAlias = OneOf["error", "first", "next"]

_INTERVAL: Final = re.compile(r"(\d+)\s*([smhdwDMY])")
_UNITS: Final = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "D": timedelta(days=1),
    "w": timedelta(weeks=1),
    "M": timedelta(days=30),
    "Y": timedelta(days=365),
}
_TIMESTAMP: Final = Field("sys", "timestamp")
_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")

_log: Final = logging.getLogger(__name__)


def parse_start(start: Start) -> Start:
    """Return "first", "last", "next", an offset, a moment or an interval; refuse anything else."""
    parsed = _parse_text(start.strip()) if isinstance(start, str) else start
    if isinstance(parsed, str):
        return parsed
    if isinstance(parsed, datetime) and parsed.tzinfo is None:
        raise _refuse(start, "a moment needs a time zone, for example 2026-11-15T10:00:00Z")
    if isinstance(parsed, bool) or not isinstance(parsed, int | datetime | timedelta):
        raise _refuse(start)
    if isinstance(parsed, int) and not 0 <= parsed <= INT64_MAX:
        raise _refuse(start, "offsets count from 0")
    return parsed


def _parse_text(text: str) -> Start:
    if text in ("first", "last", "next"):
        return text
    try:
        if text.isascii() and text.isdigit():
            return int(text)
        if interval := _INTERVAL.fullmatch(text):
            return int(interval[1]) * _UNITS[interval[2]]
        return datetime.fromisoformat(text)
    except (ValueError, OverflowError):  # not a moment, or an interval longer than time itself
        raise _refuse(text) from None


def _refuse(start: object, why: str = "") -> StreamOptionsError:
    hint = why or 'give "first", "last", "next", an offset, a moment or an interval such as "1h"'
    return StreamOptionsError(f"cannot start at {start!r}: {hint}")


def names_offset(start: Start) -> bool:
    """Tell whether the start is one fixed offset, which may be lost."""
    return isinstance(parse_start(start), int)


def resolve_start(start: Start, catalog: SegmentCatalog, now_us: Callable[[], int]) -> int:
    """Return the offset to begin at."""
    match parse_start(start):
        case "first":
            return catalog.first_offset()
        case "next":
            return catalog.next_offset()
        case "last":
            return max(catalog.next_offset() - 1, catalog.first_offset())
        case int(offset):
            return offset
        case datetime() as moment:
            return _first_since((moment - _EPOCH) // timedelta(microseconds=1), catalog)
        case timedelta() as ago:
            return _first_since(now_us() - ago // timedelta(microseconds=1), catalog)
        case other:
            raise _refuse(other)


def _first_since(moment_us: int, catalog: SegmentCatalog) -> int:
    """Return the lowest offset stamped at or after the moment, or the next offset when there is none.

    Unreadable messages are skipped: no reader could begin at one.
    """
    filter = Compare(">=", _TIMESTAMP, Literal(max(moment_us, -INT64_MAX)))
    end = catalog.next_offset()
    query = StreamQuery(normalize(filter), columns=("offset",))
    scan = Scan(catalog, query, catalog.first_offset(), end, on_corrupt="skip")
    batch = next(scan, None)
    return end if batch is None else int(batch.column("offset")[0].as_py())


# ---- lost positions ----------------------------------------------------------------------------------


def check_on_lost(on_lost: object) -> None:
    """Refuse an unknown `on_lost`."""
    if on_lost not in ("error", "first", "next"):
        raise StreamOptionsError(f'on_lost: {on_lost!r} is not "error", "first" or "next"')


def resolve_position(
    reader: str, position: int, first_offset: int, next_offset: int, on_lost: OnLost
) -> int:
    """Return the position if the stream has it, else the one that `on_lost` names."""
    if first_offset <= position <= next_offset:
        return position
    lost = PositionLost(reader, position, first_offset, next_offset)
    if on_lost == "error":
        raise lost
    resumed = first_offset if on_lost == "first" else next_offset
    _log.warning("%s; it goes on at offset %d", lost, resumed)
    return resumed
