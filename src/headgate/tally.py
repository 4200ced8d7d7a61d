"""What consumers of this process have done, counted for metrics."""

from __future__ import annotations

from collections import Counter
from threading import Lock
from typing import Final

from headgate.forks import keep_across_forks


class ProcessTally:
    """Counts by name; from any thread."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = keep_across_forks(Lock())

    def add(self, **counts: int) -> None:
        with self._lock:
            self._counts.update(counts)

    def read(self, name: str) -> int:
        with self._lock:
            return self._counts[name]


QUEUES: Final = ProcessTally()
STREAMS: Final = ProcessTally()
