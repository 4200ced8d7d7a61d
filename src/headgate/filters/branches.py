"""The branches of an access tree: where conjunctions hang, and how they are taken off again.

A pair is a small integer here. Tuples of integers and text are no concern of the garbage collector, which
would otherwise visit every one of a million bindings, again and again.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any, Final, NamedTuple, TypeAlias

from headgate.filters.groups import Group, Slot, exclude, gathered, include, size
from headgate.filters.listings import Check, Entry, Few, Listing, PairId, listed

NONE: Final[PairId] = 0  # the pair every message holds
# What leads nowhere; never added to.
NO_NEXTS: Final[set[PairId]] = set()
NOTHING: Final[dict[PairId, Any]] = {}


class Node:
    """Who asks for no more than the pairs that lead here, and the pairs that lead on.

    `nexts` are the keys of `after` once more: a set keeps the hashes of what it holds beside each other, so
    the pairs a message shares with it are found without touching anything else. For the same reason a node that
    leads nowhere has the empty set of all such nodes, and keeps the members of its slot at hand.
    """

    __slots__ = ("_listed", "after", "checked", "members", "nexts", "slot")

    def __init__(self) -> None:
        self.nexts: set[PairId] = NO_NEXTS
        self.after: dict[PairId, Any] = NOTHING  # a Node, or an Entry as long as it is alone
        self.slot: Slot = None
        self.members: frozenset[Any] | None = None  # of a Group, once they were asked for
        self.checked: dict[Check, Slot] | None = None  # who has nothing left but a check
        self._listed: Any = None  # `checked`, until it changes

    @property
    def settled(self) -> bool:
        """Whether there is anyone who asks for no more."""
        return self.slot is not None or self.checked is not None

    @property
    def waiting(self) -> int:
        """How many wait for a check."""
        return sum(map(size, self.checked.values())) if self.checked else 0

    def settle(self, member: Any, check: Check) -> None:
        if check is None:
            self.slot, self.members = include(self.slot, member), None
            return
        if self.checked is None:
            self.checked = {}
        self.checked[check] = include(self.checked.get(check), member)
        self._listed = None

    def unsettle(self, member: Any, check: Check) -> bool:
        """Whether it was here."""
        if check is None:
            self.slot, found = exclude(self.slot, member)
            self.members = None
            return found
        if self.checked is None or check not in self.checked:
            return False
        slot, found = exclude(self.checked[check], member)
        if slot is not None:
            self.checked[check] = slot
        else:
            del self.checked[check]
            self.checked = self.checked or None
        self._listed = None
        return found

    def drop(self, pair: PairId) -> None:
        """What hung by the pair is gone."""
        self.nexts.remove(pair)
        del self.after[pair]

    def list_checked(self, few: list[Entry], checked: list[Listing | Few]) -> None:
        """Add who waits for a check to who was found before."""
        if self._listed is None and self.checked:
            self._listed = listed(self.checked)
        if type(self._listed) is Listing:
            checked.append(self._listed)
        else:
            few += self._listed

    def conjunctions(self, above: tuple[PairId, ...]) -> Iterator[tuple[tuple[PairId, ...], Place]]:
        """Everything from here on: the pairs that must hold, those above among them, and who is there."""
        if self.settled:
            yield above, self
        for pair, below in self.after.items():
            if isinstance(below, Node):
                yield from below.conjunctions((*above, pair))
            else:
                yield (*above, pair, *below[0]), below


Place: TypeAlias = Node | Entry  # where members are when all their pairs hold


def collected(
    nodes: list[Node], singles: list[Any], few: list[Entry], parts: list[frozenset[Any]]
) -> tuple[Set[Any], tuple[Listing | Few, ...]]:
    """Who is settled at the nodes, and who was found before: for certain, and if a check says so."""
    checked: list[Listing | Few] = []
    for node in nodes:
        members = node.members
        if members is None:
            slot = node.slot
            if type(slot) is Group:
                members = node.members = slot.members
            elif slot is not None:
                singles.append(slot)
        if members is not None:
            parts.append(members)
        if node.checked is not None:
            node.list_checked(few, checked)
    if few:
        checked.append(Few(few))
    return (gathered(singles, parts) if parts else frozenset(singles)), tuple(checked)


def insert(node: Node, rest: tuple[PairId, ...], member: Any, check: Check = None) -> None:
    """Hang the member below the node by the pairs that are left, the rarest first."""
    for at, pair in enumerate(rest, 1):
        after = node.after
        below = after.get(pair)
        if below is None:
            if after is NOTHING:
                node.nexts, node.after = {pair}, {pair: (rest[at:], member, check)}
            else:
                node.nexts.add(pair)
                after[pair] = (rest[at:], member, check)
            return
        if type(below) is tuple:
            alone = below
            below = after[pair] = Node()
            insert(below, *alone)
        node = below
    node.settle(member, check)


class _Step(NamedTuple):
    """A node on the way down, what is left to ask for there, and where it was reached from."""

    node: Node
    rest: frozenset[PairId]
    above: _Step | None = None
    pair: PairId = NONE


def remove_below(node: Node, rest: frozenset[PairId], member: Any, check: Check = None) -> bool:
    """Where an entry hangs depends on what was rare when it came: every order of its pairs is tried."""
    steps = [_Step(node, rest)]
    while steps:
        step = steps.pop()
        if _unhang(step.node, step.rest, member, check):
            _prune(step)
            return True
        for pair in step.rest & step.node.nexts:
            below = step.node.after[pair]
            if isinstance(below, Node):
                steps.append(_Step(below, step.rest - {pair}, step, pair))
    return False


def _unhang(node: Node, rest: frozenset[PairId], member: Any, check: Check) -> bool:
    if not rest:
        return node.unsettle(member, check)
    for pair in rest & node.nexts:
        below = node.after[pair]
        if type(below) is tuple and below[1:] == (member, check) and rest == {pair, *below[0]}:
            node.drop(pair)
            return True
    return False


def _prune(step: _Step) -> None:
    while step.above is not None and not step.node.nexts and not step.node.settled:
        step.above.node.drop(step.pair)
        step = step.above
