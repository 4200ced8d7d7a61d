"""One driver at a time on a checkpoint: an flock on a file in it, whose content says who holds it.

Two drivers would both write down what batch N holds, and the places take N only once: what the other one had read is lost.
The kernel lets go of the lock when its holder dies, however it dies. The Java of a driver that was killed goes on for a
moment, so whoever comes next waits until that is gone, too.
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
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.errors import CheckpointLocked
from headgate.spark.pipeline.plan import FOLDER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOCK_FILE: Final = "lock"
PATIENCE_S: Final = 30.0  # for the Java of a driver that was killed
_HELD_BY_ANOTHER: Final = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
_log: Final = logging.getLogger(__name__)


class Process(NamedTuple):
    """A process of this machine; its number alone may be given to another one later."""

    pid: int
    started: str


class CheckpointLock:
    """The right to run the query of a checkpoint, from construction to `release`."""

    def __init__(
        self, checkpoint: Path, java: Process | None = None, patience_s: float = PATIENCE_S
    ) -> None:
        folder = checkpoint / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        self._owner = os.getpid()
        self._fd = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _lock(self._fd, fcntl.LOCK_EX, checkpoint)
            _wait_for_java(checkpoint, _content(self._fd), patience_s)
            self._sign(java)
        except BaseException:
            os.close(self._fd)
            raise

    def _sign(self, java: Process | None) -> None:
        known = {"pid": os.getpid(), "host": socket.gethostname(), "java": java}
        content = json.dumps({**known, "since": datetime.now(UTC).isoformat(timespec="seconds")})
        os.ftruncate(self._fd, 0)
        with suppress(OSError):  # on a full disk the lock is held without a name
            os.pwrite(self._fd, content.encode(), 0)

    def release(self) -> None:
        """Let the next driver in; a forked child of the holder leaves the lock to its parent."""
        if self._fd < 0:
            return
        if os.getpid() == self._owner:
            os.ftruncate(self._fd, 0)
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        os.close(self._fd)
        self._fd = -1


def refuse_locked(checkpoint: Path) -> None:
    """Refuse a checkpoint that another driver has at this moment. Nothing is changed, and nothing is held afterwards."""
    try:
        fd = os.open(checkpoint / FOLDER / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # nobody ever had it, or whoever takes it will say what is wrong
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
            raise CheckpointLocked(str(checkpoint), _content(fd)) from None
        _log.warning("%s cannot be locked against a second driver: %s", checkpoint, problem)


def _content(fd: int) -> dict[str, Any]:
    try:
        found = json.loads(os.pread(fd, 4096, 0))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


# ---- the Java of a driver that was killed ------------------------------------------------------------


def java_process(spark: SparkSession) -> Process | None:
    """The process that runs the queries of the session; None where it is on another machine or cannot be asked."""
    context = getattr(spark, "sparkContext", None)
    if context is None:
        return None
    return process_of(int(context._jvm.java.lang.ProcessHandle.current().pid()))


def process_of(pid: int) -> Process | None:
    """The process with that number, if it is alive and this system tells."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else Process(pid, fields[18])


def _wait_for_java(checkpoint: Path, last: dict[str, Any], patience_s: float) -> None:
    if last.get("host") != socket.gethostname() or not last.get("java"):
        return
    java, deadline = Process(*last["java"]), time.monotonic() + patience_s
    while process_of(java.pid) == java:
        if time.monotonic() > deadline:
            raise CheckpointLocked(str(checkpoint), {"pid": java.pid, "host": last["host"]})
        time.sleep(0.05)


# ---- while a query runs ------------------------------------------------------------------------------

_held: Final[dict[str, tuple[StreamingQuery, CheckpointLock]]] = {}


def hold(lock: CheckpointLock, query: StreamingQuery) -> None:
    """Keep the lock for as long as the query runs."""
    _held[str(query.runId)] = (query, lock)


def let_go(query: StreamingQuery) -> None:
    """Release the lock of a query that has ended."""
    _, lock = _held.pop(str(query.runId), (None, None))
    if lock is not None:
        lock.release()


def let_go_of_ended() -> None:
    """Release the locks of all queries that ended without anybody following them."""
    for query, _ in list(_held.values()):
        if not is_running(query):
            let_go(query)


def is_running(query: StreamingQuery) -> bool:
    """Whether the query goes on. With a session of Spark Connect its queries end, and cannot be asked any more."""
    from pyspark.errors import PySparkException

    try:
        return query.isActive
    except PySparkException as problem:
        if "SESSION" not in (problem.getCondition() or ""):
            raise
        return False
