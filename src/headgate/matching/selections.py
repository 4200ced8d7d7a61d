"""Which rows of a batch each member gets: kept by groups of rows and of members, spelled out on demand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Generic, TypeVar

import numpy as np

from headgate.matching.batch import Bools, Ints, Rows, by_code
from headgate.matching.groups import parts_of

Member = TypeVar("Member")


class Selections(Generic[Member]):
    """Rows by member. Members that always go together, and rows that do, are held once."""

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows
        self.reached: Bools = np.zeros(num_rows, np.bool_)  # for each row, whether anyone gets it
        self._waiting: list[tuple[Rows, Ints, Sequence[Set[Member]]]] = []
        self._groups: dict[int, tuple[frozenset[Member], list[Rows]]] = {}

    def add(self, rows: Rows, codes: Ints, members: Sequence[Set[Member]]) -> None:
        """Each of the rows goes to the members of its code."""
        somebody = np.fromiter(map(bool, members), np.bool_, len(members))
        self.reached[rows[somebody[codes]]] = True
        self._waiting.append((rows, codes, members))

    def add_rows(self, members: Set[Member], rows: Rows) -> None:
        """All these rows go to all these members."""
        if not len(rows) or not members:
            return
        self.reached[rows] = True
        self._spell(members, rows)

    def __iter__(self) -> Iterator[Member]:
        """Everyone who gets something."""
        return iter(frozenset[Member]().union(*(members for members, _ in self._spelled())))

    def rows_of(self, member: Member) -> Rows:
        """The rows the member gets, in order, each once."""
        return _in_order(
            rows for members, parts in self._spelled() if member in members for rows in parts
        )

    def all(self) -> dict[Member, Rows]:
        """The rows of everyone who gets something."""
        found: dict[Member, list[Rows]] = {}
        for members, parts in self._spelled():
            joint = parts if len(parts) == 1 else [np.concatenate(parts)]
            for member in members:
                found.setdefault(member, []).extend(joint)
        return {member: _in_order(parts) for member, parts in found.items()}

    def _spelled(self) -> Iterable[tuple[frozenset[Member], list[Rows]]]:
        for rows, codes, members in self._waiting:
            for alike, together in zip(by_code(rows, codes, len(members)), members, strict=True):
                if together and len(alike):
                    self._spell(together, alike)
        self._waiting.clear()
        return self._groups.values()

    def _spell(self, members: Set[Member], rows: Rows) -> None:
        for part in parts_of(members):
            # The set is kept beside its rows, so no other set can take over its identity.
            self._groups.setdefault(id(part), (part, []))[1].append(rows)


def _in_order(parts: Iterable[Rows]) -> Rows:
    rows = list(parts)
    if not rows:
        return np.zeros(0, np.int64)
    if len(rows) == 1:
        return np.sort(rows[0])
    found = np.sort(np.concatenate(rows))
    repeated = found[1:] == found[:-1]
    return found[np.concatenate(([True], ~repeated))] if repeated.any() else found
