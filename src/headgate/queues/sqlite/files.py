"""Opening a SQLite file: to create it, to change it, or only to look at it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import apsw

from headgate.errors import DatabaseNotFound, DatabaseUnavailable
from headgate.queues.engine import Access

_MUST_EXIST: Final = apsw.SQLITE_OPEN_READWRITE
_IMMUTABLE: Final = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI


def open_file(path: Path, access: Access) -> apsw.Connection:
    """A connection to the file; only `create` makes one that is not there, and who looks cannot write."""
    if access == "create":
        return apsw.Connection(str(path))
    if not _exists(path):
        raise DatabaseNotFound(
            f"there is no database {path}; check the URL, or make it with the first queue: "
            f"headgate queue create NAME --db sqlite:///{path}"
        )
    if access == "change":
        return apsw.Connection(str(path), flags=_MUST_EXIST)
    return _open_to_look(path)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as problem:
        raise DatabaseUnavailable(f"{path}: {problem.strerror}; check the URL") from problem


def _open_to_look(path: Path) -> apsw.Connection:
    """Even a reader needs files beside the database, which the last one to close it removes again if it may write.

    Where these files are not there and cannot be made, on a read-only disk, nobody writes: then it needs none.
    """
    connection = apsw.Connection(str(path), flags=_MUST_EXIST)  # read-only where it is protected
    try:
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
