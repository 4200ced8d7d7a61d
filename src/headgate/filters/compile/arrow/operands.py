"""Operands of any shape over many rows, and how two of them compare.

A row has at most one value, of one kind. So an operand is up to four columns, one for each kind, and two
operands compare by comparing each pair of columns whose kinds can be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.filters.compile.arrow.numbers import (
    UFUNC,
    both,
    doubles,
    float_arithmetic,
    int_arithmetic,
    longs,
    negative,
)
from headgate.filters.compile.arrow.rows import (
    Array,
    Bools,
    Codes,
    Rows,
    Text,
    Vector,
    source,
    where_valid,
)
from headgate.filters.compile.arrow.text import compared_texts
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


class Values(NamedTuple):
    """An operand's value in every row, by kind; None where no row has one of that kind."""

    text: Codes | Text | None = None
    ints: Vector | None = None
    floats: Vector | None = None
    bools: Vector | None = None


Evaluate: TypeAlias = Callable[[Rows], Values]

NOTHING: Final = Values()


def evaluator(operand: Operand) -> Evaluate:
    """A function from rows to the operand's values there."""
    match operand:
        case Literal(value=value):
            constant = _constant(value)
            return lambda rows: constant
        case Field():
            return _field(operand)
        case Now():
            return lambda rows: Values(ints=Vector(np.array(rows.now_us, np.int64), None))
        case Negate(value=value):
            inner = evaluator(value)
            return lambda rows: _negated(inner(rows))
        case Arith(op=op, left=left, right=right):
            a, b = evaluator(left), evaluator(right)
            return lambda rows: _computed(op, a(rows), b(rows))
        case _:
            assert_never(operand)


def _constant(value: str | int | float | bool) -> Values:
    # A text or truth value that is compared with a column is asked elsewhere, as a test of that column;
    # here it can only meet numbers, and then it compares with nothing.
    if isinstance(value, str | bool):
        return NOTHING
    if isinstance(value, int):
        return Values(ints=Vector(np.array(value, np.int64), None))
    return Values(floats=Vector(np.array(value, np.float64), None))


def _field(field: Field) -> Evaluate:
    text, bools = source(field, "string"), source(field, "bool")
    ints, floats = source(field, "int"), source(field, "float")
    return lambda rows: Values(
        rows.text(text), rows.vector(ints), rows.vector(floats), rows.vector(bools)
    )


def _negated(values: Values) -> Values:
    ints, floats = values.ints, values.floats
    return Values(
        ints=None if ints is None else negative(ints),
        floats=None if floats is None else negative(floats),
    )


def _computed(op: ArithOp, left: Values, right: Values) -> Values:
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
    return Values(ints=ints, floats=_merged(floats))


def _merged(vectors: list[Vector]) -> Vector | None:
    """One column out of several that never hold a value in the same row."""
    if len(vectors) < 2:
        return vectors[0] if vectors else None
    first, *others = vectors
    values, valid = first
    for other in others:
        values = np.where(other.valid, other.values, values)  # type: ignore[arg-type]
        valid = valid | other.valid  # type: ignore[operator]
    return Vector(values, valid)


# ---- comparing ---------------------------------------------------------------------------------------


def compared(op: CompareOp, left: Values, right: Values, count: int) -> Bools:
    """The rows where the comparison is TRUE, in a fresh array."""
    found = np.zeros(count, np.bool_)
    if left.text is not None and right.text is not None:
        found |= _texts_compared(op, left.text, right.text)
    for a in (left.ints, left.floats):
        for b in (right.ints, right.floats):
            if a is not None and b is not None:
                found |= _numbers_compared(op, a, b)
    if left.bools is not None and right.bools is not None and op in ("=", "<>"):
        found |= _vectors_compared(op, left.bools, right.bools)
    return found


def _numbers_compared(op: CompareOp, left: Vector, right: Vector) -> Bools:
    if left.values.dtype.kind == "f" or right.values.dtype.kind == "f":
        return _vectors_compared(op, doubles(left), doubles(right))
    return _vectors_compared(op, longs(left), longs(right))


def _vectors_compared(op: CompareOp, left: Vector, right: Vector) -> Bools:
    found: Bools = np.asarray(UFUNC[op](left.values, right.values))
    valid = both(left.valid, right.valid)
    return found if valid is None else found & valid


def _texts_compared(op: CompareOp, left: Codes | Text, right: Codes | Text) -> Bools:
    if isinstance(left, Codes) and isinstance(right, Codes):
        sizes = len(left.dictionary) + len(right.dictionary)
        if sizes <= len(left.codes):
            return _codes_compared(op, left, right)
    return compared_texts(op, left.decoded(), right.decoded())


def _codes_compared(op: CompareOp, left: Codes, right: Codes) -> Bools:
    """Both dictionaries are ranked in one order; then the ranks compare as their strings do."""
    dictionaries = [left.dictionary, right.dictionary]
    if left.dictionary.type != right.dictionary.type:
        dictionaries = [dictionary.cast(pa.large_string()) for dictionary in dictionaries]
    ranks = _ranks(op, pa.concat_arrays(dictionaries))
    a = ranks[: len(left.dictionary)].take(left.codes, mode="clip")
    b = ranks[len(left.dictionary) :].take(right.codes, mode="clip")
    return where_valid(UFUNC[op](a, b), both(left.valid, right.valid))


def _ranks(op: CompareOp, strings: pa.Array) -> Array:
    distinct = strings.dictionary_encode()
    codes: Array = distinct.indices.fill_null(0).to_numpy()
    if op in ("=", "<>"):
        return codes
    order = pc.sort_indices(distinct.dictionary).to_numpy()
    ranks = np.empty(len(order), np.int32)
    ranks[order] = np.arange(len(order), dtype=np.int32)
    return ranks[codes]
