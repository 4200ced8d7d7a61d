"""Filter -> a mask over a batch of messages in columns.

Every leaf is answered for all rows at once. Cheap leaves go first; as soon as few rows are undecided, the leaves that
remain are answered for those rows only, and when no row is, they are not answered at all. A leaf that compares one
field with constants becomes a test of that field's columns. Every other shape (arithmetic, one field against another)
is computed for all rows at once, see `operands`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, reduce
from typing import Final, NamedTuple, TypeAlias, assert_never

import numpy as np

from headgate.clock import now_us
from headgate.filters.compile.arrow.operands import (
    Evaluate,
    compare_number,
    compare_values,
    compile_operand,
    is_one_of,
    sort_constants,
)
from headgate.filters.compile.arrow.rows import (
    BatchRows,
    Bools,
    Columns,
    Strings,
    Vector,
    text_view,
    vector_view,
    where_valid,
)
from headgate.filters.compile.arrow.text import (
    TextTest,
    comparison_test,
    like_test,
    list_test,
    match_strings,
    topic_test,
)
from headgate.filters.cost import cheapest_first
from headgate.filters.like import pieces_of
from headgate.filters.nodes import (
    TOPIC,
    And,
    Compare,
    CompareOp,
    Constant,
    Exists,
    Field,
    Filter,
    In,
    IsNull,
    Leaf,
    Like,
    Literal,
    Not,
    Or,
    TopicMatch,
)
from headgate.filters.normal import NormalFilter, normalize
from headgate.message import Scalar

Mask: TypeAlias = Callable[[Columns], Bools]
Test: TypeAlias = Callable[[BatchRows], Bools]  # returns a fresh array, which the caller may change


@lru_cache(maxsize=1024)
def compile_mask(node: Filter | NormalFilter, clock: Callable[[], int] = now_us) -> Mask:
    """Compile a function that returns, for each row of a batch, whether the filter matches it."""
    test = _compile(normalize(node).tree)

    def mask(columns: Columns) -> Bools:
        rows = BatchRows(columns, clock())
        return test(rows) if rows.count else np.zeros(0, np.bool_)

    return mask


def _compile(node: Filter) -> Test:
    match node:
        case And(terms=terms):
            return _compile_joint(cheapest_first(terms), undecided=True)
        case Or(terms=terms):
            return _compile_joint(cheapest_first(terms), undecided=False)
        case Not():
            raise AssertionError("a normal form holds no NOT")
        case _:
            return _compile_leaf(node)


def _compile_joint(terms: list[Filter], *, undecided: bool) -> Test:
    """Join terms: AND leaves a row undecided while it is true, OR while it is false.

    Rows are picked where testing the undecided ones only saves more than picking them costs.
    """
    steps = [(_compile(term), weight_of(term)) for term in terms]

    def test_rows(rows: BatchRows, start: int = 0) -> Bools:
        found, count = steps[start][0](rows), rows.count
        least = PICKING + PICKING_PER_ROW * count
        for at in range(start + 1, len(steps)):
            test, weight = steps[at]
            left = int(np.count_nonzero(found))
            if not undecided:
                left = count - left
            if not left:
                break
            skipped = count - left
            if skipped * weight.most > least and (
                skipped * weight.of(rows) > least + PICKING_PER_ROW_PICKED * left
            ):
                picked = (found if undecided else ~found).nonzero()[0]
                found[picked] = test_rows(rows.select(picked), at)
                break
            if undecided:
                found &= test(rows)
            else:
                found |= test(rows)
        return found

    return test_rows


# ---- leaves ------------------------------------------------------------------------------------------


def _compile_leaf(leaf: Leaf) -> Test:
    """Compile a test that finds the rows for which the leaf is TRUE."""
    match leaf:
        case Constant(value=value):
            return lambda rows: np.full(rows.count, value)
        case Compare():
            return _compile_comparison(leaf)
        case In():
            return _compile_in(leaf)
        case Like(value=Field() as field, pattern=pattern, escape=escape, negated=negated):
            return _compile_text_test(field, like_test(pattern, escape, negated))
        case Like():  # arithmetic is never text
            return _never
        case IsNull(field=field, negated=negated):
            return _compile_presence(field, opaque=False, present=negated)
        case Exists(field=field, negated=negated):
            return _compile_presence(field, opaque=True, present=not negated)
        case TopicMatch(pattern=pattern, negated=negated):
            return _compile_text_test(TOPIC, topic_test(pattern, negated))
        case _:
            assert_never(leaf)


def _never(rows: BatchRows) -> Bools:
    return np.zeros(rows.count, np.bool_)


# ---- comparisons -------------------------------------------------------------------------------------


def _compile_comparison(leaf: Compare) -> Test:
    match leaf:
        case Compare(op=op, left=Field() as field, right=Literal(value=str(text))):
            return _compile_text_test(field, comparison_test(op, text))
        case Compare(op=op, left=Field() as field, right=Literal(value=bool(truth))):
            return _compile_bool_test(field, truth is (op == "="))
        case Compare(op=op, left=Field() as field, right=Literal(value=number)):
            return _compile_numeric_test(field, compare_number(op, number))  # type: ignore[arg-type]
        case Compare(op=op, left=left, right=right):
            return _compile_operands(op, compile_operand(left), compile_operand(right))


def _compile_operands(op: CompareOp, left: Evaluate, right: Evaluate) -> Test:
    def test(rows: BatchRows) -> Bools:
        with np.errstate(all="ignore"):  # rows without a value hold anything, which may overflow
            return compare_values(op, left(rows), right(rows), rows.count)

    return test


def _compile_text_test(field: Field, text_test: TextTest) -> Test:
    strings = text_view(field)

    def test(rows: BatchRows) -> Bools:
        text = rows.read(strings)
        return _never(rows) if text is None else match_strings(text_test, text)

    return test


def _compile_bool_test(field: Field, value: bool) -> Test:
    bools = vector_view(field, "bool")

    def test(rows: BatchRows) -> Bools:
        vector = rows.read(bools)
        if vector is None:
            return _never(rows)
        return where_valid(vector.values == value, vector.valid)

    return test


def _compile_numeric_test(field: Field, compare: Callable[[Vector], Bools]) -> Test:
    """Test the field's ints and its floats; no row has both."""
    ints, floats = vector_view(field, "int"), vector_view(field, "float")

    def test(rows: BatchRows) -> Bools:
        whole = rows.read(ints)
        if whole is not None and whole.valid is None:
            return compare(whole)
        fractions = rows.read(floats)
        found = _never(rows) if whole is None else compare(whole)
        if fractions is not None:
            found |= compare(fractions)
        return found

    return test


# ---- IN ----------------------------------------------------------------------------------------------


def _compile_in(leaf: In) -> Test:
    constants = [item.value for item in leaf.items if isinstance(item, Literal)]
    if not isinstance(leaf.value, Field) or len(constants) < len(leaf.items):
        return _compile_items(leaf)
    tests = list(_tests_by_kind(leaf.value, constants, leaf.negated))
    if len(tests) == 1:
        return tests[0]
    return _never if leaf.negated else _any(tests)


def _tests_by_kind(field: Field, constants: list[Scalar], negated: bool) -> Iterator[Test]:
    texts = frozenset(c for c in constants if isinstance(c, str))
    if texts:
        yield _compile_text_test(field, list_test(texts, negated))
    numbers = [c for c in constants if not isinstance(c, str | bool)]
    if numbers:
        yield _compile_numeric_test(field, _make_list_test(numbers, negated))
    truths = {c for c in constants if isinstance(c, bool)}
    if truths:
        yield _compile_bools_test(field, truths, negated)


def _make_list_test(numbers: list[int | float], negated: bool) -> Callable[[Vector], Bools]:
    constants = sort_constants(numbers)
    if not negated:
        return lambda vector: is_one_of(vector, constants)
    return lambda vector: where_valid(~is_one_of(vector, constants), vector.valid)


def _compile_bools_test(field: Field, listed: set[bool], negated: bool) -> Test:
    passing = {True, False} - listed if negated else listed
    return _any([_compile_bool_test(field, truth) for truth in passing]) if passing else _never


def _compile_items(leaf: In) -> Test:
    """Compile `x IN (a, b)` as `x = a OR x = b`, `x NOT IN (a, b)` as `x <> a AND x <> b`."""
    op: CompareOp = "<>" if leaf.negated else "="
    terms = (normalize(Compare(op, leaf.value, item)).tree for item in leaf.items)
    tests = [_compile_leaf(term) for term in terms]  # type: ignore[arg-type]
    return _all(tests) if leaf.negated else _any(tests)


def _any(tests: list[Test]) -> Test:
    return lambda rows: reduce(np.logical_or, (test(rows) for test in tests))


def _all(tests: list[Test]) -> Test:
    return lambda rows: reduce(np.logical_and, (test(rows) for test in tests))


# ---- presence ----------------------------------------------------------------------------------------


def _compile_presence(field: Field, *, opaque: bool, present: bool) -> Test:
    """Test whether the field has a value; `opaque` ones count as one for EXISTS, not for IS NULL."""
    strings, opaques = text_view(field), vector_view(field, "opaque")
    views = [vector_view(field, view) for view in ("int", "float", "bool")]

    def test(rows: BatchRows) -> Bools:
        found = _never(rows)
        for column in (rows.read(strings), *map(rows.read, views)):
            if column is not None:
                found |= True if column.valid is None else column.valid
        if opaque and (column := rows.read(opaques)) is not None:
            found |= where_valid(column.values.copy(), column.valid)
        return found if present else ~found

    return test


# ---- weights -----------------------------------------------------------------------------------------

# What a term costs per row of a batch, in nanoseconds. The order of the terms is fixed beforehand (`filters.cost`), but
# only the batch knows whether strings are codes, which are cheap to test everywhere, or text, which is not.


class Weight(NamedTuple):
    """The cost of a term per row: an upper bound that holds for every batch, and the cost for one batch."""

    most: float
    of: Callable[[BatchRows], float]


PLAIN: Final = 0.2  # a comparison of numbers
CODES: Final = 0.5  # a comparison of dictionary codes
COMPUTED: Final = 4.0  # arithmetic, or one field against another
TEXT: Final = 6.0  # a kernel that reads every string
SEARCHED: Final = 100.0  # a regular expression
# Finding the undecided rows, copying their values, and putting the answers back.
PICKING: Final = 15_000.0
PICKING_PER_ROW: Final = 0.5
PICKING_PER_ROW_PICKED: Final = 2.0


def weight_of(node: Filter) -> Weight:
    """Estimate the cost of a term."""
    match node:
        case And(terms=terms) | Or(terms=terms):
            weights = [weight_of(term) for term in terms]
            most = sum(weight.most for weight in weights)
            return Weight(most, lambda rows: sum(weight.of(rows) for weight in weights))
        case Compare(left=Field() as field, right=Literal(value=str())):
            return _text_weight(field, TEXT)
        case In(value=Field() as field, items=items) if _all_text(items):
            return _text_weight(field, TEXT)
        case Like(value=Field() as field, pattern=pattern, escape=escape):
            return _text_weight(field, SEARCHED if _is_searched(pattern, escape) else TEXT)
        case TopicMatch():
            return _text_weight(TOPIC, SEARCHED)
        case Compare(right=right) if not isinstance(right, Literal):
            return _constant_weight(COMPUTED)
        case Compare(left=left) | In(value=left) if not isinstance(left, Field):
            return _constant_weight(COMPUTED)
        case In(items=items):
            return _constant_weight(PLAIN * len(items))
        case _:
            return _constant_weight(PLAIN)


def _constant_weight(cost: float) -> Weight:
    return Weight(cost, lambda rows: cost)


def _text_weight(field: Field, as_text: float) -> Weight:
    strings = text_view(field)

    def cost(rows: BatchRows) -> float:
        text = rows.read(strings)
        return as_text if isinstance(text, Strings) else CODES

    return Weight(as_text, cost)


def _all_text(items: tuple[object, ...]) -> bool:
    return all(isinstance(item, Literal) and isinstance(item.value, str) for item in items)


def _is_searched(pattern: str, escape: str | None) -> bool:
    pieces = pieces_of(pattern, escape)
    return len(pieces) > 2 or any(part is None for piece in pieces for part in piece)
