"""Where reading begins.

    "first"              the oldest message there is
    "last"               the newest message there is
    "next"               what is published from now on
    42                   that offset; where the stream does not have it, `on_lost` says what to do (see `missing`)
    datetime             the first message stamped at or after that moment
    "1h", timedelta      the same, that long ago: s, m, h, d, w; RabbitMQ's D, M (30 days) and Y (365 days) too

A text may also be an offset ("42") or a moment ("2026-11-15T10:00:00Z"), for command lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from headgate.errors import StreamOptionsError
from headgate.filters import Compare, Field, Literal, normalize
from headgate.message import INT64_MAX
from headgate.streams.read.catalog import SegmentCatalog
from headgate.streams.read.query import StreamQuery
from headgate.streams.read.scan import Scan

Start: TypeAlias = str | int | datetime | timedelta

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


def parse_start(start: Start) -> Start:
    """One of "first", "last", "next", an offset, a moment or an interval; anything else is refused."""
    meant = _read(start.strip()) if isinstance(start, str) else start
    if isinstance(meant, str):
        return meant
    if isinstance(meant, datetime) and meant.tzinfo is None:
        raise _unusable(start, "a moment needs a time zone, for example 2026-11-15T10:00:00Z")
    if isinstance(meant, bool) or not isinstance(meant, int | datetime | timedelta):
        raise _unusable(start)
    if isinstance(meant, int) and not 0 <= meant <= INT64_MAX:
        raise _unusable(start, "offsets count from 0")
    return meant


def _read(text: str) -> Start:
    """What a text says; of words, only the three that mean something."""
    if text in ("first", "last", "next"):
        return text
    try:
        if text.isascii() and text.isdigit():
            return int(text)
        if found := _INTERVAL.fullmatch(text):
            return int(found[1]) * _UNITS[found[2]]
        return datetime.fromisoformat(text)
    except (ValueError, OverflowError):  # no moment, or more digits than there is time
        raise _unusable(text) from None


def _unusable(start: object, why: str = "") -> StreamOptionsError:
    hint = why or 'give "first", "last", "next", an offset, a moment or an interval such as "1h"'
    return StreamOptionsError(f"cannot start at {start!r}: {hint}")


def names_offset(start: Start) -> bool:
    """Whether it is one certain offset, which may be gone."""
    return isinstance(parse_start(start), int)


def resolve_start(start: Start, catalog: SegmentCatalog, now_us: Callable[[], int]) -> int:
    """The offset to begin at."""
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
            raise _unusable(other)


def _first_since(moment_us: int, catalog: SegmentCatalog) -> int:
    """The lowest offset stamped at or after the moment; the next one to come if there is none.

    What cannot be read is passed over: nobody could begin there.
    """
    filter = Compare(">=", _TIMESTAMP, Literal(max(moment_us, -INT64_MAX)))
    end = catalog.next_offset()
    query = StreamQuery(normalize(filter), columns=("offset",))
    scan = Scan(catalog, query, catalog.first_offset(), end, on_corrupt="skip")
    batch = next(scan, None)
    return end if batch is None else int(batch.column("offset")[0].as_py())
