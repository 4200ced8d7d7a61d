"""The tree of an index: how entries are filed by their pairs, and removed again.

An entry keeps its own order of pairs: it is filed under the first one in the root, and one step further down wherever
a place is crowded. So its path is known when it is removed, whatever was added or removed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple, TypeAlias

from headgate.matching.groups import MemberGroup, Slot, exclude, include, unite
from headgate.matching.residuals import Check, CheckedEntries, Entry, OpenChecks, Residuals

# A header by its name, anything else by something that is no text.
IndexColumn: TypeAlias = Hashable
Values: TypeAlias = Mapping[Any, Any]  # by column, compared by hash and equality

CROWDED: Final = 5  # entries; up to here the entries of one pair are scanned
FIRST_PAIR: Final = 2  # where in an entry its pairs begin, after member and check


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
    """The keys that a key stands for: itself, or those of an `AnyOf`."""
    return key.keys if type(key) is AnyOf else (key,)


class TreeNode:
    """The entries that have their first pairs in common.

    `tables` holds by column and key the entries that ask for that pair next: one entry, a list of a few, or a node.
    Members that ask for no other pair are in `slot`, or in `residuals` if they have a check.
    """

    __slots__ = ("at", "residuals", "slot", "tables")

    def __init__(self, at: int) -> None:
        self.at = at  # the position in an entry behind the pairs that lead to this node
        self.tables: dict[IndexColumn, dict[Hashable, Any]] = {}
        self.slot: Slot = None
        self.residuals: Residuals | None = None

    def insert(self, entries: Sequence[Entry]) -> None:
        """File entries below this node."""
        work = {self: entries}
        while work:
            node, entries = work.popitem()
            work |= node._file(entries)

    def _file(self, entries: Sequence[Entry]) -> dict[TreeNode, list[Entry]]:
        """File entries here; those that belong to nodes further down are returned by node."""
        at, tables = self.at, self.tables
        further: dict[TreeNode, list[Entry]] = {}
        settled = []
        for entry in entries:
            if len(entry) == at:
                settled.append(entry)
                continue
            column, key = entry[at], entry[at + 1]
            table = tables.get(column)
            if table is None:
                table = tables[column] = {}
            for one in (key,) if type(key) is str else keys_of(key):
                there = table.get(one)
                if there is None:
                    table[one] = entry
                elif type(there) is tuple:
                    table[one] = [there, entry]
                elif type(there) is list:
                    there.append(entry)
                    if len(there) > CROWDED:
                        node = table[one] = TreeNode(at + 2)
                        further[node] = there
                elif there in further:
                    further[there].append(entry)
                else:
                    further[there] = [entry]
        if settled:
            self._settle(settled)
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
        """Remove the entry from each place below this node where it was filed; whether it was there."""
        removed = False
        steps: list[tuple[TreeNode, _Step | None]] = [(self, None)]
        while steps:
            node, step = steps.pop()
            if len(entry) == node.at:
                removed |= node._unsettle(entry[0], entry[1])
            else:
                column = entry[node.at]
                for key in keys_of(entry[node.at + 1]):
                    there = node.tables.get(column, {}).get(key)
                    if type(there) is TreeNode:
                        steps.append((there, _Step(node, column, key, step)))
                    elif there == entry:
                        node._delete(column, key)
                        removed = True
                    elif type(there) is list and entry in there:
                        there.remove(entry)
                        removed = True
                        if not there:
                            node._delete(column, key)
            _prune(node, step)
        return removed

    def _unsettle(self, member: Hashable, check: Check | None) -> bool:
        if check is None:
            self.slot, removed = exclude(self.slot, member)
            return removed
        removed = self.residuals is not None and self.residuals.remove(check, member)
        self.residuals = self.residuals or None
        return removed

    def _delete(self, column: IndexColumn, key: Hashable) -> None:
        del self.tables[column][key]
        if not self.tables[column]:
            del self.tables[column]

    @property
    def empty(self) -> bool:
        return not (self.tables or self.residuals) and self.slot is None

    def narrow(self, values: Values) -> TreeNode:
        """This node without the tables of columns for which there is no value."""
        node = TreeNode(self.at)
        node.slot, node.residuals = self.slot, self.residuals
        node.tables = {c: self.tables[c] for c in values if c in self.tables}
        return node


class _Step(NamedTuple):
    """The way from the node above to a node."""

    node: TreeNode
    column: IndexColumn
    key: Hashable
    above: _Step | None


def _prune(node: TreeNode, step: _Step | None) -> None:
    while step is not None and node.empty:
        node = step.node
        node._delete(step.column, step.key)
        step = step.above


def holds(entry: Entry, at: int, get: Callable[[Any], Any]) -> bool:
    """Whether the values have all pairs of the entry from position `at` on."""
    while at < len(entry):
        if get(entry[at]) != entry[at + 1]:
            return False
        at += 2
    return True


Found: TypeAlias = tuple[Set[Any], OpenChecks]
NOTHING: Final[Found] = (frozenset(), ())


def collect(found: Sequence[Entry], settled: Sequence[TreeNode]) -> Found:
    """The members of the entries and of the nodes: those that match for certain, and those that have a check left."""
    singles = [entry[0] for entry in found if entry[1] is None]
    checked: list[CheckedEntries | Residuals] = []
    if len(singles) < len(found):
        checked.append(CheckedEntries([entry for entry in found if entry[1] is not None]))
    parts: list[frozenset[Any]] = []
    for node in settled:
        if type(node.slot) is MemberGroup:
            parts.append(node.slot.members)
        elif node.slot is not None:
            singles.append(node.slot)
        if node.residuals is not None:
            checked.append(node.residuals)
    return (unite(singles, parts) if parts else frozenset(singles)), tuple(checked)
