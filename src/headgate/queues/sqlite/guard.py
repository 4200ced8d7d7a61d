"""One SQLite library for one file in one process.

The standard library's sqlite3 is another SQLite than apsw's. POSIX gives up all locks a process has on a file as soon as
it closes the file anywhere: when one library closes it, the other goes on without its locks, reads a view of the log that
never changes again, and may damage the file. So the file of an engine is refused to sqlite3 in the same process, and a
file that sqlite3 has open to an engine. Other processes may use what they like.
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

import apsw

from headgate.errors import QueueOptionsError

Inode = tuple[int, int]  # device, number

_DESCRIPTORS: Final = Path("/proc/self/fd")
_lock = (
    threading.RLock()
)  # an engine that is collected while its thread holds the lock lets others in
_engines: Counter[Inode] = Counter()
_is_watching = False


def check_free(path: Path) -> None:
    """Refuse a file that sqlite3 has open in this process, where the system tells."""
    inode = _inode_of(path)
    if inode is None or not _is_open(inode) or _has_apsw(inode):
        return
    if any(isinstance(each, sqlite3.Connection) and _is_in_use(each) for each in gc.get_objects()):
        raise _refusal(path)


def keep_others_out(path: Path) -> Inode | None:
    """From now on sqlite3.connect refuses that file in this process, until `let_others_in`."""
    global _is_watching
    inode = _inode_of(path)
    with _lock:
        if inode is not None:
            _engines[inode] += 1
        if not _is_watching:
            sys.addaudithook(_audit)  # which stays for as long as the process
            _is_watching = True
    return inode


def let_others_in(inode: Inode | None) -> None:
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
    """The file that sqlite3.connect was given, if it is one."""
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
    """Whether this process has it open; False where the system does not tell."""
    if not _DESCRIPTORS.is_dir():
        return False
    return any(_inode_of(descriptor) == inode for descriptor in list(_DESCRIPTORS.iterdir()))


def _is_in_use(connection: sqlite3.Connection) -> bool:
    try:
        return connection.total_changes >= 0
    except sqlite3.Error:  # it was closed
        return False


def _has_apsw(inode: Inode) -> bool:
    """Whether an engine or another connection of apsw's has it open; one that is busy might."""
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
