"""What a consumer of threads and one of tasks have in common: their settings, and the book they keep."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import timedelta
from threading import Lock
from typing import Final, TypeAlias
from typing import Literal as OneOf

from headgate.errors import QueueError, QueueOptionsError, StaleLease
from headgate.queues import arguments
from headgate.queues.engine import ClaimedMessage, IndexAdvice, Outcome, Receipt, Usage
from headgate.queues.sql.search import RejectedIds, skipping

_log = logging.getLogger(__name__)

Mode: TypeAlias = OneOf["notify", "poll", "hybrid"]
MODES: Final = ("notify", "poll", "hybrid")

RECONNECT_S: Final = (0.1, 5.0)  # after the database was out of reach: first, longest
ACK_WITHIN_S: Final = 0.05  # after the handler returned; acks of that time are one
_REPORT_S: Final = 5.0  # between two reports of what was done
_LONGEST_REASON: Final = 1000  # characters


@dataclass(frozen=True, slots=True)
class Retry:
    """How long a message waits after its nth failure: `first` · `factor`ⁿ⁻¹, at most `most`."""

    first: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    most: timedelta = timedelta(minutes=5)

    def delay(self, attempts: int) -> timedelta:
        grown = self.first.total_seconds() * self.factor ** min(max(attempts - 1, 0), 64)
        return min(timedelta(seconds=min(grown, 1e9)), self.most)


def known_mode(mode: Mode) -> Mode:
    """The mode, if there is such a one."""
    if mode not in MODES:
        raise QueueOptionsError(f"mode is one of {', '.join(MODES)}, not {mode!r}")
    return mode


def reason_of(problem: BaseException) -> str:
    """Why a handler failed, as a dead letter tells it."""
    return f"{type(problem).__name__}: {problem}"[:_LONGEST_REASON]


def warn_of_scans(queue: str, advice: IndexAdvice) -> None:
    if advice.scans and advice.suggestions:
        _log.warning(
            "claims from %r with this filter read everything that is ready; declare %s as filter headers",
            queue,
            ", ".join(advice.suggestions),
        )


def warn_of_trouble(queue: str, problem: BaseException) -> None:
    """What is not expected is shown with its trace."""
    known = isinstance(problem, QueueError)
    _log.warning("consumer of %r: %s; trying again", queue, problem, exc_info=not known)


class Ledger:
    """What a consumer holds, what it will not take again, and what it did. Safe to use from several threads."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._lock = Lock()
        self._held: dict[Receipt, None] = {}
        self._handled: list[Receipt] = []
        self._handled_since = 0.0
        self._unwanted = RejectedIds()
        self._counts: Counter[str] = Counter()
        self._since = time.monotonic()

    # -- what is held, and what is not wanted --

    def took(self, claimed: Sequence[ClaimedMessage], spent_us: int) -> None:
        """A claim that took that long gave these; they are held until they are forgotten."""
        with self._lock:
            self._held.update(dict.fromkeys(one.receipt for one in claimed))
        self.count(claims=1, empty_claims=int(not claimed), rows=len(claimed), claim_us=spent_us)

    def held(self) -> list[Receipt]:
        with self._lock:
            return list(self._held)

    def forget(self, receipts: Iterable[Receipt]) -> None:
        """They are settled, or left to the end of their lease."""
        with self._lock:
            for receipt in receipts:
                self._held.pop(receipt, None)

    # -- what is handled, and still to be acked --

    def add_handled(self, receipt: Receipt) -> None:
        with self._lock:
            if not self._handled:
                self._handled_since = time.monotonic()
            self._handled.append(receipt)

    @contextmanager
    def acking(self) -> Iterator[list[Receipt]]:
        """All that is handled, for the caller to ack; if that fails, it is still to be acked."""
        with self._lock:
            acks, self._handled = self._handled, []
        try:
            yield acks
        except BaseException:
            with self._lock:
                self._handled[:0] = acks
            raise

    def seconds_to_ack(self) -> float | None:
        """How long the next ack may still wait; None when nothing is to be acked."""
        with self._lock:
            if not self._handled:
                return None
            return max(self._handled_since + ACK_WITHIN_S - time.monotonic(), 0.0)

    def give_up_acking(self, problem: QueueError) -> None:
        """What is handled cannot be acked any more."""
        with self._lock:
            left, self._handled = len(self._handled), []
        _log.warning("%d messages of %r will come again: %s", left, self._queue, problem)

    def acked(self, receipts: Sequence[Receipt], outcomes: Sequence[Outcome]) -> None:
        """They are not held any more, and what came too late is said."""
        self.forget(receipts)
        self.count(acked=sum(outcome is Outcome.DONE for outcome in outcomes))
        try:
            arguments.check_settled(self._queue, receipts, outcomes, "ack")
        except StaleLease as stale:
            _log.warning("%s", stale)

    def reject(self, ids: Iterable[int]) -> None:
        """Nobody here wants them: they are not to be claimed again."""
        with self._lock:
            new = {id for id in ids if id not in self._unwanted}
            self._unwanted.update(new)
            self._counts["unmatched"] += len(new)

    def unwanted(self) -> Collection[int]:
        """What is not to be claimed again."""
        with self._lock:
            return skipping(self._unwanted)

    # -- numbers --

    def count(self, **counts: int) -> None:
        with self._lock:
            self._counts.update(counts)

    def is_report_due(self) -> bool:
        return time.monotonic() - self._since >= _REPORT_S

    def report(self) -> Usage:
        """What was done since the last report."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
            self._since = time.monotonic()
        return Usage(**{field.name: counts[field.name] for field in fields(Usage)})
