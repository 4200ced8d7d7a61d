"""A queue in a SQL database: a batch is published in one transaction that also remembers it."""

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
from headgate.pipelines import QueuePlace, Tables, sqlite_file, tables_of
from headgate.spark.sink.checkpoint import Owner
from headgate.spark.sink.destination import BatchMark
from headgate.spark.sink.folders import (
    make_folder,
    not_seen,
    remove_files,
    remove_folder,
    remove_orphans,
)
from headgate.spark.sink.staging import Staged
from headgate.streams.write import STAGED_SUFFIX, read_staged

if TYPE_CHECKING:
    from headgate.queues import Database

AT_ONCE: Final = 1000  # messages in one statement


@dataclass(frozen=True, slots=True)
class QueueDestination:
    """The queue of that name, made when there is none. However its database is spelled, it is the same place: a batch
    is remembered there once, and would be refused as a second one."""

    url: str = field(compare=False)
    queue: str
    owner: Owner
    tables: Tables = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", tables_of(self.url))

    @property
    def staging(self) -> str:
        file = sqlite_file(self.url)
        folder = self.owner.scratch if file is None else f"{file}.staged"
        return str(Path(folder) / self.owner.name)

    def check(self) -> None:
        """Tables that are missing come with `open`; connecting as a publisher would make them."""
        from headgate.spark.source.queue_rows import open_rows, refuse_newer

        file = sqlite_file(self.url)
        if file is None:
            _need_driver()
        if file is None or file.exists():
            with suppress(NoQueues), open_rows(QueuePlace(self.url, self.queue)) as rows:
                refuse_newer(rows)

    def open(self) -> None:
        make_folder(self.staging)
        _declare(self.url, self.queue)

    def prepare(self, staged: Staged) -> Staged:
        return staged

    def commit(self, mark: BatchMark, staged: Sequence[Staged]) -> None:
        from headgate.queues import connect

        if not staged:
            return
        with connect(self.url) as database:
            database.queue(self.queue)  # somebody may have dropped it since
            self._publish(database, mark, staged)
        remove_files(staged)

    def _publish(self, database: Database, mark: BatchMark, staged: Sequence[Staged]) -> None:
        from headgate.queues import Publication
        from headgate.queues.sql import publish_once

        def slices() -> Iterator[list[Publication]]:
            for batch in _batches(staged):
                for start in range(0, batch.num_rows, AT_ONCE):
                    yield list(map(Publication, decode_messages(batch.slice(start, AT_ONCE))))

        publish_once(database.engine, self.queue, mark.query, mark.batch, slices)

    def discard(self, staged: Sequence[Staged]) -> None:
        remove_files(staged)

    def collect_orphans(self) -> None:
        remove_orphans(self.staging, (), STAGED_SUFFIX)

    def leave(self) -> None:
        remove_folder(self.staging)


def _need_driver() -> None:
    try:
        import headgate.queues.postgres.engine  # noqa: F401
    except ImportError as missing:
        raise MissingExtra("postgres", "a queue on PostgreSQL") from missing


@lru_cache(maxsize=256)
def _declare(url: str, queue: str) -> None:
    """Once in a process: a writer is made, and opened, for every commit."""
    from headgate.queues import connect

    with connect(url) as database:
        database.queue(queue)


def _batches(staged: Sequence[Staged]) -> Iterator[pa.RecordBatch]:
    for each in staged:
        try:
            yield from read_staged(Path(each.file), each.nbytes, each.crc)
        except FileNotFoundError as missing:
            raise not_seen(each.file) from missing
