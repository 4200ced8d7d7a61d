"""Alarms: while memory or disk runs low, or the store cannot commit, publishers are stopped; everything else goes on."""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Final

log: Final = logging.getLogger(__name__)

WORDS: Final = {
    "memory": "low on memory",
    "disk": "low on disk",
    "store": "the store cannot commit",
    "streams": "a stream cannot be written",
}
DISK_FREE_BYTES: Final = 50_000_000
LOOK_S: Final = 0.5  # between two measurements of memory and disk
RELEASE_PAUSE: Final = 10  # the pause after releasing memory, as a multiple of the time that took
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_CGROUP: Final = Path("/sys/fs/cgroup/memory.max")


class Alarms:
    """The alarms of a broker. `active` names those that stop publishers now."""

    def __init__(self) -> None:
        self.active: dict[str, None] = {}  # in the order in which they were raised
        self.behind: set[object] = set()  # stores with too much to write; clients are not told
        self._unwritable: set[object] = set()  # streams
        self.memory_limit_bytes = 0
        self.disk_limit_bytes = DISK_FREE_BYTES
        self.on_change: list[Callable[[], None]] = []  # called when anything above changes
        self._next_release = 0.0  # by `perf_counter`
        self._data: Path | None = None
        self._is_watching = self._lacks_descriptors = False

    @property
    def reason(self) -> str:
        """Why publishers are stopped, in RabbitMQ's words."""
        return " & ".join(WORDS[name] for name in self.active)

    @property
    def stops_publishers(self) -> bool:
        return bool(self.active or self.behind)

    def limit(self, memory: float, disk_free_bytes: int) -> None:
        """Set the limits: memory as bytes, or up to 1 as a share of the machine's; disk as bytes that stay free."""
        self.memory_limit_bytes = int(memory * memory_bytes() if memory <= 1 else memory)
        self.disk_limit_bytes = disk_free_bytes

    def watch(self, data: Path | None, call_later: Callable[[float, Callable[[], None]], object]) -> None:  # fmt: skip
        """Measure memory, and the disk of a directory, regularly until `stop`."""
        self._data, self._is_watching = data, True

        def look() -> None:
            if self._is_watching:
                self.look()
                call_later(LOOK_S, look)

        look()

    def stop(self) -> None:
        self._is_watching = False

    def look(self) -> None:
        """Measure memory and disk now, and raise or clear their alarms."""
        if self._data is not None:
            self.set("disk", shutil.disk_usage(self._data).free < self.disk_limit_bytes)
        self._look_at_descriptors()
        if not self._lacks_descriptors:  # else nothing can be read, and the alarm stays as it is
            self.set("memory", self._is_low_on_memory())

    def _look_at_descriptors(self) -> None:
        """Log when the process runs out of file descriptors, and when some are free again."""
        lacks = not has_free_descriptor()
        if lacks and not self._lacks_descriptors:
            log.error(
                "out of file descriptors: new connections are refused; raise LimitNOFILE or ulimit -n"
            )
        elif self._lacks_descriptors and not lacks:
            log.warning("file descriptors are free again: new connections are accepted")
        self._lacks_descriptors = lacks

    def _is_low_on_memory(self) -> bool:
        if not 0 < self.memory_limit_bytes < used_bytes():
            return False
        if "memory" not in self.active:
            return True
        self._release_memory()
        return self.memory_limit_bytes < used_bytes()

    def _release_memory(self) -> None:
        """Return the memory of deleted messages to the system: otherwise the alarm might never be cleared.

        It takes up to half a second, in which the broker does nothing else: in another thread it would hold the lock of
        the allocator, which the broker needs for every larger message.
        """
        began = perf_counter()
        if began >= self._next_release:
            release_free_memory()
            ended = perf_counter()
            self._next_release = ended + RELEASE_PAUSE * (ended - began)

    def set(self, name: str, is_raised: bool) -> None:
        """Raise or clear an alarm."""
        if is_raised == (name in self.active):
            return
        if is_raised:
            self.active[name] = None
            log.warning("alarm raised: publishers are stopped", extra={"alarm": name})
        else:
            del self.active[name]
            log.warning("alarm cleared", extra={"alarm": name, "others": list(self.active)})
        self._tell()

    def set_unwritable(self, stream: object, is_unwritable: bool) -> None:
        """Raise the alarm of streams while one of them cannot be written."""
        (self._unwritable.add if is_unwritable else self._unwritable.discard)(stream)
        self.set("streams", bool(self._unwritable))

    def set_behind(self, store: object, is_behind: bool) -> None:
        """Stop publishers while a store has more to write than should wait in memory."""
        if is_behind != (store in self.behind):
            (self.behind.add if is_behind else self.behind.discard)(store)
            self._tell()

    def _tell(self) -> None:
        for call in self.on_change:
            call()


def has_free_descriptor() -> bool:
    """Whether this process may open another file or connection."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as problem:
        return problem.errno not in (errno.EMFILE, errno.ENFILE)
    return True


def used_bytes() -> int:
    """The memory of this process; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


def release_free_memory() -> None:
    """Give memory that was freed back to the system; the C library keeps it otherwise."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone
    if trim is not None:
        trim(0)


def memory_bytes() -> int:
    """The memory that this process may use: the machine's, or less in a container."""
    total = os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES
    try:
        return min(total, int(_CGROUP.read_text()))
    except (OSError, ValueError):
        return total
