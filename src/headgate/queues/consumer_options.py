"""The options of a consumer: its members and which of them gets a message, how it waits, how it retries."""

from __future__ import annotations

import itertools
import logging
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import random
from typing import Final, Generic, TypeAlias, TypeVar
from typing import Literal as OneOf

from headgate.checks import check_function, check_span
from headgate.errors import QueueOptionsError
from headgate.filters import Filter, FilterLike, Or, as_filter, join_terms
from headgate.filters.compile import compile_predicate
from headgate.message import Message

_log = logging.getLogger(__name__)

D = TypeVar("D")  # what handlers are called with: Delivery or AsyncDelivery

Mode: TypeAlias = OneOf["notify", "poll", "hybrid"]
MODES: Final = ("notify", "poll", "hybrid")
Strategy: TypeAlias = OneOf["round_robin", "sticky", "first"]
STRATEGIES: Final = ("round_robin", "sticky", "first")
HandlerOutcome: TypeAlias = OneOf["done", "failed", "timeout"]


@dataclass(frozen=True, slots=True)
class Retry:
    """How long a message waits after its nth failure: `first` · `factor`ⁿ⁻¹, at most `most`.

    With `jitter`, from 0 to 1, each wait is shorter by a random part of up to that much, so that messages that failed
    together do not return together.
    """

    first: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    most: timedelta = timedelta(minutes=5)
    jitter: float = 0.0

    def __post_init__(self) -> None:
        check_span("Retry: first", self.first, QueueOptionsError, least=timedelta(0))
        check_span("Retry: most", self.most, QueueOptionsError, least=timedelta(0))
        if not isinstance(self.factor, int | float) or not 0 < self.factor < math.inf:
            raise QueueOptionsError(f"Retry: factor: give a number above 0, not {self.factor!r}")
        if not isinstance(self.jitter, int | float) or not 0.0 <= self.jitter <= 1.0:
            raise QueueOptionsError(f"Retry: jitter is a number from 0 to 1, not {self.jitter!r}")

    def delay(self, attempts: int, random: Callable[[], float] = random) -> timedelta:
        """Return the delay before the next attempt, after this number of attempts."""
        grown = self.first.total_seconds() * self.factor ** min(max(attempts - 1, 0), 64)
        longest = min(timedelta(seconds=min(grown, 1e9)), self.most)
        return longest * (1.0 - self.jitter * random()) if self.jitter else longest


@dataclass(frozen=True, slots=True)
class HandlerReport:
    """What became of one call of a handler."""

    queue: str
    id: int  # of the delivery
    attempts: int  # this one included
    topic: str
    seconds: float
    outcome: HandlerOutcome
    problem: BaseException | None = None  # what the handler raised


Observer: TypeAlias = Callable[[HandlerReport], object]


@dataclass(frozen=True, slots=True)
class Member(Generic[D]):
    """One handler of a consumer group. It takes the messages that its filter and its predicate accept."""

    id: str
    handler: Callable[[D], object]
    filter: FilterLike | None = None
    predicate: Callable[[Message], bool] | None = None


def check_mode(mode: Mode) -> Mode:
    """Return the mode; QueueOptionsError if there is no such mode."""
    if mode not in MODES:
        raise QueueOptionsError(f"mode is one of {', '.join(MODES)}, not {mode!r}")
    return mode


def check_retry(retry: Retry) -> Retry:
    """Return the retry; QueueOptionsError if it is something else."""
    if not isinstance(retry, Retry):
        raise QueueOptionsError(
            f"retry: give a Retry, for example Retry(first=timedelta(seconds=1)), not {retry!r}"
        )
    return retry


def _check_member(member: object) -> None:
    if not isinstance(member, Member):
        raise QueueOptionsError(f"members: give a list of Member(id, handler), not {member!r}")
    check_function(
        "handler", member.handler, QueueOptionsError, "lambda delivery: print(delivery.message)"
    )
    if member.predicate is not None:
        check_function(
            "predicate",
            member.predicate,
            QueueOptionsError,
            "lambda message: message.priority > 3; a condition in text is a filter: filter=",
        )


class ConsumerGroup(Generic[D]):
    """Chooses for each message one of the members that accept it."""

    def __init__(self, members: Sequence[Member[D]], strategy: Strategy) -> None:
        if not members:
            raise QueueOptionsError(
                "a consumer needs at least one handler; give its group a Member"
            )
        if strategy not in STRATEGIES:
            raise QueueOptionsError(f"strategy is one of {', '.join(STRATEGIES)}, not {strategy!r}")
        for member in members:
            _check_member(member)
        self._strategy = strategy
        self._members = [(member, _acceptance(member)) for member in members]
        self._turn = itertools.count()
        self.filter = _union([member.filter for member in members])
        # Whether its members accept every message that the filter matches.
        self.is_exact = all(member.predicate is None for member in members)

    def choose(self, message: Message) -> Member[D] | None:
        """Return the member to call; None if no member accepts the message. A predicate that raises rejects it."""
        at = self._first(message)
        for member, accepts in (*self._members[at:], *self._members[:at]):
            if accepts(message):
                return member
        return None

    def _first(self, message: Message) -> int:
        """Return the position of the member that is asked first."""
        if self._strategy == "round_robin":
            return next(self._turn) % len(self._members)
        if self._strategy == "sticky" and message.key is not None:
            return zlib.crc32(message.key.encode()) % len(self._members)
        return 0


def _acceptance(member: Member[D]) -> Callable[[Message], bool]:
    """Return a function that says whether the member accepts a message."""
    tests: list[Callable[[Message], bool]] = []
    if member.filter is not None:
        tests.append(compile_predicate(as_filter(member.filter)))
    if member.predicate is not None:
        tests.append(_reject_on_error(member.predicate))
    return lambda message: all(test(message) for test in tests)


def _reject_on_error(predicate: Callable[[Message], bool]) -> Callable[[Message], bool]:
    def accepts(message: Message) -> bool:
        try:
            return bool(predicate(message))
        except KeyboardInterrupt:
            raise
        except BaseException:  # sys.exit too
            _log.warning("predicate failed on a message of topic %r", message.topic, exc_info=True)
            return False

    return accepts


def _union(filters: Sequence[FilterLike | None]) -> Filter | None:
    """Return a filter that matches what any of these filters matches; None if one of them is None, which matches everything."""
    trees = [as_filter(filter) for filter in filters if filter is not None]
    if len(trees) < len(filters):
        return None
    return trees[0] if len(trees) == 1 else join_terms(Or, trees)
