"""Wait for changes in directories, by this process or another; polling only where the kernel does not report them.

On Linux the kernel reports when a file in the directory is written, created, renamed or removed (inotify). Elsewhere,
and where the kernel refuses, writers in this process call `notify`, and changes by other processes are found by polling
the directory, more and more slowly while nothing changes.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from headgate.forks import call_in_child

_IN_MODIFY, _IN_MOVED_FROM, _IN_MOVED_TO, _IN_CREATE, _IN_DELETE = 0x2, 0x40, 0x80, 0x100, 0x200
_IN_Q_OVERFLOW: Final = 0x4000
_EVENTS: Final = _IN_MODIFY | _IN_MOVED_FROM | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE
_EVENT: Final = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows
_FIRST_POLL, _SLOWEST_POLL = 0.002, 0.25  # seconds between polls without inotify

_waiting: dict[str, set[Watch]] = {}
_waiting_lock = threading.Lock()


def notify(directory: Path) -> None:
    """Wake every watch of the directory in this process."""
    if not _waiting:
        return
    with _waiting_lock:
        watches = list(_waiting.get(os.path.abspath(directory), ()))
    for watch in watches:
        if not watch.kernel_wakes:
            watch.wake()


class Watch:
    """Waits for changes in directories. A change between two waits is not lost: the next wait returns at once."""

    def __init__(
        self, *directories: Path, accepts: Callable[[str], bool] = lambda name: True
    ) -> None:
        """Watch directories; only files whose name is accepted wake."""
        self._directories, self._accepts = [os.path.abspath(d) for d in directories], accepts
        self._changed_in: set[str] | None = set()  # None: it may be any directory
        self._open()
        self._seen: object = None
        self._pause = _FIRST_POLL
        self._poll_directories()
        call_in_child(self, Watch._open_again)
        with _waiting_lock:
            for directory in self._directories:
                _waiting.setdefault(directory, set()).add(self)

    def _open(self) -> None:
        self._woken_read, self._woken_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._inotify, self._watched = _open_inotify(self._directories)
        self._poll = select.poll()
        self._poll.register(self._woken_read, select.POLLIN)
        if self._inotify is not None:
            self._poll.register(self._inotify, select.POLLIN)

    def _open_again(self) -> None:
        """Open own files in a forked child: the parent would miss what it reads from the inherited ones."""
        global _waiting_lock
        _waiting_lock = threading.Lock()  # a thread of the parent may have held it
        if self._woken_read >= 0:
            self._close_files()
            self._open()

    @property
    def kernel_wakes(self) -> bool:
        """Whether the kernel reports changes, so that `notify` is not needed."""
        return self._inotify is not None

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Files that an event loop may watch: once one is readable, `wait(0)` tells whether something changed."""
        return (self._woken_read,) if self._inotify is None else (self._woken_read, self._inotify)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until something changes (True) or `timeout` seconds have passed (False)."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if deadline is None else max(deadline - time.monotonic(), 0)
            if self._changed(left):
                return True
            if left is not None and deadline is not None and time.monotonic() >= deadline:
                return False

    def wake(self) -> None:
        """Make the running or the next `wait` return."""
        try:
            os.write(self._woken_write, b"\0")
        except (BlockingIOError, OSError):
            return  # the pipe is full, so that it is woken already, or closed

    def close(self) -> None:
        """Stop watching; idempotent."""
        with _waiting_lock:
            for directory in self._directories:
                watches = _waiting.get(directory, set())
                watches.discard(self)
                if not watches:
                    _waiting.pop(directory, None)
        self._close_files()

    def _close_files(self) -> None:
        for fd in (self._woken_read, self._woken_write, self._inotify):
            if fd is not None and fd >= 0:
                os.close(fd)
        self._woken_read = self._woken_write = -1
        self._inotify = None

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _changed(self, timeout: float | None) -> bool:
        """Wait once, for at most `timeout` seconds."""
        if self._inotify is None:
            timeout = self._pause if timeout is None else min(timeout, self._pause)
        ready = self._poll.poll(None if timeout is None else timeout * 1000)
        found = [self._drain(fd) for fd, _ in ready]
        return any(found) if self._inotify is not None else any(found) or self._poll_directories()

    def _drain(self, fd: int) -> bool:
        try:
            content = os.read(fd, 1 << 16)
        except BlockingIOError:
            return False
        if fd == self._woken_read:
            self._changed_in = None
            return True
        found = [directory for directory, name in self._read_events(content) if self._accepts(name)]
        self._note_changes(found)
        return bool(found)

    def _read_events(self, events: bytes) -> Iterator[tuple[str, str]]:
        """Yield directory and name of each changed file."""
        at = 0
        while at < len(events):
            watch, mask, _, length = _EVENT.unpack_from(events, at)
            at += _EVENT.size + length
            if mask & _IN_Q_OVERFLOW:  # the kernel has dropped events: look everywhere
                self.wake()
            name = events[at - length : at].rstrip(b"\0").decode("utf-8", "surrogateescape")
            yield self._watched.get(watch, ""), name

    def _note_changes(self, directories: Iterable[str]) -> None:
        if self._changed_in is not None:
            self._changed_in.update(directories)

    def take_changed(self) -> set[str] | None:
        """Return the directories that have changed since the last call, as far as waits found; None: any may have."""
        found, self._changed_in = self._changed_in, set()
        return found

    def _poll_directories(self) -> bool:
        seen = self._seen
        # No more files can be opened now, or the directory is gone: the next poll tries again.
        with suppress(OSError):
            self._seen = self._state()
        different = seen != self._seen
        if different:
            self._changed_in = None
        self._pause = _FIRST_POLL if different else min(self._pause * 2, _SLOWEST_POLL)
        return different

    def _state(self) -> object:
        """List the files of the directories, where inotify does not report changes."""
        if self._inotify is not None:
            return None
        return [_list_files(directory, self._accepts) for directory in self._directories]


def _list_files(directory: str, accepts: Callable[[str], bool]) -> set[tuple[str, int, int, int]]:
    seen = set()
    with os.scandir(directory) as found:
        for entry in found:
            with suppress(FileNotFoundError):  # it was removed since it was listed
                if accepts(entry.name):
                    stat = entry.stat()
                    seen.add((entry.name, stat.st_size, stat.st_mtime_ns, stat.st_ino))
    return seen


def _open_inotify(directories: Iterable[str]) -> tuple[int | None, dict[int, str]]:
    """Open a file descriptor that reports changes in the directories, by number; None where the system has none."""
    if not sys.platform.startswith("linux"):
        return None, {}
    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if fd < 0:
        return None, {}
    watched: dict[int, str] = {}
    for directory in directories:
        number: int = libc.inotify_add_watch(fd, os.fsencode(directory), _EVENTS)
        if number < 0:
            os.close(fd)
            return None, {}
        watched[number] = directory
    return fd, watched
