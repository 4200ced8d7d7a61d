# Generated from headgate/queues/aio/consumer.py by tools/generate_sync.py: do not edit, run `make generate`.
"""Consumers: threads that claim messages, call a handler for each, and settle them by what the handler did."""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable, Sequence
from contextlib import suppress
from datetime import timedelta
from types import TracebackType

from headgate.errors import DatabaseClosed, QueueError, QueueOptionsError, StaleLease
from headgate.queues import arguments
from headgate.queues.consumer_options import (
    ConsumerGroup,
    Member,
    Mode,
    Retry,
    Strategy,
    check_mode,
    check_retry,
)
from headgate.queues.delivery import Delivery
from headgate.queues.engine import ClaimedMessage, Engine, QueueInfo, Usage
from headgate.queues.ledger import (
    RECONNECT_S,
    Ledger,
    failure_reason,
    warn_of_failure,
    warn_of_scans,
)
from headgate.queues.threads import Event, Worker, call, ends_worker, join_all
from headgate.queues.wakeup import Wakeup

_log = logging.getLogger(__name__)


class Consumer:
    """Consumes while it is open: `with queue.consumer(handler, threads=2): …`. Closing waits for running handlers.

    mode     notify: woken by commits and due times; poll: claims every `poll`; hybrid: both
    threads    each claims up to `batch` messages at a time, leased for `lease`
    renew    leases of messages that wait or are being handled are extended while this process lives
    """

    def __init__(
        self,
        engine: Engine,
        queue: QueueInfo,
        members: Sequence[Member[Delivery]],
        *,
        strategy: Strategy,
        mode: Mode,
        threads: int,
        batch: int,
        lease: timedelta,
        poll: timedelta,
        retry: Retry,
        renew: bool,
        name: str,
    ) -> None:
        self._engine, self._operations, self._queue = engine, engine.operations, queue
        self._mode, self._group = check_mode(mode), ConsumerGroup(members, strategy)
        self._batch, self._retry = arguments.check_limit(batch, "batch"), check_retry(retry)
        self._poll = arguments.check_poll(poll)
        self._lease_us, self._renew = arguments.lease_us(lease), renew
        self._threads = arguments.check_limit(threads, "threads")
        self.name = arguments.storable_text("the name of a consumer", name)
        self._ledger = Ledger(queue.name)
        self._stopping, self._handled = Event(), Event()
        self._workers: list[Worker] = []
        self._wakeups: list[Wakeup] = []

    @property
    def leased(self) -> int:
        """How many messages it holds: they wait for a handler, are being handled, or are to be acked."""
        return len(self._ledger.leased())

    # -- opening and closing --

    def start(self) -> Consumer:
        if self._workers or self._stopping.is_set():
            raise QueueOptionsError("a consumer is started once; make another one")
        self._warn_of_scans()
        poll = None if self._mode == "notify" else self._poll
        for _ in range(self._threads):
            wakeup = Wakeup(
                self._engine,
                self._queue,
                notified=self._mode != "poll",
                poll=poll,
                line=self._line(),
            )
            self._wakeups.append(wakeup)
            self._start_worker(Worker(self._consume, wakeup, name=self._next_name()))
        self._start_worker(Worker(self._ack_in_time, name=self._next_name()))
        if self._renew:
            self._start_worker(Worker(self._keep_leases, name=self._next_name()))
        return self

    def close(self) -> None:
        """Wait for running handlers, and release what was claimed and not begun. A handler may call it: then it does not
        wait."""
        self._stopping.set()
        self._handled.set()
        for wakeup in self._wakeups:
            wakeup.wake()
        if any(worker.is_current() for worker in self._workers):
            return
        join_all(self._workers)
        for wakeup in self._wakeups:
            wakeup.close()
        self._ack_the_rest()
        self._report()

    def __enter__(self) -> Consumer:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _line(self) -> Hashable:
        """What its threads claim: other consumers of the queue that claim the same take turns with them in being woken."""
        return (self._queue.name, self._group.filter) if self._group.is_exact else self

    def _next_name(self) -> str:
        return f"headgate-{self._queue.name}-{self.name}-{len(self._workers)}"

    def _start_worker(self, worker: Worker) -> None:
        self._workers.append(worker)  # first: a handler may call close()
        worker.start()

    def _warn_of_scans(self) -> None:
        if self._group.filter is not None:
            operation = self._operations.advise(self._queue, self._group.filter)
            warn_of_scans(self._queue.name, self._engine.run(operation))

    # -- the loop of a thread --

    def _consume(self, wakeup: Wakeup) -> None:
        try:
            self._consume_until_stopped(wakeup)
        finally:  # also when it is cancelled, perhaps after it was woken
            wakeup.close()
        # When a handler has closed the consumer, no other thread is left to ack its message.
        with suppress(QueueError):
            self._ack_handled()

    def _consume_until_stopped(self, wakeup: Wakeup) -> None:
        pause = RECONNECT_S[0]
        while not self._stopping.is_set():
            wakeup.prepare()
            try:
                claimed = self._claim()
                pause = RECONNECT_S[0]
                if claimed:
                    wakeup.hand_on()
                    self._handle_all(claimed)
                elif not self._stopping.is_set():
                    self._report_now_and_then()
                    wakeup.wait()
            except DatabaseClosed:
                return
            except BaseException as problem:  # only closing may end a consumer
                if ends_worker(problem):
                    raise
                warn_of_failure(self._queue.name, problem)
                wakeup.nap(pause)
                pause = min(pause * 2, RECONNECT_S[1])

    def _claim(self) -> list[ClaimedMessage]:
        """Claim the next messages, and ack in the same transaction what was handled meanwhile."""
        began = time.perf_counter_ns()
        with self._ledger.acking() as acks:
            claimed, outcomes = self._engine.run(
                self._operations.claim(
                    self._queue,
                    self._batch,
                    self._lease_us,
                    filter=self._group.filter,
                    skip=self._ledger.rejected(),
                    acks=acks,
                    together=True,
                )
            )
        self._ledger.add_claimed(claimed, (time.perf_counter_ns() - began) // 1000)
        self._ledger.add_acked(acks, outcomes)
        return claimed

    def _handle_all(self, claimed: Sequence[ClaimedMessage]) -> None:
        pairs = [(one, self._group.choose(one.message)) for one in claimed]
        self._reject([one for one, member in pairs if member is None])
        accepted = [(one, member) for one, member in pairs if member is not None]
        reached = 0
        try:
            for one, member in accepted:
                reached += 1
                if self._stopping.is_set():
                    self._release([one])
                else:
                    self._handle(one, member)
        finally:  # the rest, when the database is out of reach, is left to the end of its lease
            self._ledger.forget(one.receipt for one, _ in accepted[reached:])

    def _reject(self, claimed: Sequence[ClaimedMessage]) -> None:
        """Release messages that no member accepts, and do not claim them again."""
        if not claimed:
            return
        self._ledger.reject(one.id for one in claimed)
        try:
            self._release(claimed)
        except (
            QueueError
        ) as problem:  # their leases end; the accepted ones are handled nevertheless
            warn_of_failure(self._queue.name, problem)

    def _handle(self, claimed: ClaimedMessage, member: Member[Delivery]) -> None:
        """Call the member's handler; the message is acked soon, unless the handler settled it or failed."""
        delivery = Delivery(self._engine, self._queue, claimed)
        try:
            call(member.handler, delivery)
        except BaseException as problem:  # sys.exit too
            if ends_worker(problem):
                self._ledger.forget([claimed.receipt])
                _log.warning("consumer of %r is cancelled at %r", self._queue.name, delivery)
                raise
            self._fail(delivery, problem)
            return
        if delivery.settled is not None:
            self._ledger.forget([claimed.receipt])
            return
        self._ledger.add_handled(claimed.receipt)
        if not self._handled.is_set():
            self._handled.set()

    def _release(self, claimed: Sequence[ClaimedMessage]) -> None:
        receipts = [one.receipt for one in claimed]
        try:
            self._engine.run(self._operations.release(self._queue, receipts))
        finally:  # when that fails, they are left to the end of their lease
            self._ledger.forget(receipts)

    def _fail(self, delivery: Delivery, problem: BaseException) -> None:
        """Nack a message whose handler raised."""
        self._ledger.count(failures=1)
        _log.warning("handler failed on %r", delivery, exc_info=problem)
        try:
            if delivery.settled is None:
                delay = self._retry.delay(delivery.attempts)
                delivery.nack(delay, reason=failure_reason(problem))
                self._ledger.count(nacked=1)
        except StaleLease as stale:
            _log.warning("%s", stale)
        finally:
            self._ledger.forget([delivery.receipt])

    # -- acks --

    def _ack_in_time(self) -> None:
        """Ack what is handled while a handler takes long with the next message; otherwise the next claim does it."""
        while not self._stopping.is_set():
            self._handled.wait()
            self._handled.clear()
            while (
                not self._stopping.is_set() and (left := self._ledger.seconds_to_ack()) is not None
            ):
                if left > 0:
                    self._stopping.wait(left)
                    continue
                try:
                    self._ack_handled()
                except DatabaseClosed:
                    return
                except Exception as problem:  # retried here, or by the next claim
                    warn_of_failure(self._queue.name, problem)
                    self._stopping.wait(RECONNECT_S[0])

    def _ack_handled(self) -> None:
        with self._ledger.acking() as acks:
            if not acks:
                return
            outcomes = self._engine.run(self._operations.ack(self._queue, acks))
        self._ledger.add_acked(acks, outcomes)

    def _ack_the_rest(self) -> None:
        try:
            self._ack_handled()
        except QueueError as problem:
            self._ledger.give_up_acks(problem)

    # -- leases --

    def _keep_leases(self) -> None:
        while not self._stopping.wait(self._lease_us / 3e6):
            self.extend_leases()

    def extend_leases(self) -> None:
        """Extend the leases of all messages this consumer holds."""
        receipts = self._ledger.leased()
        if not receipts:
            return
        try:
            self._engine.run(self._operations.extend(self._queue, receipts, self._lease_us))
        except Exception as problem:  # the next round tries again
            name = self._queue.name
            _log.warning("cannot extend %d leases of %r: %s", len(receipts), name, problem)

    # -- statistics --

    def _report_now_and_then(self) -> None:
        if self._ledger.is_report_due():
            self._report()

    def _report(self) -> None:
        usage = self._ledger.report()
        if usage == Usage():
            return
        try:
            self._engine.run(self._operations.add_usage(self._queue, self.name, usage))
        except QueueError as problem:
            _log.debug("statistics of %r are lost: %s", self._queue.name, problem)
