"""The account of a worker: messages by queue and outcome, and how long handlers took."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from headgate.queues import HandlerReport

# Upper bounds of the histogram of handler durations, in seconds; a last bucket has no bound.
BUCKETS: Final = (0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0)


@dataclass(frozen=True, slots=True)
class WorkCounts:
    """Counts that can be added up."""

    messages: Counter[tuple[str, str]] = field(default_factory=Counter)  # by queue and outcome
    buckets: Counter[tuple[str, int]] = field(default_factory=Counter)  # by queue and bucket
    # The time that handlers took, by queue; fractions of seconds.
    seconds: Counter[str] = field(default_factory=Counter)

    def add(self, other: WorkCounts) -> None:
        self.messages.update(other.messages)
        self.buckets.update(other.buckets)
        self.seconds.update(other.seconds)

    def outcomes(self, outcome: str) -> int:
        """Return how many messages of all queues had that outcome."""
        return sum(count for (_, each), count in self.messages.items() if each == outcome)


class WorkAccount:
    """The counts of a worker. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts = WorkCounts()
        self.processes = 1  # that are running
        self.replaced = 0  # processes that had to be replaced
        self.died = 0  # replaced processes that had ended by themselves or been killed

    def observe(self, report: HandlerReport) -> None:
        """Count one call of a handler."""
        bucket = bisect_left(BUCKETS, report.seconds)
        with self._lock:
            self._counts.messages[report.queue, report.outcome] += 1
            self._counts.buckets[report.queue, bucket] += 1
            self._counts.seconds[report.queue] += report.seconds  # type: ignore[assignment]

    def add(self, counts: WorkCounts) -> None:
        """Add the counts of another process."""
        with self._lock:
            self._counts.add(counts)

    def counts(self) -> WorkCounts:
        """Return a copy of all counts so far."""
        copied = WorkCounts()
        with self._lock:
            copied.add(self._counts)
        return copied

    def take(self) -> WorkCounts:
        """Return the counts since the last call, and begin to count anew."""
        with self._lock:
            taken, self._counts = self._counts, WorkCounts()
        return taken
