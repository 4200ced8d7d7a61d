"""The in-memory engine: the reference of every rule in plain Python, and `headgate.connect("memory:")` for tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import fields, replace
from functools import wraps
from typing import ParamSpec, TypeVar

from headgate.clock import Clock
from headgate.errors import DatabaseClosed
from headgate.filters import Filter, to_text
from headgate.message import INT64_MAX, Message
from headgate.queues.engine import (
    RESULTS,
    ClaimedMessage,
    ClaimRequest,
    Claims,
    CommitWatch,
    DeliverySnapshot,
    IndexAdvice,
    JobResult,
    Operation,
    Outcome,
    Publication,
    QueueInfo,
    QueueOptions,
    QueueStats,
    RateLimit,
    Receipt,
    Schedule,
    ScheduleState,
    State,
    SubscriptionStart,
    Usage,
    Wake,
)
from headgate.queues.memory.state import (
    MemoryDelivery,
    MemoryQueue,
    MemoryState,
    one_per_group,
    until_doubt,
)
from headgate.queues.policies import decode_result
from headgate.queues.sql.declare import check_queue
from headgate.queues.sql.publish import check_is_queue
from headgate.queues.wakers import Waiter, Wakers

P = ParamSpec("P")
T = TypeVar("T")


def at_once(function: Callable[P, T]) -> Callable[P, Operation[T]]:
    """Make the function an operation, one without steps."""

    @wraps(function)
    def operation(*args: P.args, **kwargs: P.kwargs) -> Operation[T]:
        return function(*args, **kwargs)
        yield

    return operation


class MemoryOperations(MemoryState):
    # -- queues --

    @at_once
    def declare(self, name: str, options: QueueOptions | None) -> QueueInfo:
        check_queue(name, options)
        if name not in self._queues:
            return self._create(QueueInfo(id=0, name=name, options=options or QueueOptions()))
        return self._change(name, options)

    @at_once
    def find(self, name: str) -> QueueInfo:
        return self._find(name).info

    @at_once
    def find_or_none(self, name: str) -> QueueInfo | None:
        found = self._queues.get(name)
        return None if found is None else found.info

    @at_once
    def queues(self) -> list[QueueInfo]:
        return [self._queues[name].info for name in sorted(self._queues)]

    def last_known(self, queue: QueueInfo) -> QueueInfo:
        found = self._queues.get(queue.name)
        return queue if found is None else found.info

    @at_once
    def delete(self, name: str) -> None:
        self._notify(frozenset({self._find(name).info.id}))
        del self._queues[name]

    @at_once
    def pause(self, name: str, *, paused: bool) -> QueueInfo:
        queue = self._find(name)
        queue.info = replace(queue.info, paused=paused)
        self._notify(frozenset({queue.info.id}))
        return queue.info

    @at_once
    def subscribe(
        self,
        name: str,
        filter: Filter,
        *,
        source: str | None = None,
        options: QueueOptions | None = None,
        start: SubscriptionStart = "next",
        lease_us: int | None = None,
    ) -> QueueInfo:
        check_queue(name, options)
        text = to_text(filter)
        from_queue = None if source is None else self._find(source).info.id
        if name in self._queues:
            return self._change_filter(name, text, from_queue, options)
        info = QueueInfo(
            id=0,
            name=name,
            options=options or QueueOptions(),
            kind="subscription" if lease_us is None else "push",
            filter=text,
            source=from_queue,
            expires_at=None if lease_us is None else self._now() + lease_us,
        )
        stored = self._list_stored(from_queue) if start == "first" else {}
        info = self._create(info)
        for id, publication in sorted(stored.items(), key=lambda item: item[0]):
            if self._wants(info, publication.message, from_queue):
                self._deliver(self._queues[name], id, publication)
        return info

    @at_once
    def keep_alive(self, name: str, lease_us: int) -> bool:
        queue = self._queues.get(name)
        if queue is not None:
            queue.info = replace(queue.info, expires_at=self._now() + lease_us)
        return queue is not None

    @at_once
    def route(self) -> int:
        self._drop_expired()
        return 0  # memory has no `inbox` view

    # -- publishing and consuming --

    @at_once
    def publish(self, queue: QueueInfo | None, publications: Sequence[Publication]) -> list[int]:
        target = None if queue is None else self._find(queue.name)
        if target is not None:
            check_is_queue(target.info)
        ids = [self._publish(target, publication) for publication in publications]
        self._notify(frozenset(queue.info.id for queue in self._queues.values()))
        return ids

    @at_once
    def claim(
        self,
        queue: QueueInfo,
        limit: int,
        lease_us: int,
        *,
        filter: Filter | None = None,
        skip: Collection[int] = (),
        acks: Sequence[Receipt] = (),
        together: bool = False,
    ) -> tuple[list[ClaimedMessage], list[Outcome]]:
        self._drop_expired()
        found = self._find(queue.name)
        outcomes = [self._settle(found, receipt, self._finish) for receipt in acks]
        if found.info.paused:
            return [], outcomes
        self._delete_expired(found)
        self._promote(found)
        bucket = self._bucket(found)
        limit = limit if bucket is None else min(limit, bucket.tokens)
        ready = [d for d in self._ready(found, filter) if d.id not in skip]
        first = list(self._not_busy(found, ready))[:limit]
        given = list(one_per_group(first))
        if together:
            given = until_doubt(given)
        doubt = int(together and len(given) > 1)
        claimed = [self._lease(delivery, lease_us, doubt) for delivery in given]
        if bucket is not None:
            found.full_at = bucket.take(len(claimed))
        return claimed, outcomes

    @at_once
    def ack(self, queue: QueueInfo, receipts: Sequence[Receipt]) -> list[Outcome]:
        found = self._find(queue.name)
        return [self._settle(found, receipt, self._finish) for receipt in receipts]

    @at_once
    def nack(
        self, queue: QueueInfo, receipts: Sequence[Receipt], delay_us: int, reason: str | None
    ) -> list[Outcome]:
        def fail(found: MemoryQueue, delivery: MemoryDelivery) -> None:
            delivery.reason = reason
            if self._used_up(found, delivery):
                delivery.state, delivery.visible_at = State.DEAD, self._now()
            else:
                delivery.state = State.DELAYED if delay_us > 0 else State.READY
                delivery.visible_at = self._now() + delay_us

        return self._settle_all(queue, receipts, fail)

    @at_once
    def bury(
        self, queue: QueueInfo, receipts: Sequence[Receipt], reason: str | None
    ) -> list[Outcome]:
        def bury(found: MemoryQueue, delivery: MemoryDelivery) -> None:
            delivery.state, delivery.visible_at = State.DEAD, self._now()
            delivery.reason = reason

        return self._settle_all(queue, receipts, bury)

    @at_once
    def extend(self, queue: QueueInfo, receipts: Sequence[Receipt], lease_us: int) -> list[Outcome]:
        def extend(found: MemoryQueue, delivery: MemoryDelivery) -> None:
            delivery.visible_at = max(delivery.visible_at, self._now() + lease_us)

        return self._settle_all(queue, receipts, extend)

    @at_once
    def release(self, queue: QueueInfo, receipts: Sequence[Receipt]) -> list[Outcome]:
        def release(found: MemoryQueue, delivery: MemoryDelivery) -> None:
            delivery.state, delivery.visible_at = State.READY, self._now()
            delivery.attempts -= 1

        return self._settle_all(queue, receipts, release)

    @at_once
    def promote(self, queue: QueueInfo) -> int:
        return self._promote(self._find(queue.name))

    @at_once
    def next_due(self, queue: QueueInfo) -> int | None:
        waiting = (State.DELAYED, State.LEASED)
        found = self._find(queue.name)
        if found.info.paused:
            return None
        bucket = self._bucket(found)
        if bucket is not None and bucket.wait_us:
            return bucket.wait_us
        due = [one.visible_at for one in found.deliveries.values() if one.state in waiting]
        return max(min(due) - self._now(), 0) if due else None

    @at_once
    def has_ready(self, queue: QueueInfo) -> bool:
        found = self._queues.get(queue.name)
        if found is None:
            return True
        return any(one.state is State.READY for one in found.deliveries.values())

    # -- browsing, deleting, requeueing --

    @at_once
    def peek(
        self, queue: QueueInfo, limit: int, filter: Filter | None = None
    ) -> list[DeliverySnapshot]:
        found = self._find(queue.name)
        return [d.snapshot() for d in self._not_busy(found, self._ready(found, filter))][:limit]

    @at_once
    def browse(
        self,
        queue: QueueInfo,
        limit: int,
        *,
        after: int = 0,
        state: State | None = None,
        filter: Filter | None = None,
    ) -> list[DeliverySnapshot]:
        found = sorted(self._find(queue.name).deliveries.values(), key=lambda d: d.id)
        chosen = [d for d in found if d.id > after and (state is None or d.state == state)]
        return [d.snapshot() for d in chosen if self._matches(filter, d.message)][:limit]

    @at_once
    def latest(
        self,
        queue: QueueInfo,
        limit: int,
        *,
        before: int = INT64_MAX,
        state: State | None = None,
    ) -> list[DeliverySnapshot]:
        found = self._find(queue.name).deliveries.values()
        chosen = [d for d in found if d.id < before and (state is None or d.state == state)]
        chosen.sort(key=lambda d: -d.id)
        return [d.snapshot() for d in chosen[:limit]]

    @at_once
    def archived(self, queue: QueueInfo, limit: int, *, after: int = 0) -> list[DeliverySnapshot]:
        found = self._find(queue.name).archive
        return [found[id] for id in sorted(found) if id > after][:limit]

    @at_once
    def purge(self, queue: QueueInfo, state: State | None = None) -> int:
        states = (State.READY, State.DELAYED) if state is None else (state,)
        return self._remove(queue, lambda delivery: delivery.state in states)

    @at_once
    def prune(self, queue: QueueInfo, older_than_us: int) -> int:
        horizon = self._clock.wall_us() - older_than_us
        archive = self._find(queue.name).archive
        old = [id for id, snapshot in archive.items() if _stamp(snapshot.message) < horizon]
        for id in old:
            del archive[id]
        return len(old) + self._remove(
            queue, lambda d: d.state != State.LEASED and _stamp(d.message) < horizon
        )

    @at_once
    def requeue(self, queue: QueueInfo, ids: Sequence[int] | None = None) -> int:
        found = self._find(queue.name)
        all = found.deliveries.values()
        dead = [d for d in all if d.state == State.DEAD and (ids is None or d.id in ids)]
        for delivery in dead:
            delivery.state, delivery.attempts, delivery.reason = State.READY, 0, None
            delivery.visible_at = self._now()
        self._notify(frozenset({found.info.id}))
        return len(dead)

    # -- statistics --

    @at_once
    def stats(self, queue: QueueInfo) -> QueueStats:
        found = self._find(queue.name)
        states = [delivery.state for delivery in found.deliveries.values()]
        ready = [d for d in found.deliveries.values() if d.state == State.READY]
        oldest = min(ready, key=lambda delivery: delivery.id, default=None)
        return QueueStats(
            found.info,
            states.count(State.READY),
            states.count(State.DELAYED),
            states.count(State.LEASED),
            states.count(State.DEAD),
            max(self._clock.wall_us() - max(_stamp(oldest.message), 0), 0) if oldest else None,
            dict(found.usage),
        )

    @at_once
    def add_usage(self, queue: QueueInfo, consumer: str, usage: Usage) -> None:
        found = self._find(queue.name)
        before = found.usage.get(consumer, Usage())
        names = [field.name for field in fields(Usage) if field.name != "filter"]
        added = {name: getattr(before, name) + getattr(usage, name) for name in names}
        found.usage[consumer] = Usage(**added, filter=usage.filter)

    @at_once
    def advise(self, queue: QueueInfo, filter: Filter) -> IndexAdvice:
        return IndexAdvice(("every READY delivery is read",), True, ())

    # -- policies --

    @at_once
    def set_rate(self, queue: QueueInfo, limit: RateLimit | None) -> QueueInfo:
        found = self._find(queue.name)
        found.rate, found.full_at = limit, 0
        self._notify(frozenset({found.info.id}))
        return found.info

    @at_once
    def rate(self, queue: QueueInfo) -> RateLimit | None:
        return self._find(queue.name).rate

    @at_once
    def ack_with_result(self, queue: QueueInfo, receipt: Receipt, value: str) -> list[Outcome]:
        found = self._find(queue.name)
        outcome = self._settle(found, receipt, self._finish)
        kept = self._results.get(receipt.id)
        if outcome is Outcome.DONE and kept is not None and kept.queue == queue.name:
            kept.value, kept.expires_at = value, self._now() + kept.keep_us
            self._notify(frozenset({RESULTS}))
        return [outcome]

    @at_once
    def result(self, id: int) -> JobResult | None:
        kept = self._results.get(id)
        if kept is None or (kept.expires_at is not None and kept.expires_at <= self._now()):
            return None
        queue = self._queues.get(kept.queue)
        delivery = None if queue is None else queue.deliveries.get(id)
        state, reason = (None, None) if delivery is None else (delivery.state, delivery.reason)
        return decode_result(kept.value, kept.expires_at is not None, state, reason)

    # -- transactions, schedules --

    def atomically(self, body: Callable[[], Operation[T]]) -> Operation[T]:
        return body()  # one operation runs at a time, whatever it consists of

    @at_once
    def schedules(self, name: str | None = None) -> tuple[list[ScheduleState], int]:
        names = sorted(self._schedules) if name is None else {name} & self._schedules.keys()
        return [self._schedules[each] for each in names], self._clock.wall_us()

    @at_once
    def due_schedules(self, limit: int) -> tuple[list[ScheduleState], int]:
        now = self._clock.wall_us()
        return [each for each in self._schedules.values() if each.next_at <= now][:limit], now

    @at_once
    def next_schedule(self) -> int | None:
        times = [each.next_at for each in self._schedules.values()]
        return max(min(times) - self._clock.wall_us(), 0) if times else None

    @at_once
    def declare_schedule(self, schedule: Schedule, next_at: int) -> None:
        state = ScheduleState(schedule=schedule, next_at=next_at)
        before = self._schedules.get(schedule.name)
        if before is not None:
            times = {(each.schedule.cron, each.schedule.timezone) for each in (state, before)}
            next_at = before.next_at if len(times) == 1 else next_at
            state = replace(before, schedule=schedule, next_at=next_at, problem=None)
        self._schedules[schedule.name] = state

    @at_once
    def note_run(self, state: ScheduleState) -> None:
        self._schedules[state.schedule.name] = state

    @at_once
    def delete_schedule(self, name: str) -> bool:
        return self._schedules.pop(name, None) is not None


class MemoryStore:
    """The queues of one memory database, which several engines can share."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.lock, self.wakers = threading.Lock(), Wakers()
        self.notified: set[int] = set()
        self.operations = MemoryOperations(clock or Clock(), self.notified.update)


class MemoryEngine:
    """Runs one operation at a time."""

    def __init__(self, store: MemoryStore | None = None, *, clock: Clock | None = None) -> None:
        self._store = store or MemoryStore(clock)
        self.operations = self._store.operations
        self._closed = False

    def run(self, operation: Operation[T]) -> T:
        try:
            with self._store.lock:
                if self._closed:
                    raise DatabaseClosed("this database was closed; connect again")
                return _result(operation)
        finally:  # also after an exception: the operation may have changed something before
            self._wake()

    def publish_one(self, queue: QueueInfo, publication: Publication) -> int:
        [id] = self.run(self.operations.publish(queue, [publication]))
        return id

    def claim(
        self,
        queue: QueueInfo,
        request: ClaimRequest,
        filter: Filter | None,
        acks: Sequence[Receipt],
    ) -> Claims:
        return self.run(request.operation(self.operations, queue, filter, acks))

    def watch(self, wake: Wake) -> CommitWatch:
        return self._store.wakers.add(wake)

    def join(
        self, line: Hashable, queue_id: Callable[[], int], wake: Callable[[], object]
    ) -> Waiter:
        return self._store.wakers.join(line, queue_id, wake)

    def close(self) -> None:
        self._closed = True

    def _wake(self) -> None:
        with self._store.lock:
            queues = frozenset(self._store.notified)
            self._store.notified.clear()
        if queues:
            self._store.wakers.wake(queues)


def _result(operation: Operation[T]) -> T:
    try:
        next(operation)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("operations on memory have no steps")


def _stamp(message: Message) -> int:
    assert message.timestamp is not None
    return message.timestamp
