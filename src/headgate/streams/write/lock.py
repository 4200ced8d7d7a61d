"""One writer at a time: an flock on the stream's lock file, whose content names the holder.

The kernel releases the lock when its holder dies, however it dies. The name that stays in the file is only read
while the lock is held.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final

from headgate.errors import StreamLocked, StreamWriteError
from headgate.forks import call_in_child
from headgate.streams.format import LOCK_FILE

_READERS_S: Final = 5.0  # seconds to wait for readers, which hold the lock for some milliseconds


class WriterLock:
    """The right to write to a stream, from construction to `release`."""

    def __init__(self, directory: Path, purpose: str, file: str = LOCK_FILE) -> None:
        path = directory / file
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as problem:
            raise StreamWriteError(
                f"{directory} cannot be written: {problem.strerror}; let this user write there (reading needs no lock)"
            ) from problem
        if not _acquire(self._fd):
            holder = _holder(self._fd)
            os.close(self._fd)
            raise StreamLocked(str(directory), holder)
        call_in_child(self, WriterLock._leave_to_parent)
        self.name(purpose)

    def name(self, purpose: str) -> None:
        """Write the holder into the lock file, for the error of a refused writer."""
        known = {"pid": os.getpid(), "host": socket.gethostname(), "purpose": purpose}
        content = json.dumps({**known, "since": datetime.now(UTC).isoformat(timespec="seconds")})
        with suppress(OSError):  # on a full disk the lock is held without a name
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, content.encode(), 0)

    def release(self) -> None:
        if self._fd >= 0:
            with suppress(OSError):  # a disk that fails does not keep the lock
                os.ftruncate(self._fd, 0)
            # Closing alone is not enough: a child that was forked meanwhile may have the file open as well.
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            os.close(self._fd)
        self._fd = -1

    def _leave_to_parent(self) -> None:
        """In a forked child: close without unlocking, which would unlock it for the parent too."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def __enter__(self) -> WriterLock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def _acquire(fd: int) -> bool:
    """Take the lock; False when a writer has it. Wait for readers that read what a dead writer left."""
    deadline = time.monotonic() + _READERS_S
    while not _lock(fd, fcntl.LOCK_EX):
        # Only a writer refuses a shared lock.
        if not _lock(fd, fcntl.LOCK_SH) or time.monotonic() > deadline:
            return False
        fcntl.flock(fd, fcntl.LOCK_UN)
        time.sleep(0.001)
    return True


def _lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def hold_lock(file: Path) -> Iterator[None]:
    """Hold the lock on this file, created when missing, and wait for other holders. For a moment only."""
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)  # a child that was forked meanwhile may have it open
        os.close(fd)


@contextmanager
def exclude_writers(directory: Path, file: str = LOCK_FILE) -> Iterator[bool]:
    """Yield whether there is no writer, and keep writers out meanwhile. For readers, and for a moment only."""
    try:
        fd = os.open(directory / file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # there never was a writer
        yield True
        return
    except OSError:
        yield False
        return
    try:
        alone = _lock(fd, fcntl.LOCK_SH)
        yield alone
    finally:
        if alone:
            fcntl.flock(fd, fcntl.LOCK_UN)  # a child that was forked meanwhile may have it open
        os.close(fd)


def _holder(fd: int) -> dict[str, object]:
    try:
        found = json.loads(os.pread(fd, 4096, 0))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def is_held(directory: Path, file: str = LOCK_FILE) -> bool:
    """Whether a writer holds the lock at this moment."""
    with exclude_writers(directory, file) as alone:
        return not alone
