"""The writer of a stream: it holds the lock, cuts pending messages into chunks, commits them and begins new segments.

Messages are accepted without a lock; `_committing` is held while bytes go to disk. While one thread waits for an fsync,
others go on adding messages, and the next commit takes all of them with one fsync: group commit. `_gate` only keeps the
files from being closed while another thread syncs them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Lock, RLock

from headgate.clock import now_us
from headgate.columns import (
    Arrays,
    cap_columns,
    count_rows,
    cut_rows,
    shred_chunk,
)
from headgate.errors import InvalidMessage, StreamClosed, StreamError, StreamWriteError
from headgate.file_watch import Announcer
from headgate.files import remove_files
from headgate.forks import call_in_child
from headgate.message import Message
from headgate.streams.format import index_path, log_path
from headgate.streams.options import StreamOptions
from headgate.streams.outlines import Outlines
from headgate.streams.segments.hot_chunk import MORE, ChunkMeta, encode_chunk
from headgate.streams.segments.hot_index import IndexShape, index_entry
from headgate.streams.segments.hot_log import create_hot_log
from headgate.streams.upkeep.recovery import open_last_segment
from headgate.streams.write.batching import (
    PreparedChunk,
    cut_columns,
    is_too_large,
    prepare_chunks,
)
from headgate.streams.write.inbox import deposits
from headgate.streams.write.lock import WriterLock
from headgate.streams.write.pending import (
    Item,
    PendingMessages,
    last_ids,
    messages_of,
    valid_items,
)
from headgate.streams.write.publishing_ids import Mark


def write_error(directory: Path, problem: OSError) -> StreamWriteError:
    """Return the error that tells users what to do about a full disk or a failed sync."""
    return StreamWriteError(
        f"{problem.filename or directory}: {problem.strerror or problem}; "
        "nothing that was confirmed is lost; correct the cause, and try again"
    )


@contextmanager
def write_errors(directory: Path) -> Iterator[None]:
    """Raise a StreamWriteError instead of every OSError."""
    try:
        yield
    except OSError as problem:
        raise write_error(directory, problem) from problem


class Writer:
    """Everything that is written to a stream goes through its writer. Safe to use from many threads."""

    def __init__(
        self,
        directory: Path,
        options: StreamOptions,
        purpose: str,
        clock: Callable[[], int] = now_us,
    ) -> None:
        """Take the lock, and recover the files if the last writer died."""
        self.directory, self.options, self._clock = directory, options, clock
        self._shape = IndexShape.of(options)
        self._gate, self._committing = Lock(), RLock()
        self.maintaining = RLock()  # held while old segments are sealed or dropped
        # There is a full segment that retention has not looked at yet; the last writer may have left one.
        self.rolled = True
        self.outlines = Outlines(directory)  # for the holder of `maintaining`
        # Called when messages begin to wait, or a segment is full.
        self.on_pending: Callable[[], None] = lambda: None
        self._taken_at = 0  # the offset of the first message that was taken out of `pending`
        self._appended_until = 0  # the offset behind the last appended chunk
        self._failed: StreamError | None = None  # for good
        self.troubled = False  # since the last commit, or for good
        self._unraised: InvalidMessage | None = None  # found by a commit in the background
        self._reported: StreamError | None = None  # by the committer, and not raised yet
        self._lock = WriterLock(directory, purpose)
        try:
            with write_errors(directory):
                self._log, self.producers = open_last_segment(directory, self._shape, clock())
                if not self._log.shape.same_as(self._shape):
                    self._roll()
        except BaseException:
            self._lock.release()
            raise
        self.pending = PendingMessages(options.chunk_messages, options.chunk_bytes, self.producers)
        # As long as it holds the lock, no other process changes what readers watch.
        self._announcer = Announcer(directory)
        self._pid = os.getpid()
        call_in_child(self, Writer._leave_to_parent)

    @property
    def next_offset(self) -> int:
        """The offset the next committed message gets."""
        return self._log.next_offset

    @property
    def active_first_offset(self) -> int:
        """The first offset of the segment that is being written: every segment before it is complete."""
        # Under the lock: in the middle of a roll there are two, and either may be the one that stays.
        with self._committing:
            return self._log.first_offset

    # ---- accepting -----------------------------------------------------------------------------------

    def retry(self) -> None:
        """Raise a problem that was reported; commit before more messages are accepted if a chunk's worth is pending."""
        self._check_open()
        self._raise_reported()
        if self.pending.full:
            self.commit()

    def report(self, problem: StreamError | None) -> None:
        """Have the next publish or flush raise this problem of the background work; None: raise none, it is over."""
        self._reported = problem
        self.troubled = self.troubled or problem is not None

    def _raise_reported(self) -> None:
        if self._reported is not None:
            reported, self._reported = self._reported, None
            raise reported

    def attend(self) -> None:
        """Wake the committer for the first pending messages; commit when they fill a chunk."""
        if self.pending.start_waiting():
            self.on_pending()
        if self.pending.full:
            # The messages are accepted already: when the disk refuses them, the next call raises that.
            with suppress(StreamWriteError):
                self.commit()

    def accept(
        self,
        messages: Sequence[Message],
        name: str | None = None,
        first_id: int | None = None,
        chunks: Sequence[PreparedChunk] = (),
    ) -> int:
        """Accept valid messages, and write them at once if `chunks` are given; return how many were new.

        `first_id` is the publishing id of the first message, or None for the next id; the ids of the others follow.
        """
        with self._committing:
            if chunks or self.pending.full:
                self.commit()
            self._check_open()
            with self.pending.numbering:  # in the order of their ids
                items = self.pending.select_new(messages, name, first_id)
                is_new = len(items) == len(messages)
                # Another thread may have published since the commit above: lower ids are stored first.
                whole = bool(chunks) and is_new and not self.pending.has_ids_of(name)
                if whole:
                    self._taken_at = self._log.next_offset
                    self.pending.take(items)
                else:
                    self.pending.add_many(items)
            if whole:
                # They are accepted now: when the disk refuses them, the next call raises that.
                with suppress(StreamWriteError):
                    self._write(items, chunks)
        self.attend()
        return len(items)

    # ---- committing ----------------------------------------------------------------------------------

    def commit_in_background(self) -> None:
        """Commit what is pending; an invalid message is raised by the next `commit` instead."""
        try:
            self._commit_pending()
        except InvalidMessage as problem:
            self._unraised = problem

    def commit(self) -> None:
        """Commit what is pending. On return, every message accepted before the call is confirmed."""
        with self._committing:
            self._commit_pending()
            if self._unraised is not None:
                unraised, self._unraised = self._unraised, None
                raise unraised
            self._raise_reported()

    def _commit_pending(self) -> None:
        with self._committing:
            self._check_open()
            if self.pending.taken is not None:  # writing them was interrupted
                self._rollback()
                self.pending.put_back(valid_items(self._unwritten(self.pending.taken)))
            self._taken_at = self._log.next_offset
            if drained := self.pending.drain():
                self._write(drained)

    def _write(self, items: Sequence[Item], chunks: Iterable[PreparedChunk] = ()) -> None:
        """Write accepted messages; those that could not be written are pending again."""
        messages = messages_of(items)
        marks = () if messages is items else items
        try:
            with self._rollback_on_error():
                for chunk in chunks or self._prepare(messages):
                    self._append(chunk.arrays, chunk.code, marks[chunk.start : chunk.end])
                self._commit_appended()
        except BaseException as problem:
            rest = self._unwritten(items)
            if not isinstance(problem, StreamError):
                rest = valid_items(rest)  # an invalid message would make every later commit fail
            self.pending.put_back(rest)
            self.troubled = True
            raise
        self.pending.taken = None
        self.troubled = False

    def _unwritten(self, taken: Sequence[Item]) -> Sequence[Item]:
        return taken[self._log.next_offset - self._taken_at :]

    def _prepare(self, messages: Sequence[Message]) -> Iterator[PreparedChunk]:
        columns = partial(
            shred_chunk,
            indexed=self.options.indexed,
            now_us=self._clock(),
            used=frozenset(self.pending.used),
        )
        return prepare_chunks(messages, self.options, columns)

    def append_columns(
        self, batches: Iterable[Arrays], mark: Mark | None = None, nbytes: int = 0
    ) -> int:
        """Write columns behind all that is pending; return the number of rows that are stored.

        With a mark they are stored as a whole or not at all, whatever happens, in one segment, and are durable before
        readers see them; `nbytes` is about their size. A mark that was seen before stores nothing.
        """
        with self._committing:
            # An invalid message of a producer is not the fault of a deposit.
            self.commit() if mark is None else self.commit_in_background()
            if mark is not None and mark[1] <= self.producers.last(mark[0]):
                return 0
            first = self._log.next_offset
            with self._rollback_on_error():
                if mark is not None:
                    self._make_room(nbytes)
                self._append_columns(batches, mark)
                self._commit_appended(durable=mark is not None)
            return self._log.next_offset - first

    def _append_columns(self, batches: Iterable[Arrays], mark: Mark | None) -> None:
        chunks = self._cut(batches)
        last = next(chunks, None)
        if last is None:
            return
        for chunk in chunks:
            self._append(*last, whole=mark is not None, flags=MORE if mark is not None else 0)
            last = chunk
        self._append(*last, [] if mark is None else [mark], whole=mark is not None)

    def _cut(self, batches: Iterable[Arrays]) -> Iterator[tuple[Arrays, int]]:
        options = self.options
        for arrays in batches:
            for start, end, code in cut_columns(arrays, self._shape.restriction, options):
                yield cap_columns(cut_rows(arrays, start, end - start), None, options.indexed), code

    def _append(
        self,
        arrays: Arrays,
        code: int,
        marks: Sequence[Item | Mark] = (),
        *,
        whole: bool = False,
        flags: int = 0,
    ) -> None:
        """Append one chunk; two when headers make it far larger than it should be."""
        rows = count_rows(arrays)
        if rows > 1 and len(marks) in (0, rows) and is_too_large(arrays, self.options.chunk_bytes):
            half = rows // 2
            self._append(cut_rows(arrays, 0, half), code, marks[:half], whole=whole, flags=flags)
            rest = cut_rows(arrays, half, rows - half)
            return self._append(rest, code, marks[half:], whole=whole, flags=flags)
        ids = last_ids(marks)
        meta = ChunkMeta(ids, self._shape.restriction.properties(code))
        chunk = encode_chunk(arrays, self._log.next_offset, meta, flags)
        if not whole:
            self._make_room(chunk.length)
        entry = index_entry(self._shape, chunk.head, self._log.end, code, arrays.get)
        self._log.append(chunk, entry)
        self._appended_until = self._log.next_offset
        self.producers.append(ids)
        return None

    def _commit_appended(self, *, durable: bool = False) -> None:
        """Confirm the appended chunks: sync them if they have to be durable, and let readers see them."""
        log, always = self._log, self.options.fsync == "always"
        if always and log.end > log.committed:
            log.sync_appended()
        elif durable:
            self._sync_or_fail(log.sync_appended)
        log.commit()
        if always or durable:
            log.settle(log.end)
        self.producers.commit(self._clock())
        self._announcer.notify()

    @contextmanager
    def _rollback_on_error(self) -> Iterator[None]:
        """When anything fails, leave the files as they were at the last commit."""
        try:
            yield
        except BaseException as problem:
            self._rollback()
            if isinstance(problem, OSError):
                raise write_error(self.directory, problem) from problem
            raise

    def _rollback(self) -> None:
        try:
            self._log.rollback()
        except OSError as problem:
            self._fail(write_error(self.directory, problem))
        if self._log.next_offset == self._appended_until:  # committed before it was interrupted
            self.producers.commit(self._clock())
            self._announcer.notify()
        self.producers.rollback()

    # ---- segments ------------------------------------------------------------------------------------

    def _make_room(self, nbytes: int) -> None:
        """Begin a new segment when this one would grow past its limit."""
        width = self._shape.dtype.itemsize
        if not self._log.is_empty and self._log.size + nbytes + width > self.options.segment_bytes:
            self._commit_appended()
            self._roll()

    def roll(self) -> None:
        """Begin a new segment, unless this one is empty, so that it can be sealed."""
        with self._committing:
            self.commit()
            if not self._log.is_empty:
                with self._rollback_on_error():
                    self._roll()

    def _roll(self) -> None:
        old = self._log
        if self.options.fsync != "never":
            self._sync_or_fail(old.sync_appended)
        old.settle(old.end)
        now = self._clock()
        self._forget_unused_producers(now)
        known = self.producers
        try:
            new = create_hot_log(
                self.directory, old.next_offset, self._shape, known.committed, now, known.seen
            )
            with self._gate:
                self._log = new
        except BaseException:
            if self._log is old:
                self._remove_segment(old.next_offset)
            raise
        with self._gate:
            old.close()
        self.rolled = True
        self.on_pending()

    def _forget_unused_producers(self, now_us: int) -> None:
        max_age = self.options.producer_max_age
        if max_age is not None:
            self.producers.forget_unused(
                now_us - max_age // timedelta(microseconds=1),
                lambda: {deposit.producer for deposit in deposits(self.directory)},
            )

    def _remove_segment(self, first_offset: int) -> None:
        """Remove the files of a failed roll: readers and the next writer would take them for the last segment."""
        try:
            remove_files(
                log_path(self.directory, first_offset), index_path(self.directory, first_offset)
            )
        except OSError as problem:
            self._fail(write_error(self.directory, problem))

    @property
    def dirty(self) -> bool:
        """Whether something confirmed would not survive a power failure."""
        return self._log.dirty

    def sync(self) -> None:
        """Make everything confirmed durable, while others go on writing."""
        with self._gate:
            self._check_open()
            log, reached = self._log, self._log.committed
            fd = log.duplicate()
        try:
            self._sync_or_fail(partial(os.fdatasync, fd))
        finally:
            os.close(fd)
        with self._gate:
            if log is self._log:
                log.settle(reached)

    def _sync_or_fail(self, sync: Callable[[], None]) -> None:
        """Sync, or write no more: the kernel may have dropped the pages that it could not write."""
        try:
            sync()
        except OSError as problem:
            refused = write_error(self.directory, problem)
            self._fail(refused)
            raise refused from problem

    # ---- closing -------------------------------------------------------------------------------------

    def name(self, purpose: str) -> None:
        """Change the purpose in the lock file, which a refused writer is told."""
        self._lock.name(purpose)

    @property
    def closed(self) -> bool:
        return isinstance(self._failed, StreamClosed)

    def close(self) -> None:
        """Commit, sync, and release the lock; idempotent."""
        with self._committing:
            if self.closed:
                return
            try:
                if self._failed is None:
                    self._commit_all()
            finally:
                with self._gate:
                    self._fail(StreamClosed(f"{self.directory} was closed"))
                    self._log.close()
                self._announcer.close()  # before: from then on others write
                self._lock.release()

    def _leave_to_parent(self) -> None:
        """In a forked child: files, lock and pending messages belong to the process that forked it."""
        self._gate, self._committing, self.maintaining = Lock(), RLock(), RLock()
        self.pending.leave_to_parent()
        self.on_pending = lambda: None
        self._fail(
            StreamClosed(
                f"{self.directory}: this writer belongs to process {self._pid}, which forked this "
                "one; open the stream again here"
            )
        )
        self._log.close()

    def _commit_all(self) -> None:
        self._reported = None  # all of it is done here
        try:
            self.commit_in_background()
            self.commit()  # the rest, when one message was refused
        finally:
            self._settle_all()

    def _settle_all(self) -> None:
        if self.options.fsync != "never":
            self._check_open()
            self._sync_or_fail(self._log.sync_appended)
        self._log.settle(self._log.end)

    def _fail(self, problem: StreamError) -> None:
        self._failed, self.troubled = problem, True

    def _check_open(self) -> None:
        if self._failed is not None:
            raise self._failed
