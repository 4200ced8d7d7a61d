"""The branches of an access tree: where conjunctions hang, how a leaf is split, how they are taken off again.

A pair is a small integer here. Tuples of integers and text are no concern of the garbage collector, which
would otherwise visit every one of a million bindings, again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from headgate.filters.groups import Group, Slot, exclude, include, size
from headgate.filters.listings import Check, Conditional, Few, Listing

PairId: TypeAlias = int
Entry: TypeAlias = tuple[PairId, tuple[PairId, ...], Any]  # the next pair to compare, the rest, who

NONE: Final[PairId] = 0  # the pair every message holds
LEAF: Final = 16  # entries compared one by one before a leaf is split: about what a split costs


class Split:
    """What a leaf becomes that grew too large."""

    __slots__ = ("_listed", "branches", "checked", "slot")

    def __init__(self) -> None:
        self.branches: dict[PairId, Node] = {}
        self.slot: Slot = None  # who has no pair left to compare
        self.checked: dict[Check, Slot] = {}  # who has none left but a check
        self._listed: Listing | None = None  # `checked`, until it changes

    @property
    def empty(self) -> bool:
        return not (self.branches or self.checked or self.slot is not None)

    @property
    def waiting(self) -> int:
        """How many wait for a check."""
        return sum(map(size, self.checked.values()))

    def settle(self, member: Any) -> None:
        if type(member) is Conditional:
            self.checked[member.check] = include(self.checked.get(member.check), member.who)
            self._listed = None
        else:
            self.slot = include(self.slot, member)

    def unsettle(self, member: Any) -> bool:
        """Whether it was here."""
        if type(member) is not Conditional:
            self.slot, found = exclude(self.slot, member)
            return found
        slot, found = exclude(self.checked.get(member.check), member.who)
        if slot is not None:
            self.checked[member.check] = slot
        else:
            self.checked.pop(member.check, None)
        self._listed = None
        return found

    def collect(
        self,
        singles: list[Any],
        parts: list[frozenset[Any]],
        checked: list[Listing | Few],
    ) -> None:
        """Add who is here to who was found before."""
        slot = self.slot
        if slot is not None:
            if type(slot) is Group:
                parts.append(slot.members)
            else:
                singles.append(slot)
        if self.checked:
            if self._listed is None:
                self._listed = Listing(tuple(self.checked.items()))
            checked.append(self._listed)


class Node:
    """A leaf, whose entries are compared one by one, until it is split."""

    __slots__ = ("entries", "split")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.split: Split | None = None

    @property
    def empty(self) -> bool:
        return not self.entries and (self.split is None or self.split.empty)


def insert(node: Node, rest: tuple[PairId, ...], member: Any, counts: Sequence[int]) -> None:
    """Hang the member below the node, by the pairs that are left; `counts` says how rare each is."""
    while node.split is not None:
        if not rest:
            node.split.settle(member)
            return
        node, rest = _branch(node.split, rest[0]), rest[1:]
    node.entries.append(_entry(rest, member))
    if len(node.entries) > LEAF:
        _divide(node, counts)


def _entry(rest: tuple[PairId, ...], member: Any) -> Entry:
    return (rest[0], rest[1:], member) if rest else (NONE, (), member)


def _branch(split: Split, pair: PairId) -> Node:
    child = split.branches.get(pair)
    if child is None:
        child = split.branches[pair] = Node()
    return child


def _divide(leaf: Node, counts: Sequence[int]) -> None:
    entries, leaf.entries, leaf.split = leaf.entries, [], Split()
    for pair, rest, member in entries:
        if pair == NONE:
            leaf.split.settle(member)
        else:
            first, *others = sorted((pair, *rest), key=counts.__getitem__)
            _branch(leaf.split, first).entries.append(_entry(tuple(others), member))


def remove_below(node: Node, rest: frozenset[PairId], member: Any) -> bool:
    """Where an entry hangs depends on what was rare when it came: every order of its pairs is tried."""
    if node.split is None:
        return _unhang(node, rest, member)
    if not rest:
        return node.split.unsettle(member)
    for pair in rest:
        child = node.split.branches.get(pair)
        if child is not None and remove_below(child, rest - {pair}, member):
            if child.empty:
                del node.split.branches[pair]
            return True
    return False


def _unhang(leaf: Node, rest: frozenset[PairId], member: Any) -> bool:
    wanted = rest or {NONE}
    for at, (pair, others, who) in enumerate(leaf.entries):
        if pair in wanted and who == member and wanted == {pair, *others}:
            del leaf.entries[at]
            return True
    return False
