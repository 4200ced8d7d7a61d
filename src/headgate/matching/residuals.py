"""What no equality decides: compiled tests, shared by all members that need them, and asked of the message last.

Most tests are asked one by one. Where many compare one field with a bound (`price > 100`, `price > 101`, …), the bounds
are kept sorted, and one search finds every member below or above: a million price alerts cost as much as one.
"""

from __future__ import annotations

import operator
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Set
from typing import Any, Final, NamedTuple, TypeAlias

from headgate.clock import now_us
from headgate.filters import (
    EXACT_AS_DOUBLE,
    TRUE,
    Compare,
    CompareOp,
    Field,
    Filter,
    Literal,
    field_value,
)
from headgate.filters.compile import compile_predicate
from headgate.matching.groups import (
    SMALL,
    MemberGroup,
    Slot,
    exclude,
    include,
    parts_of,
    size,
    unite,
)
from headgate.message import Message

Bound: TypeAlias = int | float

_NUMBERS: Final = frozenset({int, float})
_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


class Check:
    """A filter to be tested; it is compiled when it is first tested, if not before."""

    __slots__ = ("clock", "filter", "test", "uses")

    def __init__(self, tree: Filter, clock: Callable[[], int] = now_us) -> None:
        self.filter, self.clock = tree, clock
        self.uses = 0
        self.test: Callable[[Message], bool] = self._compile_and_test

    def compile(self) -> Callable[[Message], bool]:
        """Compile the filter now, so that no message has to wait for it; return the test."""
        self.test = _test_of_bound(self.filter) or compile_predicate(self.filter, self.clock)
        return self.test

    def _compile_and_test(self, message: Message) -> bool:
        return self.compile()(message)


def _test_of_bound(tree: Filter) -> Callable[[Message], bool] | None:
    """One function for all filters that compare a header with a number: thousands of compiled ones would be cold."""
    found = bound_of(tree)
    if found is None or found[0].scope != "header":
        return None
    name, compare, bound = found[0].name, _COMPARE[found[1]], found[2]

    def test(message: Message) -> bool:
        value = message.headers.get(name)
        return type(value) in _NUMBERS and compare(value, bound)

    return test


class Checks:
    """One `Check` for each distinct filter, for as long as it is used."""

    def __init__(self, clock: Callable[[], int] = now_us) -> None:
        self.clock = clock
        self._checks: dict[Filter, Check] = {}

    def __len__(self) -> int:
        return len(self._checks)

    def take(self, tree: Filter) -> Check | None:
        """The check of the filter, with one use more; None for the filter that is always true."""
        if tree == TRUE:
            return None
        check = self._checks.get(tree)
        if check is None:
            check = self._checks[tree] = Check(tree, self.clock)
        check.uses += 1
        return check

    def release(self, check: Check | None) -> None:
        """Count one use less of a check that was taken."""
        if check is not None:
            check.uses -= 1
            if not check.uses:
                del self._checks[check.filter]


class ConditionalSlot(NamedTuple):
    """One check and the members that match if the message passes it."""

    check: Check
    slot: Slot


# A member of an index, the check that is left if any, then column, key, column, key, …, the rarest pair first.
Entry: TypeAlias = tuple[Any, ...]


class CheckedEntries:
    """A few entries that still have a check; each check is evaluated by itself."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    @property
    def slots(self) -> Iterator[ConditionalSlot]:
        """Every check and its member."""
        return (ConditionalSlot(entry[1], entry[0]) for entry in self._entries)

    def collect_passing(
        self, message: Message, singles: list[Any], parts: list[frozenset[Any]]
    ) -> None:
        """Add the members whose check the message passes."""
        singles += [entry[0] for entry in self._entries if entry[1].test(message)]


class Residuals:
    """The members at one place of an index that have only a check left."""

    __slots__ = ("_checks", "_ladders")

    def __init__(self) -> None:
        self._checks: dict[Check, Slot] = {}
        self._ladders: dict[tuple[Field, CompareOp], _Ladder] = {}

    def __len__(self) -> int:
        """How many members there are."""
        return sum(size(slot) for _, slot in self.slots)

    def __bool__(self) -> bool:
        return bool(self._checks or self._ladders)

    @property
    def slots(self) -> Iterator[ConditionalSlot]:
        """Every check and its members."""
        yield from map(ConditionalSlot, self._checks, self._checks.values())
        for ladder in self._ladders.values():
            yield from ladder.rungs.values()

    def add(self, members: Iterable[tuple[Check, Hashable]]) -> None:
        """Add members, each with its check."""
        bounds: dict[tuple[Field, CompareOp], list[tuple[Bound, Check, Hashable]]] = {}
        for check, member in members:
            found = bound_of(check.filter)
            if found is None:
                if check not in self._checks:
                    check.compile()  # one message may have to ask thousands of them
                self._checks[check] = include(self._checks.get(check), member)
            else:
                bounds.setdefault(found[:2], []).append((found[2], check, member))
        for key, added in bounds.items():
            if key not in self._ladders:
                self._ladders[key] = _Ladder(*key)
            self._ladders[key].add(added)

    def remove(self, check: Check, member: Hashable) -> bool:
        """Remove a member with its check; whether it was there."""
        found = bound_of(check.filter)
        if found is not None:
            ladder = self._ladders.get(found[:2])
            removed = ladder is not None and ladder.remove(found[2], member)
            if ladder is not None and not ladder.bounds:
                del self._ladders[found[:2]]
            return removed
        slot, removed = exclude(self._checks.get(check), member)
        if slot is not None:
            self._checks[check] = slot
        else:
            self._checks.pop(check, None)
        return removed

    def collect_passing(
        self, message: Message, singles: list[Any], parts: list[frozenset[Any]]
    ) -> None:
        """Add the members whose check the message passes."""
        slots = [slot for check, slot in self._checks.items() if check.test(message)]
        for ladder in self._ladders.values():
            slots += ladder.find_passing(message)
        _collect(slots, singles, parts)


# Members that match if a check says so.
OpenChecks: TypeAlias = tuple[CheckedEntries | Residuals, ...]


def add_passing(members: Set[Any], checks: OpenChecks, message: Message) -> Set[Any]:
    """The members, and those whose check the message passes."""
    singles: list[Any] = []
    parts: list[frozenset[Any]] = []
    for residuals in checks:
        residuals.collect_passing(message, singles, parts)
    if not singles and not parts:
        return members
    if not parts and type(members) is frozenset and len(members) <= SMALL:
        return members.union(singles)
    return unite(singles, [*parts, *parts_of(members)] if members else parts)


def _collect(slots: list[Slot], singles: list[Any], parts: list[frozenset[Any]]) -> None:
    if MemberGroup in map(type, slots):
        parts += [slot.members for slot in slots if type(slot) is MemberGroup]
        slots = [slot for slot in slots if type(slot) is not MemberGroup]
    singles += slots


# ---- bounds --------------------------------------------------------------------------------------------


class _Ladder:
    """One field compared in one way with many bounds, in order."""

    __slots__ = ("_below", "_cut", "_field", "_slots", "bounds", "rungs")

    def __init__(self, field: Field, op: CompareOp) -> None:
        self._field = field
        self._below, self._cut = _CUTS[op]
        self.bounds: list[Bound] = []
        self.rungs: dict[Bound, ConditionalSlot] = {}
        self._slots: list[Slot] | None = None  # of all rungs, in the order of the bounds

    def add(self, added: Sequence[tuple[Bound, Check, Hashable]]) -> None:
        new = []
        self._slots = None
        for bound, check, member in added:
            rung = self.rungs.get(bound)
            if rung is None:
                new.append(bound)
                self.rungs[bound] = ConditionalSlot(check, member)
            else:
                self.rungs[bound] = ConditionalSlot(rung.check, include(rung.slot, member))
        if len(new) == 1:
            insort(self.bounds, new[0])
        else:
            self.bounds += new
            self.bounds.sort()

    def remove(self, bound: Bound, member: Hashable) -> bool:
        rung = self.rungs.get(bound)
        if rung is None:
            return False
        self._slots = None
        slot, removed = exclude(rung.slot, member)
        if slot is not None:
            self.rungs[bound] = ConditionalSlot(rung.check, slot)
        else:
            del self.rungs[bound]
            del self.bounds[bisect_left(self.bounds, bound)]
        return removed

    def find_passing(self, message: Message) -> list[Slot]:
        value = field_value(self._field, message)
        if type(value) not in _NUMBERS or value != value:
            return []
        if self._slots is None:
            self._slots = [self.rungs[bound].slot for bound in self.bounds]
        at = self._cut(self.bounds, value)
        return self._slots[:at] if self._below else self._slots[at:]


# Whether the bounds below the value pass, and on which side of an equal bound the cut is.
_CUTS: Final[dict[CompareOp, tuple[bool, Callable[[Sequence[Any], Any], int]]]] = {
    ">": (True, bisect_left),
    ">=": (True, bisect_right),
    "<": (False, bisect_right),
    "<=": (False, bisect_left),
}


def bound_of(tree: Filter) -> tuple[Field, CompareOp, Bound] | None:
    """The field, the comparison and the number, where comparing them is all the filter does."""
    match tree:
        case Compare(
            op=op, left=Field() as field, right=Literal(kind="int" | "float", value=bound)
        ):
            # Up to 2**53 one order holds for ints and doubles alike.
            if op in _CUTS and abs(bound) < EXACT_AS_DOUBLE:  # type: ignore[arg-type]
                return field, op, bound  # type: ignore[return-value]
    return None
