"""Reading a SQLite database with the library that the queues use: two of them in one process lose data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import apsw
import pyarrow as pa

from headgate.clock import Clock
from headgate.errors import DatabaseUnavailable, NoQueues, QueueError, SparkOptionsError
from headgate.queues import SqlValue
from headgate.queues.sqlite import SqliteDialect, open_file

_PATIENCE_MS: Final = 60_000
_INTS: Final = ("offset", "_turn", "priority", "timestamp", "_state", "_attempts")


class SqliteRows:
    def __init__(self, connection: apsw.Connection) -> None:
        self.dialect = SqliteDialect(Clock())
        self._connection = connection

    def batches(
        self, text: str, params: Sequence[SqlValue], names: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        found = self._connection.execute(text, tuple(params)).fetchall()
        columns = zip(*found, strict=True) if found else ([] for _ in names)
        arrays = [pa.array(c, type_of(n)) for n, c in zip(names, columns, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names=list(names))


def type_of(name: str) -> pa.DataType:
    """What a column holds; SQLite itself does not say."""
    return pa.int64() if name in _INTS else pa.binary() if name == "payload" else pa.string()


@contextmanager
def sqlite_rows(file: Path) -> Iterator[SqliteRows]:
    """A connection to that file, which must be there."""
    if not file.is_file():
        raise SparkOptionsError(
            f"there is no database {file}; it must be a file that the driver and all executors see"
        )
    try:
        connection = open_file(file, "look")
        try:
            connection.set_busy_timeout(_PATIENCE_MS)
            if not connection.table_exists("main", "headgate_queue"):
                raise NoQueues(f"{file} holds no queues; publish to one first")
            yield SqliteRows(connection)
        finally:
            connection.close()
    except (apsw.BusyError, apsw.CantOpenError, apsw.IOError) as problem:
        raise DatabaseUnavailable(f"{file}: {problem}") from problem
    except apsw.Error as problem:
        raise QueueError(f"{file}: {problem}") from problem
