"""The lock of a checkpoint, for one driver at a time: an flock on a file in it, whose content describes the holder.

Two drivers would both record what batch N contains, and the places take N only once: the messages of the other driver would
be lost. The kernel releases the lock when its holder dies. The Java process of a killed driver goes on for a moment, so the
next driver waits until it has ended, too.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import socket
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import CheckpointLocked
from headgate.pipelines import Process, lock_file, parse_holder, process_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# For the Java process of a killed driver, which may write an archive of its classes.
JAVA_TIMEOUT_S: Final = 120.0
_HELD_BY_ANOTHER: Final = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
_log: Final = logging.getLogger(__name__)


class CheckpointLock:
    """The lock of a checkpoint, held from construction to `release`."""

    def __init__(
        self, checkpoint: Path, java: Process | None = None, timeout_s: float = JAVA_TIMEOUT_S
    ) -> None:
        file = lock_file(checkpoint)
        file.parent.mkdir(parents=True, exist_ok=True)
        self._owner = os.getpid()
        self._fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _lock(self._fd, fcntl.LOCK_EX, checkpoint)
            _wait_for_java(checkpoint, _read_holder(self._fd), timeout_s)
            self._write_holder(java)
        except BaseException:
            os.close(self._fd)
            raise

    def _write_holder(self, java: Process | None) -> None:
        known = {"pid": os.getpid(), "host": socket.gethostname(), "java": java}
        content = json.dumps({**known, "since": datetime.now(UTC).isoformat(timespec="seconds")})
        os.ftruncate(self._fd, 0)
        with suppress(OSError):  # on a full disk the holder is not described
            os.pwrite(self._fd, content.encode(), 0)

    def release(self) -> None:
        """Release the lock; a forked child of the holder leaves it to its parent."""
        if self._fd < 0:
            return
        if os.getpid() == self._owner:
            os.ftruncate(self._fd, 0)
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        os.close(self._fd)
        self._fd = -1


def refuse_locked(checkpoint: Path) -> None:
    """Raise when another driver holds the checkpoint. Changes nothing, and does not hold the lock."""
    try:
        fd = os.open(lock_file(checkpoint), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # never locked, or a problem that locking will report
        return
    try:
        _lock(fd, fcntl.LOCK_SH, checkpoint)
    finally:
        os.close(fd)


def _lock(fd: int, kind: int, checkpoint: Path) -> None:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError as problem:
        if problem.errno in _HELD_BY_ANOTHER:
            raise CheckpointLocked(str(checkpoint), _read_holder(fd)) from None
        _log.warning(
            "checkpoint %s cannot be locked against a second driver: %s", checkpoint, problem
        )


def _read_holder(fd: int) -> dict[str, Any]:
    return parse_holder(os.pread(fd, 4096, 0))


# ---- the Java process of a killed driver -------------------------------------------------------------


def java_process(spark: SparkSession) -> Process | None:
    """The Java process of the session; None when it is on another machine or not accessible."""
    context = getattr(spark, "sparkContext", None)
    if context is None:
        return None
    return process_of(int(context._jvm.java.lang.ProcessHandle.current().pid()))


def _wait_for_java(checkpoint: Path, last: dict[str, Any], timeout_s: float) -> None:
    if last.get("host") != socket.gethostname() or not last.get("java"):
        return
    java, deadline = Process(*last["java"]), time.monotonic() + timeout_s
    while process_of(java.pid) == java:
        if time.monotonic() > deadline:
            raise CheckpointLocked(str(checkpoint), {"pid": java.pid, "host": last["host"]})
        time.sleep(0.05)


# ---- locks of queries --------------------------------------------------------------------------------

_held: Final[dict[str, tuple[StreamingQuery, CheckpointLock]]] = {}


def hold_lock(lock: CheckpointLock, query: StreamingQuery) -> None:
    """Keep the lock for as long as the query runs."""
    _held[str(query.runId)] = (query, lock)


def release_lock(query: StreamingQuery) -> None:
    """Release the lock of a query that has ended."""
    _, lock = _held.pop(str(query.runId), (None, None))
    if lock is not None:
        lock.release()


def release_ended() -> None:
    """Release the locks of all queries that ended without being followed."""
    for query, _ in list(_held.values()):
        if not is_running(query):
            release_lock(query)


def is_running(query: StreamingQuery) -> bool:
    """Whether the query is active. When a session of Spark Connect ends, its queries end too."""
    from pyspark.errors import PySparkException

    try:
        return query.isActive
    except PySparkException as problem:
        if "SESSION" not in (problem.getCondition() or ""):
            raise
        return False
