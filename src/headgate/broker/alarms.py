"""Alarms: while memory or disk runs low, or the store cannot commit, publishers are stopped; everything else goes on."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

log: Final = logging.getLogger(__name__)

WORDS: Final = {
    "memory": "low on memory",
    "disk": "low on disk",
    "store": "the store cannot commit",
}
DISK_FREE_BYTES: Final = 50_000_000
LOOK_S: Final = 1.0  # between two looks at memory and disk
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_CGROUP: Final = Path("/sys/fs/cgroup/memory.max")


class Alarms:
    """The alarms of a broker. `active` names those that stop publishers now."""

    def __init__(self) -> None:
        self.active: dict[str, None] = {}  # in the order in which they were raised
        self.memory_limit_bytes = 0
        self.disk_limit_bytes = DISK_FREE_BYTES
        self.on_change: list[Callable[[], None]] = []  # called when publishers are stopped or go on
        self._data: Path | None = None
        self._is_watching = False

    @property
    def reason(self) -> str:
        """Why publishers are stopped, in RabbitMQ's words."""
        return " & ".join(WORDS[name] for name in self.active)

    def limit(self, memory: float, disk_free_bytes: int) -> None:
        """Set the limits: memory as bytes, or up to 1 as a share of the machine's; disk as bytes that stay free."""
        self.memory_limit_bytes = int(memory * memory_bytes() if memory <= 1 else memory)
        self.disk_limit_bytes = disk_free_bytes

    def watch(self, data: Path | None, call_later: Callable[[float, Callable[[], None]], object]) -> None:  # fmt: skip
        """Look at memory, and at the disk of a directory, from now on until `stop`."""
        self._data, self._is_watching = data, True

        def look() -> None:
            if self._is_watching:
                self.look()
                call_later(LOOK_S, look)

        look()

    def stop(self) -> None:
        self._is_watching = False

    def look(self) -> None:
        """Raise and clear the alarms of memory and disk."""
        self.set("memory", 0 < self.memory_limit_bytes < used_bytes())
        if self._data is not None:
            self.set("disk", shutil.disk_usage(self._data).free < self.disk_limit_bytes)

    def set(self, name: str, is_raised: bool) -> None:
        """Raise or clear an alarm."""
        if is_raised == (name in self.active):
            return
        before = bool(self.active)
        if is_raised:
            self.active[name] = None
            log.warning("alarm raised: publishers are stopped", extra={"alarm": name})
        else:
            del self.active[name]
            log.warning("alarm cleared", extra={"alarm": name, "others": list(self.active)})
        if before != bool(self.active):
            for call in self.on_change:
                call()


def used_bytes() -> int:
    """The memory of this process; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


def memory_bytes() -> int:
    """The memory that this process may use: the machine's, or less in a container."""
    total = os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES
    try:
        return min(total, int(_CGROUP.read_text()))
    except (OSError, ValueError):
        return total
