"""What is hung at once is found, and can be taken away, as if it had come one by one."""

from __future__ import annotations

from itertools import chain
from random import Random
from typing import NamedTuple

import pytest

from headgate.filters import gathering
from headgate.filters.access import AccessTree
from headgate.filters.branches import NO_NEXTS, NOTHING
from headgate.filters.pairs import PRESENT
from headgate.message import OPAQUE

COLUMNS = [f"h{at}" for at in range(6)]
VALUES = ["a", "b", "c", "d", 1, 2, PRESENT]


class Asked(NamedTuple):
    headers: dict


def new_tree() -> AccessTree:
    return AccessTree(lambda members, checked: set(members), lambda value: OPAQUE, (str, int))


def drawn(rng: Random, count: int, first: int = 0) -> list[tuple[list, int]]:
    """Conjunctions, some of them twice, and a member for each."""
    pairs = [
        {name: rng.choice(VALUES) for name in rng.sample(COLUMNS, rng.randrange(6))}
        for _ in range(count)
    ]
    return [
        ([*chain.from_iterable(rng.choice(pairs).items())], n) for n in range(first, first + count)
    ]


def assert_same(rng: Random, gathered: AccessTree, single: AccessTree) -> None:
    for _ in range(200):
        headers = {name: rng.choice(["a", "b", "c", "z", 1, 2, None]) for name in COLUMNS}
        assert gathered.match(Asked(headers)) == single.match(Asked(headers))
    assert gathered._size == single._size
    assert gathered._settled == single._settled
    assert {(p.column, p.key, p.asked) for p in gathered.pairs} == {
        (p.column, p.key, p.asked) for p in single.pairs
    }


@pytest.mark.parametrize("most", [1, 7, 1_000])
def test_random_conjunctions_are_found_as_if_they_had_come_one_by_one(seed, monkeypatch, most):
    monkeypatch.setattr(gathering, "MOST", most)
    monkeypatch.setattr(gathering, "BLOCK", max(1, most // 3))
    rng = Random(seed)
    gathered, single, present = new_tree(), new_tree(), []
    for turn in range(6):
        entries = drawn(rng, 150, first=150 * turn)
        present += entries
        with gathered.gathering():
            for entry in entries:
                gathered.add(*entry)
        for entry in entries:
            single.add(*entry)
        for entry in rng.sample(present, 60):
            present.remove(entry)
            assert gathered.remove(*entry)
            assert single.remove(*entry)
        assert_same(rng, gathered, single)


def test_nothing_is_left_when_everyone_has_gone(seed):
    rng = Random(seed)
    tree, entries = new_tree(), drawn(rng, 500)
    with tree.gathering():
        for entry in entries:
            tree.add(*entry)
    rng.shuffle(entries)
    for entry in entries:
        assert tree.remove(*entry)
    assert len(tree.pairs) == 0
    assert not any(node.nexts or node.settled for node in filter(None, tree.pairs.nodes))
    assert not NO_NEXTS
    assert not NOTHING


def test_each_hangs_under_the_pair_fewest_of_all_ask_for():
    """Which was the one that came first, and then turned out to be the one everybody asks for."""
    entries = [(["common", 1, "rare", n], n) for n in range(50)]
    entries.append((["rare", 0, "other", 1], 50))
    tree = new_tree()
    with tree.gathering():
        for entry in entries:
            tree.add(*entry)
    assert not tree.pairs.after[tree.pairs.columns["common"][1]]
    assert tree.match(Asked({"common": 1, "rare": 0, "other": 1})) == {0, 50}


def test_what_was_gathered_before_an_error_is_kept():
    tree = new_tree()
    with pytest.raises(ZeroDivisionError):
        gather_and_fail(tree)
    assert tree.match(Asked({"a": 1, "b": 2})) == {"q"}


def gather_and_fail(tree: AccessTree) -> None:
    with tree.gathering():
        tree.add(["a", 1, "b", 2], "q")
        raise ZeroDivisionError


def test_an_interruption_hangs_nobody_twice(monkeypatch):
    monkeypatch.setattr(gathering, "MOST", 2)
    hang = iter([fill_and_stop, fill])
    monkeypatch.setattr(gathering, "_fill", lambda *given: next(hang, fill)(*given))
    tree, entries = new_tree(), [(["a", n % 2, "b", n], n) for n in range(4)]
    with pytest.raises(KeyboardInterrupt):
        gather_all(tree, entries)
    for entry in entries:
        tree.remove(*entry)
    assert [tree.match(Asked({"a": n % 2, "b": n})) for n in range(4)] == [set()] * 4


fill = gathering._fill


def fill_and_stop(*given) -> None:
    fill(*given)
    raise KeyboardInterrupt


def gather_all(tree: AccessTree, entries: list) -> None:
    with tree.gathering():
        for entry in entries:
            tree.add(*entry)


def test_nothing_gathered_changes_nothing():
    tree = new_tree()
    tree.add(["a", 1], "q")
    with tree.gathering():
        pass
    assert tree.match(Asked({"a": 1})) == {"q"}
