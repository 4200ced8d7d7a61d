"""Sorted bounds answer what each comparison answers alone."""

from __future__ import annotations

from random import Random

import pytest

from headgate.filters import listings
from headgate.filters.checks import Check
from headgate.filters.groups import Group
from headgate.filters.listings import FEW, PATIENCE, Listing, ladders
from headgate.filters.logic import matches_filter
from headgate.filters.matcher import Matcher
from headgate.filters.nodes import Compare, Field, Filter, Literal
from headgate.filters.parser import parse
from headgate.message import OPAQUE, Message

BOUNDS = [-1, 0, 1, 2, 0.5, 1.0, -0.0, 2**53 - 1, 2**53, 2**60, 1e300, -1e300]
VALUES = [*BOUNDS, 2**53 + 1, 3, True, False, "1", OPAQUE, None, float("nan")]


def price(op: str, bound: object) -> Filter:
    return Compare(op, Field("header", "price"), Literal(bound))


def passing(listing: Listing, message: Message) -> list:
    singles, parts = [], []
    listing.passing(message, singles, parts)
    return sorted([*singles, *(member for part in parts for member in part)])


def listing_of(trees: list[Filter]) -> Listing:
    return Listing(tuple((Check(tree), at) for at, tree in enumerate(trees)))


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(listings, "PATIENCE", 1)
    monkeypatch.setattr(listings, "FEW", 2)


@pytest.mark.usefixtures("impatient")
def test_every_value_passes_the_bounds_it_passes_one_by_one():
    trees = [price(op, bound) for op in (">", ">=", "<", "<=", "=", "<>") for bound in BOUNDS]
    listing = listing_of(trees)
    for value in VALUES:
        message = Message(headers={"price": value})
        wanted = [at for at, tree in enumerate(trees) if matches_filter(tree, message)]
        assert passing(listing, message) == wanted


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
    found, others = ladders(tuple((Check(tree), at) for at, tree in enumerate(trees * 20)))
    (ladder,) = found
    assert ladder.bounds == sorted([b for b in BOUNDS if abs(b) < 2**53] * 20)
    assert len(others) == 20 * len([b for b in BOUNDS if abs(b) >= 2**53]) + 40


def test_bounds_are_sorted_once_a_listing_has_been_used_for_a_while():
    listing = listing_of([price(">", n) for n in range(FEW)])
    for _ in range(PATIENCE):
        assert passing(listing, Message(headers={"price": 2})) == [0, 1]
        assert not listing._ladders
    assert passing(listing, Message(headers={"price": 2})) == [0, 1]
    assert len(listing._ladders) == 1


@pytest.mark.usefixtures("impatient")
def test_groups_wait_on_bounds_too():
    trees = [price(">", n) for n in range(4)] + [parse("price LIKE 'x'")]
    listing = Listing(
        tuple((Check(tree), Group(f"a{at}", f"b{at}")) for at, tree in enumerate(trees))
    )
    for _ in range(3):
        assert passing(listing, Message(headers={"price": 2})) == ["a0", "a1", "b0", "b1"]
        assert passing(listing, Message(headers={"price": "x"})) == ["a4", "b4"]


@pytest.mark.usefixtures("impatient")
def test_alerts_come_and_go(seed):
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
