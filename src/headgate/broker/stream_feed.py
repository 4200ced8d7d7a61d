"""Reads a stream in a worker thread: the next entries that a subscription selects, from a place on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from headgate.broker.consumer import ConsumerFilter
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
    examined: int  # messages, also those of chunks that were skipped
    seconds: float


class StreamFigures:
    """Counts of the messages that were read for one consumer."""

    __slots__ = ("examined", "matched", "seconds")

    def __init__(self) -> None:
        self.examined = self.matched = 0
        self.seconds = 0.0

    def add(self, part: StreamPart) -> None:
        self.examined += part.examined
        self.matched += len(part.entries)
        self.seconds += part.seconds


class StreamFilter(ConsumerFilter):
    """The filter of a consumer of a stream queue, and counts of messages since it was set."""

    __slots__ = ("_before", "_figures")

    def __init__(self, text: str, figures: StreamFigures) -> None:
        self.text, self.delivered = text, 0
        self._figures = figures
        self._before = figures.examined, figures.matched, figures.seconds

    @property
    def examined(self) -> int:
        return self._figures.examined - self._before[0]

    @property
    def skipped(self) -> int:
        return self.examined - (self._figures.matched - self._before[1])

    @property
    def seconds(self) -> float:
        return self._figures.seconds - self._before[2]


class StreamFeed:
    """Reads the messages that a subscription selects, in offset order; one thread at a time may read."""

    def __init__(
        self, queue: StreamQueue, subscription: StreamSubscription, start: StreamStart
    ) -> None:
        self._queue, self._subscription, self._start = queue, subscription, start
        self._consumer: StreamConsumer | None = None
        self._batch: pa.RecordBatch | None = None  # was read, and is not decoded yet
        self._position = 0

    def read(self, most: int) -> StreamPart:
        """Read and decode the next entries, at most `most`; none when there are no more by now."""
        began = time.perf_counter()
        if self._consumer is None:
            self._consumer = self._open()
            self._position = self._consumer.position
        entries = self._read(self._consumer, most)
        before = self._position
        self._position = entries[-1].position + 1 if entries else self._consumer.position
        seconds = time.perf_counter() - began
        return StreamPart(entries, self._position, self._position - before, seconds)

    def _read(self, consumer: StreamConsumer, most: int) -> list[QueueEntry]:
        while self._batch is None:
            self._batch = consumer.take_batch()
            if self._batch is None and not consumer.fill_batch():
                return []
        batch = self._batch
        rows = max(1, min(most, READ_BYTES * batch.num_rows // max(1, batch.nbytes)))
        self._batch = batch.slice(rows) if batch.num_rows > rows else None
        decode = self._queue.vhost.broker.codec.from_stream
        return [
            QueueEntry(record.offset, decode(record.offset, record.message), 0, None)
            for record in decode_records(batch.slice(0, rows))
        ]

    def _open(self) -> StreamConsumer:
        stream, wanted = self._queue.open_stream(), self._subscription
        start = self._queue.resolve_start_late(self._start)
        if isinstance(start, int):
            start = min(start, stream.next_offset)
        return stream.consume(
            None if wanted.filter is None else wanted.filter.tree,
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
