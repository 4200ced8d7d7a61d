"""Sorted bounds answer what each comparison answers alone."""

from __future__ import annotations

from random import Random

import pytest

from headgate.filters.logic import matches_filter
from headgate.filters.nodes import Compare, Field, Filter, Literal
from headgate.filters.parser import parse
from headgate.matching.matcher import Matcher
from headgate.matching.residuals import Check, Residuals, bound_of
from headgate.message import OPAQUE, Message

BOUNDS = [-1, 0, 1, 2, 0.5, 1.0, -0.0, 2**53 - 1, 2**53, 2**60, 1e300, -1e300]
VALUES = [*BOUNDS, 2**53 + 1, 3, True, False, "1", OPAQUE, None, float("nan")]


def price(op: str, bound: object) -> Filter:
    return Compare(op, Field("header", "price"), Literal(bound))


def passing(residuals: Residuals, message: Message) -> list:
    singles, parts = [], []
    residuals.collect_passing(message, singles, parts)
    return sorted([*singles, *(member for part in parts for member in part)])


def residuals_of(trees: list[Filter], at_once: bool = True) -> Residuals:
    residuals = Residuals()
    waiting = [(Check(tree), at) for at, tree in enumerate(trees)]
    for some in [waiting] if at_once else [[one] for one in waiting]:
        residuals.add(some)
    return residuals


@pytest.mark.parametrize("at_once", [True, False])
def test_every_value_passes_the_bounds_it_passes_one_by_one(at_once):
    trees = [price(op, bound) for op in (">", ">=", "<", "<=", "=", "<>") for bound in BOUNDS]
    residuals = residuals_of(trees, at_once)
    for value in VALUES:
        message = Message(headers={"price": value})
        wanted = [at for at, tree in enumerate(trees) if matches_filter(tree, message)]
        assert passing(residuals, message) == wanted


@pytest.mark.parametrize("op", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("scope", ["header", "property"])
def test_a_check_of_one_bound_says_what_the_filter_says(op, scope):
    for bound in BOUNDS:
        tree = Compare(op, Field(scope, "price"), Literal(bound))
        check = Check(tree)
        for value in VALUES:
            given = {} if value is None else {"price": value}
            message = Message(b"", **{"headers" if scope == "header" else "properties": given})
            assert check.test(message) is matches_filter(tree, message, 0), (bound, value)


def test_only_bounds_that_doubles_and_ints_order_alike_are_sorted():
    trees = [price(">", bound) for bound in BOUNDS] + [
        parse("price > 'a'"),
        parse("a > 1 AND b > 1"),
    ]
    residuals = residuals_of(trees * 20)
    (ladder,) = residuals._ladders.values()
    assert ladder.bounds == sorted({b for b in BOUNDS if abs(b) < 2**53})
    assert len(residuals._checks) == 20 * len([b for b in BOUNDS if abs(b) >= 2**53]) + 40
    assert len(residuals) == 20 * len(trees)
    assert [bound_of(tree) for tree in trees[-2:]] == [None, None]


def test_groups_of_members_share_a_bound():
    trees = [price(">", n) for n in range(4)] + [parse("price LIKE 'x'")]
    checks = [Check(tree) for tree in trees]
    residuals = Residuals()
    for letter in "ab":
        residuals.add([(check, f"{letter}{at}") for at, check in enumerate(checks)])
    assert passing(residuals, Message(headers={"price": 2})) == ["a0", "a1", "b0", "b1"]
    assert passing(residuals, Message(headers={"price": "x"})) == ["a4", "b4"]
    assert residuals.remove(checks[0], "a0")
    assert not residuals.remove(checks[0], "a0")
    assert passing(residuals, Message(headers={"price": 2})) == ["a1", "b0", "b1"]


def test_nothing_is_left_when_all_checks_are_removed():
    trees = [price(op, bound) for op in (">", "<=", "=") for bound in BOUNDS]
    residuals = Residuals()
    waiting = [(Check(tree), at) for at, tree in enumerate(trees)]
    residuals.add(waiting)
    for check, member in waiting:
        assert residuals
        assert residuals.remove(check, member)
    assert not residuals
    assert passing(residuals, Message(headers={"price": 1})) == []


def test_alerts_match_while_others_are_added_and_removed(seed):
    rng = Random(seed)
    matcher: Matcher[int] = Matcher()
    present: list[tuple[int, Filter]] = []
    for _ in range(600):
        if present and rng.random() < 0.45:
            handle, tree = present.pop(rng.randrange(len(present)))
            assert matcher.remove(handle, tree)
        else:
            text = f"symbol = '{rng.choice('AB')}' AND price {rng.choice(('<', '>='))} {rng.randrange(20)}"
            present.append((rng.randrange(50), parse(text)))
            matcher.add(*present[-1])
        message = Message(headers={"symbol": rng.choice("AB"), "price": rng.randrange(-1, 21)})
        assert matcher.match(message) == {h for h, tree in present if matches_filter(tree, message)}


def test_checks_that_are_asked_together_are_compiled_when_they_are_added():
    checks = [Check(parse(f"NOT EXISTS(h{n})")) for n in range(20)]
    Residuals().add((check, n) for n, check in enumerate(checks))
    assert "_compile_and_test" not in {check.test.__name__ for check in checks}
