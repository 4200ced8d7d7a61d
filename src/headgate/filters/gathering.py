"""Many conjunctions hung at once, when all of them are known.

Hung one by one, each meets the tree wherever its rarest pair happens to be, and what is rare is guessed from
those that came before. Gathered first, they are sorted by the pairs they hang under: what is rare is known, a
branch is filled in one go, and its entries lie side by side in memory, where messages will look for them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from headgate.filters.branches import NONE, Node, insert
from headgate.filters.listings import Check, Entry, PairId
from headgate.filters.pairs import Pairs, Wanted

Ints: TypeAlias = npt.NDArray[np.int64]

MOST: Final = 1 << 17  # conjunctions kept before they are hung: some 20 MB
BLOCK: Final = 1 << 12  # conjunctions laid out at a time: what that takes stays in a cache
HIGH: Final = 32  # bits below the first of two numbers that are sorted as one


class Gathered:
    """Conjunctions with a member under each, kept until there are many, then hung."""

    def __init__(self, pairs: Pairs) -> None:
        self.hung = 0
        self.settled: set[PairId] = set()  # the pairs under which someone asks for no other
        self._pairs = pairs
        self._wanted: list[Any] = []  # by one conjunction after the other
        self._lengths: list[int] = []
        self._members: list[Any] = []
        self._checks: dict[int, Check] = {}  # by the place of the member, where there is one

    def add(self, wanted: Wanted, member: Hashable, check: Check) -> None:
        """One more member, under these pairs."""
        self._wanted += wanted
        self._lengths.append(len(wanted))
        self._members.append(member)
        if check is not None:
            self._checks[len(self._members) - 1] = check
        if len(self._members) == MOST:
            self.hang()

    def hang(self) -> None:
        """Put those that are kept into the tree."""
        try:
            if self._members:
                self._hang_all()
            self.hung += len(self._members)
        finally:  # an interruption as well: nobody is hung twice
            self._wanted, self._lengths, self._members, self._checks = [], [], [], {}

    def _hang_all(self) -> None:
        taken = self._pairs.take(self._wanted)
        lengths = np.array(self._lengths, np.int64) >> 1
        starts = np.cumsum(lengths) - lengths
        order = self._rarest_first(taken, lengths)
        for rows in _together(np.array(taken, np.int64)[order], starts, lengths):
            places = order[_ranges(starts[rows], lengths[rows])].tolist()
            self._hang_block([taken[at] for at in places], lengths[rows], rows.tolist())
        for row in np.flatnonzero(lengths < 2).tolist():
            pair = taken[starts[row]] if lengths[row] else NONE
            self.settled.add(pair)
            self._pairs.node(pair).settle(self._members[row], self._checks.get(row))

    def _rarest_first(self, taken: list[PairId], lengths: Ints) -> Ints:
        """The places of all that was taken: those of each conjunction together, its rarest pair first."""
        asked = np.array([self._pairs.counts[pair] for pair in taken], np.int64)
        rows = np.repeat(np.arange(len(lengths)), lengths)
        return np.argsort((rows << HIGH) + asked, kind="stable")

    def _hang_block(self, flat: list[PairId], lengths: Ints, rows: list[int]) -> None:
        """Put these into the tree; they are sorted by their first pair."""
        ends = np.cumsum(lengths)
        starts = (ends - lengths).tolist()
        pairs = tuple(flat)
        rests = [pairs[start + 2 : end] for start, end in zip(starts, ends.tolist(), strict=True)]
        members = [self._members[row] for row in rows]
        entries: list[Entry] = list(zip(rests, members, map(self._checks.get, rows), strict=True))
        firsts = [pairs[start] for start in starts]
        seconds = [pairs[start + 1] for start in starts]
        cuts = np.flatnonzero(np.diff(firsts, prepend=NONE, append=NONE)).tolist()
        for begin, end in pairwise(cuts):
            _fill(self._pairs.node(firsts[begin]), seconds[begin:end], entries[begin:end])


def _together(ids: Ints, starts: Ints, lengths: Ints) -> Iterator[Ints]:
    """The conjunctions of two pairs or more, those that begin with the same ones beside each other, in blocks."""
    rows = np.flatnonzero(lengths > 1)
    first = starts[rows]
    rows = rows[np.argsort((ids[first] << HIGH) + ids[first + 1], kind="stable")]
    for start in range(0, len(rows), BLOCK):
        yield rows[start : start + BLOCK]


def _ranges(starts: Ints, lengths: Ints) -> Ints:
    """start, start + 1, … for each start, as many as its length says."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(int(lengths.sum()))


def _fill(node: Node, seconds: list[PairId], entries: list[Entry]) -> None:
    """Hang the entries below the node, each by its second pair."""
    after, nexts = node.after, node.nexts
    fresh = set(seconds)
    if len(fresh) == len(seconds) and nexts.isdisjoint(fresh):
        nexts |= fresh
        after.update(zip(seconds, entries, strict=True))
        return
    for second, entry in zip(seconds, entries, strict=True):
        if second in nexts:
            insert(node, (second, *entry[0]), entry[1], entry[2])
        else:
            nexts.add(second)
            after[second] = entry
