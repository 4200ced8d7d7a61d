"""Reads a stream in a worker thread: the next entries that a subscription selects, from a place on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from headgate.broker.message import QueueEntry
from headgate.broker.stream_arguments import StreamStart, StreamSubscription
from headgate.columns import decode_records
from headgate.streams import StreamConsumer

if TYPE_CHECKING:
    from headgate.broker.stream_queue import StreamQueue

READ_BYTES: Final = 1 << 20


class StreamPart(NamedTuple):
    """Entries, and the offset behind everything that was examined for them; without entries, the end of the stream."""

    entries: list[QueueEntry]
    position: int


class StreamFeed:
    """What a subscription selects, in offset order. One thread at a time reads."""

    def __init__(
        self, queue: StreamQueue, subscription: StreamSubscription, start: StreamStart
    ) -> None:
        self._queue, self._subscription, self._start = queue, subscription, start
        self._consumer: StreamConsumer | None = None
        self._batch: pa.RecordBatch | None = None  # was read, and is not decoded yet

    def read(self, most: int) -> StreamPart:
        """Read and decode the next entries, at most `most`; none when there are no more by now."""
        if self._consumer is None:
            self._consumer = self._open()
        while self._batch is None:
            self._batch = self._consumer.take_batch()
            if self._batch is None and not self._consumer.fill_batch():
                return StreamPart([], self._consumer.position)
        batch = self._batch
        rows = max(1, min(most, READ_BYTES * batch.num_rows // max(1, batch.nbytes)))
        self._batch = batch.slice(rows) if batch.num_rows > rows else None
        decode = self._queue.vhost.broker.codec.from_stream
        entries = [
            QueueEntry(record.offset, decode(record.offset, record.message), 0, None)
            for record in decode_records(batch.slice(0, rows))
        ]
        return StreamPart(entries, entries[-1].position + 1)

    def _open(self) -> StreamConsumer:
        stream, wanted = self._queue.open_stream(), self._subscription
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

    def close(self) -> None:
        """Close its files, when no thread reads."""
        if self._consumer is not None:
            self._consumer.close()
