"""Consumers: threads that claim, call a handler, and settle what it made of it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from types import TracebackType

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
from headgate.queues.delivery import Delivery
from headgate.queues.engine import ClaimedMessage, Engine, QueueInfo, Usage
from headgate.queues.members import Group, Member, Strategy
from headgate.queues.waiting import Waiting

__all__ = ["Consumer", "Member", "Mode", "Retry", "Strategy"]

_log = logging.getLogger(__name__)


class Consumer:
    """Open, it consumes: `with queue.consumer(handler, threads=2): …`. Closing waits for the handlers at work.

    mode     notify: woken by commits and due times; poll: looks every `poll`; hybrid: both
    threads  each claims up to `batch` messages at a time, leased for `lease`
    renew    leases of what waits or is being handled are extended while this process lives
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
        self._mode, self._group = known_mode(mode), Group(members, strategy)
        self._batch, self._poll, self._retry = arguments.limited(batch), poll, retry
        self._lease_us, self._renew = arguments.lease_us(lease), renew
        self._threads = arguments.limited(threads)
        self.name = arguments.storable_text("the name of a consumer", name)
        self._ledger = Ledger(queue.name)
        self._stopping, self._handled = threading.Event(), threading.Event()
        self._running: list[threading.Thread] = []
        self._waiters: list[Waiting] = []

    # -- opening and closing --

    def start(self) -> Consumer:
        if self._running or self._stopping.is_set():
            raise QueueOptionsError("a consumer is started once; make another one")
        self._warn_of_scans()
        poll = None if self._mode == "notify" else self._poll
        for _ in range(self._threads):
            waiter = Waiting(self._engine, self._queue, notified=self._mode != "poll", poll=poll)
            self._waiters.append(waiter)
            self._launch(self._consume, waiter)
        self._launch(self._ack_in_time)
        if self._renew:
            self._launch(self._keep_leases)
        return self

    def close(self) -> None:
        """Handlers at work are waited for; what was claimed and not begun is given back. Called by a handler, it does not
        wait."""
        self._stopping.set()
        self._handled.set()
        for waiter in self._waiters:
            waiter.wake()
        if threading.current_thread() in self._running:
            return
        for thread in self._running:
            thread.join()
        for waiter in self._waiters:
            waiter.close()
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

    def _launch(self, target: Callable[..., None], *args: Waiting) -> None:
        number = len(self._running)
        name = f"headgate-{self._queue.name}-{self.name}-{number}"
        thread = threading.Thread(target=target, args=args, name=name, daemon=True)
        self._running.append(thread)
        thread.start()

    def _warn_of_scans(self) -> None:
        if self._group.filter is not None:
            advice = self._engine.run(self._operations.advise(self._queue, self._group.filter))
            warn_of_scans(self._queue.name, advice)

    # -- the loop of a thread --

    def _consume(self, waiter: Waiting) -> None:
        self._consume_until_stopped(waiter)
        # If a handler closed it, nobody else may come to ack what that has handled.
        with suppress(QueueError):
            self._ack_handled()

    def _consume_until_stopped(self, waiter: Waiting) -> None:
        pause = RECONNECT_S[0]
        while not self._stopping.is_set():
            waiter.prepare()
            try:
                claimed = self._claim()
                pause = RECONNECT_S[0]
                if claimed:
                    self._handle_all(claimed)
                elif not self._stopping.is_set():
                    self._report_now_and_then()
                    waiter.wait()
            except DatabaseClosed:
                return
            except BaseException as problem:  # nothing may end a consumer but closing it
                warn_of_trouble(self._queue.name, problem)
                waiter.nap(pause)
                pause = min(pause * 2, RECONNECT_S[1])

    def _claim(self) -> list[ClaimedMessage]:
        """The next messages; with the claim, what was handled meanwhile is acked."""
        began = time.perf_counter_ns()
        with self._ledger.acking() as acks:
            claimed, outcomes = self._engine.run(
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

    def _handle_all(self, claimed: Sequence[ClaimedMessage]) -> None:
        chosen = [(one, self._group.choose(one.message)) for one in claimed]
        self._reject([one for one, member in chosen if member is None])
        wanted = [(one, member) for one, member in chosen if member is not None]
        reached = 0
        try:
            for one, member in wanted:
                reached += 1
                if self._stopping.is_set():
                    self._give_back([one])
                else:
                    self._handle(one, member)
        finally:  # what was not reached, because the database was not, is left to the end of its lease
            self._ledger.forget(one.receipt for one, _ in wanted[reached:])

    def _reject(self, claimed: Sequence[ClaimedMessage]) -> None:
        """Nobody here wants them: they are given back at once, and not claimed again."""
        if not claimed:
            return
        self._ledger.reject(one.id for one in claimed)
        try:
            self._give_back(claimed)
        except QueueError as problem:  # their leases end; the others are handled all the same
            warn_of_trouble(self._queue.name, problem)

    def _handle(self, claimed: ClaimedMessage, member: Member[Delivery]) -> None:
        """Call its handler; it is acked soon, unless the handler settled it or failed."""
        delivery = Delivery(self._engine, self._queue, claimed)
        try:
            member.handler(delivery)
        except BaseException as problem:  # sys.exit too would end this thread in silence
            self._fail(delivery, problem)
            return
        if delivery.settled is not None:
            self._ledger.forget([claimed.receipt])
            return
        self._ledger.add_handled(claimed.receipt)
        if not self._handled.is_set():
            self._handled.set()

    def _give_back(self, claimed: Sequence[ClaimedMessage]) -> None:
        receipts = [one.receipt for one in claimed]
        try:
            self._engine.run(self._operations.release(self._queue, receipts))
        finally:  # else they are left to the end of their lease
            self._ledger.forget(receipts)

    def _fail(self, delivery: Delivery, problem: BaseException) -> None:
        self._ledger.count(failures=1)
        _log.warning("handler failed on %r", delivery, exc_info=problem)
        try:
            if delivery.settled is None:
                delivery.nack(self._retry.delay(delivery.attempts), reason=reason_of(problem))
                self._ledger.count(nacked=1)
        except StaleLease as stale:
            _log.warning("%s", stale)
        finally:
            self._ledger.forget([delivery.receipt])

    # -- acks --

    def _ack_in_time(self) -> None:
        """Ack what is handled while a handler takes long with the next message; else the next claim does it."""
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
                except Exception as problem:  # the next claim tries again, and so do we
                    warn_of_trouble(self._queue.name, problem)
                    self._stopping.wait(RECONNECT_S[0])

    def _ack_handled(self) -> None:
        with self._ledger.acking() as acks:
            if not acks:
                return
            outcomes = self._engine.run(self._operations.ack(self._queue, acks))
        self._ledger.acked(acks, outcomes)

    def _ack_the_rest(self) -> None:
        try:
            self._ack_handled()
        except QueueError as problem:
            self._ledger.give_up_acking(problem)

    # -- leases --

    def _keep_leases(self) -> None:
        while not self._stopping.wait(self._lease_us / 3e6):
            self.extend_leases()

    def extend_leases(self) -> None:
        """What this consumer holds stays its own for another lease."""
        held = self._ledger.held()
        if not held:
            return
        try:
            self._engine.run(self._operations.extend(self._queue, held, self._lease_us))
        except Exception as problem:  # this thread goes on
            _log.warning("cannot extend %d leases of %r: %s", len(held), self._queue.name, problem)

    # -- numbers --

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
