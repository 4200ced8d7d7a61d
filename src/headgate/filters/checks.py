"""What an index cannot decide, and asks of the message last: a compiled test, shared by all who ask it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Set
from typing import Any, Final

from headgate.filters.access import Checked
from headgate.filters.groups import SMALL, gathered, parts_of
from headgate.filters.listings import bound_of
from headgate.filters.nodes import TRUE, Filter
from headgate.filters.targets.python import now_us, predicate
from headgate.message import Message

_NUMBERS: Final = frozenset({int, float})
_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


class Check:
    """A filter that is compiled when it is first asked."""

    __slots__ = ("clock", "filter", "test", "uses")

    def __init__(self, tree: Filter, clock: Callable[[], int] = now_us) -> None:
        self.filter, self.clock = tree, clock
        self.uses = 0
        self.test: Callable[[Message], bool] = self._compile_and_test

    def _compile_and_test(self, message: Message) -> bool:
        self.test = _bound_test(self.filter) or predicate(self.filter, self.clock)
        return self.test(message)


def _bound_test(tree: Filter) -> Callable[[Message], bool] | None:
    """One code for all that compare a header with a number: of thousands of codes, each would be cold."""
    found = bound_of(tree)
    if found is None or found[0].scope != "header":
        return None
    name, compare, bound = found[0].name, _COMPARE[found[1]], found[2]

    def test(message: Message) -> bool:
        value = message.headers.get(name)
        return type(value) in _NUMBERS and compare(value, bound)

    return test


class Checks:
    """One `Check` for each distinct filter, for as long as somebody uses it."""

    def __init__(self, clock: Callable[[], int] = now_us) -> None:
        self.clock = clock
        self._checks: dict[Filter, Check] = {}

    def take(self, tree: Filter) -> Check | None:
        """The check of the filter, one use more; None for the filter that is always true."""
        if tree == TRUE:
            return None
        check = self._checks.get(tree)
        if check is None:
            check = self._checks[tree] = Check(tree, self.clock)
        check.uses += 1
        return check

    def find(self, tree: Filter) -> Check | None:
        return self._checks.get(tree)

    def release(self, tree: Filter) -> None:
        check = self._checks.get(tree)
        if check is None:
            return
        check.uses -= 1
        if not check.uses:
            del self._checks[tree]


def passing(members: Set[Any], checked: Checked, message: Message) -> Set[Any]:
    """The members, and those whose check the message passes."""
    singles: list[Any] = []
    parts: list[frozenset[Any]] = []
    for listing in checked:
        listing.passing(message, singles, parts)
    if not singles and not parts:
        return members
    if not parts and type(members) is frozenset and len(members) <= SMALL:
        return members.union(singles)
    return gathered(singles, [*parts, *parts_of(members)] if members else parts)
