"""The store in one SQLite file.

Rows of all lanes are in one table under one integer, the lane in its upper bits: a lane is a range of it, and what is
appended goes to the end of a range. Records are bound as one array for each run of positions, so that SQLite inserts a
whole run in one step and Python's lock is not taken for each row.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias
from typing import Literal as OneOf

import apsw

from headgate.errors import StoreCorrupt, StoreLocked, StoreTooNew
from headgate.store.changes import Changes, ranges_of, runs_of
from headgate.store.committer import GroupCommitter, Post
from headgate.store.contract import (
    MAX_POSITION,
    PREFIX_DIGITS,
    Contents,
    LaneFacts,
    Store,
    StoredHead,
    StoredRow,
)

StoreSync: TypeAlias = OneOf["FULL", "NORMAL", "OFF"]

FORMAT: Final = 1
APPLICATION: Final = 0x48474154  # "HGAT"

SCHEMA: Final = """
CREATE TABLE entry (id INTEGER PRIMARY KEY, body INTEGER, record BLOB NOT NULL);
CREATE INDEX entry_of_body ON entry (body) WHERE body IS NOT NULL;
CREATE TABLE body (id INTEGER PRIMARY KEY, bytes BLOB NOT NULL);
CREATE TABLE mark (lane INTEGER PRIMARY KEY, position INTEGER NOT NULL);
CREATE TABLE definition (kind TEXT, name TEXT, value BLOB NOT NULL, PRIMARY KEY (kind, name)) WITHOUT ROWID;
CREATE TABLE delayed (due INTEGER, number INTEGER, record BLOB NOT NULL, PRIMARY KEY (due, number)) WITHOUT ROWID;
"""

LATER_TABLES: Final = "CREATE TABLE IF NOT EXISTS note (id INTEGER PRIMARY KEY)"

# NULL plus a number is NULL: rows without a shared body keep NULL.
APPEND: Final = "INSERT INTO entry SELECT ? + rowid, ? + rowid, value FROM carray(?)"
PAGE: Final = """
SELECT e.id & :mask, e.record, b.bytes, e.body FROM entry e LEFT JOIN body b ON b.id = e.body
WHERE e.id > :after AND e.id < :end ORDER BY e.id LIMIT :limit
"""
IN_PAGE: Final = 4_000  # bytes of a record, below which it is mostly in one page of the file
# SQLite reads a record whole to return a part of it, but its length it knows without that.
HEADS: Final = f"""
SELECT id, CASE WHEN length(record) <= {IN_PAGE}
  THEN substr(record, 1, CAST(CAST(substr(record, 1, {PREFIX_DIGITS}) AS TEXT) AS INTEGER)) END
FROM entry WHERE id > :after AND id < :end ORDER BY id LIMIT :limit
"""
ROWS: Final = """
SELECT e.id & ?, e.record, b.bytes, e.body FROM entry e LEFT JOIN body b ON b.id = e.body
WHERE e.id IN (SELECT value FROM carray(?)) ORDER BY e.id
"""
ORPHANS: Final = """
DELETE FROM body WHERE id IN (SELECT value FROM carray(?)) AND NOT EXISTS (SELECT 1 FROM entry WHERE entry.body = body.id)
"""
# A note of a row that is not there, or no longer, would never be deleted.
NOTE: Final = """
INSERT OR IGNORE INTO note SELECT value FROM carray(?) WHERE EXISTS (SELECT 1 FROM entry WHERE entry.id = value)
"""
FORGET: Final = "DELETE FROM note WHERE id IN (SELECT value FROM carray(?))"
LANES: Final = f"""
SELECT id / :size, count(*), sum(coalesce(
    (SELECT length(bytes) FROM body WHERE body.id = entry.body),
    length(record) - CAST(CAST(substr(record, 1, {PREFIX_DIGITS}) AS TEXT) AS INTEGER))),
  min(id) & :mask, max(id) & :mask
FROM entry GROUP BY 1
"""

FEW_RANGES: Final = 4  # more than these are deleted row by row, in one statement

_MASK: Final = MAX_POSITION - 1


class SqliteStore(Store):
    """A store in a file. `post` calls a function in the thread of the broker, for instance `loop.call_soon_threadsafe`."""

    def __init__(
        self,
        path: Path,
        post: Post,
        *,
        synchronous: StoreSync = "FULL",
        on_trouble: Callable[[Exception | None], None] | None = None,
    ) -> None:
        self.path = path
        self._writing = _open(path, synchronous)
        self._reading = _open(path, synchronous)
        self._reading.execute("PRAGMA query_only = on")
        last_body = self._value("SELECT max(id) FROM body")
        super().__init__(1 + (last_body or 0))
        self._shares = last_body is not None  # whether a row may name a shared body
        # Whether the table of notes may have rows.
        self._notes = self._value("SELECT max(id) FROM note") is not None
        self._committer = GroupCommitter(self._write, post, on_trouble)

    def commit(self, then: Callable[[], None] | None = None) -> None:
        if then is not None:
            self._changes.then.append(then)
        if self._changes and not self._committer.is_busy:
            if self.before_commit is not None:
                self._changes.then.append(self.before_commit())
            changes, self._changes = self._changes, Changes()
            changes.then.append(self.commit)  # for the changes made meanwhile
            self._committer.start(changes)

    # ---- reading

    def read(self) -> Contents:
        try:
            return self._read()
        except apsw.CorruptError as problem:
            raise StoreCorrupt(self.path, f"is damaged ({problem})") from problem

    def _read(self) -> Contents:
        rows = self._reading.execute
        return Contents(
            {(kind, name): value for kind, name, value in rows("SELECT * FROM definition")},
            {
                lane: LaneFacts(count, size, first, last)
                for lane, count, size, first, last in rows(
                    LANES, {"size": MAX_POSITION, "mask": _MASK}
                )
            },
            dict(rows("SELECT lane, position FROM mark")),
            self._read_notes(),
            self._value("SELECT count(*) FROM delayed"),
        )

    def page(self, lane: int, after: int, limit: int, max_bytes: int) -> list[StoredRow]:
        return _take_rows(self._reading.execute(PAGE, _names(lane, after, limit)), max_bytes)

    def page_heads(self, lane: int, after: int, limit: int) -> list[StoredHead]:
        rows: list[Any] = self._reading.execute(HEADS, _names(lane, after, limit)).fetchall()
        return [
            StoredHead(number & _MASK, self._read_prefix(number) if prefix is None else prefix)
            for number, prefix in rows
        ]

    def read_rows(self, lane: int, positions: Sequence[int], max_bytes: int) -> list[StoredRow]:
        ids = _integers(_key(lane, position) for position in positions)
        return _take_rows(self._reading.execute(ROWS, (_MASK, ids)), max_bytes)

    def _read_prefix(self, number: int) -> bytes:
        """The prefix of a long record, of which only the first pages are read."""
        blob = self._reading.blob_open("main", "entry", "record", number, False)
        try:
            digits = blob.read(PREFIX_DIGITS)
            return digits + blob.read(int(digits) - PREFIX_DIGITS)
        finally:
            blob.close()

    def page_delayed(
        self, after: tuple[int, int], limit: int, max_bytes: int
    ) -> list[tuple[int, int, bytes]]:
        text = "SELECT * FROM delayed WHERE (due, number) > (?, ?) ORDER BY due, number LIMIT ?"
        found: list[tuple[int, int, bytes]] = []
        for row in self._reading.execute(text, (*after, limit)):
            found.append(row)
            max_bytes -= len(row[2])
            if max_bytes <= 0:
                break
        return found

    def close(self) -> None:
        self._committer.close()
        if self._changes:
            self._write(self._changes)
            self._changes = Changes()
        self._reading.close()
        self._writing.close()

    # ---- writing, in the thread of the committer

    def _write(self, changes: Changes) -> None:
        database = self._writing
        database.execute("BEGIN IMMEDIATE")
        try:
            orphans = set(changes.bodies)
            self._shares = self._shares or bool(orphans)
            for lane in changes.cleared:
                orphans |= self._delete_range(_key(lane, 0), _key(lane + 1, -1))
            for lane, first, last in changes.ranges:
                orphans |= self._delete_range(_key(lane, first), _key(lane, last))
            for text, values in _statements(changes):
                database.execute(text, values)
            for lane, positions in changes.deleted.items():
                orphans |= self._delete_rows(lane, positions)
            self._write_notes(changes)
            if orphans:
                database.execute(ORPHANS, (_integers(orphans),))
            database.execute("COMMIT")
        except BaseException:
            if not database.getautocommit():
                database.execute("ROLLBACK")
            raise

    def _delete_rows(self, lane: int, positions: list[int]) -> set[int]:
        """Delete rows; return the numbers of the shared bodies they named."""
        ranges = ranges_of(positions)
        if len(ranges) <= FEW_RANGES:
            found = [self._delete_range(_key(lane, a), _key(lane, b)) for a, b in ranges]
            return set().union(*found)
        ids = _integers(_key(lane, position) for position in positions)
        bodies = self._bodies("id IN (SELECT value FROM carray(?))", (ids,))
        self._writing.execute("DELETE FROM entry WHERE id IN (SELECT value FROM carray(?))", (ids,))
        if self._notes:
            self._writing.execute(FORGET, (ids,))
        return bodies

    def _delete_range(self, first: int, last: int) -> set[int]:
        bodies = self._bodies("id BETWEEN ? AND ?", (first, last))
        self._writing.execute("DELETE FROM entry WHERE id BETWEEN ? AND ?", (first, last))
        if self._notes:
            self._writing.execute("DELETE FROM note WHERE id BETWEEN ? AND ?", (first, last))
        return bodies

    def _write_notes(self, changes: Changes) -> None:
        for lane, positions in changes.noted.items():
            if positions:
                self._notes = True
                ids = _integers(_key(lane, position) for position in sorted(positions))
                self._writing.execute(NOTE, (ids,))
        for lane, positions in changes.forgotten.items():
            ids = _integers(_key(lane, position) for position in positions)
            self._writing.execute(FORGET, (ids,))

    def _read_notes(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for (number,) in self._reading.execute("SELECT id FROM note ORDER BY id"):
            found.setdefault(number // MAX_POSITION, []).append(number & _MASK)
        return found

    def _bodies(self, condition: str, values: tuple[Any, ...]) -> set[int]:
        """The numbers of the shared bodies that rows under a condition name."""
        if not self._shares:
            return set()
        text = f"SELECT DISTINCT body FROM entry WHERE {condition} AND body IS NOT NULL"
        return {body for (body,) in self._writing.execute(text, values)}

    def _value(self, text: str) -> Any:
        return self._reading.execute(text).get


def _open(path: Path, synchronous: StoreSync) -> apsw.Connection:
    try:
        database = apsw.Connection(str(path))
        database.set_busy_timeout(5_000)
        database.execute(f"PRAGMA journal_mode = wal; PRAGMA synchronous = {synchronous}")
        version = database.execute("PRAGMA user_version").get
    except apsw.NotADBError as problem:
        raise StoreCorrupt(path, "is no SQLite file") from problem
    except apsw.CorruptError as problem:
        raise StoreCorrupt(path, f"is damaged ({problem})") from problem
    except apsw.BusyError as problem:
        raise StoreLocked(path) from problem
    if version > FORMAT:
        raise StoreTooNew(path, version, FORMAT)
    if version == 0:
        with database:
            database.execute(SCHEMA)
            database.execute(
                f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {FORMAT}"
            )
    database.execute(LATER_TABLES)
    return database


def _key(lane: int, position: int) -> int:
    return lane * MAX_POSITION + position


def _names(lane: int, after: int, limit: int) -> dict[str, int]:
    """The parameters of a query for rows of a lane above a position."""
    return {
        "mask": _MASK,
        "after": _key(lane, after),
        "end": _key(lane + 1, 0),
        "limit": limit,
    }


def _take_rows(rows: Iterable[Any], max_bytes: int) -> list[StoredRow]:
    """Rows until they have about this many bytes."""
    found: list[StoredRow] = []
    size = 0
    for row in rows:
        found.append(StoredRow(*row))
        size += len(row[1]) + len(row[2] or b"")
        if size >= max_bytes:
            break
    return found


def _integers(numbers: Iterable[int]) -> apsw.CArrayBinding:
    return apsw.carray(array("q", numbers))


def _statements(changes: Changes) -> Iterator[tuple[str, Any]]:
    """The statements for all changes but deletions of rows, in the order in which they are run."""
    for lane in changes.cleared:
        yield "DELETE FROM mark WHERE lane = ?", (lane,)
    for number, body in changes.bodies.items():
        yield "INSERT INTO body VALUES (?, ?)", (number, body)
    for lane, rows in changes.appended.items():
        for run in runs_of(rows):
            body_id = None if run.first_body is None else run.first_body - 1
            yield APPEND, (_key(lane, run.first) - 1, body_id, apsw.carray(run.records))
    for (lane, position), row in changes.replaced.items():
        stored = (None, row) if isinstance(row, bytes) else row[::-1]
        yield "INSERT OR REPLACE INTO entry VALUES (?, ?, ?)", (_key(lane, position), *stored)
    for lane, position in changes.marks.items():
        yield "INSERT OR REPLACE INTO mark VALUES (?, ?)", (lane, position)
    for (kind, name), value in changes.defined.items():
        if value is None:
            yield "DELETE FROM definition WHERE kind = ? AND name = ?", (kind, name)
        else:
            yield "INSERT OR REPLACE INTO definition VALUES (?, ?, ?)", (kind, name, value)
    for (due, number), delayed in changes.delayed.items():
        if delayed is None:
            yield "DELETE FROM delayed WHERE due = ? AND number = ?", (due, number)
        else:
            yield "INSERT OR REPLACE INTO delayed VALUES (?, ?, ?)", (due, number, delayed)
