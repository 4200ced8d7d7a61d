"""Arithmetic and comparison of columns of numbers, exact to the last bit of int64.

numpy wraps around on overflow. Most columns are far from it, which their extremes prove for all rows at
once; only where they cannot is every row checked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.filters.compile.arrow.rows import Array, Bools, Vector, truths, where_valid
from headgate.filters.nodes import ArithOp, CompareOp
from headgate.filters.normal import EXACT_AS_DOUBLE
from headgate.message import INT64_MAX, INT64_MIN

UFUNC: Final[dict[CompareOp, np.ufunc]] = {
    "=": np.equal,
    "<>": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
FEW: Final = 8  # so many comparisons cost less than one look into a hash table


def doubles(vector: Vector) -> Vector:
    return Vector(vector.values.astype(np.float64, copy=False), vector.valid)


def longs(vector: Vector) -> Vector:
    return Vector(vector.values.astype(np.int64, copy=False), vector.valid)


def both(left: Bools | None, right: Bools | None) -> Bools | None:
    if left is None:
        return right
    return left if right is None else left & right


# ---- comparing with constants ------------------------------------------------------------------------


def comparison(op: CompareOp, wanted: int | float) -> Callable[[Vector], Bools]:
    """Where a column of ints or floats compares so with a constant: ints exactly, mixed as doubles."""
    compare, among_ints, among_doubles = UFUNC[op], _as_int(wanted), float(wanted)
    int_is_exact = isinstance(among_ints, int)

    def ask(vector: Vector) -> Bools:
        values, valid = vector
        if values.dtype.kind == "f":
            return where_valid(compare(values, among_doubles), valid)
        if not int_is_exact:
            values = values.astype(np.float64)
        return where_valid(compare(values, among_ints), valid)

    return ask


class Chosen(NamedTuple):
    """The constants of an IN list, as each kind of column compares with them."""

    ints: frozenset[int]
    fractions: frozenset[float]  # those that an int column meets as doubles
    doubles: frozenset[float]


def chosen(wanted: Iterable[int | float]) -> Chosen:
    constants = [_as_int(w) for w in wanted]  # a list: a set would take 2**63 and 2.0**63 for one
    return Chosen(
        frozenset(c for c in constants if isinstance(c, int)),
        frozenset(c for c in constants if isinstance(c, float)),
        frozenset(map(float, constants)),
    )


def is_one_of(vector: Vector, wanted: Chosen) -> Bools:
    """Where a column of ints or floats equals one of the constants."""
    if vector.values.dtype.kind == "f":
        return where_valid(_equals_any(vector.values, wanted.doubles), vector.valid)
    found = _equals_any(vector.values, wanted.ints)
    if wanted.fractions:
        found |= _equals_any(vector.values.astype(np.float64), wanted.fractions)
    return where_valid(found, vector.valid)


def _as_int(wanted: int | float) -> int | float:
    """The same constant as an int where no int64 could tell the two apart."""
    exact = isinstance(wanted, float) and wanted.is_integer() and abs(wanted) < EXACT_AS_DOUBLE
    return int(wanted) if exact else wanted


def _equals_any(values: Array, wanted: Collection[int | float]) -> Bools:
    if len(wanted) > FEW:
        return _found_in(values, wanted)
    found = np.zeros(len(values), np.bool_)
    for constant in wanted:
        found |= values == constant
    return found


def _found_in(values: Array, wanted: Collection[int | float]) -> Bools:
    if values.dtype.kind != "f":
        ints = pa.array(values.astype(np.int64, copy=False))
        return truths(pc.is_in(ints, pa.array(list(wanted), pa.int64())))
    zeros = [0.0, -0.0] if 0.0 in wanted else []  # one number to us, two keys to a hash table
    return truths(pc.is_in(pa.array(values), pa.array([*wanted, *zeros], pa.float64())))


# ---- arithmetic --------------------------------------------------------------------------------------


def negative(vector: Vector) -> Vector:
    if vector.values.dtype.kind == "f":
        return Vector(-vector.values, vector.valid)
    return int_arithmetic("-", Vector(np.zeros((), np.int64), None), vector)


def float_arithmetic(op: ArithOp, left: Vector, right: Vector) -> Vector:
    """As doubles; no value where the result is not finite."""
    a, b = doubles(left).values, doubles(right).values
    match op:
        case "+":
            result = a + b
        case "-":
            result = a - b
        case "*":
            result = a * b
        case "/":
            result = a / b
        case "%":
            result = np.fmod(a, b)
        case _:
            assert_never(op)
    return Vector(result, both(both(left.valid, right.valid), np.isfinite(result)))


def int_arithmetic(op: ArithOp, left: Vector, right: Vector) -> Vector:
    """As int64; no value where the result does not fit. (`/` is never computed with ints.)"""
    a, b = longs(left).values, longs(right).values
    valid = both(left.valid, right.valid)
    match op:
        case "+":
            result = a + b
        case "-":
            result = a - b
        case "*":
            result = a * b
        case _:
            return _remainder(a, b, valid)
    if _always_fits(op, a, b):
        return Vector(result, valid)
    return Vector(result, both(valid, ~_overflowed(op, a, b, result)))


def _remainder(a: Array, b: Array, valid: Bools | None) -> Vector:
    # Dividing the smallest int by -1 traps on some processors; by 1, the remainder is the same.
    divisor = np.where((b == 0) | (b == -1), 1, b)
    return Vector(np.fmod(a, divisor), both(valid, b != 0))


def _always_fits(op: ArithOp, a: Array, b: Array) -> bool:
    (low, high), (least, most) = _extremes(a), _extremes(b)
    if op == "+":
        ends = [low + least, high + most]
    elif op == "-":
        ends = [low - most, high - least]
    else:
        ends = [low * least, low * most, high * least, high * most]
    return min(ends) >= INT64_MIN and max(ends) <= INT64_MAX


def _extremes(values: Array) -> tuple[int, int]:
    return (int(values.min()), int(values.max())) if values.size else (0, 0)


def _overflowed(op: ArithOp, a: Array, b: Array, result: Array) -> Bools:
    if op == "+":
        wrapped: Bools = ((a ^ result) & (b ^ result)) < 0
    elif op == "-":
        wrapped = ((a ^ b) & (a ^ result)) < 0
    else:
        # A product that wrapped around is off by 2**64 at least, so dividing it cannot lead back.
        divisor = np.where((a == 0) | (a == -1), 1, a)
        undone = (result // divisor == b) | (a == 0) | (a == -1)
        wrapped = ~undone | ((a == -1) & (b == INT64_MIN))
    return wrapped
