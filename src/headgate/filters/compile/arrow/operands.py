"""Operands of any shape over many rows: comparison and arithmetic of columns, exact to the last bit of int64.

A row has at most one value, of one kind. So an operand is up to four columns, one for each kind, and two operands
compare by comparing each pair of columns whose kinds can be compared. numpy wraps around on overflow. Most columns are
far from it, which their extremes prove for all rows at once; only where they cannot, every row is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple, TypeAlias, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.filters.compile.arrow.rows import (
    Array,
    BatchRows,
    Bools,
    Codes,
    Strings,
    Vector,
    text_view,
    truths,
    vector_view,
    where_valid,
)
from headgate.filters.compile.arrow.text import compare_texts
from headgate.filters.nodes import (
    Arith,
    ArithOp,
    CompareOp,
    Field,
    Literal,
    Negate,
    Now,
    Operand,
)
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
FEW: Final = 8  # constants: up to this number, comparisons cost less than a lookup in a hash table


class OperandValues(NamedTuple):
    """The values of an operand in every row, by kind; None where no row has one of that kind."""

    text: Codes | Strings | None = None
    ints: Vector | None = None
    floats: Vector | None = None
    bools: Vector | None = None


Evaluate: TypeAlias = Callable[[BatchRows], OperandValues]

NOTHING: Final = OperandValues()


def compile_operand(operand: Operand) -> Evaluate:
    """Compile a function that returns the values of the operand in some rows."""
    match operand:
        case Literal(value=value):
            constant = _make_constant(value)
            return lambda rows: constant
        case Field():
            return _compile_field(operand)
        case Now():
            return lambda rows: OperandValues(ints=Vector(np.array(rows.now_us, np.int64), None))
        case Negate(value=value):
            inner = compile_operand(value)
            return lambda rows: _negate(inner(rows))
        case Arith(op=op, left=left, right=right):
            a, b = compile_operand(left), compile_operand(right)
            return lambda rows: _compute(op, a(rows), b(rows))
        case _:
            assert_never(operand)


def _make_constant(value: str | int | float | bool) -> OperandValues:
    # A text or boolean that is compared with a column is a test of that column, see `mask`. Here it can only be
    # compared with numbers, and that is UNKNOWN.
    if isinstance(value, str | bool):
        return NOTHING
    if isinstance(value, int):
        return OperandValues(ints=Vector(np.array(value, np.int64), None))
    return OperandValues(floats=Vector(np.array(value, np.float64), None))


def _compile_field(field: Field) -> Evaluate:
    text, bools = text_view(field), vector_view(field, "bool")
    ints, floats = vector_view(field, "int"), vector_view(field, "float")
    return lambda rows: OperandValues(
        rows.read(text), rows.read(ints), rows.read(floats), rows.read(bools)
    )


def _negate(values: OperandValues) -> OperandValues:
    ints, floats = values.ints, values.floats
    return OperandValues(
        ints=None if ints is None else negative(ints),
        floats=None if floats is None else negative(floats),
    )


def _compute(op: ArithOp, left: OperandValues, right: OperandValues) -> OperandValues:
    ints = None
    floats: list[Vector] = []
    for a in (left.ints, left.floats):
        for b in (right.ints, right.floats):
            if a is None or b is None:
                continue
            if op != "/" and a is left.ints and b is right.ints:
                ints = int_arithmetic(op, a, b)
            else:
                floats.append(float_arithmetic(op, a, b))
    return OperandValues(ints=ints, floats=_merge(floats))


def _merge(vectors: list[Vector]) -> Vector | None:
    """Merge columns that never hold a value in the same row."""
    if len(vectors) < 2:
        return vectors[0] if vectors else None
    first, *others = vectors
    values, valid = first
    for other in others:
        values = np.where(other.valid, other.values, values)  # type: ignore[arg-type]
        valid = valid | other.valid  # type: ignore[operator]
    return Vector(values, valid)


# ---- comparing ---------------------------------------------------------------------------------------


def compare_values(op: CompareOp, left: OperandValues, right: OperandValues, count: int) -> Bools:
    """Return the rows where the comparison is TRUE, in a fresh array."""
    found = np.zeros(count, np.bool_)
    if left.text is not None and right.text is not None:
        found |= _compare_texts(op, left.text, right.text)
    for a in (left.ints, left.floats):
        for b in (right.ints, right.floats):
            if a is not None and b is not None:
                found |= _compare_numbers(op, a, b)
    if left.bools is not None and right.bools is not None and op in ("=", "<>"):
        found |= _compare_vectors(op, left.bools, right.bools)
    return found


def _compare_numbers(op: CompareOp, left: Vector, right: Vector) -> Bools:
    if left.values.dtype.kind == "f" or right.values.dtype.kind == "f":
        return _compare_vectors(op, as_doubles(left), as_doubles(right))
    return _compare_vectors(op, as_longs(left), as_longs(right))


def _compare_vectors(op: CompareOp, left: Vector, right: Vector) -> Bools:
    found: Bools = np.asarray(UFUNC[op](left.values, right.values))
    valid = join_valid(left.valid, right.valid)
    return found if valid is None else found & valid


def _compare_texts(op: CompareOp, left: Codes | Strings, right: Codes | Strings) -> Bools:
    if isinstance(left, Codes) and isinstance(right, Codes):
        sizes = len(left.dictionary) + len(right.dictionary)
        if sizes <= len(left.codes):
            return _compare_codes(op, left, right)
    return compare_texts(op, left.decode(), right.decode())


def _compare_codes(op: CompareOp, left: Codes, right: Codes) -> Bools:
    """Rank the words of both dictionaries in one order: the ranks compare as their strings do."""
    dictionaries = [left.dictionary, right.dictionary]
    if left.dictionary.type != right.dictionary.type:
        dictionaries = [dictionary.cast(pa.large_string()) for dictionary in dictionaries]
    ranks = _ranks(op, pa.concat_arrays(dictionaries))
    a = ranks[: len(left.dictionary)].take(left.codes, mode="clip")
    b = ranks[len(left.dictionary) :].take(right.codes, mode="clip")
    return where_valid(UFUNC[op](a, b), join_valid(left.valid, right.valid))


def _ranks(op: CompareOp, strings: pa.Array) -> Array:
    distinct = strings.dictionary_encode()
    codes: Array = distinct.indices.fill_null(0).to_numpy()
    if op in ("=", "<>"):
        return codes
    order = pc.sort_indices(distinct.dictionary).to_numpy()
    ranks = np.empty(len(order), np.int32)
    ranks[order] = np.arange(len(order), dtype=np.int32)
    return ranks[codes]


def as_doubles(vector: Vector) -> Vector:
    """Convert the values to double."""
    return Vector(vector.values.astype(np.float64, copy=False), vector.valid)


def as_longs(vector: Vector) -> Vector:
    """Convert the values to int64."""
    return Vector(vector.values.astype(np.int64, copy=False), vector.valid)


def join_valid(left: Bools | None, right: Bools | None) -> Bools | None:
    """Return where both are valid; None when they are everywhere."""
    if left is None:
        return right
    return left if right is None else left & right


# ---- comparing with constants ------------------------------------------------------------------------


def compare_number(op: CompareOp, constant: int | float) -> Callable[[Vector], Bools]:
    """Make the comparison of a column with a constant: ints exactly, ints with floats as doubles."""
    compare, among_ints, among_doubles = UFUNC[op], _as_int(constant), float(constant)
    int_is_exact = isinstance(among_ints, int)

    def test(vector: Vector) -> Bools:
        values, valid = vector
        if values.dtype.kind == "f":
            return where_valid(compare(values, among_doubles), valid)
        if not int_is_exact:
            values = values.astype(np.float64)
        return where_valid(compare(values, among_ints), valid)

    return test


class NumberList(NamedTuple):
    """The constants of an IN list, as each kind of column compares with them."""

    ints: frozenset[int]
    fractions: frozenset[float]  # compared with an int column as doubles
    doubles: frozenset[float]


def sort_constants(numbers: Iterable[int | float]) -> NumberList:
    """Sort the constants of an IN list by how a column compares with them."""
    constants = [_as_int(n) for n in numbers]  # a list: a set would take 2**63 and 2.0**63 for one
    return NumberList(
        frozenset(c for c in constants if isinstance(c, int)),
        frozenset(c for c in constants if isinstance(c, float)),
        frozenset(map(float, constants)),
    )


def is_one_of(vector: Vector, constants: NumberList) -> Bools:
    """Return where a column of ints or floats equals one of the constants."""
    if vector.values.dtype.kind == "f":
        return where_valid(_equals_any(vector.values, constants.doubles), vector.valid)
    found = _equals_any(vector.values, constants.ints)
    if constants.fractions:
        found |= _equals_any(vector.values.astype(np.float64), constants.fractions)
    return where_valid(found, vector.valid)


def _as_int(constant: int | float) -> int | float:
    """Return a float as an int where every int64 compares with both alike."""
    exact = (
        isinstance(constant, float) and constant.is_integer() and abs(constant) < EXACT_AS_DOUBLE
    )
    return int(constant) if exact else constant


def _equals_any(values: Array, constants: Collection[int | float]) -> Bools:
    if len(constants) > FEW:
        return _look_up(values, constants)
    found = np.zeros(len(values), np.bool_)
    for constant in constants:
        found |= values == constant
    return found


def _look_up(values: Array, constants: Collection[int | float]) -> Bools:
    if values.dtype.kind != "f":
        ints = pa.array(values.astype(np.int64, copy=False))
        return truths(pc.is_in(ints, pa.array(list(constants), pa.int64())))
    zeros = [0.0, -0.0] if 0.0 in constants else []  # one number, two keys of a hash table
    return truths(pc.is_in(pa.array(values), pa.array([*constants, *zeros], pa.float64())))


# ---- arithmetic --------------------------------------------------------------------------------------


def negative(vector: Vector) -> Vector:
    """Compute `-x`."""
    if vector.values.dtype.kind == "f":
        return Vector(-vector.values, vector.valid)
    return int_arithmetic("-", Vector(np.zeros((), np.int64), None), vector)


def float_arithmetic(op: ArithOp, left: Vector, right: Vector) -> Vector:
    """Compute with doubles; no value where the result is not finite."""
    a, b = as_doubles(left).values, as_doubles(right).values
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
    return Vector(result, join_valid(join_valid(left.valid, right.valid), np.isfinite(result)))


def int_arithmetic(op: ArithOp, left: Vector, right: Vector) -> Vector:
    """Compute with int64; no value where the result does not fit. (`/` always computes with doubles.)"""
    a, b = as_longs(left).values, as_longs(right).values
    valid = join_valid(left.valid, right.valid)
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
    return Vector(result, join_valid(valid, ~_find_overflows(op, a, b, result)))


def _remainder(a: Array, b: Array, valid: Bools | None) -> Vector:
    # Dividing the smallest int by -1 traps on some processors; by 1, the remainder is the same.
    divisor = np.where((b == 0) | (b == -1), 1, b)
    return Vector(np.fmod(a, divisor), join_valid(valid, b != 0))


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


def _find_overflows(op: ArithOp, a: Array, b: Array, result: Array) -> Bools:
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
