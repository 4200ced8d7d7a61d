"""A stream queue: clients publish to a stream of the library, and any number of consumers read it.

The directory is that of `Stream.open`. The broker holds the lock of its writer, so that it adopts what other processes
deposit; they see what clients publish, and clients see what they commit.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from headgate.broker.consumer import BrokerConsumer
from headgate.broker.contract import BrokerQueue
from headgate.broker.filter_argument import ParsedFilter, read_filter
from headgate.broker.message import BrokerMessage, QueueEntry
from headgate.broker.queue_definition import QueueDefinition
from headgate.broker.refusals import NotImplementedHere, PreconditionFailed
from headgate.broker.stream_arguments import (
    StreamStart,
    StreamSubscription,
    read_subscription,
    stream_options,
)
from headgate.broker.stream_feed import StreamFeed, StreamFilter
from headgate.broker.stream_home import StreamHome, log_failure
from headgate.broker.stream_reader import StreamReader, StreamTail
from headgate.columns import load_arrow
from headgate.errors import HeadgateError, StreamClosed, StreamExists
from headgate.file_watch import Watch
from headgate.message import Message
from headgate.streams import MAX_MESSAGE_BYTES, Producer, Stream, watch_streams

if TYPE_CHECKING:
    from headgate.broker.vhost import VirtualHost

log: Final = logging.getLogger(__name__)

RETRY_S: Final = 1.0
SEAL_EVERY_MS: Final = 5_000  # while something is published


class StreamQueue(BrokerQueue):
    """One stream queue. Methods with `_thread` in their name run in worker threads, all others in that of the broker."""

    def __init__(
        self,
        vhost: VirtualHost,
        name: str,
        definition: QueueDefinition,
        home: StreamHome,
        arguments: Mapping[str, Any],
    ) -> None:
        super().__init__(vhost, name, durable=True, arguments=arguments)
        self.home, self.definition = home, definition
        self.directory = home.path_of(vhost.name, name)
        self.where = f"queue '{name}' in vhost '{vhost.name}'"
        self._broker = vhost.broker
        self._readers: dict[BrokerConsumer, StreamReader] = {}
        self._tails: dict[StreamSubscription, StreamTail] = {}
        # Messages of this turn and of those before it, as long as a write is under way, and what to call when they are stored.
        self._pending: list[BrokerMessage] = []
        self.waiting_bytes = 0  # of what is pending
        self._after_write: list[Callable[[], None]] = []
        self._published = 0
        self._is_writing = False
        self._is_sealing, self._sealed_at = False, self._broker.now()
        self._change_is_known = False  # to the thread of the broker, which has not looked yet
        self._opening = threading.RLock()
        self._stream: Stream | None = None
        self._producer: Producer | None = None
        self._watch: Watch | None = None
        self._first_offset = self._next_offset = 0
        self._opened_at: int | None = None  # the next offset when it was opened; None before
        home.write(self._prepare_in_thread, self._note_prepared)

    def __len__(self) -> int:
        return self._next_offset - self._first_offset

    @property
    def messages(self) -> int:
        """How many messages are stored, delivered ones included."""
        return len(self)

    @property
    def published(self) -> int:
        return self._published

    @property
    def stream(self) -> Stream:
        """The stream; waits until it is there."""
        return self.open_stream()

    def count_messages(self) -> None:
        """Open the stream and count its messages; a failure is logged, and tried again later."""
        try:
            self._prepare_in_thread()
        except (HeadgateError, OSError) as problem:
            log.error("%s cannot be opened: %s", self.where, problem)

    def note_use(self) -> None:
        """A stream does not expire."""

    def redefine(self, definition: QueueDefinition) -> None:
        changes_filter = definition.filter != self.definition.filter
        self.definition = definition
        if changes_filter:
            for consumer, reader in self._readers.items():
                if consumer.filter_text is None:
                    self._change_filter(reader, definition.filter)
        self.home.write(self._reconfigure_in_thread, log_failure)

    # ---- messages in

    def publish(self, message: BrokerMessage, body_id: int | None = None) -> bool:
        if message.body_size > MAX_MESSAGE_BYTES:
            return False
        self._pending.append(message)
        self.waiting_bytes += message.body_size
        self._published += 1
        self._broker.changed.add(self)
        self._broker.published_streams.add(self)
        return True

    def after_write(self, call: Callable[[], None]) -> None:
        """Call a function when everything published so far is durable."""
        self._after_write.append(call)

    def write(self) -> None:
        """Write what was published, all of it at once, unless a write is under way: then the next one takes it."""
        if self._is_writing or not self._pending:
            return
        self._is_writing = True
        batch, self._pending, self.waiting_bytes = self._pending, [], 0
        calls, self._after_write = self._after_write, []
        self.home.write(
            lambda: self._store_in_thread(batch), lambda done: self._stored(done, calls)
        )

    def _stored(self, done: Future[None], calls: Sequence[Callable[[], None]]) -> None:
        self._is_writing = False
        self._broker.alarms.set_unwritable(self, False)
        log_failure(done)
        for call in calls:
            call()
        self.write()
        self._broker.note_backlog(self, self.waiting_bytes)
        self._note_change()
        self._broker.flush()

    def _note_trouble(self) -> None:
        """Stop publishers until the pending messages can be written."""
        if self._is_writing and not self.is_deleted:
            self._broker.alarms.set_unwritable(self, True)

    # ---- messages out

    def drain(self) -> None:
        for reader in list(self._readers.values()):
            reader.give()

    def note_work(self) -> None:
        """Have the queue drained: a reader has entries to send."""
        self._broker.dirty.add(self)
        self._broker.flush()

    def _note_change(self) -> None:
        """Count again and wake the readers: this broker or another process has changed the stream."""
        self._change_is_known = False
        self._broker.changed.add(self)
        self._seal_later()
        for reader in list(self._readers.values()):
            reader.note_change()
        for tail in self._tails.values():
            tail.note_change()

    def _seal_later(self) -> None:
        """Have full segments sealed from time to time: filters skip most in sealed ones."""
        now = self._broker.now()
        if not self._is_sealing and now >= self._sealed_at + SEAL_EVERY_MS:
            self._is_sealing, self._sealed_at = True, now
            self.home.maintain(self._seal_in_thread, self._note_sealed)

    def _note_sealed(self, done: Future[None]) -> None:
        self._is_sealing = False
        log_failure(done)

    def _post_change(self) -> None:
        """Called by the thread that has changed the stream."""
        if self._stream is not None:
            self._count_in_thread(self._stream)
        if not self._change_is_known:
            self._change_is_known = True
            self.home.post(self._note_change)

    def ack(self, entry: QueueEntry) -> None:
        self.unacked -= 1
        self._broker.dirty.add(self)

    def reject(self, entry: QueueEntry) -> None:
        """Give credit as an acknowledgement does; the stream keeps the message, as in RabbitMQ."""
        self.traffic.reject += 1
        self.ack(entry)

    def requeue(self, entries: Sequence[QueueEntry], *, failed: bool = True) -> None:
        """Do nothing: a stream delivers no message again unless a consumer asks for its offset."""
        self.unacked -= len(entries)
        self._broker.dirty.add(self)

    def get(self) -> QueueEntry | None:
        raise NotImplementedHere(f"basic.get not supported by stream queues {self.where}")

    def purge(self) -> int:
        raise NotImplementedHere(f"queue.purge not supported by stream queues {self.where}")

    # ---- consumers

    def resolve_start(self, start: StreamStart) -> StreamStart:
        """The offset that `next` and `last` mean now; unresolved while the stream is not open."""
        return start if self._opened_at is None else self._resolve(start, self._next_offset)

    def resolve_start_late(self, start: StreamStart) -> StreamStart:
        """The offset that `next` and `last` meant before the stream was open, which it is now."""
        return start if self._opened_at is None else self._resolve(start, self._opened_at)

    def _resolve(self, start: StreamStart, next_offset: int) -> StreamStart:
        if start == "next":
            return next_offset
        return max(next_offset - 1, self._first_offset) if start == "last" else start

    def add_consumer(self, consumer: BrokerConsumer) -> None:
        if not consumer.prefetch:
            raise PreconditionFailed(f"consumer prefetch count is not set for stream {self.where}")
        if consumer.no_ack:
            raise NotImplementedHere(
                f"automatic acknowledgement not supported by stream {self.where}"
            )
        if consumer.shares_prefetch:
            raise NotImplementedHere(f"{self.where} does not support global qos")
        subscription = read_subscription(self.where, consumer.arguments)
        reader = StreamReader(self, consumer, self._with_default(subscription))
        self.consumers.append(consumer)
        self._readers[consumer] = reader
        self._show_filter(reader)
        self._broker.dirty.add(self)

    def set_filter(self, consumer: BrokerConsumer, text: str | None) -> None:
        """Give a consumer another filter, or none, from the next message on that was not sent to it."""
        wanted = None if text is None else read_filter(text, f"for {self.where}")
        consumer.filter_text = text
        self._change_filter(self._readers[consumer], wanted)

    def _change_filter(self, reader: StreamReader, wanted: ParsedFilter | None) -> None:
        changed = replace(reader.subscription, filter=wanted)
        reader.change_subscription(self._with_default(changed))
        self._show_filter(reader)

    def _with_default(self, subscription: StreamSubscription) -> StreamSubscription:
        """The subscription with the filter of the queue, if it has none."""
        if subscription.filter is not None or self.definition.filter is None:
            return subscription
        return replace(subscription, filter=self.definition.filter)

    def _show_filter(self, reader: StreamReader) -> None:
        """Give the consumer the filter, with new counts, that pages and metrics show."""
        wanted = reader.subscription.filter
        reader.consumer.filter = wanted and StreamFilter(wanted.text, reader.figures)

    def tail_of(self, subscription: StreamSubscription) -> StreamTail:
        """The tail that all readers with an equal subscription share, wherever they began."""
        wanted = replace(subscription, start="next")
        found = self._tails.get(wanted)
        if found is None:
            self._tails = {key: tail for key, tail in self._tails.items() if tail.is_used}
            found = self._tails[wanted] = StreamTail(self)
        return found

    def close_feed(self, feed: StreamFeed) -> None:
        self.home.read(feed.close, log_failure)

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self._broker.call_at(self._broker.now() + int(seconds * 1000), call)

    def remove_consumer(self, consumer: BrokerConsumer) -> None:
        reader = self._readers.pop(consumer, None)
        if reader is not None:
            self.consumers.remove(consumer)
            reader.close()

    # ---- the end

    def delete(self) -> int:
        """Delete the stream and cancel its consumers; as in RabbitMQ, the number of messages is not told."""
        self.is_deleted = True
        for consumer in self.consumers:
            consumer.notify_cancel()
        for reader in self._readers.values():
            reader.close()
        self.consumers.clear()
        self._readers.clear()
        self._pending.clear()
        self._broker.note_backlog(self, 0)
        self._broker.alarms.set_unwritable(self, False)
        with self._opening:  # no thread is just creating it
            self.home.discard(self.directory, self._close_in_thread)
        calls, self._after_write = self._after_write, []
        for call in calls:
            call()
        return 0

    def close(self) -> None:
        """Store what was published, and close the stream; called when the threads of its home have ended."""
        if self._pending:
            with suppress(HeadgateError, OSError):
                self._publish_in_thread(self._pending)
        self._close_in_thread()

    # ---- in worker threads

    def open_stream(self) -> Stream:
        """The stream, which is created if it is not there; for any thread."""
        with self._opening:
            if self._stream is None:
                if self.is_deleted:
                    raise StreamClosed(f"{self.where} was deleted")
                self._stream = self._create_or_open_in_thread()
                if self._opened_at is None:
                    self._count_in_thread(self._stream)
                    self._opened_at = self._next_offset
            return self._stream

    def _create_or_open_in_thread(self) -> Stream:
        try:
            return Stream.create(self.directory, **stream_options(self.definition, self.home.fsync))
        except StreamExists:
            return Stream.open(self.directory)

    def _prepare_in_thread(self) -> None:
        """Open the stream, and take the lock of its writer."""
        load_arrow()  # now, and not while the first message waits
        stream = self.open_stream()
        with self._opening:
            if self._watch is None:
                self._watch = watch_streams(self.directory, on_change=self._post_change)
            if self._producer is None:
                self._apply_options_in_thread(stream)
                self._producer = stream.producer()
        self._count_in_thread(stream)

    def _note_prepared(self, done: Future[None]) -> None:
        """Try again later when the stream cannot be opened, or another process writes it."""
        problem = done.exception()
        if problem is None or self.is_deleted:
            self._note_change()
            return
        log.error("%s cannot be opened, next try in %g s: %s", self.where, RETRY_S, problem)
        self.call_later(
            RETRY_S, lambda: self.home.write(self._prepare_in_thread, self._note_prepared)
        )

    def _apply_options_in_thread(self, stream: Stream) -> None:
        wanted = stream_options(self.definition, self.home.fsync)
        if replace(stream.options, **wanted) != stream.options:  # type: ignore[arg-type]  # makes tuples
            stream.reconfigure(**wanted)

    def _reconfigure_in_thread(self) -> None:
        with self._opening:
            if self._producer is not None:
                self._producer.close()
                self._producer = None
        self._prepare_in_thread()
        if self._stream is not None:
            self._stream.trim()  # now, and not when the next segment begins; without limits, nothing
            self._post_change()

    def _store_in_thread(self, batch: Sequence[BrokerMessage]) -> None:
        """Store messages, trying again until it succeeds; they are confirmed afterwards."""
        while not self.is_deleted:
            try:
                self._publish_in_thread(batch)
            except (HeadgateError, OSError) as problem:
                log.error(
                    "%s cannot be written, next try in %g s: %s", self.where, RETRY_S, problem
                )
                self.home.post(self._note_trouble)
                self._release_in_thread()
                if self.home.closing.wait(RETRY_S):
                    log.error("%s: closed without the last messages, which were not confirmed", self.where)  # fmt: skip
                    raise
            else:
                return

    def _publish_in_thread(self, batch: Sequence[BrokerMessage]) -> None:
        self._prepare_in_thread()
        convert = self._broker.codec.to_stream
        messages: list[Message | bytes] = [convert(message) for message in batch]
        producer = self._producer
        if producer is None:  # the queue was deleted meanwhile
            raise StreamClosed(f"{self.where} was closed")
        producer.publish_many(messages)
        producer.flush()

    def _seal_in_thread(self) -> None:
        stream = self._stream
        if stream is not None and self._producer is not None and not self.is_deleted:
            with suppress(StreamClosed, FileNotFoundError):  # it is being deleted
                stream.seal()

    def _count_in_thread(self, stream: Stream) -> None:
        with suppress(HeadgateError, OSError):  # it is being deleted
            self._first_offset, self._next_offset = stream.first_offset, stream.next_offset

    def _release_in_thread(self) -> None:
        """Close the stream, so that the next write opens it anew."""
        with self._opening:
            stream, self._stream, self._producer = self._stream, None, None
            if stream is not None:
                with suppress(HeadgateError, OSError):
                    stream.close()

    def _close_in_thread(self) -> None:
        with self._opening:
            if self._watch is not None:
                self._watch.close()
                self._watch = None
            self._release_in_thread()
