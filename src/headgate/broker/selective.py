"""Deliveries of a queue whose consumers have filters: each gets the messages it matches, in their order.

A consumer without a filter may get any message. Among those that may get one, only their room and their priority decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from headgate.broker.consumer import SHARE, BrokerConsumer, ConsumerFilter, active_consumers
from headgate.broker.queue_filters import QueueFilter, QueueFilters
from headgate.broker.unmatched import UnmatchedMessages
from headgate.filters import Filter

if TYPE_CHECKING:
    from headgate.broker.lane import QueueLane
    from headgate.broker.message import QueueEntry
    from headgate.broker.queue import ClassicQueue

# Matches that are noted as delivered ahead of time, so that few deliveries wait for a commit.
NOTES: Final = 512


class SelectiveDelivery:
    """Gives the entries of a queue to consumers, some of which have filters."""

    def __init__(self, queue: ClassicQueue) -> None:
        self._queue = queue
        self._broker = queue.vhost.broker
        self.filters = QueueFilters(queue)
        self.unmatched = UnmatchedMessages(queue, self.filters)
        self._plain: list[BrokerConsumer] = []  # consumers without a filter
        self._by_filter: dict[QueueFilter, list[BrokerConsumer]] = {}
        self._turn = 0
        for consumer in queue.consumers:
            self.add(consumer, None)

    # ---- consumers

    def add(self, consumer: BrokerConsumer, filter: tuple[str, Filter] | None) -> None:
        """Begin to give entries to a consumer, those that match its filter if it has one."""
        if filter is None:
            consumer.filter = None
            self._plain.append(consumer)
            return
        text, tree = filter
        shared = self.filters.add(tree)
        consumer.filter = ConsumerFilter(text, shared)
        self._by_filter.setdefault(shared, []).append(consumer)

    def remove(self, consumer: BrokerConsumer) -> None:
        """Give nothing more to a consumer."""
        if consumer.filter is None:
            self._plain.remove(consumer)
            return
        shared = consumer.filter.shared
        self._by_filter[shared].remove(consumer)
        if not self._by_filter[shared]:
            del self._by_filter[shared]
        self.filters.remove(shared)

    # ---- deliveries

    def drain(self) -> None:
        """Give ready entries to the consumers that want them and have room for them."""
        self.filters.examine()
        self._deliver()
        self.unmatched.update(is_selective=bool(self._by_filter) and not self._plain)
        if self.filters.can_go_on:
            self._broker.dirty.add(self._queue)

    def _deliver(self) -> None:
        if self._queue.definition.single_active:
            self._give_in_turns(active_consumers(self._queue))
            return
        levels: dict[int, list[BrokerConsumer]] = {}
        for consumer in self._plain:
            levels.setdefault(consumer.priority, []).append(consumer)
        for filter in list(self.filters.hot):
            if not any(filter.found.values()):
                del self.filters.hot[filter]
                continue
            for consumer in self._by_filter.get(filter, ()):
                levels.setdefault(consumer.priority, []).append(consumer)
        for priority in sorted(levels, reverse=True):
            self._give_in_turns(levels[priority])
            if (
                self.filters.can_go_on
            ):  # these consumers may want more, before it is the turn of others
                return

    def _give_in_turns(self, consumers: Sequence[BrokerConsumer]) -> None:
        """Give to consumers of one priority, one after another, until none has room or nothing is there for it."""
        start = self._turn % max(1, len(consumers))
        self._turn += 1
        order = [*consumers[start:], *consumers[:start]]
        while order:
            # Few go round one by one, as without filters; of many, the last do.
            share = max(1, min(SHARE, len(self._queue) // (SHARE * len(order))))
            order = [consumer for consumer in order if self._give(consumer, share)]

    def _give(self, consumer: BrokerConsumer, share: int) -> int:
        room = min(consumer.room(), share)
        if room <= 0:
            return 0
        if consumer.filter is None:
            entries = self._queue.take_front(room)
        else:
            entries = self.take(consumer.filter.shared, room)
            consumer.filter.delivered += len(entries)
        if entries:
            self._queue.hand_over(consumer, entries)
        return len(entries)

    def take(self, filter: QueueFilter, most: int, *, unmarked: bool = False) -> list[QueueEntry]:
        """Take up to that many entries that match a filter, those of high priority first."""
        taken: list[QueueEntry] = []
        for lane in self._queue.lanes:
            heap = filter.found.get(lane.priority)
            while heap and len(taken) < most:
                known = len(heap)
                found = self._take_from(lane, filter, most - len(taken), unmarked)
                taken += found
                if found or len(heap) == known:  # else all of them had expired
                    break
            if heap and lane.is_waiting and not unmarked:
                break  # for a mark or a note; those of lower priority wait behind it
        return taken

    def _take_from(
        self, lane: QueueLane, filter: QueueFilter, most: int, unmarked: bool
    ) -> list[QueueEntry]:
        heap, limit = filter.found[lane.priority], self.filters.limit(filter, lane)
        interest = lane.interest
        assert interest is not None
        taken: list[QueueEntry] = []
        rows: list[int] = []  # to be read from the store
        while heap and heap[0] <= limit and len(taken) + len(rows) < most:
            position = heap[0]
            if position not in interest.wanted or position in rows[-1:]:
                heappop(heap)
                continue
            entry = interest.entries.get(position)
            if entry is not None and self._drop_if_expired(lane, entry):
                heappop(heap)
                continue
            is_stored = entry is None or entry.stored
            if is_stored and not self._note_delivery(lane, position, heap, unmarked):
                break
            heappop(heap)
            if entry is None:
                rows.append(position)
            else:
                lane.remove(entry)
                taken.append(entry)
        if rows:
            taken += self._take_rows(lane, rows, heap)
            taken.sort(key=attrgetter("position"))
        if taken:
            self._queue.drop_expired()  # what is in front now
        self._queue.ready_bytes -= sum(entry.message.body_size for entry in taken)
        return taken

    def _take_rows(self, lane: QueueLane, rows: list[int], heap: list[int]) -> list[QueueEntry]:
        """Take entries that are only in the store; those that were not read stay in the heap."""
        entries = lane.read_gap(rows)
        for entry in entries:
            lane.remove_row(entry)
        for position in set(rows).difference(entry.position for entry in entries):
            heappush(heap, position)
        now = self._broker.now()
        expired = [e for e in entries if e.expires is not None and e.expires <= now]
        for entry in expired:
            self._queue.ready_bytes -= entry.message.body_size
            self._queue.discard(entry, "expired")
        return [entry for entry in entries if entry not in expired] if expired else entries

    def _drop_if_expired(self, lane: QueueLane, entry: QueueEntry) -> bool:
        if entry.expires is None or entry.expires > self._broker.now():
            return False
        lane.remove(entry)
        self._queue.ready_bytes -= entry.message.body_size
        self._queue.discard(entry, "expired")
        return True

    def _note_delivery(
        self, lane: QueueLane, position: int, heap: list[int], unmarked: bool
    ) -> bool:
        """Note that a stored entry may have been delivered; False if it must wait until the note is durable."""
        lane.unused_notes.discard(position)
        if position in lane.noted or position <= max(lane.wanted, lane.crashed_at):
            return True
        self._broker.touched.add(lane)
        # A mark that runs ahead says enough after a crash, and a row that is not stored yet is stored with the note.
        if unmarked or position <= lane.marked or position > lane.cut:
            lane.note((position,))
            return True
        interest = lane.interest
        assert interest is not None
        ahead = [p for p in heap[:NOTES] if p in interest.wanted and lane.marked < p <= lane.cut]
        ahead = [p for p in ahead if p not in lane.noted]
        lane.note(ahead)
        entries = interest.entries
        lane.unused_notes.update(p for p in ahead if p not in entries or not entries[p].redelivered)
        lane.is_waiting = True
        return False
