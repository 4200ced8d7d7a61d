"""The tables in a SQLite file: migrations, versions, and the clock that all processes share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import apsw

from headgate.clock import Clock, first_offset
from headgate.errors import DatabaseNotFound
from headgate.queues.engine import Access
from headgate.queues.sql.dialect import check_version, migrations_of, too_new
from headgate.queues.sqlite.connection import busy_handler
from headgate.queues.sqlite.file import open_file

_LAST_OFFSET: Final = "SELECT max(offset_us) FROM headgate_clock"
# A time that is past, most likely. Publishers may give their messages any timestamp, but hardly all of the last thousand a
# future one; and a delivery is due when it is published, or later.
_RECENT_TIME: Final = """
SELECT min(min(m.timestamp, d.visible_at)) FROM (
    SELECT message, visible_at FROM headgate_delivery ORDER BY message DESC LIMIT 1000) d
JOIN headgate_message m ON m.id = d.message
"""
_OFFSET: Final = "SELECT offset_us FROM headgate_clock WHERE boot_id = ?"


def migrate(connection: apsw.Connection) -> None:
    """Bring the tables up to date; a second process waits, and then finds nothing to do."""
    migrations = migrations_of("sqlite")
    newest = migrations[-1][0]
    if _version(connection) == newest:
        return
    with _write(connection):
        connection.execute(
            "CREATE TABLE IF NOT EXISTS headgate_migration (version INTEGER PRIMARY KEY)"
        )
        version = _version(connection)
        if version > newest:
            raise too_new(version, newest, connection.filename)
        for number, text in migrations:
            if number > version:
                connection.execute(text)
                connection.execute("INSERT INTO headgate_migration VALUES (?)", (number,))


def check_tables(path: Path, access: Access) -> None:
    """Refuse a database without queues; for a reader, also refuse tables of another version."""
    with closing(open_file(path, "look")) as connection:
        connection.set_busy_handler(busy_handler())
        version, newest = _version(connection), migrations_of("sqlite")[-1][0]
    if not version:
        raise DatabaseNotFound(
            f"{path} contains no queues; check the URL, or create the first one: "
            f"headgate queue create NAME --db sqlite:///{path}"
        )
    if access == "look":
        check_version(version, newest, str(path))


def clock_offset(connection: apsw.Connection, clock: Clock, *, is_read_only: bool) -> int:
    """The offset that all processes add to the time since the machine was started; the first writer stores it.

    The consumers from before that start are gone, so the first writer also ends their leases.
    """
    boot = clock.boot_id()
    known = _number(connection, _OFFSET, boot)
    if known is not None:
        return known
    if is_read_only:
        return _new_offset(connection, clock)
    with _write(connection):
        known = _number(connection, _OFFSET, boot)
        if known is None:
            known = _new_offset(connection, clock)
            connection.execute("INSERT INTO headgate_clock VALUES (?, ?)", (boot, known))
            now = clock.elapsed_us() + known
            connection.execute(
                "UPDATE headgate_delivery SET visible_at = ? WHERE state = 2", (now,)
            )
    return known


def _new_offset(connection: apsw.Connection, clock: Clock) -> int:
    """An offset such that the time does not run backwards: later than all times that are known to be past."""
    past = (_number(connection, query) or 0 for query in (_LAST_OFFSET, _RECENT_TIME))
    return first_offset(clock, *past)


def _version(connection: apsw.Connection) -> int:
    if not connection.table_exists("main", "headgate_migration"):
        return 0
    return _number(connection, "SELECT coalesce(max(version), 0) FROM headgate_migration") or 0


@contextmanager
def _write(connection: apsw.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite rolls back by itself, for instance when the disk is full.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _number(connection: apsw.Connection, query: str, *params: str) -> int | None:
    """The integer that the query finds, or None."""
    for (value,) in connection.execute(query, params).fetchall():
        assert value is None or isinstance(value, int)
        return value
    return None
