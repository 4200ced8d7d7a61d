"""Consume a stream: messages one by one, from a start or a named cursor, to the end or on and on.

    with stream.consume("region = 'EU'", cursor="billing", follow=True) as consumer:
        for message in consumer:
            book(message)
            consumer.commit()

Following sleeps until the directory changes; it does not poll.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Final

from headgate.errors import StreamOptionsError
from headgate.filters.targets.python import now_ms
from headgate.message import Message
from headgate.streams.catalog import Catalog, SealedSegments
from headgate.streams.cursors import Cursors
from headgate.streams.decode import Record, decode_records
from headgate.streams.layout import INDEX_SUFFIX, SEALED_SUFFIX
from headgate.streams.plan import ScanStats
from headgate.streams.query import Query
from headgate.streams.reader import Scan
from headgate.streams.start import Start, resolve_start
from headgate.wake import Watch

PostFilter = Callable[[Message], bool]

LONGEST_SLEEP: Final = 5.0  # seconds; should the kernel ever forget to say that something changed


class Consumer(Iterator[Message]):
    """The messages a query selects. `position` is the next offset that will be looked at, match or not."""

    def __init__(
        self,
        directory: Path,
        query: Query,
        *,
        start: Start = "first",
        follow: bool = False,
        timeout: timedelta | None = None,
        post_filter: PostFilter | None = None,
        cursor: str | None = None,
        sealed: SealedSegments | None = None,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        """`timeout`: stop following after so long without a message."""
        self._closed, self._running = False, RLock()
        self._directory, self.stats = directory, ScanStats()
        self.offset: int | None = None  # of the message handed out last
        self._query, self._post_filter, self._clock = query, post_filter, clock
        self._timeout = None if timeout is None else timeout / timedelta(seconds=1)
        self._cursors, self._cursor = Cursors(directory), cursor
        self._follow = follow
        self._watch: Watch | None = None
        self._catalog = Catalog(directory, sealed)
        self.position = self._first_position(start)
        self._records: Iterator[Record] = iter(())
        self._scan: Scan | None = self._scan_until(self._catalog.next_offset())

    def _first_position(self, start: Start) -> int:
        stored = None if self._cursor is None else self._cursors.get(self._cursor)
        if stored is not None:
            return stored.position
        return resolve_start(start, self._catalog, lambda: self._clock() * 1000)

    def _scan_until(self, end: int) -> Scan:
        return Scan(
            self._catalog, self._query, self.position, end, clock=self._clock, stats=self.stats
        )

    # ---- one by one ----------------------------------------------------------------------------------

    def __iter__(self) -> Consumer:
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
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        with self._running:
            while not self._closed:
                record = self.poll()
                if record is not None:
                    return record
                if not (self._follow and self._sleep(deadline)):
                    break
        raise StopIteration

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
        segment = self._catalog.covering(self.position) if self._follow else None
        if segment is None:
            return False
        self._scan = self._scan_until(segment.next_offset)
        return True

    def _sleep(self, deadline: float | None) -> bool:
        """Wait until something changes; False when the time is up."""
        if self._watch is None:
            self._watch = Watch(self._directory, accepts=matters)
            return True  # what came before the watch began is found by one more look
        left = LONGEST_SLEEP if deadline is None else deadline - time.monotonic()
        if left <= 0:
            return False
        self._watch.wait(min(left, LONGEST_SLEEP))
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
        if self._watch is not None:
            self._watch.wake()
        with self._running:  # whoever waits has let go of the watch
            self._records = iter(())
            if self._watch is not None:
                self._watch.close()
                self._watch = None
            self._cursors.close()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def matters(name: str) -> bool:
    """Whether a change of this file may mean that there is more to read."""
    return name.endswith((INDEX_SUFFIX, SEALED_SUFFIX))
