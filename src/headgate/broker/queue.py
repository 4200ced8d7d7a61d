"""A classic or quorum queue: messages in, entries out to consumers, limits, expiry, dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from headgate.broker.browsers import QueueBrowsers
from headgate.broker.consumer import BrokerConsumer, ConsumerTurns, active_consumers
from headgate.broker.consumer_filters import ConsumerFilters
from headgate.broker.contract import BrokerQueue
from headgate.broker.lane import QueueLane, free_entries
from headgate.broker.message import BrokerMessage, QueueEntry
from headgate.broker.queue_definition import QueueDefinition
from headgate.broker.queue_expiry import UnusedWatch
from headgate.broker.queue_limits import deliver_first, drop_paged_out, has_space, is_over_limits
from headgate.broker.records import make_record
from headgate.broker.redelivery import QuorumRedelivery
from headgate.broker.refusals import AccessRefused, ResourceLocked
from headgate.store import LaneFacts

if TYPE_CHECKING:
    from headgate.broker.vhost import VirtualHost

# The most bytes, before it is known whether the client reads them.
GIVEN_BYTES: Final = 1 << 20


class ClassicQueue(BrokerQueue):
    """A classic or a quorum queue: each entry goes to one consumer, and is gone when it is settled."""

    def __init__(
        self,
        vhost: VirtualHost,
        name: str,
        definition: QueueDefinition,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        owner: object | None = None,
        arguments: Mapping[str, Any] | None = None,
        first_lane: int = 0,
    ) -> None:
        super().__init__(
            vhost,
            name,
            durable=durable,
            auto_delete=auto_delete,
            owner=owner,
            arguments=arguments,
        )
        self._levels: list[list[BrokerConsumer]] = []  # by priority, the highest first
        self.first_lane = first_lane
        self._broker, self._store = vhost.broker, vhost.broker.store
        self._lanes: dict[int, QueueLane] = {}  # by priority, the highest first
        self._next_position = self._first_position = 1
        self._turns = ConsumerTurns()
        self.is_draining = False
        self.waiting = 0  # messages that wait for the delay before their next delivery
        self._expiry_armed: int | None = None
        self._watch = UnusedWatch(self)
        self._consumer_filters = ConsumerFilters(self)
        self._redelivery = QuorumRedelivery(self)
        self._browsers: QueueBrowsers | None = None  # since the first consumer that browses
        self.redefine(definition)

    def __len__(self) -> int:
        """How many messages are ready."""
        return sum(map(len, self._lanes.values())) if self._many else len(self._lane)

    def redefine(self, definition: QueueDefinition) -> None:
        """Let another definition take effect."""
        self.definition = definition
        self._plain = definition.is_plain
        self._many = bool(definition.max_priority) or definition.type == "quorum"
        self._lane = self._lane_of(0)
        self._watch.begin(definition.expires)
        self._consumer_filters.redefine(definition.filter)
        self.enforce_limits()

    @property
    def published(self) -> int:
        return self._next_position - self._first_position

    # ---- messages in

    def publish(self, message: BrokerMessage, body_id: int | None = None) -> bool:
        """Take a message; False if the queue is full and refuses more."""
        lane, expires = self._lane, None
        if not self._plain or message.expiration is not None:
            if not has_space(self, message):
                return False
            lane = self._lane_of(self.definition.level_of(message.priority))
            expires = self._expires(message)
            if expires == self._broker.now() and self._consumer_filters.can_deliver(message):
                expires = None  # an expiration of 0: it is delivered at once, or not at all
        entry = QueueEntry(self._next_position, message, lane.priority, expires)
        self._next_position += 1
        if (self.durable and message.persistent) or lane.must_page:
            entry.body_id = body_id
            self._write(lane, entry)
        lane.push(entry)
        if self.selection is not None:
            self.selection.filters.published(lane, entry)
        self.ready_bytes += message.body_size
        self._broker.dirty.add(self)
        if not self._plain or expires is not None:
            if is_over_limits(self):
                deliver_first(self)
                self.enforce_limits()
            if expires is not None:
                self.arm_expiry()
        return True

    def settle_at_once(self, entries: Iterable[QueueEntry]) -> None:
        """Delete entries that were sent to a consumer that acknowledges nothing."""
        for entry in entries:
            if entry.stored:
                self._delete(entry)

    def ack(self, entry: QueueEntry) -> None:
        self.unacked -= 1
        if entry.stored:
            self._delete(entry)
        self._broker.dirty.add(self)

    def reject(self, entry: QueueEntry) -> None:
        """Make a dead letter of an entry that its consumer discards, or delete it."""
        self.unacked -= 1
        self.traffic.reject += 1
        self.discard(entry, "rejected")
        self._broker.dirty.add(self)

    def requeue(self, entries: Sequence[QueueEntry], *, failed: bool = True) -> None:
        """Take entries back to their old positions."""
        self.unacked -= len(entries)
        self.traffic.requeue += len(entries)
        for entry in sorted(entries, reverse=True):
            entry.redelivered = True
            if self.definition.type != "quorum" or self._redelivery.accepts(entry, failed):
                self.give_back(entry)
        self.enforce_limits()
        self.arm_expiry()
        self._broker.dirty.add(self)

    def give_back(self, entry: QueueEntry) -> None:
        """Make an entry ready again at its old position."""
        self._lanes[entry.lane].give_back(entry)
        self.ready_bytes += entry.message.body_size

    def give_back_late(self, entry: QueueEntry) -> None:
        """Make an entry ready again after its delay."""
        self.waiting -= 1
        if not self.is_deleted:
            self.give_back(entry)
            self.enforce_limits()
            self.arm_expiry()
            self._broker.dirty.add(self)

    # ---- messages out

    def drain(self) -> None:
        """Give ready entries to the consumers that have room for them; those that browse see them first."""
        self.is_draining = True
        try:
            self._drain()
        finally:
            self.is_draining = False

    def _drain(self) -> None:
        if self._browsers is not None:
            self._browsers.drain()
        if not self.consumers:
            if self.selection is not None:
                self.selection.unmatched.update(is_selective=False)
            return
        if self._expiry_armed is not None:
            self.drop_expired()
        if self.selection is not None:
            self.selection.drain()
            return
        if len(self.consumers) == 1 or self.definition.single_active:
            for consumer in active_consumers(self):
                while self._give(consumer, consumer.room()):
                    pass
            return
        for consumers in self._levels:
            self._give_in_turns(consumers)

    def _give_in_turns(self, consumers: list[BrokerConsumer]) -> None:
        """Give to consumers of one priority, an entry to each in turn, until none has room or nothing is ready."""
        while count := len(self):
            takers, rounds = self._turns.next_takers(consumers, count)
            if not takers:
                return
            wanted = min(rounds, count // len(takers)) * len(takers)
            entries = self.take_front(wanted)
            for first, consumer in enumerate(takers[: len(entries)]):
                self.hand_over(consumer, entries[first :: len(takers)])
            if len(entries) < wanted:
                self._turns.go_on_with(takers[len(entries) % len(takers)], consumers)
            if not entries:
                return  # what is next must wait for its mark

    def get(self) -> QueueEntry | None:
        """Take one entry, not for a consumer."""
        if self.definition.single_active and self.definition.type == "quorum":
            raise ResourceLocked(self.name, self.vhost.name, for_one_consumer=True)
        self.note_use()
        self.drop_expired()
        self._broker.dirty.add(self)
        entries = self._consumer_filters.take_one()
        if not entries:
            self.traffic.get_empty += 1
            return None
        self.unacked += 1
        self.traffic.get += 1
        self.traffic.redeliver += entries[0].redelivered
        self.drop_expired()  # what stood behind it
        return entries[0]

    def purge(self) -> int:
        """Delete all ready entries; return how many there were."""
        count = len(self)
        for lane in self._lanes.values():
            self._broker.take_steps(free_entries(lane.clear()))
        self.ready_bytes = 0
        self._broker.dirty.add(self)
        return count

    def delete(self) -> int:
        """Delete the queue's messages and cancel its consumers; return how many messages were ready."""
        count = len(self)
        self.is_deleted = True
        if self._browsers is not None:
            self._browsers.cancel()
        for consumer in self.consumers:
            consumer.notify_cancel()
        self.consumers.clear()
        self._levels.clear()
        for lane in self._lanes.values():
            self._broker.take_steps(free_entries(lane.clear()))
            if lane.number:  # also what was delivered and not acknowledged
                self._store.clear(lane.number)
        return count

    def close(self) -> None:
        """Do nothing: all files belong to the store."""

    # ---- consumers

    def add_consumer(self, consumer: BrokerConsumer) -> None:
        if consumer.browses:
            self._browsers = self._browsers or QueueBrowsers(self)
            self._browsers.add(consumer)
            return
        is_shared = bool(self.consumers) or (
            self.definition.single_active and self.definition.type == "classic"
        )
        if (consumer.exclusive and is_shared) or any(c.exclusive for c in self.consumers):
            where = f"queue '{self.name}' in vhost '{self.vhost.name}'"
            raise AccessRefused(f"{where} in exclusive use")
        self._consumer_filters.add(consumer)
        self.consumers.append(consumer)
        if self.definition.single_active:  # the active one stays, and the others wait by priority
            self.consumers[1:] = sorted(self.consumers[1:], key=lambda c: -c.priority)
        self._add_to_level(consumer)
        self.note_use()
        self._broker.dirty.add(self)

    def remove_consumer(self, consumer: BrokerConsumer) -> None:
        if consumer.browses and self._browsers is not None:
            self._browsers.remove(consumer)
        if consumer not in self.consumers:
            return
        self.consumers.remove(consumer)
        self._consumer_filters.remove(consumer)
        next(level for level in self._levels if consumer in level).remove(consumer)
        self._levels = [level for level in self._levels if level]
        self.note_use()
        if self.auto_delete and not self.consumers:
            self.vhost.delete_queue(self)
        else:
            self._broker.dirty.add(self)

    def _add_to_level(self, consumer: BrokerConsumer) -> None:
        levels = {level[0].priority: level for level in self._levels}
        levels.setdefault(consumer.priority, []).append(consumer)
        self._levels = [levels[priority] for priority in sorted(levels, reverse=True)]

    def note_use(self) -> None:
        """Note that the queue is in use: an unused one may expire."""
        self._watch.note_use()

    # ---- filters

    @property
    def last_position(self) -> int:
        """The position of the last message that was published."""
        return self._next_position - 1

    def set_filter(self, consumer: BrokerConsumer, text: str | None) -> None:
        """Give a consumer another filter, or none; no message is lost or delivered twice by the change."""
        self._consumer_filters.change(consumer, text)
        self._broker.dirty.add(self)

    # ---- restart

    @property
    def lanes(self) -> Iterable[QueueLane]:
        return self._lanes.values()

    def restore(
        self, priority: int, facts: LaneFacts, mark: int, notes: Sequence[int] = ()
    ) -> None:
        """Take over the rows of a lane that an earlier run stored."""
        lane, last = self._lane_of(priority), facts.last
        lane.restore(facts.rows, last, mark, notes)
        self.ready_bytes += facts.body_bytes
        self._next_position = max(self._next_position, last + 1, mark + 1)
        self._first_position = self._next_position
        drop_paged_out(self)
        if self.selection is not None:
            self.selection.filters.examine_again()
        self.arm_expiry()

    # ---- expiry

    def drop_expired(self) -> None:
        """Discard the entries at the front whose time is over; those behind them wait for their turn."""
        for lane in self._lanes.values():
            self._drop_expired_of(lane)

    def _drop_expired_of(self, lane: QueueLane) -> None:
        while (entry := lane.peek()) and entry.expires is not None:
            if entry.expires > self._broker.now():
                break
            self.discard(self._pop(lane), "expired")

    def _expires(self, message: BrokerMessage) -> int | None:
        times = [t for t in (message.expiration, self.definition.message_ttl) if t is not None]
        return self._broker.now() + min(times) if times else None

    def arm_expiry(self) -> None:
        """Set the timer for the next entry at the front that expires."""
        fronts = [lane.peek() for lane in self._lanes.values()]
        due = min((e.expires for e in fronts if e and e.expires is not None), default=None)
        if due is not None and (self._expiry_armed is None or due < self._expiry_armed):
            self._expiry_armed = due
            self._broker.call_at(due, self._expiry_due)

    def _expiry_due(self) -> None:
        if self.is_deleted:
            return
        self._expiry_armed = None
        self._broker.dirty.add(self)
        self.drop_expired()
        self.arm_expiry()

    # ---- limits

    def enforce_limits(self) -> None:
        """Drop entries from the front until the limits hold; with priorities, those that would be delivered next."""
        if is_over_limits(self):
            drop_paged_out(self)
        if self.definition.overflow == "drop-head":
            while len(self) and is_over_limits(self):
                self.discard(self._pop(self._foremost()), "maxlen")

    # ---- inside

    def _lane_of(self, level: int) -> QueueLane:
        lane = self._lanes.get(level)
        if lane is None:
            broker = self._broker
            number = self.first_lane + level if self.first_lane else 0
            bounds = broker.bound, broker.bound_bytes
            lane = QueueLane(self, number, level, broker.store, broker.codec.decode, *bounds)
            self._lanes[level] = lane
            if self.selection is not None:
                self.selection.filters.track(lane)
            self._lanes = dict(sorted(self._lanes.items(), reverse=True))
        return lane

    def _foremost(self) -> QueueLane:
        """The lane of the highest priority that holds something."""
        return next(lane for lane in self._lanes.values() if len(lane))

    def _pop(self, lane: QueueLane) -> QueueEntry:
        entry = lane.take()
        self.ready_bytes -= entry.message.body_size
        return entry

    def _write(self, lane: QueueLane, entry: QueueEntry) -> None:
        if not lane.number:  # of a queue that is not durable, and became long
            lane.number = self._broker.new_lanes(1)
        head, body = entry.message.parts()
        record = make_record(entry, head, body if entry.body_id is None else b"")
        self._store.append(lane.number, entry.position, record, entry.body_id)
        entry.stored = True
        lane.written = entry.position
        self._broker.touched.add(lane)

    def _give(self, consumer: BrokerConsumer, most: int) -> int:
        if most <= 0:
            return 0
        entries = self.take_front(most)
        if entries:
            self.hand_over(consumer, entries)
        return len(entries)

    def hand_over(self, consumer: BrokerConsumer, entries: list[QueueEntry]) -> None:
        """Deliver entries that were taken to a consumer."""
        traffic = self.traffic
        if traffic.requeue > traffic.redeliver:
            traffic.redeliver += sum(entry.redelivered for entry in entries)
        if consumer.no_ack:
            traffic.deliver_no_ack += len(entries)
            consumer.deliver(entries)
            self.settle_at_once(entries)
        else:
            traffic.deliver += len(entries)
            self.unacked += len(entries)
            consumer.deliver(entries)

    def take_front(self, most: int, unmarked: bool = False) -> list[QueueEntry]:
        """Remove up to that many entries from the front, those of high priority first."""
        taken: list[QueueEntry] = []
        for lane in self._lanes.values() if self._many else (self._lane,):
            if self._take_from(lane, most - len(taken), taken, unmarked) or len(taken) >= most:
                break
            if lane.is_waiting and not unmarked:
                break  # for its mark; those of lower priority wait behind it
        return taken

    def _take_from(
        self, lane: QueueLane, most: int, taken: list[QueueEntry], unmarked: bool
    ) -> bool:
        """Take entries from the front of a lane; True where that is enough for now, because they are large."""
        if lane.is_tracked:
            self._take_singly(lane, most, taken, unmarked)
            return False
        head, size = lane.head, 0
        for left in range(most, 0, -1):
            entry = head[0] if head and not lane.returned else lane.peek()
            if entry is not None and entry.expires is not None:
                self._take_singly(lane, left, taken, unmarked)
                break
            if entry is None or (entry.stored and not self._note_delivery(lane, entry, unmarked)):
                break
            taken.append(lane.take() if lane.returned else lane.head.popleft())
            size += entry.message.body_size
            if size > GIVEN_BYTES:
                break
            head = lane.head  # which a new page may have replaced
        self.ready_bytes -= size
        return size > GIVEN_BYTES

    def _take_singly(
        self, lane: QueueLane, most: int, taken: list[QueueEntry], unmarked: bool
    ) -> None:
        """Take entries from the front of a lane in which some expire, or filters look for some as well."""
        for _ in range(most):
            self._drop_expired_of(lane)
            entry = lane.peek()
            if entry is None or (entry.stored and not self._note_delivery(lane, entry, unmarked)):
                break
            taken.append(self._pop(lane))
        self._drop_expired_of(lane)
        self.arm_expiry()

    def _note_delivery(self, lane: QueueLane, entry: QueueEntry, unmarked: bool) -> bool:
        """Note that an entry may have been delivered; False if it must wait until the note is durable."""
        if not unmarked and not lane.may_deliver(entry.position):
            self._broker.want_mark(lane, entry.position)
            return False
        if entry.position > lane.wanted:
            lane.wanted = entry.position
            self._broker.touched.add(lane)
            if unmarked and lane.marking < lane.wanted:
                self._broker.write_mark(lane)
        return True

    def discard(self, entry: QueueEntry, reason: str) -> None:
        """Make a dead letter of an entry that is out of the lanes, and delete it."""
        if self.definition.dead_letter_exchange is not None:
            self.vhost.dead_letter(self, entry.message, reason)
        self.drop(entry)

    def drop(self, entry: QueueEntry) -> None:
        """Delete an entry that is out of the lanes."""
        if entry.stored:
            self._delete(entry)

    def _delete(self, entry: QueueEntry) -> None:
        """Delete the row of an entry that is out of the lanes."""
        lane = self._lanes[entry.lane]
        lane.delete(entry)
        if lane.closed:
            self._broker.touched.add(lane)
