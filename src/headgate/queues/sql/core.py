"""What all SQL operations stand on: a dialect, and the catalog they remember."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from headgate.message import Message
from headgate.queues.engine import (
    Operation,
    QueueInfo,
    Row,
    Rows,
    SqlValue,
    Statement,
    Step,
    Transaction,
)
from headgate.queues.sql.catalog import Catalog, info_of
from headgate.queues.sql.dialect import Dialect
from headgate.queues.sql.records import (
    MESSAGE_COLUMNS,
    Undecodable,
    columns_of,
    message_of,
    salvage,
)

T = TypeVar("T")

_WIDTH: Final = len(MESSAGE_COLUMNS)


class Read(NamedTuple):
    """A row that ends with a message."""

    before: Row
    message: Message
    problem: str | None  # why it cannot be read; then the message is what can be shown of it


class Core:
    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self._catalog = Catalog(-1, ())
        self._catalog_version = dialect.statement("catalog_version")

    def catalog(self) -> Operation[Catalog]:
        """The catalog as this transaction sees it; read again only when it has changed."""
        [(version,)] = yield self._catalog_version
        if version != self._catalog.version:
            rows = yield self.dialect.statement("catalog")
            self._catalog = Catalog(version, map(info_of, rows), self.dialect.wall_us)
        return self._catalog

    def find(self, name: str) -> Operation[QueueInfo]:
        catalog = yield from self.catalog()
        return catalog.find(name)

    def current(self, queue: QueueInfo) -> Operation[QueueInfo]:
        """The queue of that name as it is now: since the caller looked, it may have been changed, or dropped and made
        again."""
        return self.find(queue.name)

    def last_known(self, queue: QueueInfo) -> QueueInfo:
        return self._catalog.get(queue.name) or queue

    def read_messages(self, name: str, *params: SqlValue, **gaps: str) -> Operation[list[Read]]:
        """The rows of a statement that ends with a message's columns. Where one cannot be read, all are read once more
        in a way that always works."""
        try:
            rows = yield self.dialect.statement(name, *params, columns=columns_of("m"), **gaps)
            return [Read(row[:-_WIDTH], message_of(row[-_WIDTH:]), None) for row in rows]
        except Undecodable:
            raw = self.dialect.raw_columns("m")
            rows = yield self.dialect.statement(name, *params, columns=raw, **gaps)
            return [Read(row[:-_WIDTH], *salvage(row[-_WIDTH:])) for row in rows]


def one(statement: Statement) -> Operation[Row | None]:
    """Its first row, if there is one."""
    rows = yield statement
    return rows[0] if rows else None


def stepwise(operation: Operation[T], take: Callable[[Step], Operation[Rows]]) -> Operation[T]:
    """The operation, with each of its steps done by `take`; what fails there is thrown back into it."""
    try:
        step = next(operation)
        while True:
            try:
                reply = yield from take(step)
            except GeneratorExit:
                operation.close()
                raise
            except BaseException as problem:
                step = operation.throw(problem)
            else:
                step = operation.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result


def without_transaction(operation: Operation[T]) -> Operation[T]:
    """The operation, inside the caller's transaction."""

    def take(step: Step) -> Operation[Rows]:
        return () if isinstance(step, Transaction) else (yield step)

    return stepwise(operation, take)
