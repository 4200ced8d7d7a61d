"""Checks that wait together, and how to ask them all without asking each.

Most are asked one by one. Where many compare one field with one bound each (`price > 100`, `price > 101`, …),
the bounds are sorted and one search finds everyone below or above, which is what price alerts come down to.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from headgate.filters.groups import Group, Slot
from headgate.filters.logic import field_value
from headgate.filters.nodes import Compare, CompareOp, Field, Filter, Literal
from headgate.filters.normal import EXACT_AS_DOUBLE
from headgate.message import Message

Check: TypeAlias = Any  # what an index leaves open; the same object for the same question
Test: TypeAlias = Callable[[Message], bool]
Pairs: TypeAlias = tuple[tuple[Check, Slot], ...]
PairId: TypeAlias = int
Entry: TypeAlias = tuple[tuple[PairId, ...], Any, Check]  # the pairs left to compare, who, and if

FEW: Final = 16  # checks; for fewer, sorting bounds is not worth it
# Questions before bounds are sorted: a listing that changes all the time never is.
PATIENCE: Final = 8


class Conditional(NamedTuple):
    """Somebody who has a check left."""

    check: Check
    who: Any


class Few:
    """Some who have a check left: too few, and met too briefly, to organise them."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    @property
    def pairs(self) -> Pairs:
        return tuple((check, who) for _, who, check in self._entries)

    def passing(self, message: Message, singles: list[Any], parts: list[frozenset[Any]]) -> None:
        """Add everyone whose check the message passes to who was found before."""
        for _, who, check in self._entries:
            if check.test(message):
                singles.append(who)


class Listing:
    """Checks, and who waits for each; never changed, but better organised the longer it is used."""

    __slots__ = ("_asked", "_groups", "_ladders", "_tests", "pairs")

    def __init__(self, pairs: Pairs) -> None:
        self.pairs = pairs
        self._asked = 0
        self._tests: list[tuple[Test, Any]] = []  # with one member each
        self._groups: list[tuple[Test, Group[Any]]] = []
        self._ladders: list[Ladder] = []

    def passing(self, message: Message, singles: list[Any], parts: list[frozenset[Any]]) -> None:
        """Add everyone whose check the message passes to who was found before."""
        if self._asked < PATIENCE:
            self._asked += 1
            _sort_out([slot for check, slot in self.pairs if check.test(message)], singles, parts)
            return
        if self._asked == PATIENCE:
            self._asked += 1
            self._organise()
        singles += [who for test, who in self._tests if test(message)]
        parts += [group.members for test, group in self._groups if test(message)]
        for ladder in self._ladders:
            _sort_out(ladder.passing(message), singles, parts)

    def _organise(self) -> None:
        """By now every check has been asked, and so compiled."""
        self._ladders, others = ladders(self.pairs)
        for check, slot in others:
            if type(slot) is Group:
                self._groups.append((check.test, slot))
            else:
                self._tests.append((check.test, slot))


def listed(checked: Mapping[Check, Slot]) -> Listing | tuple[Entry, ...]:
    """Who waits for which check: one by one where they are few, and worth organising where they are not."""
    if len(checked) >= FEW or Group in map(type, checked.values()):
        return Listing(tuple(checked.items()))
    return tuple(((), who, check) for check, who in checked.items())


def _sort_out(slots: list[Slot], singles: list[Any], parts: list[frozenset[Any]]) -> None:
    if Group in map(type, slots):
        parts += [slot.members for slot in slots if type(slot) is Group]
        slots = [slot for slot in slots if type(slot) is not Group]
    singles += slots


class Ladder(NamedTuple):
    """One field compared one way with many bounds, in order."""

    field: Field
    below: bool  # whoever has a bound below the value passes, or whoever has one above
    cut: Callable[[Sequence[Any], Any], int]
    bounds: list[int | float]
    slots: list[Slot]

    def passing(self, message: Message) -> list[Slot]:
        value = field_value(self.field, message)
        if type(value) not in (int, float) or value != value:
            return []
        at = self.cut(self.bounds, value)
        return self.slots[:at] if self.below else self.slots[at:]


# Which side of the equal bounds belongs to those that pass.
_CUTS: Final[dict[CompareOp, tuple[bool, Callable[[Sequence[Any], Any], int]]]] = {
    ">": (True, bisect_left),
    ">=": (True, bisect_right),
    "<": (False, bisect_right),
    "<=": (False, bisect_left),
}


def ladders(pairs: Pairs) -> tuple[list[Ladder], Pairs]:
    """The bounds that can be sorted, and the pairs that cannot."""
    rungs: dict[tuple[Field, CompareOp], list[tuple[int | float, int]]] = {}
    for at, (check, _) in enumerate(pairs):
        rung = bound_of(check.filter)
        if rung is not None:
            rungs.setdefault(rung[:2], []).append((rung[2], at))
    found = {key: sorted(bounds) for key, bounds in rungs.items() if len(bounds) >= FEW}
    taken = {at for bounds in found.values() for _, at in bounds}
    made = [
        Ladder(field, *_CUTS[op], [b for b, _ in bounds], [pairs[at][1] for _, at in bounds])
        for (field, op), bounds in found.items()
    ]
    return made, tuple(pair for at, pair in enumerate(pairs) if at not in taken)


def bound_of(tree: Filter) -> tuple[Field, CompareOp, int | float] | None:
    """What is compared, how and with which number, where that is all there is to it."""
    match tree:
        case Compare(
            op=op, left=Field() as field, right=Literal(kind="int" | "float", value=bound)
        ):
            # Up to 2**53 one order holds for ints and doubles alike.
            if op in _CUTS and abs(bound) < EXACT_AS_DOUBLE:  # type: ignore[arg-type]
                return field, op, bound  # type: ignore[return-value]
    return None
