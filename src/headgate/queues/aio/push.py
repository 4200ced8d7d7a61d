"""Push: callbacks for every message whose topic matches, called or awaited in tasks of their own."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Iterable
from typing import Any

from headgate.errors import DatabaseClosed, QueueError, QueueNotFound
from headgate.filters import check_pattern
from headgate.message import Message
from headgate.queues import push
from headgate.queues.aio.engines import AsyncEngine, is_meant_for_task
from headgate.queues.aio.waiting import Waiting
from headgate.queues.engine import QueueInfo, Receipt
from headgate.queues.push import Callback, Key

_log = logging.getLogger(__name__)


class Pushes:
    """The callbacks of one Database, each with a subscription and a task of its own: see `headgate.queues.push`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._tellers: dict[Key, _Teller] = {}
        self._changing = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    async def subscribe(self, pattern: str, callback: Callback, id: str) -> bool:
        """Whether it is new. When this returns, everything published from now on will come."""
        check_pattern(pattern)
        key = Key(pattern, id)
        async with self._changing:
            if key in self._tellers:
                return False
            if self._stopping.is_set():
                raise DatabaseClosed("this database was closed; connect again")
            self._tellers[key] = await _Teller(self._engine, key, callback).start()
            if self._keeper is None:
                self._keeper = asyncio.create_task(self._keep_alive())
            return True

    async def unsubscribe(self, pattern: str, id: str) -> bool:
        """Whether there was one. Nothing more is told; a callback at work is not waited for."""
        return bool(await self._remove([Key(pattern, id)]))

    async def unsubscribe_all(self, id: str) -> int:
        """How many there were."""
        return await self._remove([key for key in self._tellers if key.id == id])

    async def close(self) -> None:
        """Everything published so far is told first. A callback that hangs is given up after a while."""
        self._stopping.set()
        async with self._changing:
            tellers = list(self._tellers.values())
            keeper, self._keeper = self._keeper, None
        for teller in tellers:
            await teller.finish()
        for teller in tellers:
            await teller.wait_until_told()
        self._tellers.clear()
        if keeper is not None:
            await keeper

    async def renew(self) -> None:
        """The subscriptions live on; where one is gone already, there is another from now on."""
        for teller in list(self._tellers.values()):
            await teller.renew()

    async def _remove(self, keys: Iterable[Key]) -> int:
        found = [self._tellers.pop(key) for key in keys if key in self._tellers]
        for teller in found:
            await teller.end()
        return len(found)

    async def _keep_alive(self) -> None:
        while not self._stopping.is_set():
            try:
                async with asyncio.timeout(push.RENEW_S):
                    await self._stopping.wait()
            except TimeoutError:
                await self._renew_or_warn()

    async def _renew_or_warn(self) -> None:
        try:
            await self.renew()
        except Exception as problem:  # the task goes on
            _log.warning("cannot keep the subscribers alive: %s; trying again", problem)


class _Teller:
    """One callback, its subscription, and the task that calls it."""

    def __init__(self, engine: AsyncEngine, key: Key, callback: Callback) -> None:
        self._engine, self._operations = engine, engine.operations
        self._key, self._callback, self._name = key, callback, push.new_name()
        self._told: list[Receipt] = []
        self._finishing, self._ended = asyncio.Event(), asyncio.Event()
        self._progress_at = time.monotonic()

    async def start(self) -> _Teller:
        try:
            info = await self._listen()
            self._waiter = Waiting(self._engine, info, notified=True, poll=None)
        except BaseException:
            await self._drop()
            raise
        self._task = asyncio.create_task(self._tell())
        return self

    async def renew(self) -> None:
        if await self._engine.run(self._operations.keep_alive(self._name, push.KEPT_US)):
            return
        if not self._ended.is_set() and not self._finishing.is_set():
            push.warn_of_absence(self._key)
            self._waiter.turn_to(await self._listen())

    async def end(self) -> None:
        """Nothing more is told."""
        self._ended.set()
        self._waiter.wake()
        await self._drop()

    async def finish(self) -> None:
        """What was published so far is told, and then nothing more."""
        try:
            await self._engine.run(push.stop_listening(self._operations, self._name))
        except QueueError as problem:
            _log.warning("subscriber %r may be told less than all: %s", self._key.id, problem)
        self._progress_at = time.monotonic()
        self._finishing.set()
        self._waiter.wake()

    async def wait_until_told(self) -> None:
        while not self._task.done() and self._task is not asyncio.current_task():
            left = self._progress_at + push.STALLED_S - time.monotonic()
            if left <= 0:
                push.warn_of_stall(self._key)
                self._task.cancel()
                await asyncio.wait([self._task], timeout=push.RETRY_S)
                break
            await asyncio.wait([self._task], timeout=left)
        self._ended.set()
        await self._drop()

    async def _listen(self) -> QueueInfo:
        operation = push.listen(self._operations, self._name, self._key.pattern)
        return await self._engine.run(operation)

    async def _drop(self) -> None:
        try:
            await self._engine.run(self._operations.delete(self._name))
        except QueueNotFound:  # others drop what was away for too long
            return
        except QueueError as problem:
            _log.warning("subscription %r stays for a while: %s", self._name, problem)

    async def _tell(self) -> None:
        try:
            while not self._ended.is_set():
                self._waiter.prepare()
                try:
                    if await self._tell_some(self._waiter.queue) or self._ended.is_set():
                        continue
                    if self._finishing.is_set():
                        return
                    await self._waiter.wait()
                except DatabaseClosed:
                    return
                except Exception as problem:  # nothing may end this task but closing it
                    if self._ended.is_set():
                        return
                    _log.warning("subscriber %r: %s; trying again", self._key.id, problem)
                    await self._waiter.nap(push.RETRY_S)
        finally:
            self._waiter.close()

    async def _tell_some(self, info: QueueInfo) -> int:
        """The next messages; with the claim, those told before are acked."""
        operation = self._operations.claim(info, push.BATCH, push.LEASE_US, acks=self._told)
        claimed, _ = await self._engine.run(operation)
        self._told = []
        for one in claimed:
            if self._ended.is_set():
                break
            await self._call(one.message)
            self._told.append(one.receipt)
        return len(claimed)

    async def _call(self, message: Message) -> None:
        try:
            answer: Any = self._callback(message)
            if inspect.isawaitable(answer):
                await answer
        except BaseException as problem:
            if is_meant_for_task(problem):
                raise
            push.warn_of_failure(self._key, message)
        self._progress_at = time.monotonic()
