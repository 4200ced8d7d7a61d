"""The turns of processes that write to one file.

SQLite has one writer at a time, and a process that finds the file busy can only look again after a while: it comes too late,
or disturbs the one that writes. So a process locks the log (flock) for its turn to write, and the kernel wakes the next one
as soon as the log is free. This is advice: SQLite does not know of it, and its own lock decides who writes. So a turn is
waited for briefly, and a process that was stopped in the middle of its turn holds others up for no longer.
"""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path
from typing import Final

_LONGEST_WAIT_S: Final = 0.05
_CLOSED: Final = -1
_AT_ONCE: Final = fcntl.LOCK_EX | fcntl.LOCK_NB
_FREE: Final = fcntl.LOCK_UN
_lock: Final = fcntl.flock


class WriteTurns:
    """The turns of this process: `with turns:` is one, where possible. One thread at a time takes them.

    A wait for the lock of a file has no time limit, so a thread of its own waits for it. After the time limit that thread
    waits on, and until it is done, this process writes without turns.
    """

    def __init__(self, path: Path) -> None:
        """`path` is that of the database."""
        self._log = f"{os.path.realpath(path)}-wal"
        self._begin()

    def _begin(self) -> None:
        self._descriptor = _CLOSED
        self._has_turn = self._is_closed = False
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        self._is_waiting = self._is_wanted = False  # of the turn that the thread takes

    def __enter__(self) -> None:
        if self._is_waiting or self._is_closed:
            return
        try:
            if self._descriptor == _CLOSED:
                self._descriptor = os.open(self._log, os.O_RDONLY | os.O_CLOEXEC)
            try:
                _lock(self._descriptor, _AT_ONCE)
                self._has_turn = True
            except BlockingIOError:
                self._wait()
        except (OSError, RuntimeError):  # no log yet, a file system without such locks, no thread
            return
        except BaseException:  # an interruption, perhaps with a turn
            self._has_turn = self._descriptor != _CLOSED
            self.__exit__()
            raise

    def __exit__(self, *raised: object) -> None:
        if self._has_turn:
            _lock(self._descriptor, _FREE)
            self._has_turn = False

    def _wait(self) -> None:
        """Have the thread take a turn for the calling one; return without it after the time limit."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="headgate-turns", daemon=True)
            thread.start()
            self._thread = thread
        with self._changed:
            self._is_waiting = self._is_wanted = True
            self._changed.notify()
            try:
                self._changed.wait_for(lambda: not self._is_waiting, _LONGEST_WAIT_S)
            finally:
                self._is_wanted = False

    def _run(self) -> None:
        """In the thread: take the turns that are waited for, until `close`."""
        while self._is_asked():
            _lock(self._descriptor, fcntl.LOCK_EX)
            with self._changed:
                self._is_waiting, self._has_turn = False, self._is_wanted
                if not self._is_wanted:
                    _lock(self._descriptor, _FREE)
                self._changed.notify()
        os.close(self._descriptor)

    def _is_asked(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._is_waiting or self._is_closed)
            return not self._is_closed

    def let_go(self) -> None:
        """Close the log until the next turn: the connection that is closed last removes it. Not for use during a turn."""
        if not (self._is_waiting or self._is_closed or self._descriptor == _CLOSED):
            os.close(self._descriptor)
            self._descriptor = _CLOSED

    def close(self) -> None:
        """Take no more turns. Not for use during one; idempotent."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._changed.notify()
        if self._thread is None and self._descriptor != _CLOSED:
            os.close(self._descriptor)

    def leave_to_parent(self) -> None:
        """In a forked child: begin anew, and leave a turn that is under way to the parent."""
        if self._descriptor != _CLOSED and not self._is_closed:
            os.close(self._descriptor)
        self._begin()
