"""What all scans of this process have done, for metrics."""

from __future__ import annotations

from dataclasses import fields, replace
from threading import Lock
from typing import Final

from headgate.streams.read.plan import ScanStats

_NAMES: Final = tuple(field.name for field in fields(ScanStats))


class ScanTotals:
    """Adds up what scans have done; from any thread."""

    def __init__(self) -> None:
        self._lock, self._total = Lock(), ScanStats()

    def add(self, before: ScanStats, after: ScanStats) -> None:
        """Add what was counted between two moments of one scan."""
        with self._lock:
            for name in _NAMES:
                done = getattr(after, name) - getattr(before, name)
                setattr(self._total, name, getattr(self._total, name) + done)

    def read(self) -> ScanStats:
        with self._lock:
            return replace(self._total)


SCAN_TOTALS: Final = ScanTotals()
