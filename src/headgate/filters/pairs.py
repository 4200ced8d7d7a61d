"""The values somebody asks for: each (column, key) gets a small integer, for as long as it is asked for."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from headgate.filters.branches import NO_NEXTS, NOTHING, Node, Place
from headgate.filters.listings import PairId

Column: TypeAlias = Hashable  # a header by its name, anything else by something that is no text
Wanted: TypeAlias = Sequence[Any]  # column, key, column, key, …

PRESENT: Final = object()  # the key that stands for "any value at all"


class Pair(NamedTuple):
    """One value of one column, how many ask for it, and how many of them wait for nothing but a check."""

    column: Column
    key: Hashable
    asked: int
    waiting: int


class Pairs:
    """All pairs by column and key, and by their number what hangs under each."""

    def __init__(self) -> None:
        self.columns: dict[Column, dict[Hashable, PairId]] = {}
        self.nodes: list[Node | None] = [None]  # the first is NONE's: who asks for no pair at all
        self.nexts: list[set[PairId]] = [NO_NEXTS]  # of the nodes, but one step nearer
        self.after: list[dict[PairId, Any]] = [NOTHING]
        self.counts: list[int] = [0]
        # Columns, or the kinds of keys in one, are not what a reader was made for.
        self.stale = True
        self._wanted: list[tuple[Column, Hashable]] = [(None, None)]
        self._free: list[PairId] = []
        self._not_text: dict[Column, int] = {}

    def take(self, wanted: Wanted) -> list[PairId]:
        """Their numbers, one more asking for each."""
        columns, counts, taken = self.columns, self.counts, []
        flat = iter(wanted)
        for column, key in zip(flat, flat, strict=True):
            try:
                pair = columns[column][key]
            except KeyError:
                pair = self._number(column, key)
            counts[pair] += 1
            taken.append(pair)
        return taken

    def find(self, wanted: Wanted) -> list[PairId] | None:
        """Their numbers; None when nobody asks for one of them."""
        flat = iter(wanted)
        found = [self.columns.get(c, {}).get(key, 0) for c, key in zip(flat, flat, strict=True)]
        return None if 0 in found else found

    def release(self, pair: PairId) -> None:
        """One less asks for it."""
        self.counts[pair] -= 1
        if self.counts[pair]:
            return
        column, key = self._wanted[pair]
        del self.columns[column][key]
        self._free.append(pair)
        if type(key) is not str:
            self._count_not_text(column, key, -1)
        if not self.columns[column]:
            del self.columns[column]
            self.stale = True

    def node(self, pair: PairId) -> Node:
        """What hangs under the pair; most have nothing, and no node before they are asked for one."""
        node = self.nodes[pair]
        if node is None:
            node = self.nodes[pair] = Node()
            node.nexts = self.nexts[pair] = set()
            node.after = self.after[pair] = {}
        return node

    def waiting(self, pair: PairId) -> int:
        """How many who ask for no other pair wait for a check."""
        node = self.nodes[pair]
        return 0 if node is None else node.waiting

    def column_of(self, pair: PairId) -> Column:
        return self._wanted[pair][0]

    def by_column(self, wanted: Iterable[PairId]) -> dict[Column, PairId] | None:
        """What is asked for in each column; None where two values are asked for in one."""
        found: dict[Column, PairId] = {}
        for pair in wanted:
            column, key = self._wanted[pair]
            other = found.setdefault(column, pair)
            if other == pair or key is PRESENT:
                continue
            if self._wanted[other][1] is not PRESENT:
                return None
            found[column] = pair
        return found

    def compared_by_key(self, column: Column) -> bool:
        """Whether somebody asks for more than text there."""
        return column in self._not_text

    def presence(self) -> Mapping[Column, PairId]:
        """The pairs that ask only whether there is a value."""
        return {name: keys[PRESENT] for name, keys in self.columns.items() if PRESENT in keys}

    def __len__(self) -> int:
        """How many pairs somebody asks for."""
        return len(self._wanted) - 1 - len(self._free)

    def conjunctions(self) -> Iterator[tuple[tuple[PairId, ...], Place]]:
        """All that hangs under any pair: the pairs that must hold, and who is there then."""
        for pair, node in enumerate(self.nodes):
            if node is not None:
                yield from node.conjunctions((pair,) if pair else ())

    def __iter__(self) -> Iterator[Pair]:
        for column, keys in self.columns.items():
            for key, pair in keys.items():
                yield Pair(column, key, self.counts[pair], self.waiting(pair))

    def _number(self, column: Column, key: Hashable) -> PairId:
        if column not in self.columns:
            self.columns[column] = {}
            self.stale = True
        if self._free:
            pair = self._free.pop()  # its node is empty: nobody asked for it any more
            self._wanted[pair] = (column, key)
        else:
            pair = len(self.nodes)
            self._wanted.append((column, key))
            self.nodes.append(None)
            self.nexts.append(NO_NEXTS)
            self.after.append(NOTHING)
            self.counts.append(0)
        self.columns[column][key] = pair
        if type(key) is not str:
            self._count_not_text(column, key, 1)
        return pair

    def _count_not_text(self, column: Column, key: Hashable, by: int) -> None:
        before = self._not_text.get(column, 0)
        after = self._not_text[column] = before + by
        if not after:
            del self._not_text[column]
        self.stale = self.stale or not before or not after or key is PRESENT
