"""Stream: create, open and delete; publish, consume and scan; seal, trim and reconfigure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from threading import Lock, RLock
from typing import Unpack

from headgate.checks import check_count, check_function, check_span
from headgate.clock import now_us
from headgate.columns import TableLike, read_table, split_table
from headgate.errors import (
    StreamClosed,
    StreamError,
    StreamLocked,
    StreamOptionsError,
    StreamWriteError,
)
from headgate.filters import FilterLike
from headgate.forks import call_in_child
from headgate.streams.directory import delete_files, refuse_existing, refuse_foreign
from headgate.streams.format import INBOX
from headgate.streams.options import (
    StreamOptionFields,
    StreamOptions,
    change_options,
    load_options,
    refuse_constructor,
    save_options,
)
from headgate.streams.read.catalog import SealedSegments, SegmentCatalog
from headgate.streams.read.consumer import PostFilter, StreamConsumer
from headgate.streams.read.cursors import Cursors
from headgate.streams.read.entry_filters import EntryFilters, resolve_entry_filters
from headgate.streams.read.query import StreamQuery, make_query
from headgate.streams.read.scan import OnCorrupt, Scan, check_on_corrupt
from headgate.streams.read.start import (
    OnLost,
    Start,
    check_on_lost,
    names_offset,
    resolve_position,
    resolve_start,
)
from headgate.streams.upkeep.retention import SegmentInfo, delete_expired, seal_segments
from headgate.streams.write.committer import Committer, close_at_exit
from headgate.streams.write.inbox import adopt, deposits, write_deposit, write_reference
from headgate.streams.write.lock import WriterLock
from headgate.streams.write.producer import FilterValue, Producer
from headgate.streams.write.publishing_ids import check_producer_name, check_publishing_id
from headgate.streams.write.staged import StagedFile
from headgate.streams.write.writer import Writer, write_errors


class Stream:
    """An append-only log of messages in a directory.

        from headgate import Stream

        with Stream.create("data/orders", indexed=["region"]) as orders:
            with orders.producer() as producer:
                producer.publish(b"order 1", topic="orders.eu", headers={"region": "EU", "amount": 1200})
                producer.publish(b"order 2", topic="orders.us", headers={"region": "US", "amount": 70})
            found = [message.payload for message in orders.consume("region = 'EU' AND amount > 1000")]
            assert found == [b"order 1"]

    Opening and reading take no lock. The first `producer` or `append` takes the writer's lock, which is released when the
    last producer is closed, or else with the stream. `seal`, `trim` and `reconfigure` hold it only while they run.
    """

    def __init__(self, path: str | Path, options: StreamOptions | None = None) -> None:
        """Use `Stream.create` or `Stream.open`."""
        self.path, self.options = Path(path), options or refuse_constructor(path)
        self._sealed = SealedSegments()
        self._catalog: SegmentCatalog | None = None
        self._asking = Lock()
        self._writing = RLock()
        self._writer: Writer | None = None
        self._committer: Committer | None = None
        self._producers: set[Producer] = set()
        self._appending = 0  # calls of `append` that are running
        self._closed = False
        call_in_child(self, Stream._leave_writer_to_parent)

    @classmethod
    def create(cls, path: str | Path, **fields: Unpack[StreamOptionFields]) -> Stream:
        """Create a stream with the fields of `StreamOptions`."""
        directory, options = Path(path), change_options(StreamOptions(), fields)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            refuse_foreign(directory)
            with WriterLock(directory, "create"):
                refuse_existing(directory)
                (directory / INBOX).mkdir(exist_ok=True)
                save_options(directory, options)
        except OSError as problem:
            raise StreamWriteError(f"cannot create {directory}: {problem}") from problem
        return cls(directory, options)

    @classmethod
    def open(cls, path: str | Path) -> Stream:
        """Open the stream in a directory."""
        return cls(path, load_options(Path(path)))

    @staticmethod
    def delete(path: str | Path) -> None:
        """Delete a stream and everything in its directory; refused while it is being written."""
        directory = Path(path)
        load_options(directory)
        with WriterLock(directory, "delete"):
            delete_files(directory)

    # ---- writing -------------------------------------------------------------------------------------

    def producer(
        self, name: str | None = None, *, filter_value: FilterValue | None = None
    ) -> Producer:
        """Return a producer; a named one never stores a publishing id twice.

        `filter_value` computes the filter value of every message that has none.
        """
        if name is not None:
            check_producer_name(name)
        if filter_value is not None:
            example = 'lambda message: message.headers["region"]'
            check_function("filter_value", filter_value, StreamOptionsError, example)
        with self._writing:
            if name is not None and any(p.name == name for p in self._producers):
                raise StreamError(f"there is a producer {name!r} already; close it first")
            writer = self._open_writer(f"producer {name}" if name else "an unnamed producer")
            producer = Producer(writer, name, filter_value, self._forget_producer)
            self._producers.add(producer)
            return producer

    def append(self, table: TableLike) -> int:
        """Append the rows of a table as messages, and return their number; they are confirmed when this returns.

        A table of pyarrow, a data frame of Polars or pandas, a relation of DuckDB, a `scan` of another stream: anything
        with `__arrow_c_stream__`. `columns.tables` says what each column means.
        """
        with self._writing:
            writer = self._open_writer("append")
            self._appending += 1
        try:
            now = now_us()
            return writer.append_columns(
                read_table(b, now) for b in split_table(table) if b.num_rows
            )
        finally:
            with self._writing:
                self._appending -= 1

    def deposit(self, producer: str, publishing_id: int, table: TableLike) -> bool:
        """Append a table, as `append` does, even while another process writes the stream; it is durable when this returns.

        It is stored as a whole and once, however often it is deposited under this id. Returns True when it is in the
        stream already, False when the process that holds the lock will adopt it.
        """
        check_producer_name(producer)
        check_publishing_id(publishing_id)
        batches = list(split_table(table))
        for batch in batches:
            read_table(batch, 0)  # refuse now what adoption would reject
        with write_errors(self.path):
            write_deposit(self.path, producer, publishing_id, batches)
        return self._adopt()

    def deposit_staged(
        self, producer: str, publishing_id: int, files: Sequence[StagedFile]
    ) -> bool:
        """Deposit rows of staged files (see `write.staged`); the files are removed once they are adopted."""
        check_producer_name(producer)
        check_publishing_id(publishing_id)
        with write_errors(self.path):
            write_reference(self.path, producer, publishing_id, files)
        return self._adopt()

    def _adopt(self) -> bool:
        """Adopt the deposits in the inbox; return False when another process holds the lock and will adopt them."""
        try:
            with self._borrow_writer("deposit") as writer:
                adopt(writer)
        except StreamLocked:
            return False
        return True

    def seal(self, *, all: bool = False) -> list[Path]:
        """Seal full segments, with `all` also the last one, and return the sealed files. Filters skip most in them."""
        with self._borrow_writer("seal") as writer:
            return seal_segments(writer, all=all, created_us=now_us())

    def trim(
        self,
        *,
        max_age: timedelta | None = None,
        max_bytes: int | None = None,
        before_offset: int = 0,
    ) -> list[SegmentInfo]:
        """Delete the oldest segments by these limits, or by those of the options when none is given; return them."""
        if max_age is not None:
            check_span("max_age", max_age, StreamOptionsError, least=timedelta(0))
        if max_bytes is not None:
            check_count("max_bytes", max_bytes, StreamOptionsError)
        check_count("before_offset", before_offset, StreamOptionsError)
        if max_age is None and max_bytes is None and not before_offset:
            max_age, max_bytes = self.options.max_age, self.options.max_bytes
        with self._borrow_writer("trim") as writer:
            deleted = delete_expired(
                writer,
                now_us=now_us(),
                max_age=max_age,
                max_bytes=max_bytes,
                before_offset=before_offset,
            )
        self._release_deleted()
        return deleted

    def _release_deleted(self) -> None:
        """Close deleted files, so that their disk space becomes free."""
        self._ask_catalog(_first_offset_now)

    def reconfigure(self, **changes: Unpack[StreamOptionFields]) -> None:
        """Change options, while no producer is open. They hold for what is written and sealed from then on."""
        with self._writing:
            if self._writer is not None:
                raise StreamError(
                    "this stream holds the writer's lock: before it is reconfigured, close its producers, or the "
                    "stream after an append"
                )
            with WriterLock(self.path, "reconfigure"), write_errors(self.path):
                options = change_options(load_options(self.path), changes)
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
        whole_chunks: bool = False,
        post_filter: PostFilter | None = None,
        entry_filter: EntryFilters = None,
        cursor: str | None = None,
        on_corrupt: OnCorrupt = "error",
        on_lost: OnLost = "error",
    ) -> StreamConsumer:
        """Return a consumer of the messages the filter selects, in offset order; with `follow`, future ones too.

        With `whole_chunks`, `filter_values` choose chunks and not messages, as in RabbitMQ. `cursor` names the consumer,
        which then goes on at the position it committed last. `timeout` ends following when no message came for that long.
        `on_corrupt` decides about unreadable messages (`read.scan`), `on_lost` about a position the stream does not have
        (`read.start`).
        """
        self._check_open()
        return StreamConsumer(
            self.path,
            self._query(filter, filter_values, match_unfiltered, entry_filter, None, whole_chunks),
            start=start,
            follow=follow,
            timeout=timeout,
            post_filter=post_filter,
            cursor=cursor,
            sealed=self._sealed,
            on_corrupt=on_corrupt,
            on_lost=on_lost,
        )

    def join_group(
        self,
        group: str,
        filter: FilterLike | None = None,
        *,
        start: Start = "first",
        follow: bool = False,
        timeout: timedelta | None = None,
        filter_values: Iterable[str] | None = None,
        match_unfiltered: bool = False,
        post_filter: PostFilter | None = None,
        entry_filter: EntryFilters = None,
        on_corrupt: OnCorrupt = "error",
        on_lost: OnLost = "error",
    ) -> StreamConsumer:
        """Return a consumer that shares the messages the filter selects with the other members of the group.

        Members may be in any process. Each message goes to one member, and to another one again when the first is closed or
        dies before it commits. A member takes shares of the offsets: messages of one share come in offset order, shares in any
        order. The group begins at `start`, later at its cursor, which has the name of the group. The other options are those of
        `consume`.

            with Stream.open("data/orders") as orders:
                with orders.join_group("report") as member:
                    for message in member:
                        member.commit()
        """
        self._check_open()
        return StreamConsumer(
            self.path,
            self._query(filter, filter_values, match_unfiltered, entry_filter),
            start=start,
            follow=follow,
            timeout=timeout,
            post_filter=post_filter,
            sealed=self._sealed,
            on_corrupt=on_corrupt,
            on_lost=on_lost,
            group=group,
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
        """Return Arrow record batches of the messages the filter selects, in offset order, with an `offset` column.

        DuckDB, Polars and pandas read a scan as it is, and `to_reader()` gives them one schema for all batches:

            scan = stream.scan("region = 'EU'")
            duckdb.sql("SELECT region, count(*) FROM scan GROUP BY region")

        `on_corrupt` and `on_lost` as for `consume`. Messages that retention deletes during the scan are skipped and
        counted in `stats.messages_dropped`.
        """
        self._check_open()
        check_on_corrupt(on_corrupt)
        check_on_lost(on_lost)
        if end is not None:
            check_count("end", end, StreamOptionsError)
        query = self._query(filter, filter_values, match_unfiltered, entry_filter, columns)
        catalog = SegmentCatalog(self.path, self._sealed)
        until = catalog.next_offset()
        first = resolve_start(start, catalog, now_us)
        if names_offset(start):
            reader = f"{self.path}: the scan"
            first = resolve_position(reader, first, catalog.first_offset(), until, on_lost)
        until = until if end is None else min(end, until)
        return Scan(catalog, query, first, until, on_corrupt=on_corrupt)

    def _query(
        self,
        filter: FilterLike | None,
        filter_values: Iterable[str] | None,
        match_unfiltered: bool,
        entry_filter: EntryFilters,
        columns: Sequence[str] | None = None,
        whole_chunks: bool = False,
    ) -> StreamQuery:
        """Build the query of a reader; the entry filters of the stream decide before those of the reader."""
        of_stream = resolve_entry_filters(self.options.entry_filters)
        return make_query(
            filter,
            filter_values=filter_values,
            match_unfiltered=match_unfiltered,
            entry_filter=(*of_stream, *resolve_entry_filters(entry_filter)),
            columns=columns,
            whole_chunks=whole_chunks,
        )

    def cursors(self) -> Cursors:
        """Return the cursors of named consumers."""
        return Cursors(self.path)

    @property
    def first_offset(self) -> int:
        """The oldest offset the stream still has."""
        return self._ask_catalog(_first_offset_now)

    @property
    def next_offset(self) -> int:
        """The offset the next message will get."""
        return self._ask_catalog(SegmentCatalog.next_offset)

    def _ask_catalog(self, question: Callable[[SegmentCatalog], int]) -> int:
        """Return what a function finds in the catalog, which is kept from call to call."""
        with self._asking:
            self._catalog = self._catalog or SegmentCatalog(self.path, self._sealed)
            return question(self._catalog)

    # ---- the writer ----------------------------------------------------------------------------------

    def _open_writer(self, purpose: str) -> Writer:
        """Return the writer of the stream; when there is none, open it, which takes the lock."""
        self._check_open()
        if self._writer is None:
            writer = Writer(self.path, self.options, purpose)
            try:
                self._committer = Committer(writer, self._release_deleted)
            except OSError as problem:
                writer.close()
                raise StreamWriteError(f"cannot write {self.path}: {problem}") from problem
            self._writer = writer
            close_at_exit(writer)
        return self._writer

    @contextmanager
    def _borrow_writer(self, purpose: str) -> Iterator[Writer]:
        """Yield the writer of the stream; when there is none, one that is closed after the block."""
        with self._writing, write_errors(self.path):
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
        """Flush and close the producers, and release the lock; idempotent."""
        with self._writing:
            self._closed = True
            try:
                self._close_writer()
            finally:
                self._catalog = None
                self._producers.clear()

    def _forget_producer(self, producer: Producer) -> None:
        """Forget a producer that was closed; with the last one, release the writer's lock."""
        with self._writing:
            if producer not in self._producers:  # closed by a child of the process that opened it
                return
            self._producers.remove(producer)
            writer = self._writer
            # A writer in trouble keeps what it could not store, and goes on trying until the stream is closed.
            if writer is None or writer.troubled or self._closed:
                return
            if not self._producers and not self._appending:
                self._close_writer()

    def _close_writer(self) -> None:
        """Close the producers and the writer, and release the lock."""
        writer, committer = self._writer, self._committer
        if writer is None or committer is None:
            return
        committer.close()
        try:
            for producer in list(self._producers):
                producer.close()
        finally:
            self._writer = self._committer = None
            writer.close()
        self._adopt_late()

    def _leave_writer_to_parent(self) -> None:
        """In a forked child, forget the writer: the child writes with its own once the lock is free."""
        self._writing, self._sealed = RLock(), SealedSegments()
        self._asking, self._catalog = Lock(), None
        self._writer, self._committer, self._producers = None, None, set()
        self._appending = 0

    def _adopt_late(self) -> None:
        """Adopt deposits that came while this stream held the lock: their processes rely on the lock holder."""
        with suppress(StreamLocked):
            while deposits(self.path):
                with closing(Writer(self.path, self.options, "adoption")) as late:
                    adopt(late)

    def _check_open(self) -> None:
        if self._closed:
            raise StreamClosed(f"{self.path} was closed")

    def __repr__(self) -> str:
        return f"<Stream {str(self.path)!r}>"

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()


def _first_offset_now(catalog: SegmentCatalog) -> int:
    catalog.relist()
    return catalog.first_offset()
