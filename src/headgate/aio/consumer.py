"""Consumers: tasks that claim, await a handler, and settle what it made of it."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, Final

from headgate.aio.delivery import Delivery
from headgate.aio.engines import AsyncEngine
from headgate.aio.waiting import Waiting
from headgate.errors import DatabaseClosed, QueueError, QueueOptionsError, StaleLease
from headgate.filters.builder import FilterLike
from headgate.message import Message
from headgate.queues import arguments, consumer
from headgate.queues.contract import Claimed, Outcome, QueueInfo, Receipt, Usage

_log = logging.getLogger(__name__)

_REMEMBERED: Final = 10_000  # messages nobody here wants, not to be claimed again
_REPORT_S: Final = 5.0  # between two reports of what was done
_RECONNECT_S: Final = (0.1, 5.0)  # after the database was out of reach: first, longest


@dataclass(frozen=True, slots=True)
class Member:
    """One of the handlers of a group, and what it wants: all that its filter and its predicate accept."""

    id: str
    handler: Callable[[Delivery], object]
    filter: FilterLike | None = None
    predicate: Callable[[Message], bool] | None = None


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
        members: Sequence[Member],
        *,
        strategy: consumer.Strategy,
        mode: consumer.Mode,
        tasks: int,
        batch: int,
        lease: timedelta,
        poll: timedelta,
        retry: consumer.Retry,
        renew: bool,
        name: str,
    ) -> None:
        if mode not in consumer.MODES:
            raise QueueOptionsError(f"mode is one of {', '.join(consumer.MODES)}, not {mode!r}")
        self._engine, self._operations, self._queue = engine, engine.operations, queue
        self._handlers = {member.id: member.handler for member in members}
        self._group = consumer.Group([_chooser(member) for member in members], strategy)
        self._mode, self._batch, self._poll, self._retry = mode, batch, poll, retry
        self._lease_us, self._renew = arguments.lease_us(lease), renew
        self._tasks = arguments.limited(tasks)
        self.name = name
        self._unwanted: dict[int, None] = {}
        self._held: dict[Receipt, None] = {}
        self._tally = consumer.Tally()
        self._stopping = asyncio.Event()
        self._running: list[asyncio.Task[None]] = []
        self._waiters: list[Waiting] = []

    # -- opening and closing --

    async def start(self) -> Consumer:
        if self._running or self._stopping.is_set():
            raise QueueOptionsError("a consumer is started once; make another one")
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

    # -- the loop of a task --

    async def _consume(self, waiter: Waiting) -> None:
        done: list[Receipt] = []
        pause = _RECONNECT_S[0]
        while not self._stopping.is_set():
            waiter.prepare()
            try:
                claimed = await self._claim(done)
                done = []
                pause = _RECONNECT_S[0]
                if claimed:
                    done = await self._handle_all(claimed)
                elif not self._stopping.is_set():
                    await self._report_now_and_then()
                    await waiter.wait()
            except DatabaseClosed:
                return
            except QueueError as problem:
                _log.warning("consumer of %r: %s; trying again", self._queue.name, problem)
                await waiter.nap(pause)
                pause = min(pause * 2, _RECONNECT_S[1])
        await self._flush(done)

    async def _claim(self, done: Sequence[Receipt]) -> list[Claimed]:
        began = time.perf_counter_ns()
        claimed, outcomes = await self._engine.run(
            self._operations.claim(
                self._queue,
                self._batch,
                self._lease_us,
                filter=self._group.filter,
                skip=tuple(self._unwanted),
                acks=done,
            )
        )
        spent = (time.perf_counter_ns() - began) // 1000
        self._held.update(dict.fromkeys(one.receipt for one in claimed))
        self._forget(done)
        self._tally.add(claims=1, empty_claims=not claimed, rows=len(claimed), claim_us=spent)
        self._count_acks(done, outcomes)
        return claimed

    async def _handle_all(self, claimed: Iterable[Claimed]) -> list[Receipt]:
        """Those to ack with the next claim."""
        done = []
        for one in claimed:
            if self._stopping.is_set():
                await self._give_back(one)
            elif await self._handle(one):
                done.append(one.receipt)
        return done

    async def _handle(self, claimed: Claimed) -> bool:
        """Whether it is to be acked."""
        member = self._group.choose(claimed.message)
        if member is None:
            await self._reject(claimed)
            return False
        delivery = Delivery(self._engine, self._queue, claimed)
        try:
            answer: Any = self._handlers[member.id](delivery)
            if inspect.isawaitable(answer):
                await answer
        except Exception as problem:
            await self._fail(delivery, problem)
            return False
        if delivery.settled is not None:
            self._forget([claimed.receipt])
        return delivery.settled is None

    async def _reject(self, claimed: Claimed) -> None:
        self._tally.add(unmatched=1)
        self._unwanted[claimed.id] = None
        while len(self._unwanted) > _REMEMBERED:
            del self._unwanted[next(iter(self._unwanted))]
        await self._give_back(claimed)

    async def _give_back(self, claimed: Claimed) -> None:
        await self._engine.run(self._operations.release(self._queue, [claimed.receipt]))
        self._forget([claimed.receipt])

    async def _fail(self, delivery: Delivery, problem: Exception) -> None:
        self._tally.add(failures=1)
        _log.warning("handler failed on %r", delivery, exc_info=problem)
        if delivery.settled is None:
            reason = f"{type(problem).__name__}: {problem}"[:1000]
            try:
                await delivery.nack(self._retry.delay(delivery.attempts), reason=reason)
                self._tally.add(nacked=1)
            except StaleLease as stale:
                _log.warning("%s", stale)
        self._forget([delivery.receipt])

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
        self._count_acks(done, outcomes)
        self._forget(done)

    def _count_acks(self, receipts: Sequence[Receipt], outcomes: Sequence[Outcome]) -> None:
        self._tally.add(acked=sum(outcome is Outcome.DONE for outcome in outcomes))
        try:
            arguments.check_settled(self._queue.name, receipts, outcomes, "ack")
        except StaleLease as stale:
            _log.warning("%s", stale)

    # -- leases --

    def _forget(self, receipts: Iterable[Receipt]) -> None:
        for receipt in receipts:
            self._held.pop(receipt, None)

    async def _keep_leases(self) -> None:
        while not self._stopping.is_set():
            try:
                async with asyncio.timeout(self._lease_us / 3e6):
                    await self._stopping.wait()
            except TimeoutError:
                await self.extend_leases()

    async def extend_leases(self) -> None:
        """What this consumer holds stays its own for another lease."""
        held = list(self._held)
        if not held:
            return
        try:
            await self._engine.run(self._operations.extend(self._queue, held, self._lease_us))
        except QueueError as problem:
            _log.warning("cannot extend %d leases of %r: %s", len(held), self._queue.name, problem)

    # -- numbers --

    async def _report_now_and_then(self) -> None:
        if self._tally.age_s() >= _REPORT_S:
            await self._report()

    async def _report(self) -> None:
        usage = self._tally.take()
        if usage == Usage():
            return
        try:
            await self._engine.run(self._operations.add_usage(self._queue, self.name, usage))
        except QueueError as problem:
            _log.debug("statistics of %r are lost: %s", self._queue.name, problem)


def _chooser(member: Member) -> consumer.Member:
    """What the group of the threads' consumers chooses by; its handler is never called."""
    return consumer.Member(member.id, _nobody, member.filter, member.predicate)


def _nobody(_: object) -> None: ...
