"""One writer at a time: an flock on the stream's lock file, whose content says who holds it.

The kernel lets go of the lock when its holder dies, however it dies; the name that stays behind in the file is
only read when the lock is held.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from headgate.errors import StreamLocked
from headgate.forks import call_in_child
from headgate.streams.layout import LOCK_FILE


class WriterLock:
    """The right to write to a stream, from construction to `release`."""

    def __init__(self, directory: Path, purpose: str, file: str = LOCK_FILE) -> None:
        path = directory / file
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = _holder(self._fd)
            os.close(self._fd)
            raise StreamLocked(str(directory), holder) from None
        call_in_child(self, WriterLock._leave_to_parent)
        self.name(purpose)

    def name(self, purpose: str) -> None:
        """Say who holds the lock, for those it refuses."""
        known = {"pid": os.getpid(), "host": socket.gethostname(), "purpose": purpose}
        content = json.dumps({**known, "since": datetime.now(UTC).isoformat(timespec="seconds")})
        os.ftruncate(self._fd, 0)
        with suppress(OSError):  # on a full disk the lock is held without a name
            os.pwrite(self._fd, content.encode(), 0)

    def release(self) -> None:
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)
            # Not by closing alone: a child that was forked meanwhile may have the file open as well.
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            os.close(self._fd)
        self._fd = -1

    def _leave_to_parent(self) -> None:
        """In a forked child: without unlocking, which would unlock it for the parent too."""
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


def _holder(fd: int) -> dict[str, object]:
    try:
        found = json.loads(os.pread(fd, 4096, 0))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
