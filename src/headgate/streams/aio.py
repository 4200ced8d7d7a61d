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
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final, TypeVar, Unpack

import pyarrow as pa

from headgate.columns import TableLike
from headgate.errors import StreamClosed
from headgate.filters import FilterLike, as_filter
from headgate.streams.event_loop import Lane, call_in_thread
from headgate.streams.options import StreamOptionFields, StreamOptions
from headgate.streams.read.async_consumer import AsyncStreamConsumer
from headgate.streams.read.consumer import StreamConsumer
from headgate.streams.read.keywords import ConsumeOptions, GroupOptions, ScanOptions
from headgate.streams.stream import Stream
from headgate.streams.upkeep.retention import SegmentInfo
from headgate.streams.write.async_producer import AsyncProducer
from headgate.streams.write.producer import FilterValue

WORKER_THREADS: Final = 4  # of one stream

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
        """Return a producer; a named one never stores a publishing id twice.

        `filter_value` computes the filter value of every message that has none, in a worker thread.
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
        return self._add_consumer(
            partial(self._stream.consume, tree, follow=follow, **options), follow, timeout
        )

    def _add_consumer(
        self, open_consumer: Callable[[], StreamConsumer], follow: bool, timeout: timedelta | None
    ) -> AsyncStreamConsumer:
        consumer = AsyncStreamConsumer(
            open_consumer,
            self.path,
            self._executor,
            follow=follow,
            timeout=timeout,
            on_close=self._open_parts.discard,
        )
        self._open_parts.add(consumer)
        return consumer

    def join_group(
        self,
        group: str,
        filter: FilterLike | None = None,
        *,
        follow: bool = False,
        timeout: timedelta | None = None,
        **options: Unpack[GroupOptions],
    ) -> AsyncStreamConsumer:
        """Return a consumer that shares messages with the other members of the group, as `Stream.join_group`."""
        self._check_open()
        tree = None if filter is None else as_filter(filter)
        return self._add_consumer(
            partial(self._stream.join_group, group, tree, follow=follow, **options), follow, timeout
        )

    async def append(self, table: TableLike) -> int:
        """Append the rows of a table of Arrow, Polars, pandas or DuckDB, as `Stream.append` does."""
        return await self.run(lambda stream: stream.append(table))

    async def scan(
        self, filter: FilterLike | None = None, **options: Unpack[ScanOptions]
    ) -> AsyncIterator[pa.RecordBatch]:
        """Yield Arrow record batches of the messages the filter selects, as `Stream.scan`, read in a worker thread."""
        scan = await self.run(lambda stream: stream.scan(filter, **options))
        lane = Lane(self._executor)
        while (batch := await lane.run(partial(next, scan, None))) is not None:
            yield batch

    async def seal(self, *, all: bool = False) -> list[Path]:
        """Seal full segments, with `all` also the last one, and return the sealed files. Filters skip most in them."""
        return await self.run(lambda stream: stream.seal(all=all))

    async def trim(
        self,
        *,
        max_age: timedelta | None = None,
        max_bytes: int | None = None,
        before_offset: int = 0,
    ) -> list[SegmentInfo]:
        """Delete the oldest segments by these limits, or by those of the options when none is given; return them."""
        return await self.run(
            lambda stream: stream.trim(
                max_age=max_age, max_bytes=max_bytes, before_offset=before_offset
            )
        )

    async def reconfigure(self, **changes: Unpack[StreamOptionFields]) -> None:
        """Change options, while no producer is open. They hold for what is written and sealed from then on."""
        await self.run(lambda stream: stream.reconfigure(**changes))

    async def first_offset(self) -> int:
        """Return the oldest offset the stream still has."""
        return await self.run(lambda stream: stream.first_offset)

    async def next_offset(self) -> int:
        """Return the offset the next message will get."""
        return await self.run(lambda stream: stream.next_offset)

    async def run(self, call: Callable[[Stream], Result]) -> Result:
        """Call a function with the synchronous stream in a worker thread, and return its result.

        For what has no method here: `await stream.run(lambda stream: stream.cursors().list())`.
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
