"""What consumers of this process have done, counted for metrics."""

from __future__ import annotations

from collections import Counter
from threading import Lock
from typing import Final

from headgate.forks import keep_across_forks


class ProcessTally:
    """Counts by name and by queue or stream; from any thread."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._lock = keep_across_forks(Lock())

    def add(self, of: str, **counts: int) -> None:
        """Add to the counts of a queue or a stream."""
        with self._lock:
            for name, count in counts.items():
                self._counts[name, of] += count

    def read(self, name: str) -> dict[str, int]:
        """One count, by queue or stream."""
        with self._lock:
            return {of: count for (found, of), count in self._counts.items() if found == name}


QUEUES: Final = ProcessTally()
STREAMS: Final = ProcessTally()
