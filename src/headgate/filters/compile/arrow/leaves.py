"""Leaf -> a test over many rows: which of them is it TRUE for?

A leaf that compares one field with constants becomes a test of that field's columns. Every other shape
(arithmetic, one field against another) is computed for all rows at once, see `operands`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import Final, TypeAlias, assert_never

import numpy as np

from headgate.filters.compile.arrow.dictionaries import strings_pass
from headgate.filters.compile.arrow.numbers import chosen, comparison, is_one_of
from headgate.filters.compile.arrow.operands import Evaluate, compared, evaluator
from headgate.filters.compile.arrow.rows import Bools, Rows, Vector, source, where_valid
from headgate.filters.compile.arrow.text import (
    TextTest,
    compares_to,
    is_like,
    is_listed,
    topic_matches,
)
from headgate.filters.nodes import (
    Compare,
    CompareOp,
    Constant,
    Exists,
    Field,
    In,
    IsNull,
    Leaf,
    Like,
    Literal,
    TopicMatch,
)
from headgate.filters.normal import normalize
from headgate.message import Scalar

Test: TypeAlias = Callable[[Rows], Bools]  # always a fresh array: the caller may write into it

TOPIC: Final = Field("sys", "topic")


def leaf_test(leaf: Leaf) -> Test:
    """The rows for which the leaf is TRUE."""
    match leaf:
        case Constant(value=value):
            return lambda rows: np.full(rows.count, value)
        case Compare():
            return _comparison(leaf)
        case In():
            return _membership(leaf)
        case Like(value=Field() as field, pattern=pattern, escape=escape, negated=negated):
            return _text(field, is_like(pattern, escape, negated))
        case Like():  # arithmetic is never text
            return _never
        case IsNull(field=field, negated=negated):
            return _presence(field, opaque=False, wanted=negated)
        case Exists(field=field, negated=negated):
            return _presence(field, opaque=True, wanted=not negated)
        case TopicMatch(pattern=pattern, negated=negated):
            return _text(TOPIC, topic_matches(pattern, negated))
        case _:
            assert_never(leaf)


def _never(rows: Rows) -> Bools:
    return np.zeros(rows.count, np.bool_)


# ---- comparisons -------------------------------------------------------------------------------------


def _comparison(leaf: Compare) -> Test:
    match leaf:
        case Compare(op=op, left=Field() as field, right=Literal(value=str(text))):
            return _text(field, compares_to(op, text))
        case Compare(op=op, left=Field() as field, right=Literal(value=bool(truth))):
            return _truth(field, truth is (op == "="))
        case Compare(op=op, left=Field() as field, right=Literal(value=number)):
            return _number(field, op, number)  # type: ignore[arg-type]
        case Compare(op=op, left=left, right=right):
            return _operands(op, evaluator(left), evaluator(right))


def _operands(op: CompareOp, left: Evaluate, right: Evaluate) -> Test:
    def ask(rows: Rows) -> Bools:
        with np.errstate(all="ignore"):  # what lies where there is no value may overflow, unseen
            return compared(op, left(rows), right(rows), rows.count)

    return ask


def _text(field: Field, test: TextTest) -> Test:
    strings = source(field, "string")

    def ask(rows: Rows) -> Bools:
        text = rows.text(strings)
        return _never(rows) if text is None else strings_pass(test, text)

    return ask


def _truth(field: Field, wanted: bool) -> Test:
    bools = source(field, "bool")

    def ask(rows: Rows) -> Bools:
        vector = rows.vector(bools)
        if vector is None:
            return _never(rows)
        return where_valid(vector.values == wanted, vector.valid)

    return ask


def _number(field: Field, op: CompareOp, wanted: int | float) -> Test:
    return _numeric(field, comparison(op, wanted))


def _numeric(field: Field, ask: Callable[[Vector], Bools]) -> Test:
    """A test of the field's ints and of its floats; no row has both."""
    ints, floats = source(field, "int"), source(field, "float")

    def ask_both(rows: Rows) -> Bools:
        whole = rows.vector(ints)
        if whole is not None and whole.valid is None:
            return ask(whole)
        fractions = rows.vector(floats)
        found = _never(rows) if whole is None else ask(whole)
        if fractions is not None:
            found |= ask(fractions)
        return found

    return ask_both


# ---- IN ----------------------------------------------------------------------------------------------


def _membership(leaf: In) -> Test:
    constants = [item.value for item in leaf.items if isinstance(item, Literal)]
    if not isinstance(leaf.value, Field) or len(constants) < len(leaf.items):
        return _item_by_item(leaf)
    tests = list(_tests_by_kind(leaf.value, constants, leaf.negated))
    if len(tests) == 1:
        return tests[0]
    return _never if leaf.negated else _any(tests)


def _tests_by_kind(field: Field, constants: list[Scalar], negated: bool) -> Iterator[Test]:
    texts = frozenset(c for c in constants if isinstance(c, str))
    if texts:
        yield _text(field, is_listed(texts, negated))
    numbers = [c for c in constants if not isinstance(c, str | bool)]
    if numbers:
        yield _numeric(field, _one_of(numbers, negated))
    truths = {c for c in constants if isinstance(c, bool)}
    if truths:
        yield _truths(field, truths, negated)


def _one_of(numbers: list[int | float], negated: bool) -> Callable[[Vector], Bools]:
    wanted = chosen(numbers)
    if not negated:
        return lambda vector: is_one_of(vector, wanted)
    return lambda vector: where_valid(~is_one_of(vector, wanted), vector.valid)


def _truths(field: Field, listed: set[bool], negated: bool) -> Test:
    passing = {True, False} - listed if negated else listed
    return _any([_truth(field, truth) for truth in passing]) if passing else _never


def _item_by_item(leaf: In) -> Test:
    """`x IN (a, b)` as `x = a OR x = b`, `x NOT IN (a, b)` as `x <> a AND x <> b`."""
    op: CompareOp = "<>" if leaf.negated else "="
    terms = (normalize(Compare(op, leaf.value, item)).tree for item in leaf.items)
    tests = [leaf_test(term) for term in terms]  # type: ignore[arg-type]
    return _all(tests) if leaf.negated else _any(tests)


def _any(tests: list[Test]) -> Test:
    return lambda rows: reduce(np.logical_or, (test(rows) for test in tests))


def _all(tests: list[Test]) -> Test:
    return lambda rows: reduce(np.logical_and, (test(rows) for test in tests))


# ---- presence ----------------------------------------------------------------------------------------


def _presence(field: Field, *, opaque: bool, wanted: bool) -> Test:
    text, hidden = source(field, "string"), source(field, "opaque")
    views = [source(field, view) for view in ("int", "float", "bool")]

    def ask(rows: Rows) -> Bools:
        found = _never(rows)
        for column in (rows.text(text), *map(rows.vector, views)):
            if column is not None:
                found |= True if column.valid is None else column.valid
        if opaque and (column := rows.vector(hidden)) is not None:
            found |= where_valid(column.values.copy(), column.valid)
        return found if wanted else ~found

    return ask
