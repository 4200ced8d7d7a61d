"""Stream: the face of everything in this package."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Any

import pyarrow as pa

from headgate.clock import now_us
from headgate.columns import read_table, split_table
from headgate.errors import (
    StreamClosed,
    StreamError,
    StreamExists,
    StreamLocked,
    StreamWriteError,
)
from headgate.filters import FilterLike
from headgate.forks import call_in_child
from headgate.streams.cold.manifest import delete_all_cold
from headgate.streams.format import INBOX, LOCK_FILE, OPTIONS_FILE
from headgate.streams.options import StreamOptions, changed, load_options, save_options
from headgate.streams.read.catalog import SealedSegments, SegmentCatalog
from headgate.streams.read.consumer import PostFilter, StreamConsumer
from headgate.streams.read.cursors import Cursors
from headgate.streams.read.entry_filters import EntryFilter, EntryFilters, resolve_entry_filters
from headgate.streams.read.query import make_query
from headgate.streams.read.scan import OnCorrupt, Scan, check_on_corrupt
from headgate.streams.read.start import (
    OnLost,
    Start,
    check_on_lost,
    names_offset,
    resolve_position,
    resolve_start,
)
from headgate.streams.record import COPY_SUFFIX
from headgate.streams.refusals import raising_write_errors
from headgate.streams.upkeep.retention import SegmentInfo, delete_expired, seal_segments
from headgate.streams.write.adoption import adopt
from headgate.streams.write.committer import Committer
from headgate.streams.write.exits import close_at_exit
from headgate.streams.write.inbox import deposits, write_deposit, write_reference
from headgate.streams.write.lock import WriterLock
from headgate.streams.write.producer import FilterValue, Producer
from headgate.streams.write.publishing_ids import check_producer_name, check_publishing_id
from headgate.streams.write.staged import StagedFile
from headgate.streams.write.writer import Writer


class Stream:
    """An append-only log of messages in a directory.

    Opening and reading never lock. The first `producer` or `append` takes the writer's lock, and it is held until
    the stream is closed; `seal`, `trim` and `reconfigure` take it for as long as they run.
    """

    def __init__(self, path: str | Path, options: StreamOptions) -> None:
        """Use `Stream.create` or `Stream.open`."""
        self.path, self.options = Path(path), options
        self._sealed = SealedSegments()
        self._writing = RLock()
        self._writer: Writer | None = None
        self._committer: Committer | None = None
        self._producers: set[Producer] = set()
        self._closed = False
        call_in_child(self, Stream._leave_writer_to_parent)

    @classmethod
    def create(cls, path: str | Path, **options: Any) -> Stream:
        """A new stream; the options are those of `StreamOptions`."""
        directory, wanted = Path(path), changed(StreamOptions(), options)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            _refuse_foreign(directory)
            with WriterLock(directory, "create"):
                if (directory / OPTIONS_FILE).exists():
                    raise StreamExists(f"there is a stream in {directory} already; open it")
                (directory / INBOX).mkdir(exist_ok=True)
                save_options(directory, wanted)
        except OSError as problem:
            raise StreamWriteError(f"{directory} cannot be made: {problem}") from problem
        return cls(directory, wanted)

    @classmethod
    def open(cls, path: str | Path) -> Stream:
        """The stream in that directory."""
        return cls(path, load_options(Path(path)))

    @staticmethod
    def delete(path: str | Path) -> None:
        """Delete a stream and everything in its directory; refused while somebody writes."""
        directory = Path(path)
        load_options(directory)
        with WriterLock(directory, "delete"):
            delete_all_cold(directory)
            (directory / OPTIONS_FILE).unlink()
            shutil.rmtree(directory)

    # ---- writing -------------------------------------------------------------------------------------

    def producer(
        self, name: str | None = None, *, filter_value: FilterValue | None = None
    ) -> Producer:
        """A producer for this stream. A name makes publishing ids count: no id is stored twice."""
        if name is not None:
            check_producer_name(name)
        with self._writing:
            if name is not None and any(p.name == name for p in self._producers):
                raise StreamError(f"there is a producer {name!r} already; close it first")
            writer = self._write(f"producer {name}" if name else "an unnamed producer")
            made = Producer(writer, name, filter_value, self._producers.discard)
            self._producers.add(made)
            return made

    def append(self, table: pa.Table | pa.RecordBatch) -> int:
        """Append Arrow data, see `tables` for how columns become messages; confirmed when this returns."""
        with self._writing:
            writer = self._write("append")
        now = now_us()
        return writer.append_columns(read_table(b, now) for b in split_table(table) if b.num_rows)

    def deposit(self, producer: str, publishing_id: int, table: pa.Table | pa.RecordBatch) -> bool:
        """Append Arrow data although another process may be writing; durable when this returns.

        It is stored as a whole and once, however often it is deposited under this id. True when it is in the stream
        already, False when the process that holds the stream will take it in.
        """
        check_producer_name(producer)
        check_publishing_id(publishing_id)
        batches = list(split_table(table))
        for batch in batches:
            read_table(batch, 0)  # refuse here what could not be adopted there
        with raising_write_errors(self.path):
            write_deposit(self.path, producer, publishing_id, batches)
        return self._adopt()

    def deposit_staged(
        self, producer: str, publishing_id: int, files: Sequence[StagedFile]
    ) -> bool:
        """The same for rows that were written to staged files before (see `staged`), which go once they are adopted."""
        check_producer_name(producer)
        check_publishing_id(publishing_id)
        with raising_write_errors(self.path):
            write_reference(self.path, producer, publishing_id, files)
        return self._adopt()

    def _adopt(self) -> bool:
        """Take in what is in the inbox, unless another process will."""
        try:
            with self._lent("deposit") as writer:
                adopt(writer)
        except StreamLocked:
            return False
        return True

    def seal(self, *, all: bool = False) -> list[Path]:
        """Seal what is full, or everything: from then on filters prune it best."""
        with self._lent("seal") as writer:
            return seal_segments(writer, all=all, created_us=now_us())

    def trim(
        self,
        *,
        max_age: timedelta | None = None,
        max_bytes: int | None = None,
        before_offset: int = 0,
    ) -> list[SegmentInfo]:
        """Drop the oldest segments by these limits, or by the stream's own when none is given."""
        if max_age is None and max_bytes is None and not before_offset:
            max_age, max_bytes = self.options.max_age, self.options.max_bytes
        limits = {"max_age": max_age, "max_bytes": max_bytes, "before_offset": before_offset}
        with self._lent("trim") as writer:
            dropped = delete_expired(writer, now_us=now_us(), **limits)  # type: ignore[arg-type]
        self._forget_dropped()
        return dropped

    def _forget_dropped(self) -> None:
        """Let go of the files that are not there any more, so that their space is free."""
        SegmentCatalog(self.path, self._sealed)

    def reconfigure(self, **changes: Any) -> None:
        """Change options; what says how chunks are written holds from the next segment on."""
        with self._writing:
            if self._writer is not None:
                raise StreamError("close the producers of this stream before it is reconfigured")
            with WriterLock(self.path, "reconfigure"), raising_write_errors(self.path):
                options = changed(load_options(self.path), changes)
                save_options(self.path, options)
            self.options = options

    # ---- reading -------------------------------------------------------------------------------------

    def consume(
        self,
        filter: FilterLike | None = None,
        *,
        start: Start = "first",
        follow: bool = False,
        timeout: timedelta | None = None,
        filter_values: Iterable[str] | None = None,
        match_unfiltered: bool = False,
        post_filter: PostFilter | None = None,
        entry_filter: EntryFilters = None,
        cursor: str | None = None,
        on_corrupt: OnCorrupt = "error",
        on_lost: OnLost = "error",
    ) -> StreamConsumer:
        """The messages the filter selects, in offset order; with `follow`, also those yet to come.

        `on_corrupt` and `on_lost` say what to do about messages that cannot be read and offsets that are gone: see
        `missing`.
        """
        self._check_open()
        query = make_query(
            filter,
            filter_values=filter_values,
            match_unfiltered=match_unfiltered,
            entry_filter=self._entry_filters(entry_filter),
        )
        return StreamConsumer(
            self.path,
            query,
            start=start,
            follow=follow,
            timeout=timeout,
            post_filter=post_filter,
            cursor=cursor,
            sealed=self._sealed,
            on_corrupt=on_corrupt,
            on_lost=on_lost,
        )

    def scan(
        self,
        filter: FilterLike | None = None,
        *,
        start: Start = "first",
        end: int | None = None,
        columns: Sequence[str] | None = None,
        filter_values: Iterable[str] | None = None,
        match_unfiltered: bool = False,
        entry_filter: EntryFilters = None,
        on_corrupt: OnCorrupt = "error",
        on_lost: OnLost = "error",
    ) -> Scan:
        """Arrow record batches of the messages the filter selects, in offset order, with an `offset` column.

        `on_corrupt` and `on_lost` as for `consume`; what retention drops while the scan is under way is passed over, and
        counted in `stats.messages_dropped`.
        """
        self._check_open()
        check_on_corrupt(on_corrupt)
        check_on_lost(on_lost)
        query = make_query(
            filter,
            filter_values=filter_values,
            match_unfiltered=match_unfiltered,
            entry_filter=self._entry_filters(entry_filter),
            columns=columns,
        )
        catalog = SegmentCatalog(self.path, self._sealed)
        until = catalog.next_offset()
        first = resolve_start(start, catalog, now_us)
        if names_offset(start):
            who = f"{self.path}: the scan"
            first = resolve_position(who, first, catalog.first_offset(), until, on_lost)
        until = until if end is None else min(end, until)
        return Scan(catalog, query, first, until, on_corrupt=on_corrupt)

    def _entry_filters(self, given: EntryFilters) -> tuple[EntryFilter, ...]:
        """The stream's own, then the reader's."""
        return (*resolve_entry_filters(self.options.entry_filters), *resolve_entry_filters(given))

    def cursors(self) -> Cursors:
        """Where named consumers stand."""
        return Cursors(self.path)

    @property
    def first_offset(self) -> int:
        """The oldest offset that may still be there."""
        return SegmentCatalog(self.path, self._sealed).first_offset()

    @property
    def next_offset(self) -> int:
        """The offset the next message will get."""
        return SegmentCatalog(self.path, self._sealed).next_offset()

    # ---- the writer ----------------------------------------------------------------------------------

    def _write(self, purpose: str) -> Writer:
        """The writer of this stream, from now on until the stream is closed."""
        self._check_open()
        if self._writer is None:
            writer = Writer(self.path, self.options, purpose)
            try:
                self._committer = Committer(writer, self._forget_dropped)
            except OSError as problem:
                writer.close()
                raise StreamWriteError(f"{self.path} cannot be written: {problem}") from problem
            self._writer = writer
            close_at_exit(writer)
        return self._writer

    @contextmanager
    def _lent(self, purpose: str) -> Iterator[Writer]:
        """The writer of this stream, or one just for this task."""
        with self._writing, raising_write_errors(self.path):
            self._check_open()
            held = self._writer
            writer = held or Writer(self.path, self.options, purpose)
            try:
                yield writer
            finally:
                if held is None:
                    writer.close()
        if held is None:
            self._adopt_late()

    def close(self) -> None:
        """Flush and close the producers, and let go of the lock; idempotent."""
        with self._writing:
            self._closed = True
            try:
                self._close_writer()
            finally:
                self._writer = self._committer = None
                self._producers.clear()

    def _close_writer(self) -> None:
        if self._writer is None or self._committer is None:
            return
        self._committer.close()
        try:
            for producer in list(self._producers):
                producer.close()
        finally:
            self._writer.close()
        self._adopt_late()

    def _leave_writer_to_parent(self) -> None:
        """In a forked child: read on, and write with a writer of one's own once the lock is free."""
        self._writing, self._sealed = RLock(), SealedSegments()
        self._writer, self._committer, self._producers = None, None, set()

    def _adopt_late(self) -> None:
        """What came while we had the lock: whoever was refused it relies on us."""
        with suppress(StreamLocked):
            while deposits(self.path):
                with closing(Writer(self.path, self.options, "adoption")) as late:
                    adopt(late)

    def _check_open(self) -> None:
        if self._closed:
            raise StreamClosed(f"{self.path} was closed")

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _refuse_foreign(directory: Path) -> None:
    """A directory with other things in it, or with what is left of a deleted stream, becomes no stream by accident."""
    ours = {INBOX, LOCK_FILE, OPTIONS_FILE + COPY_SUFFIX}  # what an interrupted `create` leaves
    found = {path.name for path in directory.iterdir() if not path.name.startswith(".")} - ours
    if found and OPTIONS_FILE not in found:
        raise StreamExists(
            f"{directory} is not empty: it holds {min(found)}; choose another directory"
        )
