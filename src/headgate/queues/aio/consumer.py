"""Consumers: tasks that claim, await a handler, and settle what it made of it."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Any

from headgate.errors import DatabaseClosed, QueueError, QueueOptionsError, StaleLease
from headgate.queues import arguments
from headgate.queues.aio.delivery import Delivery
from headgate.queues.aio.engines import AsyncEngine, is_meant_for_task
from headgate.queues.aio.waiting import Waiting
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
from headgate.queues.engine import ClaimedMessage, QueueInfo, Usage
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
        self.name = arguments.storable_text("the name of a consumer", name)
        self._ledger = Ledger(queue.name)
        self._stopping, self._handled = asyncio.Event(), asyncio.Event()
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
        self._running.append(asyncio.create_task(self._ack_in_time()))
        if self._renew:
            self._running.append(asyncio.create_task(self._keep_leases()))
        return self

    async def close(self) -> None:
        """Handlers at work are waited for; what was claimed and not begun is given back. Called by a handler, it does not
        wait."""
        self._stopping.set()
        self._handled.set()
        for waiter in self._waiters:
            waiter.wake()
        if asyncio.current_task() in self._running:
            return
        await asyncio.gather(*self._running, return_exceptions=True)  # one may have been cancelled
        for waiter in self._waiters:
            waiter.close()
        await self._ack_the_rest()
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
        await self._consume_until_stopped(waiter)
        # If a handler closed it, nobody else may come to ack what that has handled.
        with suppress(QueueError):
            await self._ack_handled()

    async def _consume_until_stopped(self, waiter: Waiting) -> None:
        pause = RECONNECT_S[0]
        while not self._stopping.is_set():
            waiter.prepare()
            try:
                claimed = await self._claim()
                pause = RECONNECT_S[0]
                if claimed:
                    await self._handle_all(claimed)
                elif not self._stopping.is_set():
                    await self._report_now_and_then()
                    await waiter.wait()
            except DatabaseClosed:
                return
            except Exception as problem:  # nothing may end a consumer but closing it
                warn_of_trouble(self._queue.name, problem)
                await waiter.nap(pause)
                pause = min(pause * 2, RECONNECT_S[1])

    async def _claim(self) -> list[ClaimedMessage]:
        """The next messages; with the claim, what was handled meanwhile is acked."""
        began = time.perf_counter_ns()
        with self._ledger.acking() as acks:
            claimed, outcomes = await self._engine.run(
                self._operations.claim(
                    self._queue,
                    self._batch,
                    self._lease_us,
                    filter=self._group.filter,
                    skip=self._ledger.unwanted(),
                    acks=acks,
                    together=True,
                )
            )
        self._ledger.took(claimed, (time.perf_counter_ns() - began) // 1000)
        self._ledger.acked(acks, outcomes)
        return claimed

    async def _handle_all(self, claimed: Sequence[ClaimedMessage]) -> None:
        chosen = [(one, self._group.choose(one.message)) for one in claimed]
        await self._reject([one for one, member in chosen if member is None])
        wanted = [(one, member) for one, member in chosen if member is not None]
        reached = 0
        try:
            for one, member in wanted:
                reached += 1
                if self._stopping.is_set():
                    await self._give_back([one])
                else:
                    await self._handle(one, member)
        finally:  # what was not reached, because the database was not, is left to the end of its lease
            self._ledger.forget(one.receipt for one, _ in wanted[reached:])

    async def _reject(self, claimed: Sequence[ClaimedMessage]) -> None:
        """Nobody here wants them: they are given back at once, and not claimed again."""
        if not claimed:
            return
        self._ledger.reject(one.id for one in claimed)
        try:
            await self._give_back(claimed)
        except QueueError as problem:  # their leases end; the others are handled all the same
            warn_of_trouble(self._queue.name, problem)

    async def _handle(self, claimed: ClaimedMessage, member: Member[Delivery]) -> None:
        """Call its handler; it is acked soon, unless the handler settled it or failed."""
        delivery = Delivery(self._engine, self._queue, claimed)
        try:
            answer: Any = member.handler(delivery)
            if inspect.isawaitable(answer):
                await answer
        except BaseException as problem:
            if is_meant_for_task(problem):
                self._ledger.forget([claimed.receipt])
                _log.warning("consumer of %r is cancelled at %r", self._queue.name, delivery)
                raise
            await self._fail(delivery, problem)
            return
        if delivery.settled is not None:
            self._ledger.forget([claimed.receipt])
            return
        self._ledger.add_handled(claimed.receipt)
        self._handled.set()

    async def _give_back(self, claimed: Sequence[ClaimedMessage]) -> None:
        receipts = [one.receipt for one in claimed]
        try:
            await self._engine.run(self._operations.release(self._queue, receipts))
        finally:  # else they are left to the end of their lease
            self._ledger.forget(receipts)

    async def _fail(self, delivery: Delivery, problem: BaseException) -> None:
        self._ledger.count(failures=1)
        _log.warning("handler failed on %r", delivery, exc_info=problem)
        try:
            if delivery.settled is None:
                delay = self._retry.delay(delivery.attempts)
                await delivery.nack(delay, reason=reason_of(problem))
                self._ledger.count(nacked=1)
        except StaleLease as stale:
            _log.warning("%s", stale)
        finally:
            self._ledger.forget([delivery.receipt])

    # -- acks --

    async def _ack_in_time(self) -> None:
        """Ack what is handled while a handler takes long with the next message; else the next claim does it."""
        while not self._stopping.is_set():
            await self._handled.wait()
            self._handled.clear()
            while (
                not self._stopping.is_set() and (left := self._ledger.seconds_to_ack()) is not None
            ):
                if left > 0:
                    await self._nap(left)
                    continue
                try:
                    await self._ack_handled()
                except DatabaseClosed:
                    return
                except Exception as problem:  # the next claim tries again, and so do we
                    warn_of_trouble(self._queue.name, problem)
                    await self._nap(RECONNECT_S[0])

    async def _ack_handled(self) -> None:
        with self._ledger.acking() as acks:
            if not acks:
                return
            outcomes = await self._engine.run(self._operations.ack(self._queue, acks))
        self._ledger.acked(acks, outcomes)

    async def _ack_the_rest(self) -> None:
        try:
            await self._ack_handled()
        except QueueError as problem:
            self._ledger.give_up_acking(problem)

    async def _nap(self, seconds: float) -> None:
        """That long, or until stopped."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    # -- leases --

    async def _keep_leases(self) -> None:
        while not self._stopping.is_set():
            await self._nap(self._lease_us / 3e6)
            await self.extend_leases()

    async def extend_leases(self) -> None:
        """What this consumer holds stays its own for another lease."""
        held = self._ledger.held()
        if not held:
            return
        try:
            await self._engine.run(self._operations.extend(self._queue, held, self._lease_us))
        except Exception as problem:  # this task goes on
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
