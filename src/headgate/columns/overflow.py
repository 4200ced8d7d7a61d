"""Headers past the cap of a chunk's columns: they travel as JSON in one `overflow` column.

A typed column is either there as a whole or not at all; what has no column sits in the overflow of its row:
`{"amount":12,"note":"x","table":[]}`, keys sorted, `[]` for an opaque value. `headgate.columns.overflow_views` reads
a view of such a header back from there, slower and just as exact.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from headgate.columns.names import (
    MAX_HEADER_COLUMNS,
    header_of,
    is_header_column,
    parse_column_name,
)
from headgate.columns.overflow_views import OVERFLOW as OVERFLOW
from headgate.columns.overflow_views import joined as joined
from headgate.columns.overflow_views import overflowing as overflowing
from headgate.columns.overflow_views import view_of as view_of
from headgate.message import OPAQUE, HeaderValue, Message

Rest = list[dict[str, HeaderValue] | None]


def narrow(
    messages: Sequence[Message], indexed: Collection[str]
) -> tuple[Sequence[Message], Rest | None]:
    """The messages with no more header names than there can be columns, and what was taken out of each."""
    names = Counter[str]()
    if len(set().union(*[m.headers for m in messages])) <= MAX_HEADER_COLUMNS:
        return messages, None
    for message in messages:
        names.update(message.headers.keys())
    kept = set(_most_wanted(names, indexed))
    narrowed = [replace(m, headers=_only(m.headers, kept)) for m in messages]
    return narrowed, [{n: v for n, v in m.headers.items() if n not in kept} for m in messages]


def _most_wanted(counts: Mapping[str, int], indexed: Collection[str]) -> list[str]:
    """Indexed ones first, then the most frequent."""
    wanted = sorted(counts, key=lambda name: (name not in indexed, -counts[name], name))
    return wanted[:MAX_HEADER_COLUMNS]


def _only(headers: Mapping[str, HeaderValue], kept: set[str]) -> dict[str, HeaderValue]:
    return {name: value for name, value in headers.items() if name in kept}


def cap(
    arrays: dict[str, pa.Array], rest: Rest | None, indexed: Collection[str]
) -> dict[str, pa.Array]:
    """At most as many header columns as there can be; the others are moved to the overflow column."""
    headers = [name for name in arrays if is_header_column(name)]
    if len(headers) <= MAX_HEADER_COLUMNS and rest is None:
        return arrays
    if OVERFLOW in arrays:
        rest = [dict(row) for row in overflowing(arrays[OVERFLOW])]
    wanted = sorted(headers, key=lambda name: _eagerness(name, arrays[name], indexed))
    rows = rest or [None] * len(next(iter(arrays.values())))
    return _with_overflow(arrays, wanted[MAX_HEADER_COLUMNS:], rows)


def moved(arrays: Mapping[str, pa.Array], names: Collection[str]) -> dict[str, pa.Array]:
    """The columns with these headers' among them moved to the overflow."""
    if not names:
        return dict(arrays)
    before = arrays.get(OVERFLOW)
    rows: Rest = (
        [None] * len(next(iter(arrays.values()))) if before is None else list(overflowing(before))
    )
    return _with_overflow(arrays, names, rows)


def _with_overflow(
    arrays: Mapping[str, pa.Array], names: Collection[str], rows: Rest
) -> dict[str, pa.Array]:
    """The columns without these, which join what overflows in the rows already."""
    for name in names:
        _move(name, arrays[name], rows)
    kept = {name: array for name, array in arrays.items() if name not in names}
    return {**kept, OVERFLOW: pa.array([_json(row) for row in rows], pa.binary())}


def _eagerness(name: str, array: pa.Array, indexed: Collection[str]) -> tuple[bool, int, str]:
    return header_of(name) not in indexed, array.null_count - len(array), name


def _move(name: str, array: pa.Array, rows: Rest) -> None:
    field, view = parse_column_name(name)
    assert field is not None
    header, opaque = field.name, view == "opaque"
    for at, value in enumerate(array.to_pylist()):
        if value is None or (opaque and not value):
            continue
        row = rows[at]
        if row is None:
            row = rows[at] = {}
        row[header] = OPAQUE if opaque else value


def _json(row: Mapping[str, HeaderValue] | None) -> bytes | None:
    present = {name: value for name, value in (row or {}).items() if value is not None}
    if not present:
        return None
    text = json.dumps(
        {name: [] if value is OPAQUE else value for name, value in present.items()},
        sort_keys=True, ensure_ascii=False, separators=(",", ":"),
    )  # fmt: skip
    return text.encode()


def names_in(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Every header name that occurs in the overflow."""
    return iter(sorted({name for row in rows for name in row}))
