"""A consumer for asyncio: worker threads read, the event loop takes what was read and watches the files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa

from headgate.columns import Record
from headgate.errors import StreamClosed, StreamError
from headgate.message import Message
from headgate.streams.event_loop import FileChanges, Lane
from headgate.streams.read.consumer import StreamConsumer, timeout_s
from headgate.streams.read.plan import ScanStats
from headgate.streams.read.start import Start
from headgate.tally import STREAMS

MESSAGES_IN_A_ROW: Final = 256  # that a consumer returns before other tasks get a turn

Result = TypeVar("Result")


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
        self._timeout = timeout_s(timeout)
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
        with suppress(StopAsyncIteration):
            (await self._opened()).check_batches()
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
                await self._opened()
                continue  # unless it was closed meanwhile
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

    async def _opened(self) -> StreamConsumer:
        """Return the consumer, opened now if it was not yet; StopAsyncIteration when it was closed before."""
        try:
            return await self._reading.run(self._open)
        except StreamClosed:
            if self._closing is None:
                raise
            raise StopAsyncIteration from None

    def _open(self) -> StreamConsumer:
        if self._consumer is None:
            if self._closing is not None:
                raise StreamClosed(f"a consumer of {self._directory} was closed")
            self._consumer = self._open_consumer()
        return self._consumer

    async def _wait_for_change(self, deadline: float | None) -> bool:
        """Wait until a file of the stream changes; False after the deadline or the close."""
        if self._closing is not None:
            return False
        if self._changes is None:
            self._changes = FileChanges(self._directory)
            return True  # one more poll finds what was published before the watch began
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return False
        await self._changes.wait(left)
        STREAMS.add(wake_ups=1)
        return True

    async def commit(self) -> None:
        """Store `position` under the consumer's cursor: everything before it is done."""
        await self._committing.run(self._require_open().prepare_commit())

    async def seek(self, start: Start) -> None:
        """Go on at another place, given as `start` of `consume`; the next `commit` stores it."""
        await self._reading.run(lambda: self._open().seek(start))

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
        await self._reading.run(self._close_opened)  # after the opening, if one is under way
        self._on_close(self)

    def _close_opened(self) -> None:
        if self._consumer is not None:
            self._consumer.close()

    async def __aenter__(self) -> AsyncStreamConsumer:
        await self._reading.run(self._open)
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()
