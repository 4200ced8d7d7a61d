"""Push: callbacks for every message whose topic matches, called or awaited in tasks of their own."""

from __future__ import annotations

import asyncio
import inspect
import logging
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from headgate.aio.engines import AsyncEngine
from headgate.aio.waiting import Waiting
from headgate.errors import DatabaseClosed, QueueError
from headgate.filters.nodes import FALSE, Filter, Or, TopicMatch, joined
from headgate.filters.topics import check_pattern, matches
from headgate.message import Message
from headgate.queues.contract import QueueInfo, QueueOptions

_log = logging.getLogger(__name__)

Callback = Callable[[Message], object]

_LEASE_US: Final = 60_000_000  # of the subscription, renewed three times as often
_BATCH: Final = 200
_WAITING_MOST: Final = 1_000  # messages for one slow callback, before everyone waits for it
_OPTIONS: Final = QueueOptions(max_attempts=0)


class _Key(NamedTuple):
    pattern: str
    id: str


class Pushes:
    """The callbacks of one Database. One subscription stands behind them all, alive as long as this task is."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine, self._operations = engine, engine.operations
        self._name = f"push-{uuid.uuid4().hex}"
        self._mailboxes: dict[_Key, _Mailbox] = {}
        self._changing = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._waiter: Waiting | None = None

    async def subscribe(self, pattern: str, callback: Callback, id: str) -> bool:
        """Whether it is new. When this returns, everything published from now on will come."""
        check_pattern(pattern)
        key = _Key(pattern, id)
        async with self._changing:
            if key in self._mailboxes:
                return False
            if self._stopping.is_set():
                raise DatabaseClosed("this database was closed; connect again")
            self._mailboxes[key] = _Mailbox(id, callback)
            try:
                self._start(await self._listen_for(self._mailboxes))
            except BaseException:
                self._mailboxes.pop(key).close()
                raise
            return True

    async def unsubscribe(self, pattern: str, id: str) -> bool:
        """Whether there was one."""
        async with self._changing:
            return bool(await self._remove([_Key(pattern, id)]))

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
            await self._engine.run(self._operations.drop(self._name))

    # -- the subscription behind them --

    async def _remove(self, keys: Iterable[_Key]) -> int:
        found = [self._mailboxes.pop(key) for key in keys if key in self._mailboxes]
        if found:
            await self._listen_for(self._mailboxes)
        for mailbox in found:
            mailbox.close()
        return len(found)

    async def _listen_for(self, keys: Iterable[_Key]) -> QueueInfo:
        terms = [TopicMatch(pattern) for pattern in sorted({key.pattern for key in keys})]
        wanted: Filter = joined(Or, terms) if terms else FALSE
        return await self._engine.run(
            self._operations.subscribe(self._name, wanted, options=_OPTIONS, lease_us=_LEASE_US)
        )

    def _start(self, info: QueueInfo) -> None:
        if not self._tasks:
            self._waiter = Waiting(self._engine, info, notified=True, poll=None)
            self._tasks.append(asyncio.create_task(self._deliver(info, self._waiter)))
            self._tasks.append(asyncio.create_task(self._keep_alive()))

    async def _keep_alive(self) -> None:
        while not self._stopping.is_set():
            try:
                async with asyncio.timeout(_LEASE_US / 3e6):
                    await self._stopping.wait()
            except TimeoutError:
                await self._renew()

    async def _renew(self) -> None:
        try:
            if not await self._engine.run(self._operations.keep_alive(self._name, _LEASE_US)):
                _log.warning("subscribers were away for too long: messages in between are lost")
                async with self._changing:
                    await self._listen_for(self._mailboxes)
        except QueueError as problem:
            _log.warning("cannot keep the subscribers alive: %s", problem)

    async def _deliver(self, info: QueueInfo, waiter: Waiting) -> None:
        while not self._stopping.is_set():
            waiter.prepare()
            try:
                if not await self._deliver_some(info) and not self._stopping.is_set():
                    await waiter.wait()
            except DatabaseClosed:
                break
            except QueueError as problem:
                _log.warning("subscribers: %s; trying again", problem)
                await waiter.nap(1.0)
        waiter.close()

    async def _deliver_some(self, info: QueueInfo) -> int:
        claimed, _ = await self._engine.run(self._operations.claim(info, _BATCH, _LEASE_US))
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
        self._messages: asyncio.Queue[Message] = asyncio.Queue(_WAITING_MOST)
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
