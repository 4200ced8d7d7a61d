"""The clock: the time of day, and a time for leases that does not jump when the clock of the machine is set.

A lease must not end early, or never, because the clock was set. So the time of a SQLite database is the time since the
machine started plus an offset, which the first process that opens the database after a start stores in it: about the
time of day, and never set.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def now_us() -> int:
    """Return the time of day, in microseconds since 1970 UTC."""
    return time.time_ns() // 1000


def seconds_since_change(path: Path) -> float:
    """Return how long ago a file or directory was last modified."""
    return now_us() / 1_000_000 - path.stat().st_mtime


def _since_boot_us() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


# Since the machine started, sleep included; where the system cannot tell, the time of day.
elapsed_us: Final = _since_boot_us if sys.platform.startswith("linux") else now_us


def boot_id() -> str:
    """Return the identity of the current start of the machine."""
    return _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else "unknown"


@dataclass(frozen=True, slots=True)
class Clock:
    """The functions that tell the time; tests replace them."""

    wall_us: Callable[[], int] = now_us
    elapsed_us: Callable[[], int] = elapsed_us
    boot_id: Callable[[], str] = boot_id


def first_offset(clock: Clock, *known_us: int) -> int:
    """Compute the offset for a new start of the machine: the time of day, but not before a time known to be past."""
    return max(clock.wall_us(), *known_us) - clock.elapsed_us()
