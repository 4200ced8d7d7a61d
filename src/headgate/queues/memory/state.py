"""The queues of the in-memory engine, and the rules by which deliveries change their state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from headgate.checks import nearest
from headgate.clock import Clock
from headgate.errors import QueueNotFound, QueueOptionsError
from headgate.filters import Filter, parse_stored
from headgate.filters.compile import compile_predicate
from headgate.message import Message
from headgate.queues.engine import (
    ClaimedMessage,
    DeliverySnapshot,
    Outcome,
    Publication,
    QueueInfo,
    QueueOptions,
    RateLimit,
    Receipt,
    ScheduleState,
    State,
    Usage,
)
from headgate.queues.policies import Bucket
from headgate.queues.sql.declare import check_is_subscription, source_missing
from headgate.queues.sql.search import IN_DOUBT


@dataclass(slots=True)
class MemoryDelivery:
    id: int
    message: Message
    state: State
    visible_at: int
    rank: int
    group: str | None
    token: int = 0
    attempts: int = 0
    doubt: int = 0  # as in 0006_doubt.sql
    expires_at: int | None = None
    reason: str | None = None

    def snapshot(self) -> DeliverySnapshot:
        return DeliverySnapshot(
            self.id, self.state, self.attempts, self.visible_at, self.message, self.group, self.reason
        )  # fmt: skip


@dataclass(slots=True)
class MemoryQueue:
    info: QueueInfo
    deliveries: dict[int, MemoryDelivery]
    seen: dict[str, tuple[int, int]]  # dedup key -> id, until when
    archive: dict[int, DeliverySnapshot]
    usage: dict[str, Usage]
    unique: dict[str, int] = field(default_factory=dict)  # key -> id
    rate: RateLimit | None = None
    full_at: int = 0  # when the bucket of the rate is full again


@dataclass(slots=True)
class MemoryResult:
    queue: str
    keep_us: int
    value: str | None = None
    expires_at: int | None = None  # None: there is no value yet


class MemoryState:
    """All queues and deliveries."""

    def __init__(self, clock: Clock, notify: Callable[[frozenset[int]], None]) -> None:
        self._clock, self._notify = clock, notify
        self._queues: dict[str, MemoryQueue] = {}
        self._schedules: dict[str, ScheduleState] = {}
        self._results: dict[int, MemoryResult] = {}
        self._last_queue = self._last_message = 0

    def _now(self) -> int:
        return self._clock.elapsed_us()

    def _find(self, name: str) -> MemoryQueue:
        queue = self._queues.get(name)
        if queue is None:
            raise QueueNotFound(name, nearest(name, self._queues))
        return queue

    def _create(self, info: QueueInfo) -> QueueInfo:
        self._last_queue += 1
        info = replace(info, id=self._last_queue, indexed=info.options.filter_headers)
        self._queues[info.name] = MemoryQueue(info, {}, {}, {}, {})
        return info

    def _change(self, name: str, options: QueueOptions | None) -> QueueInfo:
        queue = self._queues[name]
        if options is not None:
            kept = queue.info.options.filter_headers
            added = [header for header in options.filter_headers if header not in kept]
            options = replace(options, filter_headers=(*kept, *added))
            queue.info = replace(queue.info, options=options, indexed=options.filter_headers)
        return queue.info

    def _change_filter(
        self, name: str, text: str, source: int | None, options: QueueOptions | None
    ) -> QueueInfo:
        queue = self._queues[name]
        check_is_subscription(queue.info)
        if source is None and queue.info.source is not None:
            names = {q.info.id: q.info.name for q in self._queues.values()}
            raise source_missing(name, names.get(queue.info.source))
        if (queue.info.filter, queue.info.source) != (text, source):
            version = queue.info.version + 1
            queue.info = replace(queue.info, filter=text, source=source, version=version)
        return self._change(name, options)

    def _drop_expired(self) -> None:
        for queue in list(self._queues.values()):
            if queue.info.expires_at is not None and queue.info.expires_at <= self._now():
                del self._queues[queue.info.name]

    def _publish(self, target: MemoryQueue | None, publication: Publication) -> int:
        key, unique = publication.dedup_key, publication.unique
        if target is None and (unique is not None or publication.result_us is not None):
            raise QueueOptionsError("unique and result belong to a queue; publish to one")
        if target is not None and unique is not None:
            pending = target.deliveries.get(target.unique.get(unique, 0))
            if pending is not None and pending.state != State.DEAD:
                return pending.id
        if target is not None and key is not None:
            id, until = target.seen.get(key, (0, 0))
            if until > self._now():
                return id
        source = None if target is None else target.info.id
        receivers = [] if target is None else [target]
        receivers += [
            q for q in self._queues.values() if self._wants(q.info, publication.message, source)
        ]
        if not receivers:
            return 0
        self._last_message += 1
        for queue in receivers:
            self._deliver(queue, self._last_message, publication)
        if target is not None and key is not None:
            until = self._now() + target.info.options.dedup_window_us
            target.seen[key] = (self._last_message, until)
        if target is not None and unique is not None:
            target.unique[unique] = self._last_message
        if target is not None and publication.result_us is not None:
            kept = MemoryResult(target.info.name, publication.result_us)
            self._results[self._last_message] = kept
        return self._last_message

    def _wants(self, info: QueueInfo, message: Message, source: int | None) -> bool:
        if info.kind == "queue" or info.source not in (None, source):
            return False
        return compile_predicate(parse_stored(info.filter), self._clock.wall_us)(message)

    def _deliver(self, queue: MemoryQueue, id: int, publication: Publication) -> None:
        message = publication.message
        queue.deliveries[id] = MemoryDelivery(
            id,
            _add_timestamp(message, self._clock.wall_us()),
            State.DELAYED if publication.delay_us > 0 else State.READY,
            self._now() + publication.delay_us,
            0 if queue.info.kind == "push" else -message.priority,
            publication.group,
            expires_at=None if publication.ttl_us is None else self._now() + publication.ttl_us,
        )

    def _list_stored(self, source: int | None) -> dict[int, Publication]:
        """The stored messages that have not expired with their groups, the rest of their time to live, and the rest of their
        delay: 0 if one of their deliveries is not delayed."""
        found: dict[int, Publication] = {}
        for queue in self._queues.values():
            for delivery in queue.deliveries.values() if source in (None, queue.info.id) else ():
                ends = delivery.expires_at
                ttl_us = None if ends is None else ends - self._now()
                if ttl_us is not None and ttl_us <= 0:
                    continue
                waits = delivery.state == State.DELAYED and not delivery.attempts
                delay_us = max(delivery.visible_at - self._now(), 0) if waits else 0
                before = found.get(delivery.id)
                least = delay_us if before is None else min(delay_us, before.delay_us)
                found[delivery.id] = Publication(
                    delivery.message, least, None, delivery.group, ttl_us
                )
        return found

    def _matches(self, filter: Filter | None, message: Message) -> bool:
        return filter is None or compile_predicate(filter, self._clock.wall_us)(message)

    def _ready(self, queue: MemoryQueue, filter: Filter | None) -> list[MemoryDelivery]:
        """The READY deliveries that match, in the order of the queue."""
        ready = [d for d in queue.deliveries.values() if d.state == State.READY]
        matching = [d for d in ready if self._matches(filter, d.message)]
        return sorted(matching, key=lambda delivery: (delivery.rank, delivery.id))

    def _not_busy(
        self, queue: MemoryQueue, deliveries: Iterable[MemoryDelivery]
    ) -> Iterator[MemoryDelivery]:
        busy = {
            d.group
            for d in queue.deliveries.values()
            if d.state == State.LEASED or (d.state == State.DELAYED and d.attempts > 0)
        } - {None}
        return (delivery for delivery in deliveries if delivery.group not in busy)

    def _lease(self, delivery: MemoryDelivery, lease_us: int, doubt: int) -> ClaimedMessage:
        delivery.state, delivery.visible_at = State.LEASED, self._now() + lease_us
        delivery.token += 1
        delivery.attempts += 1
        delivery.doubt = max(delivery.doubt & IN_DOUBT, doubt)
        message = replace(delivery.message)  # the consumer may change it
        return ClaimedMessage(
            delivery.id, delivery.token, delivery.attempts, message, delivery.group
        )

    def _used_up(self, queue: MemoryQueue, delivery: MemoryDelivery) -> bool:
        return 0 < queue.info.options.max_attempts <= delivery.attempts

    def _bucket(self, queue: MemoryQueue) -> Bucket | None:
        return None if queue.rate is None else Bucket(queue.rate, queue.full_at, self._now())

    def _delete_expired(self, queue: MemoryQueue) -> None:
        for delivery in list(queue.deliveries.values()):
            ends, now = delivery.expires_at, self._now()
            if ends is None or ends > now:
                continue
            given_up = delivery.state == State.LEASED and delivery.visible_at <= now
            retried = given_up and (delivery.doubt == 1 or not self._used_up(queue, delivery))
            if retried or delivery.state < State.LEASED:
                del queue.deliveries[delivery.id]

    def _promote(self, queue: MemoryQueue) -> int:
        now, count = self._now(), 0
        for delivery in queue.deliveries.values():
            if delivery.state in (State.DELAYED, State.LEASED) and delivery.visible_at <= now:
                ended = delivery.state == State.LEASED
                delivery.state = State.READY
                if ended and delivery.doubt == 1:
                    delivery.attempts, delivery.doubt = delivery.attempts - 1, IN_DOUBT
                elif ended and self._used_up(queue, delivery):
                    delivery.state = State.DEAD
                    delivery.reason = f"the lease ended after attempt {delivery.attempts}"
                delivery.visible_at = now if ended else delivery.visible_at
                count += 1
        if count:
            self._notify(frozenset({queue.info.id}))
        return count

    def _settle(
        self,
        queue: MemoryQueue,
        receipt: Receipt,
        act: Callable[[MemoryQueue, MemoryDelivery], None],
    ) -> Outcome:
        delivery = queue.deliveries.get(receipt.id)
        if delivery is None:
            return Outcome.GONE
        if delivery.state != State.LEASED or delivery.token != receipt.token:
            return Outcome.STALE
        act(queue, delivery)
        return Outcome.DONE

    def _settle_all(
        self,
        queue: QueueInfo,
        receipts: Sequence[Receipt],
        act: Callable[[MemoryQueue, MemoryDelivery], None],
    ) -> list[Outcome]:
        found = self._find(queue.name)
        outcomes = [self._settle(found, receipt, act) for receipt in receipts]
        self._notify(frozenset({found.info.id}))
        return outcomes

    def _finish(self, queue: MemoryQueue, delivery: MemoryDelivery) -> None:
        del queue.deliveries[delivery.id]
        if delivery.group is not None:  # its next message can be claimed
            self._notify(frozenset({queue.info.id}))
        if queue.info.options.archive:
            snapshot = replace(delivery.snapshot(), state=State.READY, visible_at=self._now())
            queue.archive[delivery.id] = snapshot

    def _remove(self, queue: QueueInfo, is_deleted: Callable[[MemoryDelivery], bool]) -> int:
        deliveries = self._find(queue.name).deliveries
        ids = [delivery.id for delivery in deliveries.values() if is_deleted(delivery)]
        for id in ids:
            del deliveries[id]
        return len(ids)


def _add_timestamp(message: Message, now_us: int) -> Message:
    """The message as every engine returns it: with a timestamp, without headers that are None."""
    return Message(
        bytes(message.payload),
        message.topic,
        {name: value for name, value in message.headers.items() if value is not None},
        message.priority,
        now_us if message.timestamp is None else message.timestamp,
        message.id,
        message.filter_value,
        message.key,
        {name: value for name, value in message.properties.items() if value is not None},
    )


def one_per_group(deliveries: Iterable[MemoryDelivery]) -> Iterator[MemoryDelivery]:
    """The first delivery of each group, and all without a group."""
    taken: set[str] = set()
    for delivery in deliveries:
        if delivery.group is None or delivery.group not in taken:
            taken |= set() if delivery.group is None else {delivery.group}
            yield delivery


def until_doubt(deliveries: list[MemoryDelivery]) -> list[MemoryDelivery]:
    """The deliveries before the first in doubt, or that one alone."""
    at = next((at for at, one in enumerate(deliveries) if one.doubt == IN_DOUBT), len(deliveries))
    return deliveries[: max(at, 1)]
