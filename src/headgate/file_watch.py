"""Wait for changes in directories, by this process or another; polling only where the kernel does not report them.

All watches of a process share one inotify instance, and one thread that reads it: the kernel grants a user few instances
(128 by default), and a thread for each watch would be too many. The thread runs while there are watches.

A process that is the only one to change a directory says so with an `Announcer`, and then wakes the watches of this
process itself; the kernel is asked about the directories that others change. Where the kernel refuses, or elsewhere than on
Linux, the thread polls the directory, more and more slowly while nothing changes.
"""

from __future__ import annotations

import ctypes
import logging
import os
import select
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Final

from headgate.forks import call_in_child, call_in_every_child

_log = logging.getLogger(__name__)

_IN_MODIFY, _IN_MOVED_FROM, _IN_MOVED_TO, _IN_CREATE, _IN_DELETE = 0x2, 0x40, 0x80, 0x100, 0x200
_IN_Q_OVERFLOW, _IN_IGNORED = 0x4000, 0x8000
_EVENTS: Final = _IN_MODIFY | _IN_MOVED_FROM | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE
_EVENT: Final = struct.Struct("iIII")  # number, mask, cookie, length of the name that follows
_FIRST_POLL, _SLOWEST_POLL = 0.002, 0.25  # seconds between polls without inotify
_POLLED_SHARE: Final = 0.05  # of the time that polling may take at most


class Watch:
    """Waits for changes in directories. A change between two waits is not lost: the next wait returns at once."""

    def __init__(
        self,
        *directories: Path,
        accepts: Callable[[str], bool] = lambda name: True,
        on_change: Callable[[], object] | None = None,
    ) -> None:
        """Watch directories; only changes of files whose name is accepted end a wait.

        Instead of waiting, give `on_change`: it is called by the thread that reports changes, and must not block.
        """
        self.directories, self.accepts = [os.path.abspath(d) for d in directories], accepts
        self._on_change, self._closed = on_change, False
        self._forget_changes()
        _watcher.add(self)
        if on_change is not None:
            _watcher.start()
        call_in_child(self, Watch._begin_in_child)

    def _forget_changes(self) -> None:
        self._noting = threading.Lock()
        self._changed_in: set[str] | None = set()  # None: it may be any directory
        self._wakes: SimpleQueue[None] = SimpleQueue()

    def _begin_in_child(self) -> None:
        """In a forked child, watch without what was reported to the parent; a watch with `on_change` is not continued."""
        self._forget_changes()
        if not self._closed and self._on_change is None:
            _watcher.add(self)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until something changes (True) or `timeout` seconds have passed (False)."""
        if timeout is not None and timeout <= 0:
            _watcher.read()
            timeout = 0
        elif not self.is_told:
            _watcher.start()
        try:
            self._wakes.get(timeout=timeout)
        except Empty:
            return False
        with suppress(Empty):
            while True:  # those that came at the same time
                self._wakes.get_nowait()
        return True

    def wake(self) -> None:
        """Make the running or the next `wait` return."""
        self.note_change(None)

    def note_change(self, directory: str | None) -> None:
        """Note that a directory has changed, or with None that any may have, and wake."""
        with self._noting:
            if directory is None:
                self._changed_in = None
            elif self._changed_in is not None:
                self._changed_in.add(directory)
        if self._on_change is not None:
            self._on_change()
        elif not self.is_told:
            self._wakes.put(None)

    @property
    def is_told(self) -> bool:
        """Whether a change was reported that no `wait` has returned for yet."""
        return not self._wakes.empty()

    @property
    def is_announced(self) -> bool:
        """Whether all changes are announced by this process, so that none can be missed."""
        return _watcher.are_announced(self.directories)

    def take_changed(self) -> set[str] | None:
        """Return the directories that have changed since the last call; None: any may have."""
        with self._noting:
            found, self._changed_in = self._changed_in, set()
        return found

    def close(self) -> None:
        """Stop watching; idempotent."""
        if not self._closed:
            self._closed = True
            _watcher.remove(self)

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Announcer:
    """Held by the only writer of a directory: until it is closed, it wakes the watches of this process instead of the kernel."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._watcher = os.path.abspath(directory), _watcher
        self._watcher.announce(self._directory, 1)

    def notify(self) -> None:
        """Wake every watch of the directory in this process."""
        self._watcher.notify(self._directory)

    def close(self) -> None:
        """Let the kernel report again, since others may change the directory from now on. To be called once."""
        self._watcher.announce(self._directory, -1)


# ---- the one watcher of a process --------------------------------------------------------------------


class _Folder:
    """A watched directory: the kernel's number for it, or what was seen there when it was polled."""

    __slots__ = ("number", "path", "seen", "watches")

    def __init__(self, path: str) -> None:
        self.path = path
        self.watches: set[Watch] = set()
        self.number: int | None = None
        self.seen: object = None


class _Watcher:
    """Every watch of this process. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folders: dict[str, _Folder] = {}
        self._announced: Counter[str] = Counter()
        self._by_number: dict[int, set[_Folder]] = {}  # several: links to one directory
        self._polled: set[_Folder] = set()
        self._inotify: int | None = None
        self._reader: _Reader | None = None

    def add(self, watch: Watch) -> None:
        """Report changes to this watch."""
        with self._lock:
            for path in watch.directories:
                folder = self._folders.setdefault(path, _Folder(path))
                folder.watches.add(watch)
                self._observe(folder)

    def remove(self, watch: Watch) -> None:
        """Report no more to this watch. Without any watch the thread ends, and the kernel's instance is closed."""
        with self._lock:
            for path in watch.directories:
                folder = self._folders.get(path)
                if folder is not None:
                    folder.watches.discard(watch)
                    if not folder.watches:
                        self._ignore(folder)
                        del self._folders[path]
            ended = None if self._folders else self._reader
            if ended is not None:
                self._reader = None
        if ended is not None:
            ended.end()
        with self._lock:
            if not self._folders and self._reader is None and self._inotify is not None:
                os.close(self._inotify)
                self._inotify = None

    def start(self) -> None:
        """Have the thread run as long as there are watches, and read what the kernel reports from now on."""
        if self._reader is None:
            with self._lock:
                if self._reader is None and self._folders:
                    self._reader = _Reader(self)
        elif self._reader.rests:
            self._reader.resume()

    def announce(self, path: str, number: int) -> None:
        """Change the number of announcers of a directory in this process; while there are any, the kernel is not asked."""
        with self._lock:
            self._announced[path] += number
            if self._announced[path] <= 0:
                del self._announced[path]
            folder = self._folders.get(path)
            if folder is not None:
                self._ignore(folder)
                self._observe(folder)
        if folder is not None:
            self.notify(path)  # a change that the kernel had to report until now would be lost

    def are_announced(self, paths: Iterable[str]) -> bool:
        """Whether this process announces the changes of all these directories."""
        return all(path in self._announced for path in paths)

    def notify(self, path: str) -> None:
        """Tell the watches of a directory that it has changed."""
        if path in self._folders:
            with self._lock:
                folder = self._folders.get(path)
                watches = [] if folder is None else list(folder.watches)
            _tell((watch, path) for watch in watches)

    def read(self) -> None:
        """Pass on what the kernel has reported by now."""
        if self._inotify is None:
            return
        try:
            with self._lock:
                found = list(self._read_reports())
            _tell(found)
        except BaseException:  # interrupted: what was read must not be lost
            self._tell_all()
            raise

    def poll(self) -> bool:
        """Look at the directories that the kernel does not report; return whether any has changed."""
        with self._lock:
            polled = list(self._polled)
        changed = [folder for folder in polled if _look(folder)]
        _tell((watch, folder.path) for folder in changed for watch in list(folder.watches))
        return bool(changed)

    def are_told(self) -> bool:
        """Whether every watch was told of a change that it has not waited for yet."""
        with self._lock:
            folders = self._folders.values()
            return all(watch.is_told for folder in folders for watch in folder.watches)

    @property
    def polls(self) -> bool:
        return bool(self._polled)

    @property
    def descriptor(self) -> int | None:
        """The inotify instance; None before the kernel was asked."""
        return self._inotify

    def _observe(self, folder: _Folder) -> None:
        """Have a directory reported by the kernel, by polling, or not at all while it is announced."""
        if folder.number is not None or folder in self._polled or folder.path in self._announced:
            return
        if self._inotify is None:
            self._inotify = _open_inotify()
            self._wake_reader()
        folder.number = None if self._inotify is None else _add_watch(self._inotify, folder.path)
        if folder.number is None:
            self._polled.add(folder)
            _look(folder)
            self._wake_reader()
        else:
            self._by_number.setdefault(folder.number, set()).add(folder)

    def _ignore(self, folder: _Folder) -> None:
        """Have a directory reported no more."""
        self._polled.discard(folder)
        number, folder.number = folder.number, None
        if number is None or number not in self._by_number:
            return
        self._by_number[number].discard(folder)
        if not self._by_number[number]:
            del self._by_number[number]
            if self._inotify is not None:
                _remove_watch(self._inotify, number)

    def _wake_reader(self) -> None:
        if self._reader is not None:
            self._reader.wake()

    def _read_reports(self) -> Iterator[tuple[Watch, str | None]]:
        """Yield every watch that is to be told, and the directory that has changed; None: any may have."""
        while self._inotify is not None:
            try:
                content = os.read(self._inotify, 1 << 16)
            except BlockingIOError:
                return
            for number, mask, name in _read_events(content):
                if mask & _IN_Q_OVERFLOW:  # the kernel has dropped events: look everywhere
                    yield from [(w, None) for f in self._folders.values() for w in f.watches]
                for folder in list(self._by_number.get(number, ())):
                    if (
                        mask & _IN_IGNORED
                    ):  # the directory was removed; there may be another one later
                        self._by_number.pop(number, None)
                        folder.number = None
                        self._polled.add(folder)
                        self._wake_reader()
                    for watch in folder.watches:
                        if mask & _IN_IGNORED or watch.accepts(name):
                            yield watch, folder.path

    def _tell_all(self) -> None:
        with self._lock:
            watches = [w for folder in self._folders.values() for w in folder.watches]
        _tell((watch, None) for watch in watches)

    def leave_to_parent(self) -> None:
        """In a forked child: close the inherited files, from which it would take the reports of its parent."""
        inotify, self._inotify = self._inotify, None
        if inotify is not None:
            os.close(inotify)
        if self._reader is not None:
            self._reader.close_files()


class _Reader:
    """The thread that waits for reports of the kernel, and polls where there are none.

    It rests while all watches have a change to look at: the kernel keeps the reports, and adds none that is like the last.
    """

    def __init__(self, watcher: _Watcher) -> None:
        self._watcher, self._ended, self.rests = watcher, False, False
        self._files: tuple[int, ...] = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="headgate file watch", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Let the thread look at what is to be watched now."""
        with suppress(BlockingIOError, OSError, ValueError):  # full: it is woken already; or closed
            os.write(self._files[-1], b"\0")

    def resume(self) -> None:
        """Read again what the kernel reports."""
        self.rests = False
        self.wake()

    def end(self) -> None:
        """End the thread, and wait for that, except in the thread itself."""
        self._ended = True
        self.wake()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def close_files(self) -> None:
        files, self._files = self._files, (-1,)
        for fd in files:
            os.close(fd)

    def _run(self) -> None:
        pause, woken = _FIRST_POLL, self._files[0]
        while not self._ended:
            poll = select.poll()
            for fd in (woken, None if self.rests else self._watcher.descriptor):
                if fd is not None:
                    poll.register(fd, select.POLLIN)
            poll.poll(pause * 1000 if self._watcher.polls else None)
            with suppress(BlockingIOError):
                os.read(woken, 1 << 16)
            try:
                self._watcher.read()
                pause = self._poll(pause)
                self.rests = True  # first: who waits from now on resumes it
                self.rests = self._watcher.are_told()
            except Exception:  # only the last watch ends this thread
                _log.exception("file changes could not be reported")
        self.close_files()

    def _poll(self, pause: float) -> float:
        """Poll once, if there is something to poll; return the seconds until the next time."""
        if not self._watcher.polls:
            return _FIRST_POLL
        began = time.monotonic()
        changed = self._watcher.poll()
        pause = _FIRST_POLL if changed else min(pause * 2, _SLOWEST_POLL)
        return max(pause, (time.monotonic() - began) / _POLLED_SHARE)


def _tell(changes: Iterable[tuple[Watch, str | None]]) -> None:
    for watch, directory in changes:
        try:
            watch.note_change(directory)
        except Exception:  # the others must be told
            _log.exception("a change of %s could not be reported", directory)


def _look(folder: _Folder) -> bool:
    """Look at a directory; return whether it has changed since the last time."""
    # No more files can be opened now, or the directory is gone: the next look tries again.
    with suppress(OSError):
        seen, folder.seen = folder.seen, _list_files(folder)
        return seen != folder.seen
    return False


def _list_files(folder: _Folder) -> set[tuple[str, int, int, int]]:
    seen = set()
    with os.scandir(folder.path) as found:
        for entry in found:
            with suppress(FileNotFoundError):  # it was removed since it was listed
                if any(watch.accepts(entry.name) for watch in list(folder.watches)):
                    stat = entry.stat()
                    seen.add((entry.name, stat.st_size, stat.st_mtime_ns, stat.st_ino))
    return seen


# ---- inotify -----------------------------------------------------------------------------------------


def _open_inotify() -> int | None:
    """Open a file descriptor that reports changes; None where the system has none, or grants none."""
    if not sys.platform.startswith("linux"):
        return None
    fd: int = ctypes.CDLL(None, use_errno=True).inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    return None if fd < 0 else fd


def _add_watch(inotify: int, directory: str) -> int | None:
    """Have changes in a directory reported, and return its number; None when the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    number: int = libc.inotify_add_watch(inotify, os.fsencode(directory), _EVENTS)
    return None if number < 0 else number


def _remove_watch(inotify: int, number: int) -> None:
    ctypes.CDLL(None, use_errno=True).inotify_rm_watch(inotify, number)


def _read_events(events: bytes) -> Iterator[tuple[int, int, str]]:
    """Yield number, mask and file name of each event."""
    at = 0
    while at < len(events):
        number, mask, _, length = _EVENT.unpack_from(events, at)
        at += _EVENT.size + length
        name = events[at - length : at].rstrip(b"\0").decode("utf-8", "surrogateescape")
        yield number, mask, name


def _begin_in_child() -> None:
    global _watcher
    inherited, _watcher = _watcher, _Watcher()
    inherited.leave_to_parent()


_watcher = _Watcher()
# Registered before any watch, so that a forked child has its own watcher before its watches begin anew.
call_in_every_child(_begin_in_child)
