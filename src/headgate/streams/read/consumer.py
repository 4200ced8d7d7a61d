"""Consume a stream: messages one by one, from a start or a named cursor, to the end or without end.

    with stream.consume("region = 'EU'", cursor="billing", follow=True) as consumer:
        for message in consumer:
            book(message)
            consumer.commit()

`consumer.batches()` gives the same messages as Arrow record batches.

A consumer that follows the stream sleeps until a file of the stream changes (`file_watch`). It also polls
every 5 seconds, in case the kernel misses a change; every minute where the writer is in the same process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from operator import length_hint
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Final, TypeVar

import pyarrow as pa

from headgate.checks import check_flag, check_function, check_span
from headgate.clock import now_us
from headgate.columns import Record, decode_records, load_arrow
from headgate.errors import StreamClosed, StreamCorrupt, StreamOptionsError
from headgate.file_watch import Watch
from headgate.filters import to_text
from headgate.message import Message
from headgate.streams.format import INDEX_SUFFIX, SEALED_SUFFIX
from headgate.streams.read.catalog import SealedSegments, SegmentCatalog
from headgate.streams.read.cursors import Cursors
from headgate.streams.read.group import GroupMember, Share, next_share
from headgate.streams.read.plan import ScanStats
from headgate.streams.read.query import StreamQuery
from headgate.streams.read.scan import OnCorrupt, Scan, check_on_corrupt
from headgate.streams.read.start import (
    OnLost,
    Start,
    check_on_lost,
    names_offset,
    resolve_position,
    resolve_start,
)
from headgate.tally import STREAMS

PostFilter = Callable[[Message], bool]
Result = TypeVar("Result")

# Messages decoded at a time. The garbage collector traverses all live ones many times: with the 32,768 of a
# batch it takes as long as decoding itself.
DECODED_ROWS: Final = 1024
# Seconds; in case the kernel misses a change. It has nothing to report where this process is the writer.
LONGEST_SLEEP, LONGEST_SLEEP_BY_WRITER = 5.0, 60.0


class StreamConsumer(Iterator[Message]):
    """The messages a query selects, in offset order.

    with Stream.open("data/orders") as orders:
        with orders.consume(cursor="billing") as consumer:
            first = next(consumer)
            consumer.commit()
        with orders.consume(cursor="billing") as consumer:  # goes on behind what was committed
            assert consumer.position == 1
    """

    def __init__(
        self,
        directory: Path,
        query: StreamQuery,
        *,
        start: Start = "first",
        follow: bool = False,
        timeout: timedelta | None = None,
        post_filter: PostFilter | None = None,
        cursor: str | None = None,
        sealed: SealedSegments | None = None,
        clock: Callable[[], int] = now_us,
        on_corrupt: OnCorrupt = "error",
        on_lost: OnLost = "error",
        group: str | None = None,
    ) -> None:
        """Use `Stream.consume` or `Stream.join_group`. `timeout`: stop following after so long without a message."""
        check_on_corrupt(on_corrupt)
        check_on_lost(on_lost)
        check_flag("follow", follow, StreamOptionsError)
        if post_filter is not None:
            example = "lambda message: message.priority > 3; a condition in text is the filter"
            check_function("post_filter", post_filter, StreamOptionsError, example)
        self._on_corrupt, self._on_lost = on_corrupt, on_lost
        self._closed, self._running = False, RLock()
        self.stats = ScanStats()
        self._query, self._post_filter, self._clock = query, post_filter, clock
        self._cursors, self._cursor = Cursors(directory), cursor
        self._follow = follow
        self._tail = Tail(directory, follow=follow, timeout=timeout)
        self._catalog = SegmentCatalog(directory, sealed)
        named = f"cursor {cursor!r}" if group is None else f"group {group!r}"
        self._name = f"{directory}: " + ("the reader" if cursor is group is None else named)
        self._last: Record | None = None  # returned last
        # The offset before which every match was returned.
        self._passed = self._first_position(start, cursor if group is None else group)
        self._buffer: Iterator[Record] = iter(())
        self._decoded: pa.RecordBatch | None = None  # what the buffer was made of
        self._rest: pa.RecordBatch | None = None  # was read, and is not decoded yet
        self._last_in_batch: int | None = None  # the last offset that was returned in a batch
        self._scan: Scan | None = None
        end = self._catalog.next_offset()
        self._until = None if follow else end
        self._share: Share | None = None  # that is being read
        self._group: GroupMember | None = None
        if group is None:
            self._scan = self._scan_until(end)
        else:
            filter = to_text(query.filter.tree)
            self._group = GroupMember(directory, group, filter, clock, self._passed)

    @property
    def position(self) -> int:
        """The next offset to be examined, whether it matches or not."""
        # Two attributes instead of one: __next__ then sets a single one for each message.
        return self._passed if self._last is None else max(self._passed, self._last.offset + 1)

    @property
    def offset(self) -> int | None:
        """The offset of the message returned last; None before the first one."""
        if self._last is None:
            return self._last_in_batch
        return max(self._last.offset, self._last_in_batch or 0)

    def _first_position(self, start: Start, name: str | None) -> int:
        stored = None if name is None else self._cursors.get(name)
        if stored is not None:
            return self._resolve(stored.position)
        position = resolve_start(start, self._catalog, self._clock)
        return self._resolve(position) if names_offset(start) else position

    def _resolve(self, position: int) -> int:
        end, first = self._catalog.next_offset(), self._catalog.first_offset()
        return resolve_position(self._name, position, first, end, self._on_lost)

    def _skip_dropped(self, position: int, first_offset: int) -> int:
        """Return where to go on after retention has dropped the messages before that offset."""
        resumed = self._resolve(position)
        self.stats.messages_dropped += resumed - position
        return resumed

    def _scan_until(self, end: int) -> Scan:
        return Scan(
            self._catalog,
            self._query,
            self.position,
            end,
            clock=self._clock,
            stats=self.stats,
            on_corrupt=self._on_corrupt,
            on_dropped=self._skip_dropped,
        )

    # ---- messages ------------------------------------------------------------------------------------

    def __iter__(self) -> StreamConsumer:
        return self

    def __next__(self) -> Message:
        if self._post_filter is None:
            for record in self._buffer:
                self._last = record
                return record.message
        return self.next_record().message

    def records(self) -> Iterator[Record]:
        """Yield the messages with their offsets."""
        while True:
            try:
                yield self.next_record()
            except StopIteration:
                return

    def next_record(self) -> Record:
        """Return the next message with its offset, waiting for it if the consumer follows; StopIteration at the end."""
        with self._running:
            return self._tail.next(self.poll)

    def poll(self) -> Record | None:
        """Return the next message that is in the stream by now, or None; never wait."""
        while not self._closed:
            record = self.next_buffered()
            if record is not None:
                return record
            if not self.fill_buffer():
                break
        return None

    def next_buffered(self) -> Record | None:
        """Return the next match that is already decoded, or None; never read from disk."""
        for record in self._buffer:
            if self._post_filter is None or self._post_filter(record.message):
                self._last = record
                return record
            self._passed = record.offset + 1
        return None

    def fill_buffer(self) -> bool:
        """Read and decode if the buffer is empty; False when the stream has no more by now."""
        return length_hint(self._buffer) > 0 or self._decode_more() or self._find_more()

    def _decode_more(self) -> bool:
        """Decode the next messages of the scan; False at its end."""
        if not self._read_more() or self._rest is None:
            return False
        batch = self._rest
        self._decoded = batch.slice(0, DECODED_ROWS)
        self._buffer = iter(decode_records(self._decoded))
        self._rest = batch.slice(DECODED_ROWS) if batch.num_rows > DECODED_ROWS else None
        return True

    def _read_more(self) -> bool:
        """Read the next batch of the scan, unless there is one; False at its end."""
        if self._rest is None and self._scan is not None:
            self._rest = next(self._scan, None)
            if self._rest is None:
                self._passed = max(self.position, self._scan.position)
                self._scan = None
                self._end_share()
        return self._rest is not None

    def _find_more(self) -> bool:
        """Begin a scan of what was published since the last one; False when nothing was."""
        if self._group is not None:
            return self._take_share(self._group)
        if not self._follow:
            return False
        position = self.position
        try:
            segment = self._catalog.covering(position)
            end = position if segment is None else segment.next_offset
        except StreamCorrupt:  # the scan raises it, or skips it
            end = self._catalog.next_offset()
        if end <= position:
            return False
        self._scan = self._scan_until(end)
        return True

    # ---- groups --------------------------------------------------------------------------------------

    def _take_share(self, group: GroupMember) -> bool:
        """Begin a scan of the next share of the group; False when there is none."""
        share = group.take(self._choose_share)
        if share is None:
            return False
        self._passed, self._last, self._last_in_batch = share.position, None, None
        # Set last: a commit must not count the position of one share in another.
        self._share = share
        self._scan = self._scan_until(share.high)
        return True

    def _choose_share(self, frontier: int) -> tuple[int, int] | None:
        return next_share(self._catalog, self._resolve(frontier), self._until)

    def _end_share(self) -> None:
        """End a share of which everything that was returned is committed already."""
        if self._group is None or self._share is None:
            return
        if self.offset is None or self._share.position > self.offset:
            self._group.skip(self._share)

    # ---- batches -------------------------------------------------------------------------------------

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the messages as Arrow record batches with an `offset` column, as `Stream.scan` returns them.

        `commit` then stores the position behind the last batch.
        """
        self.check_batches()
        while True:
            try:
                batch = self.next_batch()
            except StopIteration:
                return
            yield batch

    def next_batch(self) -> pa.RecordBatch:
        """Return the next batch, waiting for it if the consumer follows; StopIteration at the end."""
        with self._running:
            return self._tail.next(self.poll_batch)

    def check_batches(self) -> None:
        """Refuse batches where every message has to be tested by a function."""
        if self._post_filter is not None:
            raise StreamOptionsError(
                "post_filter tests messages, and batches hold none: filter the batches instead"
            )

    def poll_batch(self) -> pa.RecordBatch | None:
        """Return the next messages that are in the stream by now as a batch, or None; never wait."""
        while not self._closed:
            batch = self.take_batch()
            if batch is not None:
                return batch
            if not self.fill_batch():
                break
        return None

    def take_batch(self) -> pa.RecordBatch | None:
        """Return what was read and not yet returned, or None; never read from disk."""
        left = length_hint(self._buffer)
        if left and self._decoded is not None:
            batch = self._decoded.slice(self._decoded.num_rows - left)
            self._buffer = iter(())
        elif self._rest is not None:
            batch, self._rest = self._rest, None
        else:
            return None
        self._last_in_batch = batch.column("offset")[-1].as_py()
        self._passed = self._last_in_batch + 1
        return batch

    def fill_batch(self) -> bool:
        """Read if there is no batch to take; False when the stream has no more by now."""
        return length_hint(self._buffer) > 0 or self._read_more() or self._find_more()

    # ---- cursors -------------------------------------------------------------------------------------

    def commit(self, position: int | None = None) -> None:
        """Store a position, by default the current one, under the consumer's cursor: everything before it is done."""
        self.prepare_commit(position)()

    def prepare_commit(self, position: int | None = None) -> Callable[[], None]:
        """Return a function that commits what is done by now, whatever is read before it is called."""
        # Before the position, which another thread may set to that of the next share.
        share = self._share
        position = self.position if position is None else position
        if self._group is not None:
            return partial(self._group.commit, self._group.done_until(share, position))
        if self._cursor is None:
            raise StreamOptionsError('only a consumer with a name can commit: consume(cursor="…")')
        return partial(self._cursors.commit, self._cursor, position)

    def seek(self, start: Start) -> None:
        """Go on at another place, given as `start` of `consume`; the next `commit` stores it. For the consuming thread."""
        with self._running:
            if self._closed:
                raise StreamClosed(f"{self._name} was closed")
            if self._group is not None:
                raise StreamOptionsError(
                    f"{self._name}: a member reads what the group gives it, and cannot seek; "
                    "delete the cursor, and join the group with another start"
                )
            position = resolve_start(start, self._catalog, self._clock)
            self._passed = self._resolve(position) if names_offset(start) else position
            self._buffer, self._decoded, self._rest = iter(()), None, None
            self._last = self._last_in_batch = None
            self._scan = self._scan_until(self._catalog.next_offset())

    def lag(self) -> int:
        """Return how many messages, matching or not, are ahead of the position, or not yet done by the group."""
        position = self.position if self._group is None else self._group.done
        return max(self._catalog.next_offset() - position, 0)

    # ---- closing -------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop; a thread that waits for the next message gets none."""
        self._closed = True
        self._tail.stop()
        with self._running:  # the waiting thread has let go of the watch
            self._buffer, self._rest = iter(()), None
            self._tail.close()
            self._cursors.close()
            if self._group is not None:
                self._group.close()

    def __enter__(self) -> StreamConsumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


# ---- waiting for new messages ------------------------------------------------------------------------


class Tail:
    """Waits for new messages in streams. Any thread may stop it; close it when no thread waits any more."""

    def __init__(self, *directories: Path, follow: bool, timeout: timedelta | None) -> None:
        """`timeout`: how long to wait for one message; None for ever. Without `follow`, never wait."""
        self._directories, self._follow = directories, follow
        self._timeout = timeout_s(timeout)
        self._watch: Watch | None = None
        self._stopped = False
        self._missed = True  # there may be changes that the watch did not report
        if follow:
            load_arrow()  # now, and not while the first message waits

    def next(self, poll: Callable[[], Result | None]) -> Result:
        """Return what `poll` gives, at once or after a change of the streams; StopIteration at the end."""
        result = poll()
        if result is None and self._follow:
            result = self._wait_for(poll)
        if result is None:
            raise StopIteration
        return result

    def _wait_for(self, poll: Callable[[], Result | None]) -> Result | None:
        """Poll after every change; None after the timeout or a stop."""
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        while not self._stopped and self._sleep(deadline):
            result = poll()
            if result is not None:
                return result
        return None

    def _sleep(self, deadline: float | None) -> bool:
        """Sleep until something changes; False after the deadline."""
        if self._watch is None:
            self._watch = watch_streams(*self._directories)
            return True  # one more poll finds what was published before the watch began
        longest = longest_sleep(self._watch)
        left = longest if deadline is None else deadline - time.monotonic()
        if left <= 0:
            return False
        self._missed |= not self._watch.wait(min(left, longest))
        STREAMS.add(wake_ups=1)
        return True

    def look(self) -> set[str] | None:
        """Return the directories of the streams that have changed since the last call; None: any may have. Never wait."""
        if not self._follow:
            return set()
        if self._watch is None:
            self._watch = watch_streams(*self._directories)
            return None
        self._watch.wait(0)
        missed, self._missed = self._missed, False
        changed = self._watch.take_changed()
        return None if missed else changed

    def stop(self) -> None:
        """Make the waiting thread return without a message."""
        self._stopped = True
        if self._watch is not None:
            self._watch.wake()

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None


def timeout_s(timeout: timedelta | None) -> float | None:
    """Return the seconds of a timeout; None for ever."""
    if timeout is None:
        return None
    check_span("timeout", timeout, StreamOptionsError, least=timedelta(0))
    return timeout / timedelta(seconds=1)


def watch_streams(*directories: Path, on_change: Callable[[], object] | None = None) -> Watch:
    """Watch the files of streams whose change may mean that there is more to read."""
    return Watch(*directories, accepts=_is_read, on_change=on_change)


def longest_sleep(watch: Watch) -> float:
    """Return after how many seconds to look at the streams although no change was reported."""
    return LONGEST_SLEEP_BY_WRITER if watch.is_announced else LONGEST_SLEEP


def _is_read(name: str) -> bool:
    return name.endswith((INDEX_SUFFIX, SEALED_SUFFIX))
