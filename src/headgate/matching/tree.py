"""The tree under an index: places where entries are filed, and how they are removed again.

An entry is filed by its own order of pairs: under the first in the root, and one step further down wherever a place
is crowded. So the way to an entry is known when it is removed, whatever was added or removed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple, TypeAlias

from headgate.matching.groups import Group, Slot, exclude, gathered, include
from headgate.matching.residuals import Check, Checked, Entry, Few, Residuals

Column: TypeAlias = Hashable  # a header by its name, anything else by something that is no text
Values: TypeAlias = Mapping[Any, Any]  # by column, compared by hash and equality

CROWDED: Final = 5  # entries; up to here a place is scanned
FIRST_PAIR: Final = 2  # where in an entry its pairs begin


class AnyOf:
    """A key that equals each of several keys: one pair for a whole `IN`."""

    __slots__ = ("keys",)

    def __init__(self, keys: Iterable[Hashable]) -> None:
        self.keys = frozenset(keys)

    def __eq__(self, other: object) -> bool:
        return other.keys == self.keys if type(other) is AnyOf else other in self.keys

    def __hash__(self) -> int:
        return hash(self.keys)


def keys_of(key: Any) -> Iterable[Hashable]:
    """The keys it stands for."""
    return key.keys if type(key) is AnyOf else (key,)


class Node:
    """A place in the index: the members that ask for no more than the pairs that lead here, and the entries that do.

    Those are scanned while they are few; then `tables` holds, by column and key, an entry that is alone there, or the
    node of several.
    """

    __slots__ = ("at", "entries", "residuals", "slot", "tables")

    def __init__(self, at: int) -> None:
        self.at = at  # where in an entry the pairs begin that do not lead here
        self.entries: list[Entry] = []
        self.tables: dict[Column, dict[Hashable, Any]] = _NO_TABLES
        self.slot: Slot = None
        self.residuals: Residuals | None = None

    def insert(self, entries: Sequence[Entry]) -> None:
        """File entries below this node."""
        work = [(self, entries)]
        while work:
            node, entries = work.pop()
            work += node._take_in(entries).items()

    def _take_in(self, entries: Sequence[Entry]) -> dict[Node, list[Entry]]:
        """File the entries here; those that belong to nodes further down are returned by node."""
        at = self.at
        more = [entry for entry in entries if len(entry) > at]
        if len(more) < len(entries):
            self._settle([entry for entry in entries if len(entry) == at])
        if self.tables is _NO_TABLES:
            self.entries += more
            if len(self.entries) <= CROWDED:
                return {}
            more, self.entries, self.tables = self.entries, [], {}
        tables, further = self.tables, dict[Node, list[Entry]]()
        for entry in more:
            column, key = entry[at], entry[at + 1]
            table = tables.get(column)
            if table is None:
                table = tables[column] = {}
            for one in (key,) if type(key) is str else keys_of(key):
                there = table.get(one)
                if there is None:
                    table[one] = entry
                elif type(there) is not Node:
                    node = table[one] = Node(at + 2)
                    further[node] = [there, entry]
                elif there in further:
                    further[there].append(entry)
                else:
                    further[there] = [entry]
        return further

    def _settle(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if entry[1] is None:
                self.slot = include(self.slot, entry[0])
        waiting = [(entry[1], entry[0]) for entry in entries if entry[1] is not None]
        if waiting:
            self.residuals = self.residuals or Residuals()
            self.residuals.add(waiting)

    def remove(self, entry: Entry) -> bool:
        """Remove the entry from wherever below this node its pairs lead; whether it was there."""
        removed = False
        steps: list[tuple[Node, _Step | None]] = [(self, None)]
        while steps:
            node, step = steps.pop()
            if len(entry) == node.at:
                removed |= node._unsettle(entry[0], entry[1])
            elif node.tables is _NO_TABLES:
                if entry in node.entries:
                    node.entries.remove(entry)
                    removed = True
            else:
                column, table = entry[node.at], node.tables.get(entry[node.at], {})
                for key in keys_of(entry[node.at + 1]):
                    there = table.get(key)
                    if type(there) is Node:
                        steps.append((there, _Step(node, column, key, step)))
                    elif there == entry:
                        node._drop(column, key)
                        removed = True
            _prune(node, step)
        return removed

    def _unsettle(self, member: Hashable, check: Check | None) -> bool:
        if check is None:
            self.slot, removed = exclude(self.slot, member)
            return removed
        removed = self.residuals is not None and self.residuals.remove(check, member)
        self.residuals = self.residuals or None
        return removed

    def _drop(self, column: Column, key: Hashable) -> None:
        del self.tables[column][key]
        if not self.tables[column]:
            del self.tables[column]
        self.tables = self.tables or _NO_TABLES

    @property
    def empty(self) -> bool:
        return not (self.entries or self.tables or self.residuals) and self.slot is None

    def narrow(self, values: Values) -> Node:
        """This node without the tables of columns for which there is no value."""
        node = Node(self.at)
        node.entries, node.slot, node.residuals = self.entries, self.slot, self.residuals
        node.tables = {column: self.tables[column] for column in values if column in self.tables}
        return node


_NO_TABLES: Final[dict[Column, dict[Hashable, Any]]] = {}  # never added to


class _Step(NamedTuple):
    """Where a node was reached from."""

    node: Node
    column: Column
    key: Hashable
    above: _Step | None


def _prune(node: Node, step: _Step | None) -> None:
    while step is not None and node.empty:
        node = step.node
        node._drop(step.column, step.key)
        step = step.above


def holds(entry: Entry, at: int, get: Callable[[Any], Any]) -> bool:
    """Whether the values have all pairs of the entry from there on."""
    while at < len(entry):
        if get(entry[at]) != entry[at + 1]:
            return False
        at += 2
    return True


NOTHING: Final[tuple[Set[Any], Checked]] = (frozenset(), ())


def collect(found: Sequence[Entry], settled: Sequence[Node]) -> tuple[Set[Any], Checked]:
    """The members of the entries and at the nodes: for certain, and those that have a check left."""
    singles = [entry[0] for entry in found if entry[1] is None]
    checked: list[Few | Residuals] = []
    if len(singles) < len(found):
        checked.append(Few([entry for entry in found if entry[1] is not None]))
    parts: list[frozenset[Any]] = []
    for node in settled:
        if type(node.slot) is Group:
            parts.append(node.slot.members)
        elif node.slot is not None:
            singles.append(node.slot)
        if node.residuals is not None:
            checked.append(node.residuals)
    return (gathered(singles, parts) if parts else frozenset(singles)), tuple(checked)
