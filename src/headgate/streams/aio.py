"""Streams for asyncio: publish and consume without blocking the event loop.

    async with await headgate.aio.AsyncStream.open("data/orders") as stream:
        async with await stream.producer() as producer:
            await producer.publish(b"…", topic="orders.eu", headers={"region": "EU"})
        async with stream.consume("region = 'EU'", cursor="billing", follow=True) as consumer:
            async for message in consumer:
                await book(message)
                await consumer.commit()

Everything that reads or writes files runs in a few worker threads. A consumer that waits for new messages takes no
thread: the event loop is told when a file of the stream changes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar, Unpack

import pyarrow as pa

from headgate.columns import Record
from headgate.errors import StreamBusy, StreamClosed, StreamError
from headgate.filters import FilterLike, as_filter
from headgate.message import Message, MessageFields, as_message, validate
from headgate.streams.event_loop import FileChanges, Lane, call_in_thread
from headgate.streams.options import StreamOptionFields, StreamOptions
from headgate.streams.read.consumer import StreamConsumer
from headgate.streams.read.plan import ScanStats
from headgate.streams.stream import ConsumeOptions, Stream
from headgate.streams.write.producer import FilterValue, Producer

WORKER_THREADS: Final = 4  # of one stream
MOST_WAITING: Final = 1 << 16  # messages that publish_nowait accepts before they are stored
MOST_WAITING_BYTES: Final = 64 << 20  # of their payloads
MESSAGES_IN_A_ROW: Final = 256  # that a consumer returns before other tasks get a turn

Result = TypeVar("Result")


class AsyncStream:
    """A stream whose methods are awaited. It belongs to the event loop it was opened in."""

    def __init__(self, stream: Stream, executor: Executor) -> None:
        """Use `await AsyncStream.create(…)` or `await AsyncStream.open(…)`."""
        self._stream, self._executor = stream, executor
        self._open_parts: set[AsyncProducer | AsyncStreamConsumer] = set()
        self._closing: asyncio.Future[None] | None = None

    @classmethod
    async def create(cls, path: str | Path, **fields: Unpack[StreamOptionFields]) -> AsyncStream:
        """Create a stream with the fields of `StreamOptions`."""
        return await cls._start(partial(Stream.create, path, **fields))

    @classmethod
    async def open(cls, path: str | Path) -> AsyncStream:
        """Open the stream in a directory."""
        return await cls._start(partial(Stream.open, path))

    @classmethod
    async def _start(cls, open_stream: Callable[[], Stream]) -> AsyncStream:
        executor = ThreadPoolExecutor(WORKER_THREADS, thread_name_prefix="headgate-stream")
        try:
            stream = await call_in_thread(executor, open_stream)
        except BaseException:
            executor.shutdown(wait=False)
            raise
        return cls(stream, executor)

    @property
    def path(self) -> Path:
        """The stream's directory."""
        return self._stream.path

    @property
    def options(self) -> StreamOptions:
        """The options of the stream."""
        return self._stream.options

    async def producer(
        self, name: str | None = None, *, filter_value: FilterValue | None = None
    ) -> AsyncProducer:
        """Return a producer. Under a name, no publishing id is stored twice.

        `filter_value` is called in a worker thread.
        """
        made = await self.run(lambda stream: stream.producer(name, filter_value=filter_value))
        producer = AsyncProducer(made, Lane(self._executor), self._open_parts.discard)
        self._open_parts.add(producer)
        return producer

    def consume(
        self,
        filter: FilterLike | None = None,
        *,
        follow: bool = False,
        timeout: timedelta | None = None,
        **options: Unpack[ConsumeOptions],
    ) -> AsyncStreamConsumer:
        """Return a consumer of the messages the filter selects; the options are those of `Stream.consume`.

        A bad filter is refused at once; the stream is read when the consumer is entered or first iterated.
        """
        self._check_open()
        tree = None if filter is None else as_filter(filter)
        consumer = AsyncStreamConsumer(
            partial(self._stream.consume, tree, follow=follow, **options),
            self.path,
            self._executor,
            follow=follow,
            timeout=timeout,
            on_close=self._open_parts.discard,
        )
        self._open_parts.add(consumer)
        return consumer

    async def run(self, call: Callable[[Stream], Result]) -> Result:
        """Call a function with the synchronous stream in a worker thread: append, scan, seal, trim.

        await stream.run(lambda stream: stream.seal(all=True))
        """
        self._check_open()
        return await call_in_thread(self._executor, partial(call, self._stream))

    async def close(self) -> None:
        """Flush and close producers, stop consumers, and release the writer's lock; idempotent."""
        self._closing = self._closing or asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)  # a cancelled caller leaves nothing half closed

    async def _close(self) -> None:
        closing = [part.close() for part in list(self._open_parts)]
        results = await asyncio.gather(*closing, return_exceptions=True)
        try:
            await call_in_thread(self._executor, self._stream.close)
        finally:
            self._executor.shutdown(wait=False)
        for problem in results:
            if problem is not None:
                raise problem

    def _check_open(self) -> None:
        if self._closing is not None:
            raise StreamClosed(f"{self.path} was closed")

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()


# ---- publishing --------------------------------------------------------------------------------------


class _Entry(NamedTuple):
    """A message that waits to be stored, and the future of its task; without a message, a flush."""

    message: Message | None
    publishing_id: int | None
    stored: asyncio.Future[bool] | None


class AsyncProducer:
    """Publishes messages to one stream. Messages published while a commit is running share the next one."""

    def __init__(
        self, producer: Producer, lane: Lane, on_close: Callable[[AsyncProducer], None]
    ) -> None:
        """Use `await stream.producer(…)`."""
        self._producer, self._lane, self._on_close = producer, lane, on_close
        self._waiting: list[_Entry] = []
        self._waiting_bytes = 0  # of messages from publish_nowait
        self._storing: asyncio.Task[None] | None = None
        self._failure: Exception | None = None  # of a message from publish_nowait
        self._closing: asyncio.Future[None] | None = None

    @property
    def name(self) -> str | None:
        """The name under which publishing ids are remembered."""
        return self._producer.name

    @property
    def last_publishing_id(self) -> int | None:
        """The last id this name was accepted with, by earlier producers too; None when there is none."""
        return self._producer.last_publishing_id

    async def publish(
        self,
        message: Message | bytes,
        *,
        publishing_id: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> bool:
        """Publish a message, or a payload with Message's other fields; return when it is stored.

        It is stored as the stream's `fsync` option says. False when its publishing id was stored before. A publish that
        is cancelled may still be stored.
        """
        stored: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._add(_Entry(as_message(message, fields), publishing_id, stored))
        return await stored

    def publish_nowait(
        self,
        message: Message | bytes,
        *,
        publishing_id: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> None:
        """Accept a message and return at once; `flush` waits until it is stored, and raises if that failed.

        Raises StreamBusy while too many messages wait to be stored: `await flush()` makes room.
        """
        message = as_message(message, fields)
        validate(message)
        if len(self._waiting) >= MOST_WAITING or self._waiting_bytes >= MOST_WAITING_BYTES:
            raise StreamBusy(
                f"{len(self._waiting):,} messages wait to be stored; await flush() before more are published"
            )
        self._add(_Entry(message, publishing_id, None))
        self._waiting_bytes += len(message.payload)

    async def flush(self) -> None:
        """Wait until everything published before is stored; raise what went wrong with publish_nowait."""
        if self._storing is not None:
            done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self._waiting.append(_Entry(None, None, done))  # behind everything published before
            await done
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _add(self, entry: _Entry) -> None:
        if self._closing is not None:
            raise StreamClosed(f"producer {self.name or '(unnamed)'} was closed")
        self._waiting.append(entry)
        if self._storing is None:
            self._storing = asyncio.create_task(self._store_waiting())

    async def _store_waiting(self) -> None:
        entries: list[_Entry] = []
        try:
            while self._waiting:
                entries, self._waiting, self._waiting_bytes = self._waiting, [], 0
                results = await self._lane.run(partial(self._store, entries))
                for entry, result in zip(entries, results, strict=True):
                    self._settle(entry, result)
        except asyncio.CancelledError:  # the event loop ends
            for entry in (*entries, *self._waiting):
                if entry.stored is not None:
                    entry.stored.cancel()
            raise
        finally:
            self._storing = None

    def _store(self, entries: list[_Entry]) -> list[bool | Exception]:
        """Publish and commit messages in a worker thread; return for each whether it was new, or what failed."""
        results = [self._publish(entry) for entry in entries]
        try:
            self._producer.flush()
        except Exception as problem:
            return [result if isinstance(result, Exception) else problem for result in results]
        return results

    def _publish(self, entry: _Entry) -> bool | Exception:
        if entry.message is None:
            return True
        try:
            return self._producer.publish(entry.message, publishing_id=entry.publishing_id)
        except Exception as problem:
            return problem

    def _settle(self, entry: _Entry, result: bool | Exception) -> None:
        if entry.stored is None:
            if isinstance(result, Exception):
                self._failure = self._failure or result
        elif entry.stored.done():  # its caller was cancelled
            return
        elif isinstance(result, Exception) and entry.message is not None:
            entry.stored.set_exception(result)
        else:
            entry.stored.set_result(result is True)

    async def close(self) -> None:
        """Flush, and publish no more; idempotent."""
        self._closing = self._closing or asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            await self.flush()
        finally:
            try:
                await self._lane.run(self._producer.close)
            finally:
                self._on_close(self)

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()


# ---- consuming ---------------------------------------------------------------------------------------


class AsyncStreamConsumer(AsyncIterator[Message]):
    """The messages a query selects, in offset order.

    A cancelled task loses no message: the next `async for` goes on where the last one stopped. `post_filter` is called
    in the event loop, `on_corrupt` in a worker thread.
    """

    def __init__(
        self,
        open_consumer: Callable[[], StreamConsumer],
        directory: Path,
        executor: Executor,
        *,
        follow: bool,
        timeout: timedelta | None,
        on_close: Callable[[AsyncStreamConsumer], None],
    ) -> None:
        """Use `stream.consume(…)`."""
        self._open_consumer, self._directory, self._on_close = open_consumer, directory, on_close
        self._follow = follow
        self._timeout = None if timeout is None else timeout / timedelta(seconds=1)
        self._reading, self._committing = Lane(executor), Lane(executor)
        self._consumer: StreamConsumer | None = None
        self._changes: FileChanges | None = None
        self._in_a_row = 0
        self._closing: asyncio.Future[None] | None = None

    @property
    def position(self) -> int:
        """The next offset to be examined, whether it matches or not."""
        return self._require_open().position

    @property
    def offset(self) -> int | None:
        """The offset of the message returned last; None before the first one."""
        return None if self._consumer is None else self._consumer.offset

    @property
    def stats(self) -> ScanStats:
        """What the consumer has scanned so far."""
        return self._require_open().stats

    def _require_open(self) -> StreamConsumer:
        if self._consumer is None:
            raise StreamError("the consumer is not open yet: use `async with`, or iterate first")
        return self._consumer

    def __aiter__(self) -> AsyncStreamConsumer:
        return self

    async def __anext__(self) -> Message:
        return (await self.next_record()).message

    async def records(self) -> AsyncIterator[Record]:
        """Yield the messages with their offsets."""
        with suppress(StopAsyncIteration):
            while True:
                yield await self.next_record()

    async def next_record(self) -> Record:
        """Return the next message with its offset, waiting for it if the consumer follows; StopAsyncIteration at the end."""
        self._in_a_row += 1
        if self._in_a_row >= MESSAGES_IN_A_ROW:  # buffered messages are returned without waiting
            self._in_a_row = 0
            await asyncio.sleep(0)
        return await self._next(StreamConsumer.next_buffered, StreamConsumer.fill_buffer)

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """Yield the messages as Arrow record batches with an `offset` column, as `Stream.scan` returns them.

        `commit` then stores the position behind the last batch.
        """
        if self._consumer is None:
            await self._reading.run(self._open)
        self._require_open().check_batches()
        with suppress(StopAsyncIteration):
            while True:
                yield await self._next(StreamConsumer.take_batch, StreamConsumer.fill_batch)

    async def _next(
        self,
        take: Callable[[StreamConsumer], Result | None],
        fill: Callable[[StreamConsumer], bool],
    ) -> Result:
        """Return what `take` gives, after `fill` has read it; StopAsyncIteration at the end."""
        deadline: float | None = None
        while self._closing is None:
            if self._consumer is None:
                await self._reading.run(self._open)
            consumer = self._require_open()
            # Only the event loop takes what was read, so no cancelled call can lose any.
            if (taken := take(consumer)) is not None:
                return taken
            if await self._reading.run(partial(fill, consumer)):
                continue
            if not self._follow:
                break
            if deadline is None and self._timeout is not None:
                deadline = time.monotonic() + self._timeout
            if not await self._wait_for_change(deadline):
                break
        raise StopAsyncIteration

    def _open(self) -> StreamConsumer:
        if self._consumer is None:
            self._consumer = self._open_consumer()
        return self._consumer

    async def _wait_for_change(self, deadline: float | None) -> bool:
        """Wait until a file of the stream changes; False after the deadline or the close."""
        if self._closing is not None:
            return False
        if self._changes is None:
            self._changes = FileChanges(self._directory)
            return True  # one more look finds what was published before the watch began
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return False
        await self._changes.wait(left)
        return True

    async def commit(self) -> None:
        """Store `position` under the consumer's cursor: everything before it is done."""
        consumer = self._require_open()
        await self._committing.run(partial(consumer.commit, consumer.position))

    async def lag(self) -> int:
        """Return how many messages, matching or not, are ahead of the position."""
        return await self._reading.run(lambda: self._open().lag())

    async def close(self) -> None:
        """Stop; a task that waits for the next message gets none. Idempotent."""
        self._closing = self._closing or asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._changes is not None:
            self._changes.close()
        await self._committing.run(lambda: None)  # the last commit has ended
        if self._consumer is not None:
            await self._reading.run(self._consumer.close)
        self._on_close(self)

    async def __aenter__(self) -> AsyncStreamConsumer:
        await self._reading.run(self._open)
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()
