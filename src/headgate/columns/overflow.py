"""Headers beyond the limit of a chunk's columns: as JSON in one `overflow` column.

A header that has no column is in the overflow of its row: `{"amount":12,"note":"x","table":[]}`, keys sorted, `[]` for an
opaque value. A row has a header either in a column or in its overflow; the rows of one batch may differ in that. Reading
a view from the overflow is slower than reading a column, and just as exact.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headgate.columns.arrays import ARRAY_OF, Column, make_column, opaque_array
from headgate.columns.names import (
    MAX_HEADER_COLUMNS,
    header_of,
    is_header_column,
    view_of,
)
from headgate.filters import KIND_OF, View
from headgate.message import OPAQUE, HeaderValue

OVERFLOW: Final = "overflow"

Rest: TypeAlias = Sequence[Mapping[str, HeaderValue] | None]  # what overflows, for each row
_TEXT_OF: Final[dict[type, Callable[[Any], str]]] = {
    str: json.encoder.encode_basestring,
    int: int.__repr__,
    float: float.__repr__,
    bool: lambda value: "true" if value else "false",
    type(OPAQUE): lambda value: "[]",
}


# ---- writing -----------------------------------------------------------------------------------------


class HeaderChoice:
    """Chooses the headers of messages that become columns, and keeps the rest of each message."""

    def __init__(self, indexed: Collection[str]) -> None:
        self._indexed = indexed
        self.rest: Rest | None = None  # None: every header has a column

    def choose(self, rows: Sequence[Mapping[str, HeaderValue]]) -> Collection[str] | None:
        """Choose the headers that become columns before columns are made, as there may be very many names; None: all."""
        counts = Counter(chain.from_iterable(rows))
        if len(counts) <= MAX_HEADER_COLUMNS:
            return None
        chosen = self._rank(counts)
        self.rest = [
            row
            if chosen.isdisjoint(row)
            else {name: value for name, value in row.items() if name not in chosen} or None
            for row in rows
        ]
        return chosen

    def narrow(self, columns: dict[str, Column]) -> dict[str, Column]:
        """Take out columns until there are no more than a chunk may have."""
        if len(columns) <= MAX_HEADER_COLUMNS:
            return columns
        chosen = self._rank({name: len(column.values) for name, column in columns.items()})
        rest: list[dict[str, HeaderValue] | None]
        self.rest = rest = [None] * next(iter(columns.values())).messages
        for name, column in columns.items():
            if name not in chosen:
                rows = column.rows or range(column.messages)
                for at, value in zip(rows, column.values, strict=True):
                    _put(rest, at, name, value)
        return {name: columns[name] for name in columns if name in chosen}

    def _rank(self, counts: Mapping[str, int]) -> set[str]:
        """Return indexed headers first, then the most frequent, as many as there may be columns."""
        first = {name for name in self._indexed if name in counts}
        # By name, then by number: both are sorted at C speed.
        by_name = sorted(counts.keys() - first)
        by_number = sorted(by_name, key=counts.__getitem__, reverse=True)
        return first.union(by_number[: MAX_HEADER_COLUMNS - len(first)])


def _put(
    rows: list[dict[str, HeaderValue] | None], at: int, header: str, value: HeaderValue
) -> None:
    row = rows[at]
    if row is None:
        row = rows[at] = {}
    row[header] = value


def cap_columns(
    arrays: dict[str, pa.Array], rest: Rest | None, indexed: Collection[str]
) -> dict[str, pa.Array]:
    """Keep at most as many header columns as a chunk may have; move the others to the overflow column."""
    headers = [name for name in arrays if is_header_column(name)]
    if len(headers) <= MAX_HEADER_COLUMNS and rest is None:
        return arrays
    if OVERFLOW in arrays:
        rest = read_overflow(arrays[OVERFLOW])
    ranked = sorted(headers, key=lambda name: _rank(name, arrays[name], indexed))
    rows = rest or [None] * len(next(iter(arrays.values())))
    return _add_to_overflow(arrays, ranked[MAX_HEADER_COLUMNS:], rows)


def move_to_overflow(arrays: Mapping[str, pa.Array], names: Collection[str]) -> dict[str, pa.Array]:
    """Move these header columns to the overflow column."""
    if not names:
        return dict(arrays)
    before = arrays.get(OVERFLOW)
    rows: Rest = (
        [None] * len(next(iter(arrays.values()))) if before is None else list(read_overflow(before))
    )
    return _add_to_overflow(arrays, names, rows)


def _add_to_overflow(
    arrays: Mapping[str, pa.Array], names: Collection[str], rows: Rest
) -> dict[str, pa.Array]:
    if names:
        added = [None if row is None else dict(row) for row in rows]
        for name in names:
            _move_column(name, arrays[name], added)
        rows = added
    kept = {name: array for name, array in arrays.items() if name not in names}
    return {**kept, OVERFLOW: pa.array([_to_json(row) for row in rows], pa.binary())}


def _rank(name: str, array: pa.Array, indexed: Collection[str]) -> tuple[bool, int, str]:
    """Order columns by what they are worth: indexed ones first, then the fullest."""
    return header_of(name) not in indexed, array.null_count - len(array), name


def _move_column(name: str, array: pa.Array, rows: list[dict[str, HeaderValue] | None]) -> None:
    header, opaque = header_of(name), view_of(name) == "opaque"
    for at, value in enumerate(array.to_pylist()):
        if value is None or (opaque and not value):
            continue
        _put(rows, at, header, OPAQUE if opaque else value)


def _to_json(row: Mapping[str, HeaderValue] | None) -> bytes | None:
    if not row:
        return None
    quote = json.encoder.encode_basestring  # an encoder of json takes four times as long
    pairs = [
        f"{quote(name)}:{_TEXT_OF[type(value)](value)}"
        for name, value in sorted(row.items())
        if value is not None
    ]
    return f"{{{','.join(pairs)}}}".encode() if pairs else None


# ---- reading -----------------------------------------------------------------------------------------


class Overflow:
    """The overflow column of a batch; decoded when the first header is read."""

    __slots__ = ("_array", "_names", "_rows", "_views")

    def __init__(self, array: pa.Array) -> None:
        self._array = array
        self._rows: list[dict[str, HeaderValue]] | None = None
        self._names: frozenset[str] = frozenset()
        self._views: dict[tuple[str, View], pa.Array | None] = {}

    @property
    def rows(self) -> list[dict[str, HeaderValue]]:
        """The headers in the overflow of every row."""
        if self._rows is None:
            self._rows = read_overflow(self._array)
            self._names = frozenset().union(*self._rows)
        return self._rows

    def complete_view(self, array: pa.Array | None, header: str, view: View) -> pa.Array | None:
        """Return the view of a header with the values of its column, if it has one, and of the overflow."""
        rows = self.rows
        if header not in self._names:
            return array
        if (header, view) not in self._views:
            self._views[header, view] = join_views(array, overflow_view(rows, header, view), view)
        return self._views[header, view]


def read_overflow(array: pa.Array) -> list[dict[str, HeaderValue]]:
    """Decode the headers in the overflow of every row."""
    return [_from_json(text) for text in array.to_pylist()]


def _from_json(text: bytes | None) -> dict[str, HeaderValue]:
    if text is None:
        return {}
    return {name: OPAQUE if value == [] else value for name, value in json.loads(text).items()}


def overflow_view(
    rows: Sequence[Mapping[str, HeaderValue]], header: str, view: View
) -> pa.Array | None:
    """Make one typed view of a header in the overflow; None when no row holds one."""
    values = [row.get(header) for row in rows]
    if view == "opaque":
        return opaque_array(make_column(values)) if any(v is OPAQUE for v in values) else None
    of_kind = [v if KIND_OF.get(type(v)) == view else None for v in values]
    if all(v is None for v in of_kind):
        return None
    return ARRAY_OF[view](make_column(of_kind))


def join_views(array: pa.Array | None, more: pa.Array | None, view: View) -> pa.Array | None:
    """Join the two parts of a view: rows that have the header in a column and rows that have it in their overflow."""
    if array is None or more is None:
        return more if array is None else array
    if view == "opaque":
        return pc.or_(array.fill_null(False), more.fill_null(False))
    return pc.coalesce(_decode_dictionary(array), _decode_dictionary(more))


def _decode_dictionary(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def overflow_names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """List every header name that occurs in the overflow, sorted."""
    return sorted({name for row in rows for name in row})
