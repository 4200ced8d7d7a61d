"""A queue in a SQL database: a batch is published in one transaction that also records its number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headgate.columns import decode_messages
from headgate.errors import MissingExtra, NoQueues
from headgate.pipelines import QueuePlace
from headgate.queues import TablesKey, sqlite_file, tables_key
from headgate.spark.sink.destination import BatchMark, Owner
from headgate.spark.sink.staging import (
    StagedPart,
    delete_files,
    delete_folder,
    delete_orphans,
    make_folder,
    missing_file,
)
from headgate.streams.write import STAGED_SUFFIX, read_staged

if TYPE_CHECKING:
    from headgate.queues import Database

MESSAGES_PER_STATEMENT: Final = 1000


@dataclass(frozen=True, slots=True)
class QueueDestination:
    """The queue of that name, created when there is none.

    Two spellings of one database make equal destinations, which share one commit: the database would ignore a second one.
    """

    url: str = field(compare=False)
    queue: str
    owner: Owner
    tables: TablesKey = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", tables_key(self.url))

    @property
    def staging(self) -> str:
        file = sqlite_file(self.url)
        folder = self.owner.scratch if file is None else f"{file}.staged"
        return str(Path(folder) / self.owner.name)

    def check(self) -> None:
        """Check the database with a connection that only reads; `open` creates missing tables."""
        from headgate.spark.source.queue_rows import open_rows, refuse_newer

        file = sqlite_file(self.url)
        if file is None:
            _require_driver()
        if file is None or file.exists():
            with suppress(NoQueues), open_rows(QueuePlace(self.url, self.queue)) as rows:
                refuse_newer(rows)

    def open(self) -> None:
        make_folder(self.staging)
        _declare(self.url, self.queue)

    def prepare(self, staged: StagedPart) -> tuple[StagedPart, ...]:
        return (staged,)

    def commit(self, mark: BatchMark, staged: Sequence[StagedPart]) -> None:
        from headgate.queues import connect

        if not staged:
            return
        with connect(self.url) as database:
            database.queue(self.queue)  # it may have been deleted since
            self._publish(database, mark, staged)
        delete_files(staged)

    def _publish(self, database: Database, mark: BatchMark, staged: Sequence[StagedPart]) -> None:
        from headgate.queues import Publication
        from headgate.queues.sql import publish_once

        def publications() -> Iterator[list[Publication]]:
            for batch in read_batches(staged):
                for start in range(0, batch.num_rows, MESSAGES_PER_STATEMENT):
                    yield list(
                        map(
                            Publication, decode_messages(batch.slice(start, MESSAGES_PER_STATEMENT))
                        )
                    )

        publish_once(database.engine, self.queue, mark.query, mark.batch, publications)

    def discard(self, staged: Sequence[StagedPart]) -> None:
        delete_files(staged)

    def collect_orphans(self) -> None:
        delete_orphans(self.staging, (), STAGED_SUFFIX)

    def leave(self) -> None:
        delete_folder(self.staging)


def _require_driver() -> None:
    try:
        import headgate.queues.postgres.engine  # noqa: F401
    except ImportError as missing:
        raise MissingExtra("postgres", "a queue on PostgreSQL") from missing


@lru_cache(maxsize=256)
def _declare(url: str, queue: str) -> None:
    """Create the queue; once in a process, since every commit opens a new writer."""
    from headgate.queues import connect

    with connect(url) as database:
        database.queue(queue)


def read_batches(staged: Sequence[StagedPart]) -> Iterator[pa.RecordBatch]:
    """Read the rows of staged files, in their order."""
    for each in staged:
        try:
            yield from read_staged(Path(each.file), each.nbytes, each.crc)
        except FileNotFoundError as missing:
            raise missing_file(each.file) from missing
