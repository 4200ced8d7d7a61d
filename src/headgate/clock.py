"""Time for a database that has no clock of its own.

A lease must not end early, or never, because somebody set the clock of the machine. So the time of a SQLite database
is the time since the machine started, which nobody sets, plus an offset that the first to open the database
after a start writes down for all: then it is about the time of day.
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
    """Microseconds since 1970 UTC."""
    return time.time_ns() // 1000


def _since_boot_us() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


# Since the machine started, sleep included; where that cannot be had, the time of day.
elapsed_us: Final = _since_boot_us if sys.platform.startswith("linux") else now_us


def boot_id() -> str:
    """Which start of the machine this is."""
    return _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else "unknown"


@dataclass(frozen=True, slots=True)
class Clock:
    """Where time comes from; tests bring their own."""

    wall_us: Callable[[], int] = now_us
    elapsed_us: Callable[[], int] = elapsed_us
    boot_id: Callable[[], str] = boot_id


def first_offset(clock: Clock, *known_us: int) -> int:
    """The offset for a new start of the machine: the time of day, but not before what is known to be past."""
    return max(clock.wall_us(), *known_us) - clock.elapsed_us()
