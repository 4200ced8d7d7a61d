"""Consumers: threads that claim, call a handler, and settle what it made of it."""

from __future__ import annotations

import itertools
import logging
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from types import TracebackType
from typing import Final, TypeAlias
from typing import Literal as OneOf

from headgate.errors import DatabaseClosed, QueueError, QueueOptionsError, StaleLease
from headgate.filters.builder import FilterLike, as_filter
from headgate.filters.nodes import Filter, Or, joined
from headgate.filters.targets.python import predicate as compiled
from headgate.message import Message
from headgate.queues import arguments
from headgate.queues.contract import Claimed, Engine, Outcome, QueueInfo, Receipt, Usage
from headgate.queues.delivery import Delivery
from headgate.queues.waiting import Waiting

_log = logging.getLogger(__name__)

Mode: TypeAlias = OneOf["notify", "poll", "hybrid"]
Strategy: TypeAlias = OneOf["round_robin", "sticky", "first"]
MODES: Final = ("notify", "poll", "hybrid")
STRATEGIES: Final = ("round_robin", "sticky", "first")

_REMEMBERED: Final = 10_000  # messages nobody here wants, not to be claimed again
_REPORT_S: Final = 5.0  # between two reports of what was done
_RECONNECT_S: Final = (0.1, 5.0)  # after the database was out of reach: first, longest


@dataclass(frozen=True, slots=True)
class Retry:
    """How long a message waits after its nth failure: `first` · `factor`ⁿ⁻¹, at most `most`."""

    first: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    most: timedelta = timedelta(minutes=5)

    def delay(self, attempts: int) -> timedelta:
        grown = self.first.total_seconds() * self.factor ** min(max(attempts - 1, 0), 64)
        return min(timedelta(seconds=min(grown, 1e9)), self.most)


@dataclass(frozen=True, slots=True)
class Member:
    """One of the handlers of a group, and what it wants: all that its filter and its predicate accept."""

    id: str
    handler: Callable[[Delivery], object]
    filter: FilterLike | None = None
    predicate: Callable[[Message], bool] | None = None


class Group:
    """Chooses who gets a message: one of those who want it."""

    def __init__(self, members: Sequence[Member], strategy: Strategy) -> None:
        if not members:
            raise QueueOptionsError("a consumer needs at least one handler")
        if strategy not in STRATEGIES:
            raise QueueOptionsError(f"strategy is one of {', '.join(STRATEGIES)}, not {strategy!r}")
        self._strategy = strategy
        self._members = [(member, _wish(member)) for member in members]
        self._turn = itertools.count()
        self.filter = _either([member.filter for member in members])

    def choose(self, message: Message) -> Member | None:
        """The member to call; None when nobody wants it. A predicate that raises does not want it."""
        at = self._first(message)
        for member, wants in (*self._members[at:], *self._members[:at]):
            if wants(message):
                return member
        return None

    def _first(self, message: Message) -> int:
        if self._strategy == "round_robin":
            return next(self._turn) % len(self._members)
        if self._strategy == "sticky" and message.key is not None:
            return zlib.crc32(message.key.encode()) % len(self._members)
        return 0


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
        members: Sequence[Member],
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
        if mode not in MODES:
            raise QueueOptionsError(f"mode is one of {', '.join(MODES)}, not {mode!r}")
        self._engine, self._operations, self._queue = engine, engine.operations, queue
        self._group = Group(members, strategy)
        self._mode, self._batch, self._poll, self._retry = mode, batch, poll, retry
        self._lease_us, self._renew = arguments.lease_us(lease), renew
        self._threads = arguments.limited(threads)
        self.name = name
        self._unwanted: dict[int, None] = {}
        self._held: dict[Receipt, None] = {}
        self._tally = Tally()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._running: list[threading.Thread] = []
        self._waiters: list[Waiting] = []

    # -- opening and closing --

    def start(self) -> Consumer:
        if self._running or self._stopping.is_set():
            raise QueueOptionsError("a consumer is started once; make another one")
        self._warn_of_scans()
        poll = None if self._mode == "notify" else self._poll
        notified = self._mode != "poll"
        for _ in range(self._threads):
            waiter = Waiting(self._engine, self._queue, notified=notified, poll=poll)
            self._waiters.append(waiter)
            self._launch(self._consume, waiter)
        if self._renew:
            self._launch(self._keep_leases)
        return self

    def close(self) -> None:
        """Handlers at work are waited for; what was claimed and not begun is given back."""
        self._stopping.set()
        for waiter in self._waiters:
            waiter.wake()
        for thread in self._running:
            thread.join()
        for waiter in self._waiters:
            waiter.close()
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
        if self._group.filter is None:
            return
        advice = self._engine.run(self._operations.advise(self._queue, self._group.filter))
        if advice.scans and advice.suggestions:
            _log.warning(
                "claims from %r with this filter read everything that is ready; declare %s as filter headers",
                self._queue.name,
                ", ".join(advice.suggestions),
            )

    # -- the loop of a thread --

    def _consume(self, waiter: Waiting) -> None:
        done: list[Receipt] = []
        pause = _RECONNECT_S[0]
        while not self._stopping.is_set():
            waiter.prepare()
            try:
                claimed = self._claim(done)
                done = []
                pause = _RECONNECT_S[0]
                if claimed:
                    self._handle_all(claimed, done)
                elif not self._stopping.is_set():
                    self._report_now_and_then()
                    waiter.wait()
            except DatabaseClosed:
                return
            except Exception as problem:  # nothing may end a consumer but closing it
                known = isinstance(problem, QueueError)
                _log.warning(
                    "consumer of %r: %s; trying again",
                    self._queue.name,
                    problem,
                    exc_info=not known,
                )
                waiter.nap(pause)
                pause = min(pause * 2, _RECONNECT_S[1])
        self._flush(done)

    def _claim(self, done: Sequence[Receipt]) -> list[Claimed]:
        began = time.perf_counter_ns()
        with self._lock:
            skip = tuple(self._unwanted)
        claimed, outcomes = self._engine.run(
            self._operations.claim(
                self._queue,
                self._batch,
                self._lease_us,
                filter=self._group.filter,
                skip=skip,
                acks=done,
            )
        )
        spent = (time.perf_counter_ns() - began) // 1000
        self._hold(claimed)
        self._forget(done)
        self._tally.add(claims=1, empty_claims=not claimed, rows=len(claimed), claim_us=spent)
        self._count_acks(done, outcomes)
        return claimed

    def _handle_all(self, claimed: Sequence[Claimed], done: list[Receipt]) -> None:
        """Those to ack with the next claim are added to `done`."""
        try:
            for one in claimed:
                if self._stopping.is_set():
                    self._give_back(one)
                elif self._handle(one):
                    done.append(one.receipt)
        finally:  # what was not reached, because the database was not, is left to the end of its lease
            self._forget({one.receipt for one in claimed} - set(done))

    def _handle(self, claimed: Claimed) -> bool:
        """Whether it is to be acked."""
        member = self._group.choose(claimed.message)
        if member is None:
            self._reject(claimed)
            return False
        delivery = Delivery(self._engine, self._queue, claimed)
        try:
            member.handler(delivery)
        except Exception as problem:
            self._fail(delivery, problem)
            return False
        if delivery.settled is not None:
            self._forget([claimed.receipt])
        return delivery.settled is None

    def _reject(self, claimed: Claimed) -> None:
        self._tally.add(unmatched=1)
        with self._lock:
            self._unwanted[claimed.id] = None
            while len(self._unwanted) > _REMEMBERED:
                del self._unwanted[next(iter(self._unwanted))]
        self._give_back(claimed)

    def _give_back(self, claimed: Claimed) -> None:
        self._engine.run(self._operations.release(self._queue, [claimed.receipt]))
        self._forget([claimed.receipt])

    def _fail(self, delivery: Delivery, problem: Exception) -> None:
        self._tally.add(failures=1)
        _log.warning("handler failed on %r", delivery, exc_info=problem)
        if delivery.settled is None:
            reason = f"{type(problem).__name__}: {problem}"[:1000]
            try:
                delivery.nack(self._retry.delay(delivery.attempts), reason=reason)
                self._tally.add(nacked=1)
            except StaleLease as stale:
                _log.warning("%s", stale)
        self._forget([delivery.receipt])

    def _flush(self, done: Sequence[Receipt]) -> None:
        if not done:
            return
        try:
            outcomes = self._engine.run(self._operations.ack(self._queue, done))
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

    def _hold(self, claimed: Iterable[Claimed]) -> None:
        with self._lock:
            self._held.update(dict.fromkeys(one.receipt for one in claimed))

    def _forget(self, receipts: Iterable[Receipt]) -> None:
        with self._lock:
            for receipt in receipts:
                self._held.pop(receipt, None)

    def _keep_leases(self) -> None:
        while not self._stopping.wait(self._lease_us / 3e6):
            self.extend_leases()

    def extend_leases(self) -> None:
        """What this consumer holds stays its own for another lease."""
        with self._lock:
            held = list(self._held)
        if not held:
            return
        try:
            self._engine.run(self._operations.extend(self._queue, held, self._lease_us))
        except QueueError as problem:
            _log.warning("cannot extend %d leases of %r: %s", len(held), self._queue.name, problem)

    # -- numbers --

    def _report_now_and_then(self) -> None:
        if self._tally.age_s() >= _REPORT_S:
            self._report()

    def _report(self) -> None:
        usage = self._tally.take()
        if usage == Usage():
            return
        try:
            self._engine.run(self._operations.add_usage(self._queue, self.name, usage))
        except QueueError as problem:
            _log.debug("statistics of %r are lost: %s", self._queue.name, problem)


class Tally:
    """Counts what was done since it was last taken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._since = time.monotonic()

    def add(self, **counts: int) -> None:
        with self._lock:
            for name, count in counts.items():
                self._counts[name] = self._counts.get(name, 0) + count

    def take(self) -> Usage:
        with self._lock:
            counts, self._counts = self._counts, {}
            self._since = time.monotonic()
        return Usage(**{field.name: counts.get(field.name, 0) for field in fields(Usage)})

    def age_s(self) -> float:
        return time.monotonic() - self._since


def _wish(member: Member) -> Callable[[Message], bool]:
    """Whether the member wants a message."""
    tests: list[Callable[[Message], bool]] = []
    if member.filter is not None:
        tests.append(compiled(as_filter(member.filter)))
    if member.predicate is not None:
        tests.append(_safely(member.predicate))
    return lambda message: all(test(message) for test in tests)


def _safely(predicate: Callable[[Message], bool]) -> Callable[[Message], bool]:
    def wants(message: Message) -> bool:
        try:
            return bool(predicate(message))
        except Exception:
            _log.warning("predicate failed on a message of topic %r", message.topic, exc_info=True)
            return False

    return wants


def _either(filters: Sequence[FilterLike | None]) -> Filter | None:
    """What any of them wants; None when one wants everything."""
    trees = [as_filter(one) for one in filters if one is not None]
    if len(trees) < len(filters):
        return None
    return trees[0] if len(trees) == 1 else joined(Or, trees)
