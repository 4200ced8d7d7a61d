"""Matching a batch: an index is queried once for all rows that are equal to it.

Each row is reduced to the values that the index distinguishes: in each column, a value that occurs in an entry, any other
value, or none. Rows with equal combinations share one query and its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.filters import TOPIC, VIEWS, Columns, Field, Flags, View, fields_read
from headgate.filters.compile.arrow import UFUNC, compile_mask
from headgate.matching.groups import MemberGroup, parts_of
from headgate.matching.index import PRESENT, EqualityIndex, Presence
from headgate.matching.residuals import Check, CheckedEntries, OpenChecks, Residuals, bound_of
from headgate.matching.tree import IndexColumn
from headgate.message import OPAQUE, HeaderValue, Message

Answer = TypeVar("Answer")
MemberT = TypeVar("MemberT")
Ints: TypeAlias = npt.NDArray[np.int64]
RowNumbers: TypeAlias = npt.NDArray[np.int64]

WORTH_A_MASK: Final = 256  # rows; for fewer, a mask costs more than asking one by one
_NUMBER_VIEWS: Final[tuple[View, ...]] = ("int", "float")
_ROOM: Final = 1 << 62  # combinations one integer can tell apart


class CodedAnswers(NamedTuple, Generic[Answer]):
    """For each row the number of its combination, and for each combination the answer."""

    codes: Ints
    answers: list[Answer]


def field_of(column: IndexColumn) -> Field:
    """The field that a column of an index stands for."""
    if isinstance(column, Presence):
        return field_of(column.column)
    if isinstance(column, tuple):
        scope, name = column
        return Field(scope, name)
    return Field("header", str(column))


def match_rows(
    index: EqualityIndex[Answer], columns: Columns, rows: RowNumbers
) -> CodedAnswers[Answer]:
    """What the index answers for each of the rows."""
    encoded = ((column, _encode_keys(index, column, columns)) for column in index.columns)
    held = [(column, *keys) for column, keys in encoded if keys is not None]
    codes, first = combine_codes([codes[rows] for _, codes, _ in held], len(rows))
    keys = [[keys[code] for code in codes[rows[first]].tolist()] for _, codes, keys in held]
    combinations = zip(*keys, strict=True) if keys else [()] * len(first)
    return CodedAnswers(
        codes, index.match_rows(tuple(column for column, _, _ in held), combinations)
    )


def match_topics(
    match: Callable[[str], Answer], columns: Columns, rows: RowNumbers
) -> CodedAnswers[Answer]:
    """What the function answers for the topic of each of the rows."""
    view = columns.view(TOPIC, "string")
    if view is None:
        return CodedAnswers(np.zeros(len(rows), np.int64), [match("")] if len(rows) else [])
    positions, values = _encode_dictionary(view)
    codes, first = combine_codes([positions[rows]], len(rows))
    return CodedAnswers(codes, [match(values[at] or "") for at in positions[rows[first]].tolist()])


def distinct_values(
    field: Field, columns: Columns, rows: RowNumbers
) -> tuple[Ints, list[HeaderValue | None]]:
    """A number for the value of the field in each of the rows, and the values by these numbers; 1 and 1.0 are two."""
    known: dict[tuple[type, Any], int] = {(type(None), None): 0}
    total: Ints = np.zeros(len(rows), np.int64)
    for view in VIEWS:
        array = columns.view(field, view)
        if array is not None:
            positions, values = _encode_dictionary(array)
            if view == "opaque":
                values = [OPAQUE if value else None for value in values]
            used = positions[rows]
            numbers = np.zeros(len(values), np.int64)
            for at in np.unique(used).tolist():
                key = (type(values[at]), values[at])
                numbers[at] = known.setdefault(key, len(known))
            total += numbers[used]  # a row holds a value in one view only
    return total, [value for _, value in known]


def combine_codes(columns: Sequence[Ints], count: int) -> tuple[Ints, Ints]:
    """Number the distinct combinations of codes: return the number of each row's combination, and the first row of each."""
    total, room = np.zeros(count, np.int64), 1
    for codes in columns:
        size = int(codes.max(initial=0)) + 1
        if size == 1:
            continue
        if room > _ROOM // size:
            total, room = _number(total)
        total = total * size + codes
        room *= size
    total, room = _number(total)
    first = np.zeros(room, np.int64)
    # Descending, so that the first row of a code is written last.
    first[total[::-1]] = np.arange(count - 1, -1, -1)
    return total, first


def rows_by_code(rows: RowNumbers, codes: Ints, count: int) -> list[RowNumbers]:
    """Group the rows by code; the rows of a code keep their order."""
    ends = np.cumsum(np.bincount(codes, minlength=count)).tolist()
    narrow = codes.astype(np.uint16) if count <= 1 << 16 else codes  # numpy sorts these by radix
    ordered = rows[np.argsort(narrow, kind="stable")]
    return [ordered[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _number(codes: Ints) -> tuple[Ints, int]:
    encoded = pa.array(codes).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64, copy=False), len(encoded.dictionary)


def _encode_keys(
    index: EqualityIndex[Any], column: IndexColumn, columns: Columns
) -> tuple[Ints, list[Any]] | None:
    """A code for each row, and the key of each code, None where no entry asks for it; None if no row has a value."""
    field = field_of(column)
    known: dict[Any, int] = {None: 0}
    codes: Ints | None = None
    for view in VIEWS:
        array = columns.view(field, view)
        if array is not None:
            positions, values = _encode_dictionary(array)
            keys = _keys_asked_for(index, column, view, values)
            numbers = np.array([known.setdefault(key, len(known)) for key in keys], np.int64)
            # A row holds a value in one view only.
            codes = numbers[positions] if codes is None else codes + numbers[positions]
    return None if codes is None else (codes, list(known))


def _keys_asked_for(
    index: EqualityIndex[Any], column: IndexColumn, view: View, values: list[Any]
) -> list[Any]:
    """The key of each value, None where no entry asks for it."""
    if view == "opaque":
        values = [OPAQUE if value else None for value in values]
    if isinstance(column, Presence):
        return [None if value is None else PRESENT for value in values]
    asked = index.keys_asked_for(column)
    keys = values if view == "string" else [v if v is None else index.key_of(v) for v in values]
    return [key if key in asked else None for key in keys]


def _encode_dictionary(array: pa.Array) -> tuple[Ints, list[Any]]:
    """A position for each row, and the value at each position; the last one is None."""
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    values = array.dictionary.to_pylist()
    indices = array.indices
    if indices.null_count:
        indices = indices.cast(pa.int64()).fill_null(len(values))
    return indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False), [*values, None]


# ---- checks --------------------------------------------------------------------------------------------


class BatchChecks:
    """Tests rows of one batch by checks: vectorised for many rows, message by message for few."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self._messages: dict[frozenset[Field], dict[int, Message]] = {}
        self._numbers: dict[Field, npt.NDArray[np.float64]] = {}

    def select(self, check: Check, rows: RowNumbers) -> RowNumbers:
        """The rows of these that pass the check."""
        bound = bound_of(check.filter)
        if bound is not None:
            field, op, number = bound
            passed: RowNumbers = rows[UFUNC[op](self._numbers_of(field)[rows], number)]
            return passed
        if len(rows) >= WORTH_A_MASK:
            return rows[compile_mask(check.filter, check.clock)(SelectedRows(self.columns, rows))]
        fields = fields_read(check.filter)
        messages = self._messages.setdefault(fields, {})
        missing = np.array([row for row in rows.tolist() if row not in messages], np.int64)
        if len(missing):
            made = messages_at(self.columns, missing, fields)
            messages.update(zip(missing.tolist(), made, strict=True))
        return np.array([row for row in rows.tolist() if check.test(messages[row])], np.int64)

    def _numbers_of(self, field: Field) -> npt.NDArray[np.float64]:
        """The field's numbers, NaN where it has none: no bound holds there. Bounds are small enough for doubles."""
        numbers = self._numbers.get(field)
        if numbers is None:
            numbers = self._numbers[field] = np.full(self.columns.num_rows, np.nan)
            for view in _NUMBER_VIEWS:
                array = self.columns.view(field, view)
                if array is not None:
                    values = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
                    np.copyto(numbers, values, where=~np.isnan(values))
        return numbers


def passing_rows(
    checks: BatchChecks, rows: RowNumbers, codes: Ints, open_checks: Sequence[OpenChecks]
) -> Iterator[tuple[Set[Any], RowNumbers]]:
    """Members and the rows that passed their check; each check is asked once, of all rows it is open for."""
    waiting: dict[int, tuple[CheckedEntries | Residuals, list[int]]] = {}
    for code, residuals_of_code in enumerate(open_checks):
        for residuals in residuals_of_code:
            waiting.setdefault(id(residuals), (residuals, []))[1].append(code)
    grouped = rows_by_code(rows, codes, len(open_checks)) if waiting else []
    for residuals, codes_there in waiting.values():
        there = np.concatenate([grouped[code] for code in codes_there])
        for check, slot in residuals.slots:
            members = slot.members if isinstance(slot, MemberGroup) else frozenset((slot,))
            yield members, checks.select(check, there)


class SelectedRows:
    """Columns of some rows of a batch."""

    __slots__ = ("_columns", "_rows")

    def __init__(self, columns: Columns, rows: RowNumbers) -> None:
        self._columns, self._rows = columns, rows

    @property
    def num_rows(self) -> int:
        return len(self._rows)

    def view(self, field: Field, view: View) -> pa.Array | None:
        array = self._columns.view(field, view)
        return None if array is None else array.take(pa.array(self._rows))


def messages_at(columns: Columns, rows: RowNumbers, fields: frozenset[Field]) -> list[Message]:
    """The messages of the rows, with these fields only."""
    values: dict[str, dict[str, list[Any]]] = {"sys": {}, "header": {}, "property": {}}
    for field in fields:
        column = _values(columns, field, rows)
        if column is not None:
            values[field.scope][field.name] = column
    return [
        Message(
            headers={name: column[at] for name, column in values["header"].items()},
            properties={name: column[at] for name, column in values["property"].items()},
            **{name: column[at] for name, column in values["sys"].items()},
        )
        for at in range(len(rows))
    ]


def _values(columns: Columns, field: Field, rows: RowNumbers) -> list[HeaderValue] | None:
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


# ---- the result ------------------------------------------------------------------------------------------


class Selections(Generic[MemberT]):
    """Which rows of a batch each member gets: kept by groups of rows and of members, spelled out on demand."""

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows
        # For each row, whether any member gets it.
        self.reached: Flags = np.zeros(num_rows, np.bool_)
        self._pending: list[tuple[RowNumbers, Ints, Sequence[Set[MemberT]]]] = []
        self._groups: dict[int, tuple[frozenset[MemberT], list[RowNumbers]]] = {}

    def add(self, rows: RowNumbers, codes: Ints, members: Sequence[Set[MemberT]]) -> None:
        """Give each of the rows to the members of its code."""
        has_members = np.fromiter(map(bool, members), np.bool_, len(members))
        self.reached[rows[has_members[codes]]] = True
        self._pending.append((rows, codes, members))

    def add_rows(self, members: Set[MemberT], rows: RowNumbers) -> None:
        """Give all of the rows to all of the members."""
        if not len(rows) or not members:
            return
        self.reached[rows] = True
        self._add_group(members, rows)

    def __iter__(self) -> Iterator[MemberT]:
        """Every member that gets a row."""
        return iter(frozenset[MemberT]().union(*(members for members, _ in self._spell_out())))

    def rows_of(self, member: MemberT) -> RowNumbers:
        """The rows the member gets, in order, each once."""
        return _sort_rows(
            rows for members, parts in self._spell_out() if member in members for rows in parts
        )

    def all(self) -> dict[MemberT, RowNumbers]:
        """The rows of every member that gets one."""
        rows_of: dict[MemberT, list[RowNumbers]] = {}
        for members, parts in self._spell_out():
            joint = parts if len(parts) == 1 else [np.concatenate(parts)]
            for member in members:
                rows_of.setdefault(member, []).extend(joint)
        return {member: _sort_rows(parts) for member, parts in rows_of.items()}

    def _spell_out(self) -> Iterable[tuple[frozenset[MemberT], list[RowNumbers]]]:
        for rows, codes, members in self._pending:
            for some, together in zip(
                rows_by_code(rows, codes, len(members)), members, strict=True
            ):
                if together and len(some):
                    self._add_group(together, some)
        self._pending.clear()
        return self._groups.values()

    def _add_group(self, members: Set[MemberT], rows: RowNumbers) -> None:
        for part in parts_of(members):
            # The set is kept beside its rows: no other set can get its id.
            self._groups.setdefault(id(part), (part, []))[1].append(rows)


def _sort_rows(parts: Iterable[RowNumbers]) -> RowNumbers:
    rows = list(parts)
    if not rows:
        return np.zeros(0, np.int64)
    if len(rows) == 1:
        return np.sort(rows[0])
    ordered = np.sort(np.concatenate(rows))
    repeated = ordered[1:] == ordered[:-1]
    return ordered[np.concatenate(([True], ~repeated))] if repeated.any() else ordered
