"""Who receives together: members are counted, and handed out as shared frozen sets, never as copies.

A place in an index that holds members is a *slot*: nothing, one bare member, or a `Group`. Most places of
a large index hold one member, and a bare reference is all that costs.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Set
from typing import Any, Final, Generic, TypeAlias, TypeVar

Member = TypeVar("Member", bound=Hashable)
Slot: TypeAlias = Any  # None | member | Group[member]; a member is never None nor a Group

NOBODY: Final[frozenset[Any]] = frozenset()
SMALL: Final = 16  # up to here, copying members is cheaper than carrying a set beside others
MERGED: Final = 256  # up to here, a union that was looked through is kept in one piece


class Group(Generic[Member]):
    """Members and how many reasons each has to be here."""

    __slots__ = ("_counts", "_frozen")

    def __init__(self, *members: Member) -> None:
        self._counts: dict[Member, int] = {}
        self._frozen: frozenset[Member] | None = None
        for member in members:
            self.add(member)

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, member: Member) -> None:
        self._counts[member] = self._counts.get(member, 0) + 1
        self._frozen = None

    def discard(self, member: Member) -> bool:
        """One reason less; whether there was one."""
        left = self._counts.get(member, 0) - 1
        if left < 0:
            return False
        if left:
            self._counts[member] = left
        else:
            del self._counts[member]
            self._frozen = None
        return True

    @property
    def members(self) -> frozenset[Member]:
        """The members as they are now; the same object until somebody joins or leaves."""
        if self._frozen is None:
            self._frozen = frozenset(self._counts)
        return self._frozen


def include(slot: Slot, member: Hashable) -> Slot:
    """The slot with one more member."""
    if slot is None:
        return member
    if isinstance(slot, Group):
        slot.add(member)
        return slot
    return Group(slot, member)


def exclude(slot: Slot, member: Hashable) -> tuple[Slot, bool]:
    """The slot with one reason less for that member, and whether there was one."""
    if isinstance(slot, Group):
        found = slot.discard(member)
        return (slot if len(slot) else None), found
    found = slot is not None and slot == member
    return (None if found else slot), found


def size(slot: Slot) -> int:
    """How many members there are."""
    return len(slot) if isinstance(slot, Group) else int(slot is not None)


class Union(Set[Member]):
    """Several shared sets seen as one; a member of two is seen once."""

    __slots__ = ("_merged", "parts")

    def __init__(self, parts: tuple[frozenset[Member], ...]) -> None:
        self.parts = parts
        self._merged: frozenset[Member] | None = None

    def __contains__(self, member: object) -> bool:
        return any(member in part for part in self.parts)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __bool__(self) -> bool:
        return True  # its parts are never empty, and counting would merge them

    def __repr__(self) -> str:
        return f"Union({set(self)!r})"

    @classmethod
    def _from_iterable(cls, members: Iterable[Any]) -> frozenset[Any]:
        return frozenset(members)

    def _all(self) -> frozenset[Member]:
        if self._merged is not None:
            return self._merged
        merged = self.parts[0].union(*self.parts[1:])
        if len(merged) <= MERGED:
            self._merged = merged
        return merged


def gathered(singles: Collection[Member], parts: list[frozenset[Member]]) -> Set[Member]:
    """All of them as one set: merged where there are few, side by side where a part is large."""
    large = [part for part in parts if len(part) > SMALL]
    small = parts if not large else [part for part in parts if len(part) <= SMALL]
    own = NOBODY.union(singles, *small)
    if not large:
        return own
    if own:
        large.append(own)
    return large[0] if len(large) == 1 else Union(tuple(large))


def weight(members: Set[Any]) -> int:
    """About how many members the set holds for itself; of what is larger, the most is shared."""
    return min(len(members), MERGED) if isinstance(members, frozenset) else MERGED // 2


def parts_of(members: Set[Member]) -> tuple[frozenset[Member], ...]:
    """The shared sets it is made of."""
    if isinstance(members, Union):
        return members.parts
    return (members if isinstance(members, frozenset) else frozenset(members),)


def merged(left: Set[Member], right: Set[Member]) -> Set[Member]:
    """Both as one set, sharing what is large."""
    if not right:
        return left
    return gathered((), [*parts_of(left), *parts_of(right)]) if left else right
