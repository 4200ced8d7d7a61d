"""The headers of a batch that have no column of their own, read back from its `overflow` column.

A batch has a limited number of header columns. What is beyond sits in the overflow of its row as JSON,
`{"amount":12,"note":"x","table":[]}`, where `[]` stands for a value no filter can compare. Rows of one batch may
keep a header in different places, a column or their overflow; a row keeps it in one of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.columns.arrays import ARRAY_OF, marks
from headgate.columns.transposed import column
from headgate.filters import KIND_OF
from headgate.message import OPAQUE, HeaderValue

if TYPE_CHECKING:
    from headgate.filters import View

OVERFLOW: Final = "overflow"


class Overflow:
    """The overflow column of a batch; decoded when the first header is asked for."""

    __slots__ = ("_array", "_names", "_rows", "_views")

    def __init__(self, array: pa.Array) -> None:
        self._array = array
        self._rows: list[dict[str, HeaderValue]] | None = None
        self._names: frozenset[str] = frozenset()
        self._views: dict[tuple[str, View], pa.Array | None] = {}

    @property
    def rows(self) -> list[dict[str, HeaderValue]]:
        """The overflowing headers of every row."""
        if self._rows is None:
            self._rows = overflowing(self._array)
            self._names = frozenset().union(*self._rows)
        return self._rows

    def joined(self, array: pa.Array | None, header: str, view: View) -> pa.Array | None:
        """The view of the header with the values of its column, if it has one, and those of the overflow."""
        rows = self.rows
        if header not in self._names:
            return array
        if (header, view) not in self._views:
            self._views[header, view] = joined(array, view_of(rows, header, view), view)
        return self._views[header, view]


def overflowing(array: pa.Array) -> list[dict[str, HeaderValue]]:
    """The overflowing headers of every row."""
    return [_headers(text) for text in array.to_pylist()]


def _headers(text: bytes | None) -> dict[str, HeaderValue]:
    if text is None:
        return {}
    return {name: OPAQUE if value == [] else value for name, value in json.loads(text).items()}


def view_of(rows: Sequence[Mapping[str, HeaderValue]], header: str, view: View) -> pa.Array | None:
    """One typed view of an overflowing header; None when no row holds one."""
    values = [row.get(header) for row in rows]
    if view == "opaque":
        return marks(column(values)) if any(v is OPAQUE for v in values) else None
    fitting = [v if KIND_OF.get(type(v)) == view else None for v in values]
    if all(v is None for v in fitting):
        return None
    return ARRAY_OF[view](column(fitting))


def joined(array: pa.Array | None, more: pa.Array | None, view: View) -> pa.Array | None:
    """One view of a header that some rows have in a column and others in their overflow."""
    if array is None or more is None:
        return more if array is None else array
    if view == "opaque":
        return pc.or_(array.fill_null(False), more.fill_null(False))
    return pc.coalesce(_plain(array), _plain(more))


def _plain(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
