"""The table of an outbox: how a caller's connection inserts into it, and the operations that move its entries on.

With psycopg and apsw the outbox is a table in the database of the queues, and the relay moves a message in one transaction: it
is either in the outbox or in its queue, at any time.

With the standard library's sqlite3 (and SQLAlchemy on it) the outbox is a table in the application's own file, never in
that of the queues: two SQLite libraries in one process do not see each other's locks. The relay reads it through sqlite3
(`outbox_file`), publishes with the delivery key as dedup key, and then deletes: if a relay dies in between, the next one
publishes the entry again, and the queue drops the second message, within its dedup window. Of several relays one moves at a
time.

An entry that cannot be moved, for example because its queue does not exist, is parked: it stays in the outbox with the reason.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from headgate.errors import QueueNotFound, QueueOptionsError
from headgate.queues import arguments
from headgate.queues.engine import (
    Notify,
    Operation,
    Publication,
    Row,
    SqlValue,
    Statement,
    Transaction,
    TransactionMode,
    run_inline,
)
from headgate.queues.operations import Operations
from headgate.queues.sql.dialect import QueueDialect, migrations_of
from headgate.queues.sql.message_rows import (
    MESSAGE_COLUMNS,
    Undecodable,
    columns_of,
    message_of,
    row_of,
)
from headgate.queues.sql.operations import SqlOperations
from headgate.queues.sql.publish import check_is_queue

_log = logging.getLogger(__name__)

OUTBOX_QUEUE: Final = 0  # the queue id under which relays are woken
MOST_LISTED: Final = 10_000
SQLITE_TABLE: Final = "headgate_outbox"
COLUMNS: Final = ("delivery_key", "queue", *MESSAGE_COLUMNS, "delay_us", "dedup_key", "grp")
# The table in an application's own file: as in the database of the queues, and made when it is first used.
CREATE_TABLE: Final = next(text for number, text in migrations_of("sqlite") if number == 2).replace(
    " TABLE ", " TABLE IF NOT EXISTS ").replace(" INDEX ", " INDEX IF NOT EXISTS ")  # fmt: skip
EntryValues = tuple[Any, ...]


def require_outbox(operations: Operations) -> SqlOperations:
    """Return the operations of a database that has an outbox; QueueOptionsError for memory, which has none."""
    if not isinstance(operations, SqlOperations):
        raise QueueOptionsError("there is no outbox in memory; use SQLite or PostgreSQL")
    return operations


# ---- inserting through the caller's connection ---------------------------------------------------------


def entry_values(queue: str, publication: Publication) -> EntryValues:
    """Return the row of a publication in the outbox, in the order of COLUMNS; its first value is a new delivery key."""
    extra = (publication.delay_us, publication.dedup_key, publication.group)
    return (uuid.uuid4().hex, queue, *row_of(publication.message, None), *extra)


def inserter(engine: Any, connection: Any) -> Callable[[EntryValues], Any]:
    """Return a function that inserts a row into the outbox through a connection of psycopg, sqlite3, apsw or SQLAlchemy."""
    library = library_of(connection)
    if library == "psycopg":
        raw = _insertion(_postgres_table(engine), [f"${n}" for n in range(1, len(COLUMNS) + 1)])
        return lambda values: _raw_cursor(connection).execute(raw, values)
    if library == "apsw":
        _check_same_file(engine, connection.filename)
    elif library == "sqlite3":
        _prepare_file(engine, connection.execute)
    elif library == "sqlalchemy":
        return _sqlalchemy_inserter(engine, connection)
    else:
        raise QueueOptionsError(
            f"an outbox takes a connection of psycopg, sqlite3, apsw or SQLAlchemy, not of {library}"
        )
    text = _insertion(SQLITE_TABLE, ["?"] * len(COLUMNS))
    return lambda values: connection.execute(text, values)


def library_of(connection: Any) -> str:
    """Return the package of a connection's class, or of the class that it is derived from."""
    known = ("psycopg", "sqlite3", "apsw", "sqlalchemy")
    packages = [base.__module__.split(".")[0] for base in type(connection).__mro__]
    return next((name for name in packages if name in known), packages[0])


def _insertion(table: str, holes: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({', '.join(COLUMNS)}) VALUES ({', '.join(holes)})"


def _sqlalchemy_inserter(engine: Any, connection: Any) -> Callable[[EntryValues], Any]:
    """Return the inserter for a Connection or a Session, sync or asyncio."""
    from sqlalchemy import text

    dialect = (
        connection.get_bind().dialect if hasattr(connection, "get_bind") else connection.dialect
    )
    if dialect.name == "postgresql":
        table = _postgres_table(engine)
    elif dialect.name == "sqlite":
        table = SQLITE_TABLE
        _prepare_file(engine, lambda statement: connection.execute(text(statement)))
    else:
        raise QueueOptionsError(
            f"an outbox is in SQLite or PostgreSQL; this connection is one to {dialect.name}"
        )
    statement = text(_insertion(table, [f":{name}" for name in COLUMNS]))
    return lambda values: connection.execute(statement, dict(zip(COLUMNS, values, strict=True)))


def _raw_cursor(connection: Any) -> Any:
    """Return a cursor that takes $1, $2 …, whatever kind of cursor the connection makes by default."""
    import psycopg

    if isinstance(connection, psycopg.AsyncConnection):
        return psycopg.AsyncRawCursor(connection)
    return psycopg.RawCursor(connection)


def _postgres_table(engine: Any) -> str:
    """Return the name of the outbox with the engine's schema, quoted."""
    target = getattr(engine, "target", None)
    if target is None:
        raise QueueOptionsError(
            "the outbox of a PostgreSQL connection is in its database: connect Headgate to it, and relay from there"
        )
    return f'"{target.schema}".outbox'


def _prepare_file(engine: Any, execute: Callable[[str], Any]) -> None:
    """Create the outbox in the application's own file, and refuse the file of the queues."""
    file = next(row[2] for row in execute("PRAGMA database_list") if row[1] == "main")
    if file and _is_file_of(engine, file):
        raise QueueOptionsError(
            f"{file} holds the queues: two SQLite libraries in one process would damage it. Keep your tables in a file of "
            "their own and relay from it, or use an apsw connection"
        )
    for statement in filter(str.strip, CREATE_TABLE.split(";")):
        execute(statement)


def _check_same_file(engine: Any, file: str) -> None:
    if not _is_file_of(engine, file):
        raise QueueOptionsError(
            f"the outbox of an apsw connection is in the queues' own file, and {file or 'this one'} is not; "
            "connect it to that file, or use sqlite3"
        )


def _is_file_of(engine: Any, file: str) -> bool:
    path = getattr(engine, "path", None)
    return path is not None and Path(path).exists() and Path(path).samefile(file)


# ---- moving entries into queues ------------------------------------------------------------------------


class OutboxEntry(NamedTuple):
    id: int
    delivery_key: str
    queue: str
    publication: Publication


class UnreadableEntry(NamedTuple):
    """A row that another program wrote and that is no valid message."""

    id: int
    problem: str


def move_entries(operations: SqlOperations, limit: int) -> Operation[int]:
    """Move the oldest entries into the queues of their own database; return how many were read, parked ones included."""
    count: int = yield Transaction(TransactionMode.WRITE, lambda: _move_entries(operations, limit))
    return count


def _move_entries(operations: SqlOperations, limit: int) -> Operation[int]:
    dialect = operations.dialect
    entries, unreadable = yield from _read_entries(dialect, limit)
    for one in unreadable:
        yield _park(dialect, [one], one.problem)
    for name, group in group_by_queue(entries):
        try:
            info = yield from operations.find(name)
            check_is_queue(info)
        except (QueueNotFound, QueueOptionsError) as problem:
            yield _park(dialect, group, log_parked(name, len(group), problem))
            continue
        publications = [entry.publication for entry in group]
        yield from run_inline(operations.publish(info, publications))
        yield dialect.statement("outbox_drop", [entry.id for entry in group])
    return len(entries) + len(unreadable)


def _read_entries(
    dialect: QueueDialect, limit: int
) -> Operation[tuple[list[OutboxEntry], list[UnreadableEntry]]]:
    """Read the oldest entries; return them in order, and the unreadable ones among them. When SQLite cannot decode a row, they
    are read one at a time until that row is found."""
    try:
        rows = yield dialect.statement("outbox_read", limit, columns=columns_of("o"))
    except Undecodable as problem:
        if limit > 1:
            return (yield from _read_entries(dialect, 1))
        [(id,)] = yield dialect.statement("outbox_first")
        return [], [_log_unreadable(id, problem)]
    return decode_entries(sorted(rows, key=itemgetter(0)))


def decode_entries(rows: Iterable[Row]) -> tuple[list[OutboxEntry], list[UnreadableEntry]]:
    """Decode rows; return the entries that can be published, and those that cannot."""
    entries, unreadable = [], []
    for row in rows:
        try:
            entries.append(_decode_entry(row))
        except Exception as problem:  # a row must not stop the others, whatever is in it
            unreadable.append(_log_unreadable(row[0], problem))
    return entries, unreadable


def _decode_entry(row: Row) -> OutboxEntry:
    """Decode a row: id, delivery key, queue, delay, dedup key, group, then the message's columns."""
    arguments.storable_text("the delivery key", row[1])
    arguments.storable_text("the queue", row[2])
    if not isinstance(row[-1], bytes):
        raise Undecodable(f"the payload is not bytes but {type(row[-1]).__name__}")
    publication = Publication(message_of(row[6:]), int(row[3]), row[4], row[5])
    return OutboxEntry(row[0], row[1], row[2], arguments.check_publication(publication))


def _log_unreadable(id: int, problem: Exception) -> UnreadableEntry:
    _log.warning("outbox: entry %s cannot be published and is kept: %s", id, problem)
    reason = arguments.storable_reason(f"{type(problem).__name__}: {problem}")
    assert reason is not None
    return UnreadableEntry(id, reason)


def group_by_queue(entries: Sequence[OutboxEntry]) -> list[tuple[str, list[OutboxEntry]]]:
    """Return each queue with its entries, in their order."""
    ordered = sorted(entries, key=attrgetter("queue"))
    return [(name, list(group)) for name, group in groupby(ordered, key=attrgetter("queue"))]


def with_delivery_key(entry: OutboxEntry) -> Publication:
    """Return the publication for another database, with a dedup key, so that it is published there once."""
    publication = entry.publication
    return Publication(
        publication.message,
        publication.delay_us,
        publication.dedup_key or f"outbox:{entry.delivery_key}",
        publication.group,
    )


# ---- parked entries ------------------------------------------------------------------------------------


class ParkedEntry(NamedTuple):
    """An entry that could not be moved, and why."""

    id: int
    delivery_key: str
    queue: str
    topic: str
    problem: str


def _park(
    dialect: QueueDialect, entries: Sequence[OutboxEntry | UnreadableEntry], problem: str
) -> Statement:
    return dialect.statement("outbox_refuse", [entry.id for entry in entries], problem)


def log_parked(queue: str, count: int, problem: Exception) -> str:
    """Warn that entries are parked; returns the reason to store with them."""
    _log.warning(
        "outbox: %d entries for %r are parked: %s; then retry them with Relay.retry() or "
        "`headgate queue outbox retry`",
        count,
        queue,
        problem,
    )
    return str(problem)


def list_parked(dialect: QueueDialect) -> Operation[list[ParkedEntry]]:
    """Return the parked entries, oldest first."""
    rows = yield dialect.statement("outbox_parked", MOST_LISTED)
    return [decode_parked(row) for row in rows]


def count_waiting(dialect: QueueDialect) -> Operation[int]:
    """Return how many entries wait for a relay; at most MOST_LISTED are counted."""
    rows = yield dialect.statement("outbox_waiting", MOST_LISTED)
    return len(rows)


def decode_parked(row: Row) -> ParkedEntry:
    """Decode a row: id, delivery key, queue, topic and problem; SQLite gives the texts as bytes."""
    id, delivery_key, queue, topic, problem = row
    return ParkedEntry(id, _decode(delivery_key), _decode(queue), _decode(topic), problem)


def _decode(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode(errors="backslashreplace")


def retry_parked(dialect: QueueDialect, ids: Iterable[int] | None) -> Operation[int]:
    """Let relays try parked entries again, those with these ids or all; return their number."""
    listed: list[SqlValue] | None = None if ids is None else [*arguments.message_ids(ids)]
    rows = yield dialect.statement("outbox_retry", listed)
    yield Notify((OUTBOX_QUEUE,))
    return len(rows)
