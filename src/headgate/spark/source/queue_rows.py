"""A connection that only reads and gives its rows as Arrow batches, whichever database it is to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import pyarrow as pa

from headgate.errors import QueueNotFound, SchemaTooNew, SparkOptionsError
from headgate.pipelines import QueuePlace
from headgate.queues import SqlValue
from headgate.queues.sql import QueueDialect, migrations_of


class Rows(Protocol):
    """Each statement is a transaction of its own: nobody's vacuum or checkpoint waits for Spark."""

    @property
    def dialect(self) -> QueueDialect: ...

    def batches(
        self, text: str, params: Sequence[SqlValue], names: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """What the statement selects, its columns under these names."""
        ...


def open_rows(place: QueuePlace) -> AbstractContextManager[Rows]:
    """The database of the place, for reading. Nothing is created, and nothing brought up to date."""
    if place.file is not None:
        from headgate.spark.source.queue_sqlite import sqlite_rows

        return sqlite_rows(place.file)
    from headgate.spark.source.queue_postgres import postgres_rows

    return postgres_rows(place.url)


def column(rows: Rows, name: str, *params: SqlValue, **gaps: str) -> pa.Array:
    """The one column of numbers that a named statement selects."""
    found = rows.batches(rows.dialect.text(name, **gaps), params, ["offset"])
    return pa.concat_arrays([pa.array([], pa.int64()), *(batch.column(0) for batch in found)])


def keys(
    rows: Rows, name: str, params: Sequence[SqlValue], names: Sequence[str], **gaps: str
) -> list[tuple[int, ...]]:
    """The columns of numbers that a named statement selects, row by row."""
    found = rows.batches(rows.dialect.text(name, **gaps), params, names)
    return [
        key for batch in found for key in zip(*map(pa.Array.to_pylist, batch.columns), strict=True)
    ]


def refuse_older(rows: Rows, needed: int) -> None:
    """Refuse tables that an older Headgate made, where what is asked for is not in them."""
    version = column(rows, "tables_version")
    if version[0].as_py() < needed:
        raise SparkOptionsError(
            f"the tables are of version {version[0]}, and what an archive is followed by came with {needed}; bring them "
            "up to date: whatever publishes or claims with this Headgate does"
        )


def refuse_newer(rows: Rows) -> None:
    """Refuse tables that a newer Headgate made."""
    known, version = migrations_of(rows.dialect.name)[-1][0], column(rows, "tables_version")
    if version[0].as_py() > known:
        raise SchemaTooNew(
            f"the tables are of version {version[0]}, this Headgate knows {known}; upgrade it"
        )


def queue_id(rows: Rows, name: str) -> int:
    """The number of the queue or subscription; refuses tables that a newer Headgate made."""
    refuse_newer(rows)
    found = column(rows, "queue_named", name)
    if not len(found):
        raise QueueNotFound(name)
    number: int = found[0].as_py()
    return number
