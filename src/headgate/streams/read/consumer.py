"""Consume a stream: messages one by one, from a start or a named cursor, to the end or on and on.

    with stream.consume("region = 'EU'", cursor="billing", follow=True) as consumer:
        for message in consumer:
            book(message)
            consumer.commit()

Tail sleeps until the directory changes; it does not poll.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from threading import RLock
from types import TracebackType

from headgate.clock import now_us
from headgate.columns import Record, decode_records
from headgate.errors import StreamCorrupt, StreamOptionsError
from headgate.message import Message
from headgate.streams.read.catalog import SealedSegments, SegmentCatalog
from headgate.streams.read.cursors import Cursors
from headgate.streams.read.missing import OnCorrupt, OnLost, check_choices, kept_position
from headgate.streams.read.plan import ScanStats
from headgate.streams.read.query import StreamQuery
from headgate.streams.read.scan import Scan
from headgate.streams.read.start import Start, names_offset, resolve_start
from headgate.streams.read.tailing import Tail

PostFilter = Callable[[Message], bool]


class StreamConsumer(Iterator[Message]):
    """The messages a query selects. `position` is the next offset that will be looked at, match or not."""

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
    ) -> None:
        """`timeout`: stop following after so long without a message. `on_corrupt`, `on_lost`: see `missing`."""
        check_choices(on_corrupt, on_lost)
        self._on_corrupt, self._on_lost = on_corrupt, on_lost
        self._closed, self._running = False, RLock()
        self.stats = ScanStats()
        self.offset: int | None = None  # of the message handed out last
        self._query, self._post_filter, self._clock = query, post_filter, clock
        self._cursors, self._cursor = Cursors(directory), cursor
        self._follow = follow
        self._tail = Tail(directory, follow=follow, timeout=timeout)
        self._catalog = SegmentCatalog(directory, sealed)
        self._who = f"{directory}: " + ("the reader" if cursor is None else f"cursor {cursor!r}")
        self.position = self._first_position(start)
        self._records: Iterator[Record] = iter(())
        self._scan: Scan | None = self._scan_until(self._catalog.next_offset())

    def _first_position(self, start: Start) -> int:
        stored = None if self._cursor is None else self._cursors.get(self._cursor)
        if stored is not None:
            return self._kept(stored.position)
        found = resolve_start(start, self._catalog, self._clock)
        return self._kept(found) if names_offset(start) else found

    def _kept(self, position: int) -> int:
        end = self._catalog.next_offset()
        return kept_position(self._who, position, self._catalog.first_offset(), end, self._on_lost)

    def _skip_dropped(self, position: int, first_offset: int) -> int:
        """Where to go on: retention has dropped what is between the position and that offset."""
        found = self._kept(position)
        self.stats.messages_dropped += found - position
        return found

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

    # ---- one by one ----------------------------------------------------------------------------------

    def __iter__(self) -> StreamConsumer:
        return self

    def __next__(self) -> Message:
        record = self._next_decoded()
        return self.next_record().message if record is None else record.message

    def records(self) -> Iterator[Record]:
        """The same messages, each with its offset."""
        while True:
            try:
                yield self.next_record()
            except StopIteration:
                return

    def next_record(self) -> Record:
        """The next message with its offset; StopIteration at the end."""
        with self._running:
            return self._tail.next(self.poll)

    def poll(self) -> Record | None:
        """The next message that is there by now, or None; never waits."""
        while not self._closed:
            record = self._next_decoded()
            if record is not None:
                return record
            if not (self._fill() or self._look_for_more()):
                break
        return None

    def _next_decoded(self) -> Record | None:
        """The next match of the batch at hand."""
        for record in self._records:
            self.position = record.offset + 1
            if self._post_filter is None or self._post_filter(record.message):
                self.offset = record.offset
                return record
        return None

    def _fill(self) -> bool:
        """Decode the next batch; False when the scan has come to its end."""
        if self._scan is None:
            return False
        batch = next(self._scan, None)
        if batch is None:
            self.position = max(self.position, self._scan.position)
            self._scan = None
            return False
        self._records = iter(decode_records(batch))
        return True

    def _look_for_more(self) -> bool:
        """Whether there is something behind the position that was not there before."""
        if not self._follow:
            return False
        try:
            segment = self._catalog.covering(self.position)
            end = self.position if segment is None else segment.next_offset
        except StreamCorrupt:  # the scan says so, or goes past it
            end = self._catalog.next_offset()
        if end <= self.position:
            return False
        self._scan = self._scan_until(end)
        return True

    # ---- cursors -------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Store that everything before `position` is done, under the consumer's name."""
        if self._cursor is None:
            raise StreamOptionsError('only a consumer with a name can commit: consume(cursor="…")')
        self._cursors.commit(self._cursor, self.position)

    def lag(self) -> int:
        """How many messages, matching or not, lie ahead."""
        return max(self._catalog.next_offset() - self.position, 0)

    # ---- the end -------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop; a thread that waits for the next message gets none."""
        self._closed = True
        self._tail.stop()
        with self._running:  # whoever waits has let go of the watch
            self._records = iter(())
            self._tail.close()
            self._cursors.close()

    def __enter__(self) -> StreamConsumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
