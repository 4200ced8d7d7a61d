"""Consumers: tasks that claim, await a handler, and settle what it made of it."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any

from headgate.aio.delivery import Delivery
from headgate.aio.engines import AsyncEngine
from headgate.aio.waiting import Waiting
from headgate.errors import DatabaseClosed, QueueError, QueueOptionsError, StaleLease
from headgate.queues import arguments
from headgate.queues.consuming import (
    RECONNECT_S,
    Ledger,
    Mode,
    Retry,
    known_mode,
    reason_of,
    warn_of_scans,
    warn_of_trouble,
)
from headgate.queues.contract import Claimed, QueueInfo, Receipt, Usage
from headgate.queues.members import Group, Member, Strategy

_log = logging.getLogger(__name__)


class Consumer:
    """Open, it consumes: `async with queue.consumer(handler, tasks=2): …`. Closing waits for the handlers at work.

    mode     notify: woken by commits and due times; poll: looks every `poll`; hybrid: both
    tasks    each claims up to `batch` messages at a time, leased for `lease`
    renew    leases of what waits or is being handled are extended while this process lives
    """

    def __init__(
        self,
        engine: AsyncEngine,
        queue: QueueInfo,
        members: Sequence[Member[Delivery]],
        *,
        strategy: Strategy,
        mode: Mode,
        tasks: int,
        batch: int,
        lease: timedelta,
        poll: timedelta,
        retry: Retry,
        renew: bool,
        name: str,
    ) -> None:
        self._engine, self._operations, self._queue = engine, engine.operations, queue
        self._mode, self._group = known_mode(mode), Group(members, strategy)
        self._batch, self._poll, self._retry = arguments.limited(batch), poll, retry
        self._lease_us, self._renew = arguments.lease_us(lease), renew
        self._tasks = arguments.limited(tasks)
        self.name = name
        self._ledger = Ledger(queue.name)
        self._stopping = asyncio.Event()
        self._running: list[asyncio.Task[None]] = []
        self._waiters: list[Waiting] = []

    # -- opening and closing --

    async def start(self) -> Consumer:
        if self._running or self._stopping.is_set():
            raise QueueOptionsError("a consumer is started once; make another one")
        await self._warn_of_scans()
        poll = None if self._mode == "notify" else self._poll
        for _ in range(self._tasks):
            waiter = Waiting(self._engine, self._queue, notified=self._mode != "poll", poll=poll)
            self._waiters.append(waiter)
            self._running.append(asyncio.create_task(self._consume(waiter)))
        if self._renew:
            self._running.append(asyncio.create_task(self._keep_leases()))
        return self

    async def close(self) -> None:
        """Handlers at work are waited for; what was claimed and not begun is given back."""
        self._stopping.set()
        for waiter in self._waiters:
            waiter.wake()
        await asyncio.gather(*self._running)
        for waiter in self._waiters:
            waiter.close()
        await self._report()

    async def __aenter__(self) -> Consumer:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _warn_of_scans(self) -> None:
        if self._group.filter is not None:
            operation = self._operations.advise(self._queue, self._group.filter)
            warn_of_scans(self._queue.name, await self._engine.run(operation))

    # -- the loop of a task --

    async def _consume(self, waiter: Waiting) -> None:
        done: list[Receipt] = []
        pause = RECONNECT_S[0]
        while not self._stopping.is_set():
            waiter.prepare()
            try:
                claimed = await self._claim(done)
                done = []
                pause = RECONNECT_S[0]
                if claimed:
                    await self._handle_all(claimed, done)
                elif not self._stopping.is_set():
                    await self._report_now_and_then()
                    await waiter.wait()
            except DatabaseClosed:
                return
            except Exception as problem:  # nothing may end a consumer but closing it
                warn_of_trouble(self._queue.name, problem)
                await waiter.nap(pause)
                pause = min(pause * 2, RECONNECT_S[1])
        await self._flush(done)

    async def _claim(self, done: Sequence[Receipt]) -> list[Claimed]:
        began = time.perf_counter_ns()
        claimed, outcomes = await self._engine.run(
            self._operations.claim(
                self._queue,
                self._batch,
                self._lease_us,
                filter=self._group.filter,
                skip=self._ledger.unwanted(),
                acks=done,
            )
        )
        self._ledger.took(claimed, (time.perf_counter_ns() - began) // 1000)
        self._ledger.acked(done, outcomes)
        return claimed

    async def _handle_all(self, claimed: Sequence[Claimed], done: list[Receipt]) -> None:
        """Those to ack with the next claim are added to `done`."""
        try:
            for one in claimed:
                if self._stopping.is_set():
                    await self._give_back(one)
                elif await self._handle(one):
                    done.append(one.receipt)
        finally:  # what was not reached, because the database was not, is left to the end of its lease
            self._ledger.forget({one.receipt for one in claimed} - set(done))

    async def _handle(self, claimed: Claimed) -> bool:
        """Whether it is to be acked."""
        member = self._group.choose(claimed.message)
        if member is None:
            self._ledger.reject(claimed.id)
            await self._give_back(claimed)
            return False
        delivery = Delivery(self._engine, self._queue, claimed)
        try:
            answer: Any = member.handler(delivery)
            if inspect.isawaitable(answer):
                await answer
        except Exception as problem:
            await self._fail(delivery, problem)
            return False
        if delivery.settled is not None:
            self._ledger.forget([claimed.receipt])
        return delivery.settled is None

    async def _give_back(self, claimed: Claimed) -> None:
        await self._engine.run(self._operations.release(self._queue, [claimed.receipt]))
        self._ledger.forget([claimed.receipt])

    async def _fail(self, delivery: Delivery, problem: Exception) -> None:
        self._ledger.count(failures=1)
        _log.warning("handler failed on %r", delivery, exc_info=problem)
        if delivery.settled is None:
            try:
                delay = self._retry.delay(delivery.attempts)
                await delivery.nack(delay, reason=reason_of(problem))
                self._ledger.count(nacked=1)
            except StaleLease as stale:
                _log.warning("%s", stale)
        self._ledger.forget([delivery.receipt])

    async def _flush(self, done: Sequence[Receipt]) -> None:
        if not done:
            return
        try:
            outcomes = await self._engine.run(self._operations.ack(self._queue, done))
        except QueueError as problem:
            _log.warning(
                "%d messages of %r will come again: %s", len(done), self._queue.name, problem
            )
            return
        self._ledger.acked(done, outcomes)

    # -- leases --

    async def _keep_leases(self) -> None:
        while not self._stopping.is_set():
            try:
                async with asyncio.timeout(self._lease_us / 3e6):
                    await self._stopping.wait()
            except TimeoutError:
                await self.extend_leases()

    async def extend_leases(self) -> None:
        """What this consumer holds stays its own for another lease."""
        held = self._ledger.held()
        if not held:
            return
        try:
            await self._engine.run(self._operations.extend(self._queue, held, self._lease_us))
        except QueueError as problem:
            _log.warning("cannot extend %d leases of %r: %s", len(held), self._queue.name, problem)

    # -- numbers --

    async def _report_now_and_then(self) -> None:
        if self._ledger.is_report_due():
            await self._report()

    async def _report(self) -> None:
        usage = self._ledger.report()
        if usage == Usage():
            return
        try:
            await self._engine.run(self._operations.add_usage(self._queue, self.name, usage))
        except QueueError as problem:
            _log.debug("statistics of %r are lost: %s", self._queue.name, problem)
