"""The transactional outbox: publish inside the caller's own transaction, with it or not at all.

    with psycopg.connect(…) as connection:                # or sqlite3, apsw, SQLAlchemy
        connection.execute("UPDATE account …")
        db.outbox(connection).publish("orders", b"…", headers={"type": "created"})
                                                           # committed together
    with db.relay(): …                                     # moves what was committed into the queues

With psycopg and apsw the outbox is a table in the queues' own database, and the relay moves a message in one transaction:
it is in the outbox or in its queue, never in both, never in none.

With the standard library's sqlite3 (and SQLAlchemy on it) the outbox is a table in the application's own file, never the
queues' file: two SQLite libraries in one process do not see each other's locks. `db.relay("app.db")` reads it through
sqlite3, publishes with the delivery key as dedup key, and then deletes: what is published twice because a relay died in
between is dropped, within the queue's dedup window. Of several relays one moves at a time.

What is for a queue that is not there stays in the outbox with the reason: `Relay.parked()` lists it, `Relay.retry()` lets
it be tried again.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from headgate.errors import QueueNotFound, QueueOptionsError
from headgate.message import HeaderValue, Message
from headgate.queues import arguments
from headgate.queues.engine import (
    Engine,
    Operation,
    Operations,
    Publication,
    Row,
    Rows,
    Statement,
    Step,
    Transaction,
)
from headgate.queues.parked import log_parked
from headgate.queues.sql.core import stepwise
from headgate.queues.sql.dialect import Dialect
from headgate.queues.sql.operations import SqlOperations
from headgate.queues.sql.publish import check_is_queue
from headgate.queues.sql.records import MESSAGE_COLUMNS, Undecodable, columns_of, message_of, row_of
from headgate.queues.sql.statements import migrations_of

_log = logging.getLogger(__name__)

T = TypeVar("T")

SQLITE_TABLE: Final = "headgate_outbox"
COLUMNS: Final = ("delivery_key", "queue", *MESSAGE_COLUMNS, "delay_us", "dedup_key", "grp")
Values = tuple[Any, ...]


class Outbox:
    """Bound to one connection of the caller's; what it publishes commits or rolls back with it."""

    def __init__(self, engine: Engine, connection: Any) -> None:
        self._insert = inserter(engine, connection)

    def publish(
        self,
        queue: str,
        payload: bytes | Message,
        *,
        topic: str | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        priority: int = 0,
        delay: timedelta | None = None,
        dedup_key: str | None = None,
        group: str | None = None,
        **fields: Any,
    ) -> str:
        """To the queue of that name, once the caller commits; its delivery key."""
        values = entry_of(
            queue,
            arguments.publication(
                payload,
                topic=topic,
                headers=headers,
                priority=priority,
                delay=delay,
                dedup_key=dedup_key,
                group=group,
                default_topic=queue,
                fields=fields,
            ),
        )
        self._insert(values)
        delivery_key: str = values[0]
        return delivery_key


def with_outbox(operations: Operations) -> SqlOperations:
    """The operations, if they are those of a database that has an outbox."""
    if not isinstance(operations, SqlOperations):
        raise QueueOptionsError("there is no outbox in memory; use SQLite or PostgreSQL")
    return operations


def entry_of(queue: str, publication: Publication) -> Values:
    """What the outbox holds of a publication: COLUMNS."""
    extra = (publication.delay_us, publication.dedup_key, publication.group)
    return (uuid.uuid4().hex, queue, *row_of(publication.message, None), *extra)


# ---- the caller's connection ---------------------------------------------------------------------------

# In an application's own file; the same as in the queues' own database.
OWN_TABLE: Final = next(text for number, text in migrations_of("sqlite") if number == 2).replace(
    " TABLE ", " TABLE IF NOT EXISTS ").replace(" INDEX ", " INDEX IF NOT EXISTS ")  # fmt: skip


def inserter(engine: Any, connection: Any) -> Callable[[Values], Any]:
    """How to insert into the outbox that a connection of this kind reaches."""
    library = library_of(connection)
    if library == "psycopg":
        raw = insertion(_postgres_table(engine), [f"${n}" for n in range(1, len(COLUMNS) + 1)])
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
    text = insertion(SQLITE_TABLE, ["?"] * len(COLUMNS))
    return lambda values: connection.execute(text, values)


def library_of(connection: Any) -> str:
    """The package a connection comes from, also when its class was derived from the package's."""
    known = ("psycopg", "sqlite3", "apsw", "sqlalchemy")
    packages = [base.__module__.split(".")[0] for base in type(connection).__mro__]
    return next((name for name in packages if name in known), packages[0])


def insertion(table: str, holes: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({', '.join(COLUMNS)}) VALUES ({', '.join(holes)})"


def _sqlalchemy_inserter(engine: Any, connection: Any) -> Callable[[Values], Any]:
    """Of a Connection or a Session, at once or awaited."""
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
    statement = text(insertion(table, [f":{name}" for name in COLUMNS]))
    return lambda values: connection.execute(statement, dict(zip(COLUMNS, values, strict=True)))


def _raw_cursor(connection: Any) -> Any:
    """Whatever cursors the caller's connection makes, this one takes $1, $2 …"""
    import psycopg

    if isinstance(connection, psycopg.AsyncConnection):
        return psycopg.AsyncRawCursor(connection)
    return psycopg.RawCursor(connection)


def _postgres_table(engine: Any) -> str:
    """The outbox in the engine's schema, as others must name it."""
    target = getattr(engine, "target", None)
    if target is None:
        raise QueueOptionsError(
            "the outbox of a PostgreSQL connection is in its database: connect Headgate to it, and relay from there"
        )
    return f'"{target.schema}".outbox'


def _prepare_file(engine: Any, execute: Callable[[str], Any]) -> None:
    """The outbox in the application's own file, which is not the queues'."""
    file = next(row[2] for row in execute("PRAGMA database_list") if row[1] == "main")
    if file and _is_file_of(engine, file):
        raise QueueOptionsError(
            f"{file} holds the queues: two SQLite libraries in one process would damage it. Keep your tables in a file of "
            "their own and relay from it, or use an apsw connection"
        )
    for statement in filter(str.strip, OWN_TABLE.split(";")):
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


# ---- moving it on --------------------------------------------------------------------------------------


class Entry(NamedTuple):
    id: int
    delivery_key: str
    queue: str
    publication: Publication


class Unreadable(NamedTuple):
    """A row that somebody wrote by hand, and that is no message."""

    id: int
    problem: str


def read_outbox(dialect: Dialect, limit: int) -> Operation[tuple[list[Entry], list[Unreadable]]]:
    """The oldest entries, in order, and what stands between them. Where SQLite cannot decode one of them, they are read
    one at a time until it is found."""
    try:
        rows = yield dialect.statement("outbox_read", limit, columns=columns_of("o"))
    except Undecodable as problem:
        if limit > 1:
            return (yield from read_outbox(dialect, 1))
        [(id,)] = yield dialect.statement("outbox_first")
        return [], [unreadable(id, problem)]
    return entries_of(sorted(rows, key=itemgetter(0)))


def entries_of(rows: Iterable[Row]) -> tuple[list[Entry], list[Unreadable]]:
    """The rows that can be published, and those that cannot."""
    entries, wrong = [], []
    for row in rows:
        try:
            entries.append(entry(row))
        except Exception as problem:  # whatever is in it, it must not stop the others
            wrong.append(unreadable(row[0], problem))
    return entries, wrong


def unreadable(id: int, problem: Exception) -> Unreadable:
    """Say that an entry is kept, and why."""
    _log.warning("outbox: entry %s cannot be published and is kept: %s", id, problem)
    reason = arguments.storable_reason(f"{type(problem).__name__}: {problem}")
    assert reason is not None
    return Unreadable(id, reason)


def entry(row: Row) -> Entry:
    """From id, delivery key, queue, delay, dedup key, group, then the message's columns."""
    arguments.storable_text("the delivery key", row[1])
    arguments.storable_text("the queue", row[2])
    if not isinstance(row[-1], bytes):
        raise Undecodable(f"the payload is not bytes but {type(row[-1]).__name__}")
    publication = Publication(message_of(row[6:]), int(row[3]), row[4], row[5])
    return Entry(row[0], row[1], row[2], arguments.checked(publication))


def relay_within(operations: SqlOperations, limit: int) -> Operation[int]:
    """Move the oldest entries into the queues of their own database; how many were looked at."""
    dialect = operations.dialect
    yield Transaction.WRITE
    entries, wrong = yield from read_outbox(dialect, limit)
    for one in wrong:
        yield refuse(dialect, [one], one.problem)
    for name, entries_of_one in by_queue(entries):
        try:
            info = yield from operations.find(name)
            check_is_queue(info)
        except (QueueNotFound, QueueOptionsError) as problem:
            reason = log_parked(name, len(entries_of_one), problem)
            yield refuse(dialect, entries_of_one, reason)
            continue
        publications = [entry.publication for entry in entries_of_one]
        yield from without_transaction(operations.publish(info, publications))
        yield drop(dialect, entries_of_one)
    yield Transaction.COMMIT
    return len(entries) + len(wrong)


def by_queue(entries: Sequence[Entry]) -> list[tuple[str, list[Entry]]]:
    """The entries of each queue, each in their order."""
    ordered = sorted(entries, key=attrgetter("queue"))
    return [(name, list(group)) for name, group in groupby(ordered, key=attrgetter("queue"))]


def abroad(entry: Entry) -> Publication:
    """The publication for another database, where its key says whether it has been there before."""
    publication = entry.publication
    return Publication(
        publication.message,
        publication.delay_us,
        publication.dedup_key or f"outbox:{entry.delivery_key}",
        publication.group,
    )


def drop(dialect: Dialect, entries: Sequence[Entry]) -> Statement:
    return dialect.statement("outbox_drop", [entry.id for entry in entries])


def refuse(dialect: Dialect, entries: Sequence[Entry | Unreadable], problem: str) -> Statement:
    """Keep them, with the reason; they stand in nobody's way."""
    return dialect.statement("outbox_refuse", [entry.id for entry in entries], problem)


def without_transaction(operation: Operation[T]) -> Operation[T]:
    """The operation, inside the caller's transaction."""

    def take(step: Step) -> Operation[Rows]:
        return () if isinstance(step, Transaction) else (yield step)

    return stepwise(operation, take)
