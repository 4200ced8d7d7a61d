"""SQL as text with holes: a fragment carries its parameters, and no value is ever part of the text.

While a condition is being written, a hole is a NUL, which no other part of the text can hold; `number_holes`
turns the holes into the placeholders of a dialect at the very end, when their order is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from headgate.message import Scalar

HOLE: Final = "\0"
# SQLite refuses expressions nested deeper than 1,000, and reads `a OR b OR c` as `(a OR b) OR c`: long chains
# are split in halves.
_WIDEST: Final = 32
_SLOT: Final = re.compile(r"\{(\d)\}")


@dataclass(frozen=True, slots=True)
class Sql:
    """A condition or value. With `$n` placeholders, what is joined to it must be numbered to follow it."""

    text: str
    params: tuple[Scalar, ...] = ()

    def and_also(self, other: Sql) -> Sql:
        return Sql(f"({self.text}) AND ({other.text})", self.params + other.params)


ALWAYS: Final = Sql("TRUE")
NEVER: Final = Sql("FALSE")


def bind(value: Scalar, hole: str = HOLE) -> Sql:
    """A hole and what goes into it."""
    return Sql(hole, (value,))


def write(template: str, *parts: Sql) -> Sql:
    """The template with `{0}`, `{1}` … replaced by fragments; their parameters follow their order in the text."""
    params: list[Scalar] = []

    def put(slot: re.Match[str]) -> str:
        part = parts[int(slot[1])]
        params.extend(part.params)
        return part.text

    text = _SLOT.sub(put, template)
    return Sql(text, tuple(params))


def listed(parts: Iterable[Sql]) -> Sql:
    """The fragments separated by commas."""
    return _strung(", ", tuple(parts))


def spaced(parts: Iterable[Sql]) -> Sql:
    """The fragments one after the other."""
    return _strung(" ", tuple(parts))


def all_of(parts: Iterable[Sql]) -> Sql:
    """AND, without what is always true."""
    kept = tuple(dict.fromkeys(part for part in parts if part != ALWAYS))
    return NEVER if NEVER in kept else _joined(" AND ", kept, ALWAYS)


def any_of(parts: Iterable[Sql]) -> Sql:
    """OR, without what is never true."""
    kept = tuple(dict.fromkeys(part for part in parts if part != NEVER))
    return ALWAYS if ALWAYS in kept else _joined(" OR ", kept, NEVER)


def number_holes(sql: Sql, first: int) -> Sql:
    """The holes as `$first`, `$first+1` …"""
    numbers = count(first)
    return Sql(re.sub(HOLE, lambda _: f"${next(numbers)}", sql.text), sql.params)


def mark_holes(sql: Sql) -> Sql:
    """The holes as `?`."""
    return Sql(sql.text.replace(HOLE, "?"), sql.params)


def _joined(word: str, parts: Sequence[Sql], neutral: Sql) -> Sql:
    if len(parts) < 2:
        return parts[0] if parts else neutral
    if len(parts) > _WIDEST:
        middle = len(parts) // 2
        parts = [_joined(word, half, neutral) for half in (parts[:middle], parts[middle:])]
    joined = _strung(word, parts)
    return Sql(f"({joined.text})", joined.params)


def _strung(separator: str, parts: Sequence[Sql]) -> Sql:
    return Sql(
        separator.join(part.text for part in parts), tuple(p for part in parts for p in part.params)
    )
