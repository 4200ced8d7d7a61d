"""Filters answered by SQLite, in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import apsw

from headgate.check.sql import SqlEngine, Tables
from headgate.clock import now_us
from headgate.filters.compile.sql import Sql, SqlDialect

SCHEMA: Final = """
CREATE TABLE message (
    number INTEGER PRIMARY KEY,
    headers TEXT NOT NULL,
    properties TEXT NOT NULL,
    topic TEXT NOT NULL,
    priority INTEGER NOT NULL,
    timestamp INTEGER,
    id TEXT,
    filter_value TEXT,
    key TEXT
);
CREATE TABLE question (number INTEGER PRIMARY KEY, filter INTEGER NOT NULL, message INTEGER NOT NULL);
CREATE INDEX question_filter ON question (filter);
"""


class SqliteEngine(SqlEngine):
    name = "sqlite"
    dialect: SqlDialect = "sqlite"

    def __init__(self, *, clock: Callable[[], int] = now_us) -> None:
        super().__init__(clock=clock)
        self._connection = apsw.Connection(":memory:")
        self._connection.execute(SCHEMA)

    def fill(self, tables: Tables) -> None:
        with self._connection as connection:
            connection.execute("DELETE FROM message; DELETE FROM question")
            connection.executemany(
                "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                ((number, *row) for number, row in enumerate(tables.messages)),
            )
            connection.executemany("INSERT INTO question VALUES (?, ?, ?)", tables.questions)

    def select(self, statement: Sql) -> Iterable[int]:
        return (row[0] for row in self._connection.execute(statement.text, statement.params))

    def close(self) -> None:
        self._connection.close()
