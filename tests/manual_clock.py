"""A clock that moves when told to."""

from __future__ import annotations

from datetime import timedelta

from headgate.clock import Clock

_MICROSECOND = timedelta(microseconds=1)


class ManualClock:
    """Time since the machine started, and the time of day, which somebody may set."""

    def __init__(self) -> None:
        self.elapsed_us = 1_000_000_000
        self.wall_us = 1_700_000_000_000_000
        self.boot_id = "boot-1"
        self.clock = Clock(lambda: self.wall_us, lambda: self.elapsed_us, lambda: self.boot_id)

    def advance(self, span: timedelta) -> None:
        """Time passes."""
        self.elapsed_us += span // _MICROSECOND
        self.wall_us += span // _MICROSECOND

    def set_wall_clock(self, by: timedelta) -> None:
        """Somebody sets the time of day."""
        self.wall_us += by // _MICROSECOND

    def restart_machine(self) -> None:
        self.elapsed_us, self.boot_id = 5_000_000, self.boot_id + "+"
