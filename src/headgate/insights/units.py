"""Sizes and times as text for a person."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def size_text(count: int) -> str:
    """A number of bytes: `1.5 MiB`."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def time_text(microseconds: int | None) -> str:
    """A timestamp in UTC, to the millisecond; `-` where there is none."""
    if microseconds is None:
        return "-"
    moment = _EPOCH + timedelta(microseconds=microseconds)
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
