"""Groups of members: counted, and handed out as shared frozen sets, never as copies.

A *slot* is where an index holds members: None, one bare member, or a `MemberGroup`. Most slots of a large index hold
one member, and cost no more than a reference.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Set
from typing import Any, Final, Generic, TypeAlias, TypeVar

MemberT = TypeVar("MemberT", bound=Hashable)
# None | member | MemberGroup[member]; a member is never None nor a MemberGroup.
Slot: TypeAlias = Any

NO_MEMBERS: Final[frozenset[Any]] = frozenset()
SMALL: Final = 16  # members; up to here, a copy is cheaper than one more part of a union
MERGED: Final = 256  # members; up to here, a union that was iterated keeps them in one set


class MemberGroup(Generic[MemberT]):
    """Members, and how often each was added."""

    __slots__ = ("_counts", "_frozen")

    def __init__(self, *members: MemberT) -> None:
        self._counts: dict[MemberT, int] = {}
        self._frozen: frozenset[MemberT] | None = None
        for member in members:
            self.add(member)

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, member: MemberT) -> None:
        self._counts[member] = self._counts.get(member, 0) + 1
        self._frozen = None

    def discard(self, member: MemberT) -> bool:
        """Undo one `add` of the member; whether there was one."""
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
    def members(self) -> frozenset[MemberT]:
        """The members as they are now; one object until a member is added or discarded."""
        if self._frozen is None:
            self._frozen = frozenset(self._counts)
        return self._frozen


def include(slot: Slot, member: Hashable) -> Slot:
    """The slot with one more member."""
    if slot is None:
        return member
    if isinstance(slot, MemberGroup):
        slot.add(member)
        return slot
    return MemberGroup(slot, member)


def exclude(slot: Slot, member: Hashable) -> tuple[Slot, bool]:
    """The slot after one `include` of the member was undone, and whether there was one."""
    if isinstance(slot, MemberGroup):
        was_there = slot.discard(member)
        return (slot if len(slot) else None), was_there
    was_there = slot is not None and slot == member
    return (None if was_there else slot), was_there


def size(slot: Slot) -> int:
    """How many members there are."""
    return len(slot) if isinstance(slot, MemberGroup) else int(slot is not None)


class MemberUnion(Set[MemberT]):
    """Several shared sets as one; a member of two is in it once."""

    __slots__ = ("_merged", "parts")

    def __init__(self, parts: tuple[frozenset[MemberT], ...]) -> None:
        self.parts = parts
        self._merged: frozenset[MemberT] | None = None

    def __contains__(self, member: object) -> bool:
        return any(member in part for part in self.parts)

    def __iter__(self) -> Iterator[MemberT]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __bool__(self) -> bool:
        return True  # no part is empty, and counting would merge them

    def __repr__(self) -> str:
        return f"MemberUnion({set(self)!r})"

    @classmethod
    def _from_iterable(cls, members: Iterable[Any]) -> frozenset[Any]:
        return frozenset(members)

    def _all(self) -> frozenset[MemberT]:
        if self._merged is not None:
            return self._merged
        merged = self.parts[0].union(*self.parts[1:])
        if len(merged) <= MERGED:
            self._merged = merged
        return merged


def unite(singles: Collection[MemberT], parts: list[frozenset[MemberT]]) -> Set[MemberT]:
    """One set of all members: copied where they are few, side by side where a part is large."""
    large = [part for part in parts if len(part) > SMALL]
    small = parts if not large else [part for part in parts if len(part) <= SMALL]
    own = NO_MEMBERS.union(singles, *small)
    if not large:
        return own
    if own:
        large.append(own)
    return large[0] if len(large) == 1 else MemberUnion(tuple(large))


def weight(members: Set[Any]) -> int:
    """About how many members the set holds for itself; of a larger set most are shared."""
    return min(len(members), MERGED) if isinstance(members, frozenset) else MERGED // 2


def parts_of(members: Set[MemberT]) -> tuple[frozenset[MemberT], ...]:
    """The shared sets that a set of members is made of."""
    if isinstance(members, MemberUnion):
        return members.parts
    return (members if isinstance(members, frozenset) else frozenset(members),)


def merge(left: Set[MemberT], right: Set[MemberT]) -> Set[MemberT]:
    """One set of both, which shares large parts."""
    if not right:
        return left
    return unite((), [*parts_of(left), *parts_of(right)]) if left else right
