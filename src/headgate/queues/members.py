"""Who takes part in a consumer, and who of them gets a message."""

from __future__ import annotations

import itertools
import logging
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar
from typing import Literal as OneOf

from headgate.errors import QueueOptionsError
from headgate.filters import Filter, FilterLike, Or, as_filter, joined
from headgate.filters.compile import predicate as compiled
from headgate.message import Message

_log = logging.getLogger(__name__)

D = TypeVar("D")  # what its handlers are called with: a delivery of threads, or of tasks

Strategy: TypeAlias = OneOf["round_robin", "sticky", "first"]
STRATEGIES: Final = ("round_robin", "sticky", "first")


@dataclass(frozen=True, slots=True)
class Member(Generic[D]):
    """One of the handlers of a group, and what it wants: all that its filter and its predicate accept."""

    id: str
    handler: Callable[[D], object]
    filter: FilterLike | None = None
    predicate: Callable[[Message], bool] | None = None


class Group(Generic[D]):
    """Chooses who gets a message: one of those who want it."""

    def __init__(self, members: Sequence[Member[D]], strategy: Strategy) -> None:
        if not members:
            raise QueueOptionsError(
                "a consumer needs at least one handler; give its group a Member"
            )
        if strategy not in STRATEGIES:
            raise QueueOptionsError(f"strategy is one of {', '.join(STRATEGIES)}, not {strategy!r}")
        self._strategy = strategy
        self._members = [(member, _wish(member)) for member in members]
        self._turn = itertools.count()
        self.filter = _either([member.filter for member in members])

    def choose(self, message: Message) -> Member[D] | None:
        """The member to call; None when nobody wants it. A predicate that raises does not want it."""
        at = self._first(message)
        for member, wants in (*self._members[at:], *self._members[:at]):
            if wants(message):
                return member
        return None

    def _first(self, message: Message) -> int:
        if self._strategy == "round_robin":
            return next(self._turn) % len(self._members)
        if self._strategy == "sticky" and message.key is not None:
            return zlib.crc32(message.key.encode()) % len(self._members)
        return 0


def _wish(member: Member[D]) -> Callable[[Message], bool]:
    """Whether the member wants a message."""
    tests: list[Callable[[Message], bool]] = []
    if member.filter is not None:
        tests.append(compiled(as_filter(member.filter)))
    if member.predicate is not None:
        tests.append(_safely(member.predicate))
    return lambda message: all(test(message) for test in tests)


def _safely(predicate: Callable[[Message], bool]) -> Callable[[Message], bool]:
    def wants(message: Message) -> bool:
        try:
            return bool(predicate(message))
        except KeyboardInterrupt:
            raise
        except BaseException:  # sys.exit too
            _log.warning("predicate failed on a message of topic %r", message.topic, exc_info=True)
            return False

    return wants


def _either(filters: Sequence[FilterLike | None]) -> Filter | None:
    """What any of them wants; None when one wants everything."""
    trees = [as_filter(one) for one in filters if one is not None]
    if len(trees) < len(filters):
        return None
    return trees[0] if len(trees) == 1 else joined(Or, trees)
