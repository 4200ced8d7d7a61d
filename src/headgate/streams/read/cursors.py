"""Cursors: the positions of named consumers, in a small SQLite database in the stream's directory.

A cursor is the offset at which its consumer goes on. It is on disk when `commit` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import apsw

from headgate.clock import now_us
from headgate.errors import StreamError, StreamOptionsError
from headgate.forks import call_before_fork, call_in_child, keep_for_ever
from headgate.message import INT64_MAX, MAX_NAME_BYTES, UNSTORABLE
from headgate.streams.format import CURSORS_FILE

_BUSY_MS: Final = 10_000
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS cursor (
  name     TEXT PRIMARY KEY,
  position INTEGER NOT NULL,
  updated  INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS member (
  token    TEXT PRIMARY KEY,
  cursor   TEXT NOT NULL,
  filter   TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS share (
  cursor   TEXT NOT NULL,
  low      INTEGER NOT NULL,
  high     INTEGER NOT NULL,
  position INTEGER NOT NULL,
  member   TEXT,
  PRIMARY KEY (cursor, low)
) WITHOUT ROWID
"""
_GET: Final = "SELECT name, position, updated FROM cursor WHERE name = ?"
_LIST: Final = "SELECT name, position, updated FROM cursor ORDER BY name"
_PUT: Final = """
INSERT INTO cursor (name, position, updated) VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET position = excluded.position, updated = excluded.updated
"""
_DELETE: Final = "DELETE FROM cursor WHERE name = ?"
_MEMBER: Final = (
    "SELECT 1 FROM member WHERE cursor = ?1 UNION SELECT 1 FROM share WHERE cursor = ?1"
)
_DELETE_SHARES: Final = "DELETE FROM share WHERE cursor = ?"


class Cursor(NamedTuple):
    """The stored position of a named consumer."""

    name: str
    position: int  # the offset at which its consumer goes on
    updated: int  # microseconds UTC


class Cursors:
    """The cursors of one stream. The first commit creates the database."""

    def __init__(self, directory: Path, clock: Callable[[], int] = now_us) -> None:
        self._path, self._clock = directory / CURSORS_FILE, clock
        self._connection: apsw.Connection | None = None
        # SQLite's connections must not be used on both sides of a fork.
        call_before_fork(self, Cursors.close)
        call_in_child(self, Cursors._leave_to_parent)

    def get(self, name: str) -> Cursor | None:
        """Return the cursor of this name; None when there is none."""
        cursors = list(self._read(_GET, (check_cursor_name(name),)))
        return cursors[0] if cursors else None

    def list(self) -> list[Cursor]:
        """Return all cursors, sorted by name."""
        return list(self._read(_LIST, ()))

    def commit(self, name: str, position: int) -> None:
        """Store a position; it may be lower than before."""
        check_cursor_name(name)
        if type(position) is not int or not 0 <= position <= INT64_MAX:
            raise StreamOptionsError(f"cursor {name!r}: {position!r} is not an offset")
        with self._translate_errors():
            connection = self._open()
            self._refuse_group(connection, name)
            connection.execute(_PUT, (name, position, self._clock()))

    def delete(self, name: str) -> bool:
        """Delete a cursor; False when there was none."""
        if not self._path.exists():
            return False
        with self._translate_errors():
            connection = self._open()
            connection.execute(_DELETE_SHARES, (check_cursor_name(name),))
            connection.execute(_DELETE, (name,))
            return connection.changes() > 0

    def _refuse_group(self, connection: apsw.Connection, name: str) -> None:
        if connection.execute(_MEMBER, (name,)).fetchall():
            raise StreamError(
                f"cursor {name!r} is that of a consumer group, which moves it: read with join_group({name!r}), or close its "
                "members and delete the cursor first"
            )

    @contextmanager
    def transaction(self, *, durable: bool) -> Iterator[apsw.Connection]:
        """Run statements as one; `durable`: they are on disk when it has ended, with all before them."""
        with self._translate_errors():
            connection = self._open()
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # an interrupt may come right before or behind it
                    connection.execute("ROLLBACK")
                raise
            connection.execute("PRAGMA synchronous = FULL")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _leave_to_parent(self) -> None:
        """In a forked child, drop a connection that was in use and not closed before the fork, without closing it."""
        if self._connection is not None:
            keep_for_ever(self._connection)
            self._connection = None

    def _read(self, query: str, parameters: tuple[str, ...]) -> Iterator[Cursor]:
        if not self._path.exists():
            return
        with self._translate_errors():
            for name, position, updated in self._open().execute(query, parameters):
                yield Cursor(str(name), int(position), int(updated))

    def _open(self) -> apsw.Connection:
        if self._connection is None:
            connection = apsw.Connection(str(self._path))
            connection.set_busy_timeout(_BUSY_MS)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(_SCHEMA)
            self._connection = connection
        return self._connection

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as problem:
            raise StreamError(f"cannot use the cursors in {self._path}: {problem}") from problem


def check_cursor_name(name: str) -> str:
    """Refuse a name that no cursor can have."""
    if (
        not isinstance(name, str)
        or not name
        or UNSTORABLE.search(name)
        or len(name.encode()) > MAX_NAME_BYTES
    ):
        raise StreamOptionsError(
            f"a cursor's name is text of 1 to {MAX_NAME_BYTES} bytes, not {name!r}"
        )
    return name
