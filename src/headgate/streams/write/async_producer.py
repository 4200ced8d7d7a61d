"""A producer for asyncio: what is published while a commit is running shares the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple, Unpack

from headgate.errors import StreamBusy, StreamClosed
from headgate.message import Message, MessageFields, as_message, check_many, validate
from headgate.streams.event_loop import Lane
from headgate.streams.write.producer import Producer

MOST_WAITING: Final = 1 << 16  # messages that publish_nowait accepts before they are stored
MOST_WAITING_BYTES: Final = 64 << 20  # of their payloads


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
        """The last id that was accepted under this name, also from earlier producers; None when there is none."""
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

    async def publish_many(
        self, messages: Iterable[Message | bytes], *, first_publishing_id: int | None = None
    ) -> int:
        """Publish all messages, or none when one of them is not valid; return how many were new when they are stored."""
        check_many(messages)
        batch = list(messages)
        await self.flush()  # messages published before are stored before
        self._check_open()
        return await self._lane.run(partial(self._store_many, batch, first_publishing_id))

    def _store_many(self, messages: list[Message | bytes], first_publishing_id: int | None) -> int:
        new = self._producer.publish_many(messages, first_publishing_id=first_publishing_id)
        self._producer.flush()
        return new

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

    def _check_open(self) -> None:
        if self._closing is not None:
            raise StreamClosed(f"producer {self.name or '(unnamed)'} was closed")

    def _add(self, entry: _Entry) -> None:
        self._check_open()
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
