"""Reads a stream for one consumer: batches in a worker thread, a few entries ahead of the consumer's credit."""

from __future__ import annotations

import logging
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headgate.broker.consumer import BrokerConsumer
from headgate.broker.message import QueueEntry
from headgate.broker.stream_arguments import StreamSubscription
from headgate.columns import decode_records
from headgate.streams import StreamConsumer

if TYPE_CHECKING:
    from headgate.broker.stream_queue import StreamQueue

log: Final = logging.getLogger(__name__)

MOST_ROWS: Final = 512  # of one read
LEAST_ROWS: Final = 32
READ_BYTES: Final = 1 << 20
RETRY_S: Final = 1.0


class StreamReader:
    """The way of one consumer through the stream. Methods with `_thread` in their name run in a worker, one at a time."""

    def __init__(
        self, queue: StreamQueue, consumer: BrokerConsumer, subscription: StreamSubscription
    ) -> None:
        self.consumer, self.subscription = consumer, subscription
        self._queue = queue
        # Decided now: what is published from now on comes behind it.
        self._start = queue.resolve_start(subscription.start)
        self._rows = min(MOST_ROWS, max(LEAST_ROWS, 2 * consumer.prefetch))
        self._ready: deque[QueueEntry] = deque()
        self._is_reading = self._is_closed = False
        self._may_have_more = True  # there may be more in the stream than was read
        self._changed = False  # since the read that is under way began
        self._source: StreamConsumer | None = None
        self._batch: pa.RecordBatch | None = None  # was read, and is not decoded yet

    def give(self) -> None:
        """Send what is ready, as far as the consumer has credit, and read ahead."""
        ready = self._ready
        count = min(len(ready), self.consumer.room()) if ready else 0
        if count > 0:
            entries = [ready.popleft() for _ in range(count)]
            self._queue.unacked += count
            self._queue.traffic.deliver += count
            self.consumer.deliver(entries)
        self._read()

    def note_change(self) -> None:
        """There is more in the stream."""
        self._changed = self._may_have_more = True
        self._read()

    def close(self) -> None:
        """Read no more."""
        self._is_closed = True
        self._ready.clear()
        if not self._is_reading:
            self._close_source()

    def _close_source(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            self._queue.home.read(source.close, lambda _: None)

    def _read(self) -> None:
        """Begin a read, unless there is one, or enough was read, or there is nothing more by now."""
        if self._is_reading or self._is_closed or not self._may_have_more:
            return
        if len(self._ready) * 2 > self._rows:
            return
        self._is_reading, self._changed = True, False
        self._queue.home.read(self._read_in_thread, self._note_read)

    def _note_read(self, done: Future[list[QueueEntry]]) -> None:
        self._is_reading = False
        if self._is_closed:
            self._close_source()
            return
        problem = done.exception()
        if problem is not None:
            self._retry_later(problem)
            return
        entries = done.result()
        self._ready.extend(entries)
        self._may_have_more = bool(entries) or self._changed
        if self._may_have_more:
            self._queue.note_work()

    def _retry_later(self, problem: BaseException) -> None:
        where = self._queue.where
        log.error("%s cannot be read, next try in %g s: %s", where, RETRY_S, problem)
        broker = self._queue.vhost.broker
        self._may_have_more = False
        broker.call_at(broker.now() + int(RETRY_S * 1000), self.note_change)

    # ---- in a worker thread

    def _read_in_thread(self) -> list[QueueEntry]:
        """The next entries; none when there are no more by now."""
        if self._source is None:
            self._source = self._open_in_thread()
        while self._batch is None:
            self._batch = self._source.take_batch()
            if self._batch is None and not self._source.fill_batch():
                return []
        batch = self._batch
        rows = max(1, min(self._rows, READ_BYTES * batch.num_rows // max(1, batch.nbytes)))
        self._batch = batch.slice(rows) if batch.num_rows > rows else None
        decode = self._queue.vhost.broker.codec.from_stream
        return [
            QueueEntry(record.offset, decode(record.offset, record.message), 0, None)
            for record in decode_records(batch.slice(0, rows))
        ]

    def _open_in_thread(self) -> StreamConsumer:
        stream, wanted = self._queue.open_stream(), self.subscription
        start = self._queue.resolve_start_late(self._start)
        if isinstance(start, int):
            start = min(start, stream.next_offset)
        return stream.consume(
            wanted.filter,
            start=start,
            follow=True,
            on_lost="first",
            on_corrupt="skip",
            **wanted.keywords,
        )
