"""Push: callbacks for every message whose topic matches, called or awaited in tasks of their own."""

from __future__ import annotations

import asyncio
import inspect
import logging
import uuid
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from headgate.aio.engines import AsyncEngine
from headgate.aio.waiting import Waiting
from headgate.errors import DatabaseClosed, QueueError, QueueNotFound
from headgate.filters.topics import check_pattern, matches
from headgate.message import Message
from headgate.queues.contract import QueueInfo
from headgate.queues.push import BATCH, LEASE_US, MOST_WAITING, Callback, Key, listen

_log = logging.getLogger(__name__)


class Pushes:
    """The callbacks of one Database. One subscription stands behind them all, alive as long as this task is."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine, self._operations = engine, engine.operations
        self._name = f"push-{uuid.uuid4().hex}"
        self._mailboxes: dict[Key, _Mailbox] = {}
        self._changing = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._waiter: Waiting | None = None

    async def subscribe(self, pattern: str, callback: Callback, id: str) -> bool:
        """Whether it is new. When this returns, everything published from now on will come."""
        check_pattern(pattern)
        key = Key(pattern, id)
        async with self._changing:
            if key in self._mailboxes:
                return False
            if self._stopping.is_set():
                raise DatabaseClosed("this database was closed; connect again")
            self._mailboxes[key] = _Mailbox(id, callback)
            try:
                self._start(await self._listen())
            except BaseException:
                self._mailboxes.pop(key).close()
                raise
            return True

    async def unsubscribe(self, pattern: str, id: str) -> bool:
        """Whether there was one."""
        async with self._changing:
            return bool(await self._remove([Key(pattern, id)]))

    async def unsubscribe_all(self, id: str) -> int:
        """How many there were."""
        async with self._changing:
            return await self._remove([key for key in self._mailboxes if key.id == id])

    async def close(self) -> None:
        self._stopping.set()
        if self._waiter is not None:
            self._waiter.wake()
        await asyncio.gather(*self._tasks)
        for mailbox in self._mailboxes.values():
            mailbox.close()
        if self._tasks:
            self._tasks = []
            with suppress(QueueNotFound):  # others drop what was away for too long
                await self._engine.run(self._operations.drop(self._name))

    # -- the subscription behind them --

    async def _remove(self, keys: Iterable[Key]) -> int:
        found = [self._mailboxes.pop(key) for key in keys if key in self._mailboxes]
        if found:
            await self._listen()
        for mailbox in found:
            mailbox.close()
        return len(found)

    async def _listen(self) -> QueueInfo:
        info = await self._engine.run(listen(self._operations, self._name, self._mailboxes))
        if self._waiter is not None:  # it may be a new one, if the old one was away for too long
            self._waiter.turn_to(info)
        return info

    def _start(self, info: QueueInfo) -> None:
        if not self._tasks:
            self._waiter = Waiting(self._engine, info, notified=True, poll=None)
            self._tasks.append(asyncio.create_task(self._deliver(self._waiter)))
            self._tasks.append(asyncio.create_task(self._keep_alive()))

    async def _keep_alive(self) -> None:
        while not self._stopping.is_set():
            try:
                async with asyncio.timeout(LEASE_US / 3e6):
                    await self._stopping.wait()
            except TimeoutError:
                try:
                    await self.renew()
                except QueueError as problem:
                    _log.warning("cannot keep the subscribers alive: %s", problem)

    async def renew(self) -> None:
        """The subscription lives on; if it is gone already, there is another from now on."""
        if await self._engine.run(self._operations.keep_alive(self._name, LEASE_US)):
            return
        _log.warning("subscribers were away for too long: messages in between are lost")
        async with self._changing:
            await self._listen()

    async def _deliver(self, waiter: Waiting) -> None:
        while not self._stopping.is_set():
            waiter.prepare()
            try:
                if not await self._deliver_some(waiter.queue) and not self._stopping.is_set():
                    await waiter.wait()
            except DatabaseClosed:
                break
            except QueueError as problem:
                _log.warning("subscribers: %s; trying again", problem)
                await waiter.nap(1.0)
        waiter.close()

    async def _deliver_some(self, info: QueueInfo) -> int:
        claimed, _ = await self._engine.run(self._operations.claim(info, BATCH, LEASE_US))
        for one in claimed:
            topic = one.message.topic
            boxes = [b for key, b in self._mailboxes.items() if matches(key.pattern, topic)]
            for box in boxes:
                await box.put(one.message)
        if claimed:
            receipts = [one.receipt for one in claimed]
            await self._engine.run(self._operations.ack(info, receipts))
        return len(claimed)


class _Mailbox:
    """What one subscriber has still to be told; it is told in a task of its own, so that it hurts nobody else."""

    def __init__(self, id: str, callback: Callback) -> None:
        self._id, self._callback = id, callback
        self._messages: asyncio.Queue[Message] = asyncio.Queue(MOST_WAITING)
        self._task = asyncio.create_task(self._tell())

    async def put(self, message: Message) -> None:
        if not self._task.done():
            await self._messages.put(message)

    def close(self) -> None:
        """Nothing more is told."""
        self._task.cancel()
        while not self._messages.empty():  # whoever waits to put something goes on
            self._messages.get_nowait()

    async def _tell(self) -> None:
        while True:
            message = await self._messages.get()
            try:
                answer: Any = self._callback(message)
                if inspect.isawaitable(answer):
                    await answer
            except Exception:
                _log.exception(
                    "subscriber %r failed on a message of topic %r", self._id, message.topic
                )
