"""Rows that look alike to an index are asked about once.

Each row of a batch is reduced to what the index can tell apart: in each column the value somebody asks for,
or that there is another one, or none. Rows with the same combination get the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.filters import VIEWS, Columns, Field, View, fields_read
from headgate.filters.compile.arrow import UFUNC, compile_mask
from headgate.matching.groups import Group
from headgate.matching.index import PRESENT, EqualityIndex, Presence
from headgate.matching.residuals import Check, Checked, Few, Residuals, bound_of
from headgate.matching.tree import Column
from headgate.message import OPAQUE, HeaderValue, Message

Answer = TypeVar("Answer")
Ints: TypeAlias = npt.NDArray[np.int64]
Rows: TypeAlias = npt.NDArray[np.int64]  # row numbers
Bools: TypeAlias = npt.NDArray[np.bool_]

TOPIC: Final = Field("sys", "topic")
WORTH_A_MASK: Final = 256  # rows; for fewer, a mask costs more than asking one by one
_NUMBER_VIEWS: Final[tuple[View, ...]] = ("int", "float")
_ROOM: Final = 1 << 62  # combinations one integer can tell apart


class Alike(NamedTuple, Generic[Answer]):
    """For each row the number of its combination, and for each combination the answer."""

    codes: Ints
    answers: list[Answer]


def field_of(column: Column) -> Field:
    """The field an index means by its column."""
    if isinstance(column, Presence):
        return field_of(column.column)
    if isinstance(column, tuple):
        scope, name = column
        return Field(scope, name)
    return Field("header", str(column))


def match_rows(index: EqualityIndex[Answer], columns: Columns, rows: Rows) -> Alike[Answer]:
    """What the index answers to each of the rows."""
    found = ((column, _encode_keys(index, column, columns)) for column in index.columns)
    held = [(column, *encoded) for column, encoded in found if encoded is not None]
    codes, first = combined([codes[rows] for _, codes, _ in held], len(rows))
    keys = [[keys[code] for code in codes[rows[first]].tolist()] for _, codes, keys in held]
    combinations = zip(*keys, strict=True) if keys else [()] * len(first)
    return Alike(codes, index.match_rows(tuple(column for column, _, _ in held), combinations))


def match_topics(match: Callable[[str], Answer], columns: Columns, rows: Rows) -> Alike[Answer]:
    """What the function answers to the topic of each of the rows."""
    view = columns.view(TOPIC, "string")
    if view is None:
        return Alike(np.zeros(len(rows), np.int64), [match("")] if len(rows) else [])
    positions, values = _encoded(view)
    codes, first = combined([positions[rows]], len(rows))
    return Alike(codes, [match(values[at] or "") for at in positions[rows[first]].tolist()])


def combined(columns: Sequence[Ints], count: int) -> tuple[Ints, Ints]:
    """The number of each row's combination of codes, and the first row that has each."""
    total, room = np.zeros(count, np.int64), 1
    for codes in columns:
        size = int(codes.max(initial=0)) + 1
        if size == 1:
            continue
        if room > _ROOM // size:
            total, room = _numbered(total)
        total = total * size + codes
        room *= size
    total, room = _numbered(total)
    first = np.zeros(room, np.int64)
    first[total[::-1]] = np.arange(count - 1, -1, -1)  # of equal ones the last is written last
    return total, first


def by_code(rows: Rows, codes: Ints, count: int) -> list[Rows]:
    """The rows of each code, in order."""
    ends = np.cumsum(np.bincount(codes, minlength=count)).tolist()
    narrow = codes.astype(np.uint16) if count <= 1 << 16 else codes  # which numpy sorts by radix
    ordered = rows[np.argsort(narrow, kind="stable")]
    return [ordered[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _numbered(codes: Ints) -> tuple[Ints, int]:
    encoded = pa.array(codes).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64, copy=False), len(encoded.dictionary)


def _encode_keys(
    index: EqualityIndex[Any], column: Column, columns: Columns
) -> tuple[Ints, list[Any]] | None:
    """A code for each row, and the key of each code, None where none is asked for; None if no row holds a value."""
    field = field_of(column)
    known: dict[Any, int] = {None: 0}
    codes: Ints | None = None
    for view in VIEWS:
        array = columns.view(field, view)
        if array is not None:
            positions, values = _encoded(array)
            keys = _keys_asked_for(index, column, view, values)
            numbers = np.array([known.setdefault(key, len(known)) for key in keys], np.int64)
            # A row holds a value in one view only.
            codes = numbers[positions] if codes is None else codes + numbers[positions]
    return None if codes is None else (codes, list(known))


def _keys_asked_for(
    index: EqualityIndex[Any], column: Column, view: View, values: list[Any]
) -> list[Any]:
    """The key of each value, None where nobody asks for it."""
    if view == "opaque":
        values = [OPAQUE if value else None for value in values]
    if isinstance(column, Presence):
        return [None if value is None else PRESENT for value in values]
    asked = index.keys_asked_for(column)
    keys = values if view == "string" else [v if v is None else index.key_of(v) for v in values]
    return [key if key in asked else None for key in keys]


def _encoded(array: pa.Array) -> tuple[Ints, list[Any]]:
    """A position for each row, and the value at each position; the last one is None."""
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    values = array.dictionary.to_pylist()
    indices = array.indices
    if indices.null_count:
        indices = indices.cast(pa.int64()).fill_null(len(values))
    return indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False), [*values, None]


# ---- what the columns leave open -----------------------------------------------------------------------


class Asked:
    """Checks asked of the rows of one batch: vectorised for many rows, message by message for few."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self._messages: dict[frozenset[Field], dict[int, Message]] = {}
        self._numbers: dict[Field, npt.NDArray[np.float64]] = {}

    def passing(self, check: Check, rows: Rows) -> Rows:
        """The rows of these that pass."""
        bound = bound_of(check.filter)
        if bound is not None:
            field, op, number = bound
            passed: Rows = rows[UFUNC[op](self._numbers_of(field)[rows], number)]
            return passed
        if len(rows) >= WORTH_A_MASK:
            return rows[compile_mask(check.filter, check.clock)(Picked(self.columns, rows))]
        fields = fields_read(check.filter)
        known = self._messages.setdefault(fields, {})
        missing = np.array([row for row in rows.tolist() if row not in known], np.int64)
        if len(missing):
            known.update(
                zip(missing.tolist(), messages_at(self.columns, missing, fields), strict=True)
            )
        return np.array([row for row in rows.tolist() if check.test(known[row])], np.int64)

    def _numbers_of(self, field: Field) -> npt.NDArray[np.float64]:
        """The field's numbers, NaN where it has none: no bound holds there. Bounds are small enough for doubles."""
        found = self._numbers.get(field)
        if found is None:
            found = self._numbers[field] = np.full(self.columns.num_rows, np.nan)
            for view in _NUMBER_VIEWS:
                array = self.columns.view(field, view)
                if array is not None:
                    values = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
                    np.copyto(found, values, where=~np.isnan(values))
        return found


def checked_rows(
    asked: Asked, rows: Rows, codes: Ints, checks: Sequence[Checked]
) -> Iterator[tuple[Set[Any], Rows]]:
    """Who passed, and for which rows: each check is asked once, of all the rows it waits for."""
    waiting: dict[int, tuple[Few | Residuals, list[int]]] = {}
    for code, checked in enumerate(checks):
        for residuals in checked:
            waiting.setdefault(id(residuals), (residuals, []))[1].append(code)
    grouped = by_code(rows, codes, len(checks)) if waiting else []
    for residuals, wanted in waiting.values():
        there = np.concatenate([grouped[code] for code in wanted])
        for check, slot in residuals.waiting:
            members = slot.members if isinstance(slot, Group) else frozenset((slot,))
            yield members, asked.passing(check, there)


class Picked:
    """Some rows of other columns."""

    __slots__ = ("_columns", "_rows")

    def __init__(self, columns: Columns, rows: Rows) -> None:
        self._columns, self._rows = columns, rows

    @property
    def num_rows(self) -> int:
        return len(self._rows)

    def view(self, field: Field, view: View) -> pa.Array | None:
        array = self._columns.view(field, view)
        return None if array is None else array.take(pa.array(self._rows))


def messages_at(columns: Columns, rows: Rows, fields: frozenset[Field]) -> list[Message]:
    """The messages of the rows, as far as these fields go."""
    found: dict[str, dict[str, list[Any]]] = {"sys": {}, "header": {}, "property": {}}
    for field in fields:
        values = _values(columns, field, rows)
        if values is not None:
            found[field.scope][field.name] = values
    return [
        Message(
            headers={name: column[at] for name, column in found["header"].items()},
            properties={name: column[at] for name, column in found["property"].items()},
            **{name: column[at] for name, column in found["sys"].items()},
        )
        for at in range(len(rows))
    ]


def _values(columns: Columns, field: Field, rows: Rows) -> list[HeaderValue] | None:
    found: list[HeaderValue] | None = None
    for view in VIEWS:
        array = columns.view(field, view)
        if array is None:
            continue
        taken = array.take(pa.array(rows)).to_pylist()
        if view == "opaque":
            taken = [OPAQUE if value else None for value in taken]
        found = (
            taken
            if found is None
            else [b if a is None else a for a, b in zip(found, taken, strict=True)]
        )
    return found
