"""Consumers: tasks that claim messages, call a handler for each, and ack or nack it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine, Hashable, Sequence
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Any, TypeAlias, TypeVarTuple

from headgate.errors import DatabaseClosed, QueueError, QueueOptionsError, StaleLease
from headgate.queues import arguments
from headgate.queues.aio.delivery import AsyncDelivery
from headgate.queues.aio.tasks import AsyncEvent, AsyncWorker, call, ends_worker, join_all
from headgate.queues.aio.wakeup import AsyncWakeup
from headgate.queues.consumer_options import (
    ConsumerGroup,
    HandlerOutcome,
    HandlerReport,
    Member,
    Mode,
    Observer,
    Retry,
    Strategy,
    check_mode,
    check_retry,
)
from headgate.queues.engine import AsyncEngine, ClaimedMessage, ClaimRequest, QueueInfo, Receipt
from headgate.queues.handler_runs import HandlerGivenUp, HandlerRun, HandlerRuns, receipts_of
from headgate.queues.ledger import (
    RECONNECT_S,
    Ledger,
    failure_reason,
    warn_of_failure,
    warn_of_scans,
)
from headgate.queues.policies import wants_result

_log = logging.getLogger(__name__)

Ts = TypeVarTuple("Ts")
AsyncHandling: TypeAlias = HandlerRun[AsyncDelivery, AsyncWakeup]


class AsyncConsumer:
    """Consumes messages while it is open: `async with queue.consumer(handler, tasks=2): …`. Closing waits for running handlers.

    mode      notify: woken by commits and due times; poll: claims every `poll`; hybrid: both
    tasks     each claims up to `batch` messages at a time, leased for `lease`
    renew     leases of messages that wait or are being handled are extended while this process lives
    timeout   a slower handler has failed: its message is retried or becomes a dead letter, and another task takes its place
    observer  is called with a HandlerReport after every call of a handler
    """

    def __init__(
        self,
        engine: AsyncEngine,
        queue: QueueInfo,
        members: Sequence[Member[AsyncDelivery]],
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
        timeout: timedelta | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._engine, self._operations, self._queue = engine, engine.operations, queue
        self._mode, self._group = check_mode(mode), ConsumerGroup(members, strategy)
        self._batch, self._retry = arguments.check_limit(batch, "batch"), check_retry(retry)
        self._poll = arguments.check_poll(poll)
        self._lease_us, self._renew = arguments.lease_us(lease), renew
        self._tasks = arguments.check_limit(tasks, "tasks")
        self.name = arguments.storable_text("the name of a consumer", name)
        self._timeout_s = arguments.timeout_s(timeout)
        self._observer = observer
        self._ledger = Ledger(queue.name)
        self._runs: HandlerRuns[AsyncDelivery, AsyncWakeup] = HandlerRuns()
        # Set when the consumer is to stop, when a handler has returned, and when no task consumes any more.
        self._stopping, self._handled, self._ended = AsyncEvent(), AsyncEvent(), AsyncEvent()
        self._workers: list[AsyncWorker] = []
        self._consuming: dict[AsyncWakeup, AsyncWorker] = {}
        self._until_empty = False
        # Whether another task takes the place of one whose handler hangs. A process that will be replaced needs none.
        self.replaces_hung = True

    @property
    def leased(self) -> int:
        """How many messages the consumer holds: they wait for a handler, are being handled, or are to be acked."""
        return len(self._ledger.leased())

    # -- opening and closing --

    async def start(self) -> AsyncConsumer:
        """Begin to consume."""
        if self._workers or self._stopping.is_set():
            raise QueueOptionsError("a consumer is started once; make another one")
        await self._warn_of_scans()
        made = [self._add_worker() for _ in range(self._tasks)]
        for worker in made:
            worker.start()
        self._start_worker(self._ack_in_time)
        if self._renew:
            self._start_worker(self._keep_leases)
        if self._timeout_s is not None:
            self._start_worker(self._watch_handlers, self._timeout_s)
        return self

    async def drain(self) -> None:
        """Handle what is ready now, then close. Messages that are delayed or leased to others are left."""
        await self.start_until_empty()
        await self.wait_until_idle()
        await self.close()

    async def start_until_empty(self) -> AsyncConsumer:
        """Begin to consume; each task ends when its claim finds nothing."""
        self._until_empty = True
        return await self.start()

    async def wait_until_idle(self) -> None:
        """Wait until no task consumes any more: all have found nothing, or the consumer was closed."""
        await self._ended.wait()

    async def close(self) -> None:
        """Stop claiming, wait for running handlers, and release claimed messages whose handler was not called yet. When a handler
        calls this, it does not wait."""
        self.stop_claiming()
        if any(worker.is_current() for worker in self._workers):
            return
        await join_all(self._workers)
        await self._ack_the_rest()
        await self._report()

    def stop_claiming(self) -> None:
        """Begin to close: claim nothing more."""
        self._stopping.set()
        self._handled.set()
        for wakeup in list(self._consuming):
            wakeup.wake()

    async def stop(self) -> None:
        """Close without waiting for running handlers: their messages are released, and the claim is not counted. Whether such a
        handler returns or raises later is ignored."""
        self.stop_claiming()
        for run in self._runs.give_up():
            await self._leave(run.runner)
            await self._release_quietly([run.delivery.receipt, *receipts_of(run.waiting)])
        await self.close()

    async def __aenter__(self) -> AsyncConsumer:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _line(self) -> Hashable:
        """Return the key of the line that its tasks wait in: consumers that would claim the same messages are woken in turn."""
        return (self._queue.name, self._group.filter) if self._group.is_exact else self

    def _add_worker(self) -> AsyncWorker:
        """Add one more task that consumes; the caller starts it."""
        wakeup = AsyncWakeup(
            self._engine,
            self._queue,
            notified=self._mode != "poll",
            poll=None if self._mode == "notify" else self._poll,
            line=self._line(),
        )
        worker = AsyncWorker(self._consume, wakeup, name=self._next_name())
        self._consuming[wakeup] = worker
        self._workers.append(worker)
        return worker

    async def _leave(self, wakeup: AsyncWakeup) -> None:
        """Abandon a task whose handler does not return. Unless the consumer is closing, start another in its place."""
        if self.replaces_hung and not self._stopping.is_set():
            self._add_worker().start()
        await self._consuming[wakeup].abandon()
        self._remove(wakeup)

    def _remove(self, wakeup: AsyncWakeup) -> None:
        self._consuming.pop(wakeup, None)
        if not self._consuming:
            self._ended.set()

    def _next_name(self) -> str:
        return f"headgate-{self._queue.name}-{self.name}-{len(self._workers)}"

    def _start_worker(self, target: Callable[[*Ts], Coroutine[Any, Any, None]], *args: *Ts) -> None:
        worker = AsyncWorker(target, *args, name=self._next_name())
        self._workers.append(worker)  # first: a handler may call close()
        worker.start()

    async def _warn_of_scans(self) -> None:
        if self._group.filter is not None:
            operation = self._operations.advise(self._queue, self._group.filter)
            warn_of_scans(self._queue.name, await self._engine.run(operation))

    # -- the loop of a task --

    async def _consume(self, wakeup: AsyncWakeup) -> None:
        try:
            try:
                await self._consume_until_stopped(wakeup)
            finally:  # also when it is cancelled: if a commit has woken it, another consumer is woken instead
                wakeup.close()
            # When a handler has closed the consumer, no other task is left to ack its message.
            with suppress(QueueError):
                await self._ack_handled()
        finally:
            self._remove(wakeup)

    async def _consume_until_stopped(self, wakeup: AsyncWakeup) -> None:
        pause = RECONNECT_S[0]
        while not self._stopping.is_set():
            wakeup.prepare()
            try:
                claimed = await self._claim()
                pause = RECONNECT_S[0]
                if claimed:
                    wakeup.hand_on()
                    await self._handle_all(claimed, wakeup)
                elif self._until_empty:
                    return
                elif not self._stopping.is_set():
                    await self._report_now_and_then()
                    await wakeup.wait()
                    self._ledger.count(wake_ups=1)
            except (DatabaseClosed, HandlerGivenUp):
                return
            except BaseException as problem:  # only closing may end a consumer
                if ends_worker(problem):
                    raise
                warn_of_failure(self._queue.name, problem)
                await wakeup.nap(pause)
                pause = min(pause * 2, RECONNECT_S[1])

    async def _claim(self) -> list[ClaimedMessage]:
        """Claim the next messages, and ack in the same transaction those that were handled since the last claim."""
        began = time.perf_counter_ns()
        filter, skip = self._group.filter, self._ledger.rejected()
        with self._ledger.acking() as acks:
            if skip:
                operation = self._operations.claim(
                    self._queue,
                    self._batch,
                    self._lease_us,
                    filter=filter,
                    skip=skip,
                    acks=acks,
                    together=True,
                )
                claimed, outcomes = await self._engine.run(operation)
            else:
                request = ClaimRequest(self._batch, self._lease_us, together=True)
                claimed, outcomes = await self._engine.claim(self._queue, request, filter, acks)
        self._ledger.add_claimed(claimed, (time.perf_counter_ns() - began) // 1000)
        self._ledger.add_acked(acks, outcomes)
        return claimed

    async def _handle_all(self, claimed: Sequence[ClaimedMessage], wakeup: AsyncWakeup) -> None:
        pairs = [(one, self._group.choose(one.message)) for one in claimed]
        await self._reject([one for one, member in pairs if member is None])
        accepted = [(one, member) for one, member in pairs if member is not None]
        reached = 0
        try:
            for one, member in accepted:
                reached += 1
                if self._stopping.is_set():
                    await self._release([one.receipt])
                else:
                    waiting = [each for each, _ in accepted[reached:]]
                    await self._handle(one, member, waiting, wakeup)
        finally:  # when the database is out of reach, the leases of the rest end by themselves
            self._ledger.forget(one.receipt for one, _ in accepted[reached:])

    async def _reject(self, claimed: Sequence[ClaimedMessage]) -> None:
        """Release messages that no member accepts, and do not claim them again."""
        if claimed:
            self._ledger.reject(one.id for one in claimed)
            await self._release_quietly(receipts_of(claimed))

    async def _handle(
        self,
        claimed: ClaimedMessage,
        member: Member[AsyncDelivery],
        waiting: Sequence[ClaimedMessage],
        wakeup: AsyncWakeup,
    ) -> None:
        """Call the member's handler; the message is acked soon, unless the handler settled it or failed."""
        delivery = AsyncDelivery(self._engine, self._queue, claimed)
        run = self._runs.begin(delivery, waiting, wakeup)
        try:
            returned = await call(member.handler, delivery)
            if delivery.settled is None and wants_result(delivery.message):
                await delivery.ack(result=returned)
        except BaseException as problem:  # sys.exit too
            self._runs.end(run)
            if ends_worker(problem):
                self._ledger.forget([claimed.receipt])
                _log.warning(
                    "consumer of %r was cancelled while it handled %r", self._queue.name, delivery
                )
                raise
            await self._fail(run, "failed", problem)
            return
        self._runs.end(run)
        self._observe(run, "done")
        if delivery.settled is not None:
            self._ledger.forget([claimed.receipt])
            return
        self._ledger.add_handled(claimed.receipt)
        if not self._handled.is_set():
            self._handled.set()

    def _observe(
        self, run: AsyncHandling, outcome: HandlerOutcome, problem: BaseException | None = None
    ) -> None:
        if self._observer is None:
            return
        delivery, seconds = run.delivery, run.seconds
        topic = delivery.message.topic
        report = HandlerReport(
            self._queue.name, delivery.id, delivery.attempts, topic, seconds, outcome, problem
        )
        try:
            self._observer(report)
        except Exception:  # a report that fails must not fail the message
            _log.warning("the observer failed on %r", report, exc_info=True)

    async def _release(self, receipts: Sequence[Receipt]) -> None:
        try:
            await self._engine.run(self._operations.release(self._queue, receipts))
        finally:  # when that fails, their leases end by themselves
            self._ledger.forget(receipts)

    async def _release_quietly(self, receipts: Sequence[Receipt]) -> None:
        """Release messages; when that fails, warn and go on: their leases end by themselves."""
        try:
            await self._release(receipts)
        except QueueError as problem:
            warn_of_failure(self._queue.name, problem)

    async def _fail(
        self, run: AsyncHandling, outcome: HandlerOutcome, problem: BaseException
    ) -> None:
        """Nack a message whose handler raised or takes too long."""
        delivery = run.delivery
        self._ledger.count(failures=1)
        facts = {"queue": self._queue.name, "id": delivery.id, "attempt": delivery.attempts}
        _log.warning("handler failed on %r", delivery, exc_info=problem, extra=facts)
        try:
            if delivery.settled is None:
                delay = self._retry.delay(delivery.attempts)
                await delivery.nack(delay, reason=failure_reason(problem))
                self._ledger.count(nacked=1)
        except StaleLease as stale:
            _log.warning("%s", stale)
        finally:
            self._ledger.forget([delivery.receipt])
            self._observe(run, outcome, problem)

    # -- handlers that take too long --

    async def _watch_handlers(self, limit_s: float) -> None:
        while not await self._ended.wait(self._runs.seconds_left(limit_s)):
            for run in self._runs.give_up(limit_s):
                await self._give_up(run, limit_s)

    async def _give_up(self, run: AsyncHandling, limit_s: float) -> None:
        """Nack a message whose handler takes too long, and release the messages that wait behind it."""
        await self._leave(run.runner)
        problem = TimeoutError(f"the handler has not returned within {limit_s:g} s")
        try:
            await self._fail(run, "timeout", problem)
        except QueueError as failure:  # its lease ends: it is no longer extended
            warn_of_failure(self._queue.name, failure)
        await self._release_quietly(receipts_of(run.waiting))

    # -- acks --

    async def _ack_in_time(self) -> None:
        """Ack handled messages while the handler of the next one takes long; otherwise the next claim acks them."""
        while not self._stopping.is_set():
            await self._handled.wait()
            self._handled.clear()
            while (
                not self._stopping.is_set() and (left := self._ledger.seconds_to_ack()) is not None
            ):
                if left > 0:
                    await self._stopping.wait(left)
                    continue
                try:
                    await self._ack_handled()
                except DatabaseClosed:
                    return
                except Exception as problem:  # retried here, or by the next claim
                    warn_of_failure(self._queue.name, problem)
                    await self._stopping.wait(RECONNECT_S[0])

    async def _ack_handled(self) -> None:
        with self._ledger.acking() as acks:
            if not acks:
                return
            outcomes = await self._engine.run(self._operations.ack(self._queue, acks))
        self._ledger.add_acked(acks, outcomes)

    async def _ack_the_rest(self) -> None:
        try:
            await self._ack_handled()
        except QueueError as problem:
            self._ledger.give_up_acks(problem)

    # -- leases --

    async def _keep_leases(self) -> None:
        while not await self._ended.wait(self._lease_us / 3e6):
            await self.extend_leases()

    async def extend_leases(self) -> None:
        """Extend the leases of all messages this consumer holds."""
        receipts = self._ledger.leased()
        if not receipts:
            return
        try:
            await self._engine.run(self._operations.extend(self._queue, receipts, self._lease_us))
        except Exception as problem:  # the next round tries again
            name = self._queue.name
            _log.warning("cannot extend %d leases of %r: %s", len(receipts), name, problem)

    # -- statistics --

    async def _report_now_and_then(self) -> None:
        if self._ledger.is_report_due():
            await self._report()

    async def _report(self) -> None:
        usage = self._ledger.report(self._group.filter)
        if usage is None:
            return
        try:
            await self._engine.run(self._operations.add_usage(self._queue, self.name, usage))
        except QueueError as problem:
            _log.debug("statistics of %r are lost: %s", self._queue.name, problem)
