"""What a person types, turned into values (headers, durations, sizes, restrictions), and back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Final, overload

from headgate.errors import HeadgateError
from headgate.message import HeaderValue

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)
_POWER: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_headers(given: Iterable[str]) -> dict[str, HeaderValue]:
    """`region=EU` is text; `amount:=1200`, `express:=true` are JSON and keep their kind."""
    headers: dict[str, HeaderValue] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals:
            raise HeadgateError(f"a header is written name=text or name:=json, not {pair!r}")
        if name.endswith(":"):
            headers[name[:-1]] = _json(pair, value)
        else:
            headers[name] = value
    return headers


def _json(pair: str, value: str) -> HeaderValue:
    try:
        found: HeaderValue = json.loads(value)
    except (ValueError, RecursionError):
        raise HeadgateError(f"{pair!r}: {value!r} is no JSON; for text write name=text") from None
    return found


@overload
def parse_duration(text: str) -> timedelta: ...


@overload
def parse_duration(text: str | None) -> timedelta | None: ...


def parse_duration(text: str | None) -> timedelta | None:
    """`500ms`, `90s`, `15m`, `12h`, `7d`, `2w`."""
    if text is None:
        return None
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise HeadgateError(f"{text!r} is no duration; write it like 90s, 15m, 12h or 7d")
    try:
        return timedelta(seconds=float(found[1]) * _SECONDS[found[2]])
    except OverflowError:
        raise HeadgateError(f"{text!r} is too long a duration; at most 365000d") from None


def parse_size(text: str | None) -> int | None:
    """`4096`, `64MiB`, `10GB`: powers of 1024 with an i, of 1000 without."""
    if text is None:
        return None
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise HeadgateError(f"{text!r} is no size; write it like 4096, 64MiB or 10GB")
    base = 1024 if found[3] else 1000
    return int(float(found[1]) * base ** _POWER[found[2].upper()])


def parse_restriction(text: str) -> tuple[str, tuple[str, ...]]:
    """`region=us,eu`: a header and the values batches are kept apart by."""
    name, equals, values = text.partition("=")
    if not equals or not values:
        raise HeadgateError(f"a restriction is written header=value,value, not {text!r}")
    return name, tuple(values.split(","))


def write_text(path: Path, text: str) -> None:
    """Into the file that was asked for."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise HeadgateError(
            f"{path} cannot be written: {problem.strerror}; choose another place"
        ) from problem


def size_text(count: int) -> str:
    """Bytes for a person: 1.5 MiB."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
