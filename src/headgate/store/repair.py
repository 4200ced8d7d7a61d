"""Verifies the file of a store, and salvages what can be read of a damaged one into a new file.

A damaged page makes SQLite refuse the rows on it, and no others: rows are read by ranges of their key, and a range that is
refused is cut in two until what cannot be read stands alone.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import apsw

from headgate.errors import StoreCorrupt, StoreTooNew
from headgate.store.contract import MAX_POSITION, PREFIX_DIGITS
from headgate.store.sqlite import APPLICATION, FORMAT, LATER_TABLES, SCHEMA

MOST_REPORTED: Final = 100  # problems of one kind
BAD_RECORD: Final = f"""(CAST(substr(record, 1, {PREFIX_DIGITS}) AS TEXT) NOT GLOB '{"[0-9]" * PREFIX_DIGITS}'
  OR CAST(CAST(substr(record, 1, {PREFIX_DIGITS}) AS TEXT) AS INTEGER) > length(record))"""
LOST_BODY: Final = (
    """(body IS NOT NULL AND NOT EXISTS (SELECT 1 FROM body b WHERE b.id = entry.body))"""
)
KEYED_BY_INTEGER: Final = (("body", "id"), ("entry", "id"), ("mark", "lane"), ("note", "id"))
LARGEST: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class StoreReport:
    """How many rows a store holds, and what is wrong with it."""

    rows: int
    problems: tuple[str, ...] = ()

    @property
    def fine(self) -> bool:
        return not self.problems


@dataclass(frozen=True, slots=True)
class Salvaged:
    """How many rows were written into the new store, and how many ranges of rows could not be read."""

    rows: int
    bodies: int
    definitions: int
    unreadable: int


def verify_store(path: Path) -> StoreReport:
    """Check every page and record of a store; nothing is written, and a broker may be running."""
    try:
        with closing(_open_to_read(path)) as database:
            problems = [
                f"{path.name}: {text}"
                for (text,) in database.execute(f"PRAGMA integrity_check({MOST_REPORTED})")
                if text != "ok"
            ]
            for condition, what in ((BAD_RECORD, "is no record"), (LOST_BODY, "lost its body")):
                text = f"SELECT id FROM entry WHERE {condition} LIMIT {MOST_REPORTED}"
                problems += [
                    f"{path.name}: row {key % MAX_POSITION} of lane {key // MAX_POSITION} {what}"
                    for (key,) in database.execute(text)
                ]
            rows = database.execute("SELECT count(*) FROM entry").get
    except apsw.Error as problem:
        return StoreReport(0, (f"{path.name}: {problem}",))
    return StoreReport(rows, tuple(problems))


def salvage_store(source: Path, target: Path) -> Salvaged:
    """Write what can be read of a store into a new file; rows whose body is lost are left out."""
    with closing(_open_to_read(source)) as old, closing(apsw.Connection(str(target))) as new:
        new.execute(f"{SCHEMA}; {LATER_TABLES}")
        unreadable = 0
        with new:
            for table, key in KEYED_BY_INTEGER:
                unreadable += _copy_ranges(old, new, table, key)
            for table in ("definition", "delayed"):
                unreadable += _copy_from_both_ends(old, new, table)
            new.execute(f"DELETE FROM entry WHERE {BAD_RECORD} OR {LOST_BODY}")
        rows, bodies, definitions = (
            new.execute(f"SELECT count(*) FROM {table}").get
            for table in ("entry", "body", "definition")
        )
        new.execute(f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {FORMAT}")
    return Salvaged(rows, bodies, definitions, unreadable)


def _copy_ranges(old: apsw.Connection, new: apsw.Connection, table: str, key: str) -> int:
    """Copy a table with an integer key; return how many ranges of keys could not be read."""
    unreadable = 0
    ranges = [(0, LARGEST)]
    while ranges:
        first, last = ranges.pop()
        reached = first
        text = f"SELECT * FROM {table} WHERE {key} BETWEEN ? AND ? ORDER BY {key}"
        try:
            for row in old.execute(text, (first, last)):
                _insert(new, table, row)
                reached = row[0] + 1
        except apsw.Error:
            if first == last:
                unreadable += 1
                continue
            middle = (reached + last) // 2
            if reached <= middle:
                ranges += [(middle + 1, last), (reached, middle)]
            else:
                ranges.append((reached, last))
    return unreadable


def _copy_from_both_ends(old: apsw.Connection, new: apsw.Connection, table: str) -> int:
    """Copy a table from its beginning, and if something cannot be read, from its end; return 1 if it cannot."""
    unreadable = 0
    keys = "kind {0}, name {0}" if table == "definition" else "due {0}, number {0}"
    for order in ("ASC", "DESC"):
        try:
            for row in old.execute(f"SELECT * FROM {table} ORDER BY {keys.format(order)}"):
                _insert(new, table, row)
        except apsw.Error:
            unreadable = 1
        else:
            break
    return unreadable


def _insert(database: apsw.Connection, table: str, row: tuple[Any, ...]) -> None:
    holes = ", ".join("?" * len(row))
    database.execute(f"INSERT OR IGNORE INTO {table} VALUES ({holes})", row)


def _open_to_read(path: Path) -> apsw.Connection:
    if not path.exists():
        raise StoreCorrupt(path, "is missing")
    database = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    database.set_busy_timeout(5_000)
    try:
        version = database.execute("PRAGMA user_version").get
    except apsw.NotADBError as problem:
        raise StoreCorrupt(path, "is no SQLite file") from problem
    if version > FORMAT:
        raise StoreTooNew(path, version, FORMAT)
    return database
