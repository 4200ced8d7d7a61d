"""Durations, sizes and counts as people write them: `15m`, `64MiB`, `2,000 messages`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final, overload

from headgate.errors import HeadgateError

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)
_POWER: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


@overload
def parse_duration(text: str) -> timedelta: ...


@overload
def parse_duration(text: str | None) -> timedelta | None: ...


def parse_duration(text: str | None) -> timedelta | None:
    """Parse a duration: `500ms`, `90s`, `15m`, `12h`, `7d`, `2w`; None stays None."""
    if text is None:
        return None
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise HeadgateError(f"{text!r} is not a duration; write it like 90s, 15m, 12h or 7d")
    try:
        return timedelta(seconds=float(found[1]) * _SECONDS[found[2]])
    except OverflowError:
        raise HeadgateError(f"{text!r} is too long a duration; at most 365000d") from None


def parse_size(text: str | None) -> int | None:
    """Parse a size in bytes: `4096`, `64MiB`, `10GB`; powers of 1024 with an i, of 1000 without. None stays None."""
    if text is None:
        return None
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise HeadgateError(f"{text!r} is not a size; write it like 4096, 64MiB or 10GB")
    base = 1024 if found[3] else 1000
    return int(float(found[1]) * base ** _POWER[found[2].upper()])


def counted(number: int, one: str, many: str | None = None) -> str:
    """Write a number with its noun: `1 message`, `2,000 messages`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
