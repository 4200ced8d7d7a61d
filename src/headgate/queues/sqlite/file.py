"""A SQLite file: opening it, and refusing every use of it that would damage it.

One SQLite library for one file in one process: the standard library's sqlite3 is another SQLite than apsw's. POSIX
releases all locks a process has on a file as soon as it closes the file anywhere: when one library closes it, the other
continues without its locks, reads a view of the log that never changes again, and may damage the file. So the file of an
engine is refused to sqlite3 in the same process, and a file that sqlite3 has open is refused to an engine. Other
processes may use either library.

fork(): a connection must not be used, nor even closed, on both sides of it. The library keeps a record of the locks that
the process holds on a file; a child inherits the record, and not the locks. So idle connections are closed before a
fork; a file that another thread uses at that moment cannot be used in the child at all: its writes could be lost, and
the file damaged.
"""

from __future__ import annotations

import gc
import os
import sqlite3
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit
from weakref import finalize

import apsw

from headgate.errors import DatabaseNotFound, DatabaseUnavailable, QueueOptionsError
from headgate.forks import keep_for_ever
from headgate.queues.engine import Access

OPEN_TIMEOUT_MS: Final = 10_000
# Prepared statements that a connection keeps. apsw forgets those that are not among the last ones used, and a claim of one message
# uses five: with apsw's 100, what one claim in 32 does is prepared each time, which takes longer than the claim.
_STATEMENTS: Final = 256
_MUST_EXIST: Final = apsw.SQLITE_OPEN_READWRITE
_IMMUTABLE: Final = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI


def open_file(path: Path, access: Access) -> apsw.Connection:
    """A connection to the file. Only `create` creates a missing file; with `look` nothing can be written."""
    if access == "create":
        return apsw.Connection(str(path), statementcachesize=_STATEMENTS)
    if not _exists(path):
        raise DatabaseNotFound(
            f"there is no database {path}; check the URL, or create it with the first queue: "
            f"headgate queue create NAME --db sqlite:///{path}"
        )
    if access == "change":
        return apsw.Connection(str(path), flags=_MUST_EXIST, statementcachesize=_STATEMENTS)
    return _open_read_only(path)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as problem:
        raise DatabaseUnavailable(f"{path}: {problem.strerror}; check the URL") from problem


def _open_read_only(path: Path) -> apsw.Connection:
    """A connection that cannot write.

    Even a reader needs the files beside the database, which the last connection removes. Where they are missing and
    cannot be created, on a read-only disk, there is no writer: then the file is opened as immutable, without them.
    """
    # Read-only where it is protected.
    connection = apsw.Connection(str(path), flags=_MUST_EXIST, statementcachesize=_STATEMENTS)
    try:
        # The connection that opens a file first, or closes it last, locks it for a moment.
        connection.set_busy_timeout(OPEN_TIMEOUT_MS)
        connection.pragma("query_only", 1)
        connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        connection.close()
        if Path(f"{path.resolve()}-wal").exists():
            raise
        return apsw.Connection(f"{path.resolve().as_uri()}?immutable=1", flags=_IMMUTABLE)
    except BaseException:
        connection.close()
        raise
    return connection


# ---- the log ------------------------------------------------------------------------------------------


class LogFile:
    """The write-ahead log of one connection: what is in it survives a power cut once it was synced.

    The connection itself is open with synchronous=NORMAL, so that it syncs at checkpoints only.
    """

    def __init__(self, path: str) -> None:
        self._path, self._descriptor = path, -1
        # A connection that an interruption has lost is collected, not closed.
        self._closing: finalize[..., LogFile] | None = None
        self._is_suspect = False

    def sync(self, connection: apsw.Connection) -> None:
        """Wait until everything that was committed is on disk."""
        try:
            if self._closing is None:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
                self._closing = finalize(self, os.close, self._descriptor)
            os.fdatasync(self._descriptor)
        except OSError:
            self._is_suspect = True
        if self._is_suspect:
            self.store(connection)
            self._is_suspect = False

    def store(self, connection: apsw.Connection) -> None:
        """Copy all of the log into the database, and write over it from then on.

        The kernel forgets what it could not write: after an error, another sync would succeed without it.
        """
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)

    def close(self) -> None:
        if self._closing is not None:
            self._closing()


def log_to_sync(connection: apsw.Connection, synchronous: str) -> LogFile | None:
    """Take the syncing at commits over from SQLite; None where it is not wanted, or where SQLite does it, without a log."""
    if synchronous.upper() not in ("FULL", "EXTRA") or connection.pragma("journal_mode") != "wal":
        return None
    connection.pragma("synchronous", "NORMAL")
    return LogFile(connection.filename_wal)


# ---- one SQLite library in one process -----------------------------------------------------------------

Inode = tuple[int, int]  # device, number

_DESCRIPTORS: Final = Path("/proc/self/fd")
_lock = threading.RLock()  # reentrant: the finalizer of an engine may run while its thread holds it
_engines: Counter[Inode] = Counter()
_is_hooked = False


def check_free(path: Path) -> None:
    """Refuse a file that sqlite3 has open in this process, on systems with /proc."""
    inode = _inode_of(path)
    if inode is None or not _is_open(inode) or _has_apsw(inode):
        return
    if any(isinstance(each, sqlite3.Connection) and _is_in_use(each) for each in gc.get_objects()):
        raise _refusal(path)


def lock_out_sqlite3(path: Path) -> Inode | None:
    """Let sqlite3.connect refuse the file in this process until `readmit_sqlite3`, which takes the inode returned here."""
    global _is_hooked
    inode = _inode_of(path)
    with _lock:
        if inode is not None:
            _engines[inode] += 1
        if not _is_hooked:
            sys.addaudithook(_audit)  # a hook cannot be removed
            _is_hooked = True
    return inode


def readmit_sqlite3(inode: Inode | None) -> None:
    """Undo `lock_out_sqlite3`."""
    with _lock:
        if inode is not None:
            _engines[inode] -= 1


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event != "sqlite3.connect" or not _engines:
        return
    path = _path_of(args[0])
    if path is not None and _engines[_inode_of(path) or (0, 0)] > 0:
        raise _refusal(path)


def _path_of(database: Any) -> Path | None:
    """The path that is given to sqlite3.connect; None if it is no path."""
    try:
        name = os.fsdecode(database)
    except TypeError:
        return None
    return Path(unquote(urlsplit(name).path) if name.startswith("file:") else name)


def _inode_of(path: Path) -> Inode | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def _is_open(inode: Inode) -> bool:
    """Whether this process has the file open; False on systems without /proc."""
    if not _DESCRIPTORS.is_dir():
        return False
    return any(_inode_of(descriptor) == inode for descriptor in list(_DESCRIPTORS.iterdir()))


def _is_in_use(connection: sqlite3.Connection) -> bool:
    try:
        return connection.total_changes >= 0
    except sqlite3.Error:  # it was closed
        return False


def _has_apsw(inode: Inode) -> bool:
    """Whether an engine or another apsw connection has the file open; True, too, if a connection is too busy to tell its file."""
    if _engines[inode] > 0:
        return True
    for connection in apsw.connections():
        try:
            if _inode_of(Path(connection.filename)) == inode:
                return True
        except apsw.ConnectionClosedError:
            continue
        except apsw.ThreadingViolationError:
            return True
    return False


def _refusal(path: Path) -> QueueOptionsError:
    return QueueOptionsError(
        f"{path} holds queues, and two SQLite libraries in one process destroy each other's locks on it: use apsw instead "
        "of sqlite3 here, open it in another process, or keep your tables in a file of their own"
    )


# ---- forks ---------------------------------------------------------------------------------------------

_in_use_at_fork: set[str] = set()


def note_inherited(path: Path) -> None:
    """In a forked child: remember the file if a connection to it could not be closed before the fork."""
    real = os.path.realpath(path)
    for connection in apsw.connections():
        if os.path.realpath(connection.filename) == real:
            keep_for_ever(connection)
            _in_use_at_fork.add(real)


def refuse_inherited(path: Path) -> None:
    """Refuse a file that was in use when this process was forked."""
    if os.path.realpath(path) in _in_use_at_fork:
        raise DatabaseUnavailable(
            f"{path} was being used by another thread when this process was forked, and SQLite's locks do not survive "
            "that; fork before other threads use the database, or start this process with spawn"
        )
