"""An index that was laid flat says what it said before."""

from __future__ import annotations

from itertools import chain
from random import Random
from typing import NamedTuple

import pytest

from headgate.filters import access, memory, planes
from headgate.filters.access import AccessTree
from headgate.filters.logic import matches_filter
from headgate.filters.matcher import Matcher
from headgate.filters.nodes import depends_on_time
from headgate.filters.pairs import PRESENT
from headgate.message import OPAQUE
from tests import generate


class Asked(NamedTuple):
    headers: dict


def tree_of(*entries) -> AccessTree:
    tree = AccessTree(lambda members, checked: set(members), lambda value: OPAQUE, (str, int))
    for member, wanted in entries:
        tree.add([*chain.from_iterable(wanted.items())], member)
    return tree


@pytest.fixture
def at_once(monkeypatch):
    """Laid flat by the first message, and resting after the second."""
    monkeypatch.setattr(access, "PATIENCE", 0)
    monkeypatch.setattr(memory, "FIRST", 1)


def test_random_filters_answer_as_they_do_alone(seed, at_once):
    rng = Random(seed)
    matcher: Matcher[int] = Matcher()
    present = []
    for _ in range(20):
        for _ in range(25):
            tree = generate.filter(rng)
            if not depends_on_time(tree):
                present.append((rng.randrange(60), tree))
                matcher.add(*present[-1])
        for _ in range(9):
            assert matcher.remove(*present.pop(rng.randrange(len(present))))
        for message in generate.messages(rng, 20):
            assert matcher.match(message) == {h for h, t in present if matches_filter(t, message)}
        assert matcher.tree._plane is not None


def test_random_pairs_are_found_as_in_the_tree(seed, at_once):
    rng = Random(seed)
    values = ["a", "b", "c", 1, 2, PRESENT]
    entries = [
        (n, {f"h{at}": rng.choice(values) for at in rng.sample(range(5), rng.randrange(5))})
        for n in range(200)
    ]
    flat, tree = tree_of(*entries), tree_of(*entries)
    tree._laid = True  # considered, and walked for ever
    for _ in range(500):
        held = {f"h{at}": rng.choice(["a", "b", "z", 1, 2.5, None, True, []]) for at in range(5)}
        wanted = {
            member
            for member, pairs in entries
            if all(_holds(held.get(name), key) for name, key in pairs.items())
        }
        assert flat.match(Asked(held)) == tree.match(Asked(held)) == wanted
    assert flat._plane is not None
    assert tree._plane is None


def _holds(value, key) -> bool:
    if key is PRESENT:
        return value is not None
    return type(value) is type(key) and value == key


def test_two_values_of_one_column_are_never_held(at_once):
    tree = tree_of(("q1", {"h": "a"}))
    tree.add(["h", "a", "h", "b"], "q2")
    tree.add(["h", "a", "h", PRESENT], "q3")
    tree.add(["h", PRESENT, "h", "b", "h", "b"], "q4")
    assert tree.match(Asked({"h": "a"})) == {"q1", "q3"}
    assert tree.match(Asked({"h": "b"})) == {"q4"}
    assert tree.match(Asked({"h": "c"})) == set()
    assert tree._plane is not None


def test_who_is_found_together_is_remembered(at_once):
    tree = tree_of(
        ("q1", {"region": "EU"}), ("q2", {"region": "EU", "type": "order"}), ("q3", {"customer": 7})
    )
    for customer in range(10, 15):
        found = tree.match(Asked({"region": "EU", "type": "order", "customer": customer}))
        assert found == {"q1", "q2"}
    assert len(tree._together.known) == 1
    tree.add(["type", "order"], "q4")
    assert tree.match(Asked({"region": "EU", "type": "order"})) == {"q1", "q2", "q4"}


def test_many_under_the_same_pairs_are_shared_not_copied(at_once):
    tree = AccessTree(lambda members, checked: members, lambda value: OPAQUE, (str,))
    for n in range(1_000):
        tree.add(["region", "EU", "type", "order"], n)
    first = tree.match(Asked({"region": "EU", "type": "order"}))
    assert len(first) == 1_000
    assert tree.match(Asked({"region": "EU", "type": "order", "other": "x"})) is first


def test_a_tree_is_laid_flat_after_as_many_messages_as_it_has_conjunctions():
    tree = tree_of(*((n, {"h": f"v{n}"}) for n in range(10)))
    for n in range(10):
        tree.match(Asked({"h": f"v{n}"}))
        assert tree._plane is None
    assert tree.match(Asked({"h": "something else"})) == set()
    assert tree._plane is not None


def test_a_tree_that_changes_all_the_time_never_is():
    tree = tree_of(*((n, {"h": f"v{n}"}) for n in range(10)))
    for n in range(100):
        tree.match(Asked({"h": f"v{n}"}))
        if n % 8 == 0:
            assert tree.remove(["h", "v3"], 3)
            tree.add(["h", "v3"], 3)
        assert tree._plane is None


def test_where_nobody_asks_for_anything_there_is_nothing_to_lay_flat(at_once):
    tree = tree_of(("q1", {}), ("q2", {}))
    assert [tree.match(Asked({"h": n})) for n in range(3)] == [{"q1", "q2"}] * 3
    tree.add(["h", 1], "q3")
    assert tree.match(Asked({"h": 1})) == {"q1", "q2", "q3"}
    assert tree.match(Asked({"h": 2})) == {"q1", "q2"}


def test_what_would_be_too_large_stays_a_tree(monkeypatch, at_once):
    monkeypatch.setattr(planes, "MOST_BYTES", 10)
    tree = tree_of(*((n, {"h": f"v{n}"}) for n in range(10)))
    assert [tree.match(Asked({"h": f"v{n}"})) for n in range(10)] == [{n} for n in range(10)]
    assert tree._plane is None
