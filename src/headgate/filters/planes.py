"""A small index laid flat: each conjunction is a bit, and a message is answered by an AND of integers.

                      q4 q3 q2 q1
    region = 'EU'      1  0  1  1     set where this value is what is asked for,
    type = 'created'   1  1  0  1     or the column is not asked for at all
                       ──────────
                       1  0  0  1     q1 and q4

Half the steps of walking the tree, as long as the integers are short. Nothing can be added to a plane or taken
away: it is made from a tree that has not changed for a while, and thrown away when the tree does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Set
from typing import Any, Final

from headgate.filters.branches import Node, Place, collected
from headgate.filters.groups import NOBODY, SMALL, Group, size
from headgate.filters.listings import Few, Listing, PairId
from headgate.filters.pairs import PRESENT, Pairs
from headgate.filters.readers import compile_bits

MOST: Final = 1 << 14  # conjunctions; with more the tree is faster
MOST_BYTES: Final = 16 << 20  # of all integers together


class Plane:
    """What the tree would find, found by bits."""

    __slots__ = ("_members", "_places", "bits")

    def __init__(
        self, pairs: Pairs, plain: frozenset[type], key: Callable[[Any], Hashable]
    ) -> None:
        # The columns of many values come first, and who asks for them gets the highest bits: most messages
        # hold no value that is asked for there, and an AND is as short as the shorter of the two.
        columns = sorted(pairs.columns, key=lambda column: -len(pairs.columns[column]))
        weights = {column: 1 << at for at, column in enumerate(reversed(columns))}
        found = [
            (by_column, place)
            for wanted, place in pairs.conjunctions()
            if (by_column := pairs.by_column(wanted)) is not None
        ]
        found.sort(key=lambda conjunction: sum(map(weights.__getitem__, conjunction[0])))
        self._places = [place for _, place in found]
        self._members = list(map(_members, self._places))
        asking = _asking(by_column.values() for by_column, _ in found)
        tables, others = [], []
        for column in columns:
            table, other = _table(pairs.columns[column], asking, (1 << len(found)) - 1)
            tables.append(table)
            others.append(other)
        keyed = [pairs.compared_by_key(column) for column in columns]
        # Which conjunctions the headers satisfy.
        self.bits: Callable[[Mapping[Any, Any]], int] = compile_bits(
            columns, tables, others, keyed, plain, key
        )

    @staticmethod
    def fits(pairs: Pairs, conjunctions: int) -> bool:
        """Whether there is something to lay flat, and it would be small enough to be worth it."""
        return 0 < len(pairs) * conjunctions <= 8 * MOST_BYTES and conjunctions <= MOST

    def found(self, bits: int) -> tuple[Set[Any], tuple[Listing | Few, ...]]:
        """Who these conjunctions stand for: for certain, and if a check says so."""
        parts: list[frozenset[Any]] = []
        others: list[Place] = []
        while bits:
            at = bits.bit_length() - 1
            bits ^= 1 << at
            members = self._members[at]
            if members is not None:
                parts.append(members)
            else:
                others.append(self._places[at])
        if others:
            return _joined(parts, others)
        return (parts[0].union(*parts[1:]) if len(parts) > 1 else parts[0] if parts else NOBODY), ()


def _members(place: Place) -> frozenset[Any] | None:
    """Who is there for certain, where that is all there is to say; None where it is not."""
    if not isinstance(place, Node):
        return frozenset((place[1],)) if place[2] is None else None
    if place.checked is not None or size(place.slot) > SMALL:
        return None
    return place.slot.members if type(place.slot) is Group else frozenset((place.slot,))


def _joined(
    parts: list[frozenset[Any]], others: list[Place]
) -> tuple[Set[Any], tuple[Listing | Few, ...]]:
    nodes = [place for place in others if type(place) is Node]
    few = [place for place in others if type(place) is tuple]
    return collected(nodes, [], few, parts)


def _asking(conjunctions: Iterable[Iterable[PairId]]) -> defaultdict[PairId, int]:
    """For each pair the bits of those that ask for it."""
    asking: defaultdict[PairId, int] = defaultdict(int)
    for at, pairs in enumerate(conjunctions):
        bit = 1 << at
        for pair in pairs:
            asking[pair] |= bit
    return asking


def _table(
    keys: Mapping[Hashable, PairId], asking: defaultdict[PairId, int], everyone: int
) -> tuple[dict[Hashable, int], int]:
    """What each value of the column leaves possible, and what any other value does."""
    absent = everyone
    for pair in keys.values():
        absent &= ~asking[pair]
    present = keys.get(PRESENT)
    other = absent if present is None else absent | asking[present]
    table = {key: other | asking[pair] for key, pair in keys.items() if key is not PRESENT}
    if present is not None:
        table[None] = absent
    return table, other
