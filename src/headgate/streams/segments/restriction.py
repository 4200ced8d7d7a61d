"""`restrict_same_values`: a chunk holds only messages with equal values of some properties.

    restrict_same_values={"region": ["us", "eu"], "version": ["1", "2"]}

The listed values of a message are its *tuple*; a value that is not listed counts as none. A chunk stores its tuple as
one number, the *code*, in mixed radix: digit 0 for none of the listed values, digit i for the i-th. So an entry filter,
or a filter expression, decides about the whole chunk from its index entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.filters import KIND_OF, Columns, Counts, Field, FieldFacts, Flags, Kind, ValueRange
from headgate.message import HeaderValue, Scalar

Digits = npt.NDArray[np.int64]


class Restriction:
    """The listed values, and the codes of their tuples."""

    __slots__ = ("_digit_of", "_radix", "values")

    def __init__(self, values: Mapping[str, Sequence[Scalar]]) -> None:
        self.values = {name: tuple(listed) for name, listed in values.items()}
        self._digit_of: list[tuple[str, int, dict[tuple[type, object], int]]] = []
        self._radix: dict[str, int] = {}
        radix = 1
        for name, listed in self.values.items():
            digits: dict[tuple[type, object], int] = {
                (type(v), v): i for i, v in reversed(list(enumerate(listed, 1)))
            }
            self._digit_of.append((name, radix, digits))
            self._radix[name] = radix
            radix *= len(listed) + 1

    def __bool__(self) -> bool:
        return bool(self.values)

    def code(self, headers: Mapping[str, HeaderValue]) -> int:
        """Return the code of the tuple of these headers."""
        total = 0
        for name, radix, digits in self._digit_of:
            value = headers.get(name)
            if value is not None:
                total += radix * digits.get((type(value), value), 0)
        return total

    def properties(self, code: int) -> dict[str, Scalar]:
        """Return the tuple with this code, as the metadata of a chunk shows it."""
        digits = {name: self._digit(name, code) for name in self.values}
        return {name: self.values[name][d - 1] for name, d in digits.items() if d}

    def codes(self, columns: Columns) -> npt.NDArray[np.uint64]:
        """Return the code of every row."""
        total = np.zeros(columns.num_rows, np.uint64)
        for name, radix, digits in self._digit_of:
            for (_, value), digit in digits.items():
                total[_equal(columns, name, value)] += np.uint64(radix * digit)
        return total

    def _digit(self, name: str, code: int) -> int:
        return code // self._radix[name] % (len(self.values[name]) + 1)

    def digits(self, name: str, codes: npt.NDArray[np.uint64]) -> Digits:
        """Return the digit of this property in every code."""
        base = np.uint64(len(self.values[name]) + 1)
        return (codes // np.uint64(self._radix[name]) % base).astype(np.int64)


def _equal(columns: Columns, name: str, value: object) -> Flags:
    array = columns.view(Field("header", name), KIND_OF[type(value)])
    if array is None:
        return np.zeros(columns.num_rows, np.bool_)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    equal = pc.fill_null(pc.equal(array, pa.scalar(value, array.type)), False)
    return np.asarray(equal.to_numpy(zero_copy_only=False), np.bool_)


# ---- facts about chunks, from their codes -------------------------------------------------------------


def restricted_facts(
    restriction: Restriction, name: str, codes: npt.NDArray[np.uint64], rows: Counts
) -> FieldFacts:
    """Return the facts about a property: where a chunk has a listed value, all its messages have that value."""
    digits = restriction.digits(name, codes)
    listed = restriction.values[name]
    kinds = {KIND_OF[type(value)] for value in listed}
    ranges = {kind: _range(kind, listed, digits, rows) for kind in kinds}
    return FieldFacts(ranges, covered=digits > 0)


_FILLER: Mapping[Kind, Scalar] = {"string": "", "int": 0, "float": 0.0, "bool": False}
_DTYPE: Mapping[Kind, type] = {
    "string": object,
    "int": np.int64,
    "float": np.float64,
    "bool": np.bool_,
}


def _range(kind: Kind, listed: Sequence[Scalar], digits: Digits, rows: Counts) -> ValueRange:
    of_kind = [KIND_OF[type(value)] == kind for value in listed]
    by_digit = [v if fits else _FILLER[kind] for v, fits in zip(listed, of_kind, strict=True)]
    bounds: npt.NDArray[Any] = np.array([_FILLER[kind], *by_digit], _DTYPE[kind])[digits]
    return ValueRange(np.where(np.array([False, *of_kind])[digits], rows, 0), bounds, bounds)


def listed_digit(listed: Sequence[Scalar], value: Scalar) -> int:
    """Return the digit of a listed value; 0 when it is not listed."""
    return next((i for i, v in enumerate(listed, 1) if type(v) is type(value) and v == value), 0)
