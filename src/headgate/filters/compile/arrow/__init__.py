"""Filter -> a mask over a batch of messages cut into columns.

Every leaf is answered for all rows at once. Cheap leaves go first; as soon as few rows are undecided, the
leaves that remain look at those rows only, and when none is, they are not asked at all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from headgate.clock import now_us
from headgate.filters.compile.arrow.leaves import Test, leaf_test
from headgate.filters.compile.arrow.numbers import UFUNC as UFUNC
from headgate.filters.compile.arrow.rows import Bools, Columns, Rows
from headgate.filters.compile.arrow.weights import saved_at_least, weight_of, worth_picking
from headgate.filters.cost import cheapest_first
from headgate.filters.nodes import And, Filter, Not, Or
from headgate.filters.normal import NormalFilter, normalize

Mask: TypeAlias = Callable[[Columns], Bools]


@lru_cache(maxsize=1024)
def compile_mask(node: Filter | NormalFilter, clock: Callable[[], int] = now_us) -> Mask:
    """A function that tells, row by row, which messages of a batch the filter matches."""
    test = _test(normalize(node).tree)

    def mask(columns: Columns) -> Bools:
        rows = Rows(columns, clock())
        return test(rows) if rows.count else np.zeros(0, np.bool_)

    return mask


def _test(node: Filter) -> Test:
    match node:
        case And(terms=terms):
            return _joint(cheapest_first(terms), undecided=True)
        case Or(terms=terms):
            return _joint(cheapest_first(terms), undecided=False)
        case Not():
            raise AssertionError("a normal form holds no NOT")
        case _:
            return leaf_test(node)


def _joint(terms: list[Filter], *, undecided: bool) -> Test:
    """AND leaves a row undecided while it is true, OR while it is false."""
    steps = [(_test(term), weight_of(term)) for term in terms]

    def ask(rows: Rows, start: int = 0) -> Bools:
        found, count = steps[start][0](rows), rows.count
        least = saved_at_least(count)
        for at in range(start + 1, len(steps)):
            test, weight = steps[at]
            left = int(np.count_nonzero(found))
            if not undecided:
                left = count - left
            if not left:
                break
            if (count - left) * weight.most > least and worth_picking(rows, left, weight):
                picked = (found if undecided else ~found).nonzero()[0]
                found[picked] = ask(rows.only(picked), at)
                break
            if undecided:
                found &= test(rows)
            else:
                found |= test(rows)
        return found

    return ask
