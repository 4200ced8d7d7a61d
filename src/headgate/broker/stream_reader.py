"""The consumers of a stream queue: each reads ahead of its credit; at the end of the stream, equal ones share a feed.

A reader that is behind has a feed of its own. At the end of the stream it joins the tail of all readers with an equal
subscription, so that a new message is read and decoded once for all of them. One whose consumer does not keep up leaves the
tail, and has a feed of its own again.
"""

from __future__ import annotations

import logging
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from headgate.broker.consumer import BrokerConsumer
from headgate.broker.message import QueueEntry
from headgate.broker.stream_arguments import StreamStart, StreamSubscription
from headgate.broker.stream_feed import StreamFeed, StreamFigures, StreamPart

if TYPE_CHECKING:
    from headgate.broker.stream_queue import StreamQueue

log: Final = logging.getLogger(__name__)

MOST_ROWS: Final = 512  # of one read
LEAST_ROWS: Final = 32
MOST_SHARED: Final = 1_024  # entries that a reader in a tail has not sent, at most
RETRY_S: Final = 1.0


class StreamReader:
    """Reads the stream for one consumer."""

    def __init__(
        self, queue: StreamQueue, consumer: BrokerConsumer, subscription: StreamSubscription
    ) -> None:
        self.consumer, self.subscription = consumer, subscription
        self._queue = queue
        self._rows = min(MOST_ROWS, max(LEAST_ROWS, 2 * consumer.prefetch))
        self._ready: deque[QueueEntry] = deque()
        self._tail: StreamTail | None = None
        self._position: int | None = None  # behind what was examined
        self.figures = StreamFigures()
        # Decided now: what is published from now on comes behind it.
        self._start = queue.resolve_start(subscription.start)
        # An offset that is not there yet is waited for.
        self._least = subscription.start if isinstance(subscription.start, int) else 0
        self._begin_at(self._start)
        self._is_closed = False

    def change_subscription(self, subscription: StreamSubscription) -> None:
        """Change the subscription from the first message on that was neither sent nor examined."""
        position = self._ready[0].position if self._ready else self._position
        if self._tail is not None:
            self._tail.remove(self)
            self._tail = None
        elif not self._is_reading:
            self._queue.close_feed(self._feed)
        self._ready.clear()
        self.subscription = subscription
        self._begin_at(self._start if position is None else position)
        self._read()

    def _begin_at(self, start: StreamStart) -> None:
        """Read with a feed of its own."""
        self._feed = StreamFeed(self._queue, self.subscription, start)
        self._is_reading = False
        self._may_have_more = True  # there may be more in the stream than was read
        self._changed = False  # since the read that is under way began

    def give(self) -> None:
        """Send what is ready, as far as the consumer has credit, and read ahead."""
        ready = self._ready
        count = min(len(ready), self.consumer.room()) if ready else 0
        if count > 0:
            entries = [ready.popleft() for _ in range(count)]
            self._queue.unacked += count
            self._queue.traffic.deliver += count
            if self.consumer.filter is not None:
                self.consumer.filter.delivered += count
            self.consumer.deliver(entries)
        self._read()

    def take(self, part: StreamPart, position: int) -> None:
        """Take entries that the tail has read from a position on; or leave the tail, and read them again later."""
        if len(self._ready) + len(part.entries) <= MOST_SHARED:
            self._note(part)
        elif self._tail is not None:
            self._tail.remove(self)
            self._tail = None
            self._begin_at(position)

    @property
    def is_idle(self) -> bool:
        """Whether it has read everything by itself, and waits for more."""
        busy = self._is_reading or self._may_have_more or self._is_closed
        return self._tail is None and not busy

    def join(self, tail: StreamTail | None) -> None:
        """Get entries from a tail from now on; None: not from a tail."""
        self._tail = tail

    def note_change(self) -> None:
        """Read again: the stream has changed."""
        self._changed = self._may_have_more = True
        self._read()

    def close(self) -> None:
        """Read no more."""
        self._is_closed = True
        self._ready.clear()
        if self._tail is not None:
            self._tail.remove(self)
        elif not self._is_reading:
            self._queue.close_feed(self._feed)

    def _read(self) -> None:
        """Begin a read, unless there is one, or enough was read, or there is nothing more by now."""
        if self._tail is not None or self._is_reading or self._is_closed or not self._may_have_more:
            return
        if len(self._ready) * 2 > self._rows:
            return
        self._is_reading, self._changed = True, False
        feed = self._feed
        self._queue.home.read(lambda: feed.read(self._rows), lambda done: self._note_read(feed, done))  # fmt: skip

    def _note(self, part: StreamPart) -> None:
        entries = part.entries
        if entries and entries[0].position < self._least:
            entries = [entry for entry in entries if entry.position >= self._least]
        self._ready.extend(entries)
        self._position = part.position
        self.figures.add(part)

    def _note_read(self, feed: StreamFeed, done: Future[StreamPart]) -> None:
        if self._is_closed or feed is not self._feed:  # it wants something else by now
            self._queue.close_feed(feed)
            return
        self._is_reading = False
        problem = done.exception()
        if problem is not None:
            self._retry_later(problem)
            return
        part = done.result()
        self._note(part)
        self._may_have_more = bool(part.entries) or self._changed
        if self._may_have_more:
            self._queue.note_work()
        else:
            self.join(self._queue.tail_of(self.subscription).add(self, feed, part.position))

    def _retry_later(self, problem: BaseException) -> None:
        self._may_have_more = False
        log_retry(self._queue, problem)
        self._queue.call_later(RETRY_S, self.note_change)


class StreamTail:
    """The readers at the end of the stream with an equal subscription, and the one feed that reads for them."""

    def __init__(self, queue: StreamQueue) -> None:
        self._queue = queue
        self._members: dict[StreamReader, None] = {}
        # Readers at the end of the stream, to which the feed has not come yet, with their sources and positions.
        self._waiting: dict[StreamReader, tuple[StreamFeed, int]] = {}
        self._feed: StreamFeed | None = None
        self._position = 0  # of the feed, and of all members
        self._is_reading = self._changed = False

    @property
    def is_used(self) -> bool:
        return bool(self._members) or self._is_reading

    def add(self, reader: StreamReader, feed: StreamFeed, position: int) -> StreamTail | None:
        """Let a reader join that is where the others are, and take over its feed; None if it is elsewhere."""
        if self._feed is None:
            self._feed, self._position = feed, position
        elif position != self._position:
            self._waiting[reader] = feed, position
            return None
        else:
            self._queue.close_feed(feed)
        self._members[reader] = None
        return self

    def _add_waiting(self) -> None:
        """Let waiting readers join that are at the position of the feed now."""
        waiting, self._waiting = self._waiting, {}
        for reader, (feed, position) in waiting.items():
            if reader.is_idle and position >= self._position:
                reader.join(self.add(reader, feed, position))

    def remove(self, reader: StreamReader) -> None:
        self._members.pop(reader, None)
        if not self._members and not self._is_reading:
            self._end()

    def _end(self) -> None:
        if self._feed is not None:
            self._queue.close_feed(self._feed)
            self._feed = None

    def note_change(self) -> None:
        """Read again: the stream has changed."""
        self._changed = True
        feed = self._feed
        if feed is not None and not self._is_reading:
            self._is_reading, self._changed = True, False
            self._queue.home.read(lambda: feed.read(MOST_ROWS), self._note_read)

    def _note_read(self, done: Future[StreamPart]) -> None:
        self._is_reading = False
        problem = done.exception()
        if not self._members:
            self._end()
        elif problem is not None:
            log_retry(self._queue, problem)
            self._queue.call_later(RETRY_S, self.note_change)
        else:
            part = done.result()
            before, self._position = self._position, part.position
            for member in list(self._members):
                member.take(part, before)
            if self._waiting:
                self._add_waiting()
            if part.entries or self._changed:
                self.note_change()
            self._queue.note_work()


def log_retry(queue: StreamQueue, problem: BaseException) -> None:
    log.error("%s cannot be read, next try in %g s: %s", queue.where, RETRY_S, problem)
