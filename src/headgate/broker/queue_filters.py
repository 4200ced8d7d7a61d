"""The filters of a queue's consumers: which ready messages each of them matches.

Filters that have examined the whole queue are in one group, and a new message is matched against all of them at once. A
filter that arrives later has a backlog to examine; those that are equally far are in one group, too, so that the backlog
is read once for all of them. A group that catches up with another joins it.

Long work is cut into slices: what is not examined when a slice ends, is examined in a later turn of the broker.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from heapq import heapify, heappush
from itertools import islice
from operator import attrgetter
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from headgate.broker.interest import LaneInterest
from headgate.broker.message import READY
from headgate.filters import Filter
from headgate.matching import Matcher

if TYPE_CHECKING:
    from headgate.broker.lane import QueueLane
    from headgate.broker.message import BrokerMessage, QueueEntry
    from headgate.broker.queue import ClassicQueue

MOST_FOUND: Final = 65_536  # matching positions that a filter remembers of a lane; it examines no more until they are fewer
MOST_COUNTED: Final = 1_000  # positions that are looked up one by one to count them
ROWS: Final = 64  # messages that are examined between two looks at the group's limits
NO_LIMIT: Final = 1 << 62


class QueueFilter:
    """One distinct filter of a queue, which any number of its consumers have."""

    __slots__ = ("_examined", "_seconds", "found", "group", "is_default", "matched", "tree", "users")  # fmt: skip

    def __init__(self, tree: Filter) -> None:
        self.tree = tree
        self.users = 0
        self.is_default = False  # the queue's own, which needs no consumer to stay
        self.found: dict[int, list[int]] = {}  # matching positions: a heap for each lane
        self.matched = 0
        self._examined, self._seconds = 0, 0.0
        self.group = FilterGroup()

    @property
    def examined(self) -> int:
        """How many messages it was asked about."""
        return self._examined + self.group.examined

    @property
    def seconds(self) -> float:
        """The time that this took; filters that are asked together have equal parts of it."""
        return self._seconds + self.group.seconds

    def join(self, group: FilterGroup) -> None:
        """Move to another group of filters."""
        self._examined, self._seconds = (
            self.examined - group.examined,
            self.seconds - group.seconds,
        )
        self.group.remove(self)
        self.group = group
        group.filters[self] = None
        group.matcher.add(self, self.tree)

    def is_full(self, share: int = 1) -> bool:
        """Whether it remembers as many matches as it may, or that number divided by `share`, and some can be delivered."""
        return any(
            len(heap) * share > MOST_FOUND and heap[0] <= self.group.limit(level)
            for level, heap in self.found.items()
        )


class FilterGroup:
    """Filters that have examined a queue equally far, and the position in each lane up to which they have."""

    __slots__ = ("cursors", "examined", "filters", "is_current", "listed", "matcher", "seconds")

    def __init__(self, *, is_current: bool = False) -> None:
        self.is_current = is_current  # whether they have examined everything
        self.filters: dict[QueueFilter, None] = {}
        self.matcher: Matcher[QueueFilter] = Matcher()
        self.cursors: dict[int, int] = {}
        self.examined, self.seconds = 0, 0.0  # the time by the number of filters
        self.listed: tuple[QueueLane, list[QueueEntry]] | None = None  # entries still to examine

    @property
    def is_held(self) -> bool:
        """Whether the group is one filter that remembers too many matches to examine more: half of them must be taken first."""
        return len(self.filters) == 1 and next(iter(self.filters)).is_full(2)

    def remove(self, filter: QueueFilter) -> None:
        if filter in self.filters:
            del self.filters[filter]
            self.matcher.remove(filter, filter.tree)

    def match(self, message: BrokerMessage) -> frozenset[QueueFilter]:
        """The filters that match a message."""
        self.examined += 1
        found = self.matcher.find(message.seen_by_filters())
        return frozenset(found) if found else NONE

    def took(self, began: float) -> None:
        self.seconds += (perf_counter() - began) / (len(self.filters) or 1)

    def limit(self, level: int) -> int:
        """The position in a lane up to which the filters of the group have examined everything."""
        return NO_LIMIT if self.is_current else self.cursors.get(level, -1)

    def cursor(self, lane: QueueLane) -> int:
        return self.cursors.get(lane.priority, -1)

    def next_entries(self, lane: QueueLane) -> list[QueueEntry] | None:
        """The next entries that are in memory in front of the gap; None if the gap is next."""
        cursor = self.cursor(lane)
        if self.listed is None or self.listed[0] is not lane:
            in_head = bool(lane.head) and lane.head[-1].position > cursor
            entries = lane.list_behind(cursor)
            if entries is None or not in_head:  # entries of the tail may leave memory
                return entries
            self.listed = lane, entries
        entries = self.listed[1]
        at = bisect_right(entries, cursor, key=attrgetter("position"))
        if at + ROWS >= len(entries):
            self.listed = None
        return entries[at : at + ROWS]


NONE: Final[frozenset[QueueFilter]] = frozenset()


class QueueFilters:
    """All filters of one queue."""

    def __init__(self, queue: ClassicQueue) -> None:
        self.queue = queue
        self._broker = queue.vhost.broker
        self._filters: dict[Filter, QueueFilter] = {}
        self._current = FilterGroup(is_current=True)
        self._behind: list[FilterGroup] = []
        self._turn = 0
        self._is_scheduled = False  # to go on in a later turn
        self.hot: dict[QueueFilter, None] = {}  # filters that know of a match
        for lane in queue.lanes:
            self.track(lane)

    def __bool__(self) -> bool:
        return bool(self._filters)

    @property
    def is_examining(self) -> bool:
        """Whether some filter has not examined all messages."""
        return bool(self._behind) or any(lane.interest.fresh for lane in self.queue.lanes)  # type: ignore[union-attr]

    @property
    def can_go_on(self) -> bool:
        """Whether a filter that had too many matches to examine more has fewer now."""
        if self._is_scheduled:
            return False
        return any(not group.is_held for group in self._behind)

    def track(self, lane: QueueLane) -> None:
        """Begin to keep what filters want of a lane."""
        lane.interest = LaneInterest(self.queue.last_position)
        lane.interest.fresh.update((entry.position, entry) for entry in lane.returned)

    def untrack(self) -> None:
        """Let the lanes forget what filters wanted."""
        for lane in self.queue.lanes:
            lane.interest = None
            lane.compact()

    # ---- filters come and go

    def add(self, tree: Filter) -> QueueFilter:
        """Add a filter, or share the equal one that is there; it is removed as often as it was added."""
        filter = self._filters.get(tree)
        if filter is None:
            filter = self._filters[tree] = QueueFilter(tree)
            self._begin(filter)
        filter.users += 1
        return filter

    def remove(self, filter: QueueFilter) -> None:
        filter.users -= 1
        if filter.users:
            return
        del self._filters[filter.tree]
        self.hot.pop(filter, None)
        filter.group.remove(filter)
        now = self._broker.now()
        for lane in self.queue.lanes:
            for position in filter.found.get(lane.priority, ()):
                _interest(lane).unwant(position, filter, now)
        self._behind = [group for group in self._behind if group.filters]

    def _begin(self, filter: QueueFilter) -> None:
        """Let a filter examine the queue from its beginning."""
        if not len(self.queue):
            filter.join(self._current)
            return
        for lane in self.queue.lanes:
            _interest(lane).fresh.update((e.position, e) for e in lane.returned if e.place == READY)
        start = next((group for group in self._behind if not group.cursors), None)
        if start is None:
            self._behind.append(start := FilterGroup())
        filter.join(start)

    def examine_again(self) -> None:
        """Let all filters examine the queue from its beginning, because its messages were replaced."""
        for lane in self.queue.lanes:
            self.track(lane)
        self._behind.append(start := FilterGroup())
        for filter in self._filters.values():
            filter.join(start)
        self._behind = [group for group in self._behind if group.filters]
        self._broker.dirty.add(self.queue)

    # ---- examining

    def published(self, lane: QueueLane, entry: QueueEntry) -> None:
        """Have the filters asked about a message that was published to a lane."""
        interest = _interest(lane)
        if self._current.filters:
            interest.fresh[entry.position] = entry
        else:
            interest.evaluated = entry.position

    def limit(self, filter: QueueFilter, lane: QueueLane) -> int:
        """The position up to which the matches of a filter may be delivered: it has examined everything before."""
        return filter.group.limit(lane.priority)

    def examined_by_all(self, lane: QueueLane) -> int:
        """The position up to which every filter has examined a lane."""
        known = [group.cursor(lane) for group in self._behind]
        return min((_interest(lane).evaluated, *known))

    def examine(self) -> None:
        """Examine what is new, and go on with what filters have not examined yet, until the slice of time is over."""
        ends = self._broker.end_of_slice()
        done = all([self._examine_fresh(lane, ends) for lane in self.queue.lanes])
        if not (done and self._examine_behind(ends)) and not self._is_scheduled:
            self._is_scheduled = True
            self._broker.call_at(self._broker.now(), self._go_on)

    def _go_on(self) -> None:
        self._is_scheduled = False
        if not self.queue.is_deleted:
            self._broker.dirty.add(self.queue)

    def _examine_fresh(self, lane: QueueLane, ends: float) -> bool:
        """Ask the filters about new and requeued entries; False if there was no time for all of them."""
        interest = _interest(lane)
        fresh = interest.fresh
        if not fresh:
            return True
        began, done = perf_counter(), 0
        for position, entry in fresh.items():
            if position > interest.evaluated and not entry.redelivered:
                matched = self._current.match(entry.message)
            else:  # it came back: groups that are behind do not find it where it was
                groups = (self._current, *self._behind)
                matched = NONE.union(*(group.match(entry.message) for group in groups))
                matched -= interest.wanted.get(position, NONE)
            interest.evaluated = max(interest.evaluated, position)
            if matched:
                self._found(lane, position, matched, entry)
            elif entry.redelivered and position not in interest.wanted:
                interest.lost.setdefault(position, self._broker.now())
            done += 1
            if perf_counter() >= ends:
                break
        self._current.took(began)
        if done == len(fresh):
            fresh.clear()
            return True
        for position in list(islice(fresh, done)):
            del fresh[position]
        return False

    def _found(
        self,
        lane: QueueLane,
        position: int,
        matched: frozenset[QueueFilter],
        entry: QueueEntry | None,
    ) -> None:
        """Remember that filters match the message at a position."""
        _interest(lane).want(position, matched, None if lane.in_gap(position) else entry)
        level = lane.priority
        for filter in matched:
            heap = filter.found.get(level)
            if heap is None:
                heap = filter.found[level] = []
            heappush(heap, position)
            filter.matched += 1
            self.hot[filter] = None
            if len(heap) > MOST_FOUND:
                self._hold(filter)

    def _hold(self, filter: QueueFilter) -> None:
        """Let a filter that remembers too many matches examine no more for now."""
        for lane in self.queue.lanes:
            wanted = _interest(lane).wanted
            heap = filter.found.get(lane.priority, [])
            heap[:] = {p for p in heap if filter in wanted.get(p, NONE)}
            heapify(heap)
        is_alone = filter.group is not self._current and len(filter.group.filters) == 1
        if is_alone or not filter.is_full():
            return
        alone = FilterGroup()
        if filter.group is self._current:
            alone.cursors = {ln.priority: _interest(ln).evaluated for ln in self.queue.lanes}
        else:
            alone.cursors = dict(filter.group.cursors)
        filter.join(alone)
        self._behind = [group for group in (*self._behind, alone) if group.filters]

    # ---- the backlog

    def _examine_behind(self, ends: float) -> bool:
        """Let groups that are behind catch up; False if there was no time for that."""
        self._turn += 1
        groups = sorted(self._behind, key=lambda group: sum(group.cursors.values()))
        if self._turn % 2:  # those that are nearly there get their turn while others keep arriving
            groups.reverse()
        for group in groups:
            if group not in self._behind or group.is_held:
                continue
            if not self._advance(group, ends):
                return False
        return True

    def _advance(self, group: FilterGroup, ends: float) -> bool:
        """Let a group examine up to where the next one is, and join that; False if there was no time for that."""
        for lane in self.queue.lanes:
            while group.cursor(lane) < (limit := self._next_limit(group, lane)):
                began = perf_counter()
                self._examine_rows(group, lane, limit, ends)
                group.took(began)
                if group.is_held:
                    return True
                if perf_counter() >= ends:
                    return False
        lanes = list(self.queue.lanes)
        if all(group.cursor(lane) >= _interest(lane).evaluated for lane in lanes):
            self._join(group, self._current)
            return True
        for other in self._behind:
            if other is group or other.is_held:
                continue
            if all(group.cursor(lane) == other.cursor(lane) for lane in lanes):
                self._join(group, other)
                break
        return True

    def _next_limit(self, group: FilterGroup, lane: QueueLane) -> int:
        """How far a group examines a lane: up to the next group, or to the end."""
        cursor, limit = group.cursor(lane), _interest(lane).evaluated
        ahead = (other.cursor(lane) for other in self._behind if not other.is_held)
        return min((c for c in ahead if cursor < c < limit), default=limit)

    def _join(self, group: FilterGroup, other: FilterGroup) -> None:
        for filter in list(group.filters):
            filter.join(other)
        self._behind.remove(group)

    def _examine_rows(self, group: FilterGroup, lane: QueueLane, limit: int, ends: float) -> None:
        """Let a group examine the next few messages of a lane."""
        cursor = group.cursor(lane)
        entries = group.next_entries(lane)
        rows: Sequence[tuple[int, BrokerMessage, QueueEntry | None]]
        if entries is None:
            last, heads = lane.page_heads(cursor, ROWS)
            rows = [(position, message, None) for position, message in heads]
        else:
            rows = [(e.position, e.message, e) for e in entries if e.place == READY]
            last = entries[-1].position if entries else limit
        for position, message, entry in rows:
            if cursor < position <= limit:
                if matched := group.match(message):
                    self._found(lane, position, matched, entry)
                group.cursors[lane.priority] = position
                if perf_counter() >= ends:
                    return
        group.cursors[lane.priority] = min(max(last, cursor + 1), limit)


def count_matching(queue: Any, filter: Any) -> int | None:
    """Count the ready messages that the filter of a consumer matches, as far as it has examined the queue.

    Of many it is at most this number: others may have been taken. None where messages are matched as they are read.
    """
    shared = getattr(filter, "shared", None)
    if not isinstance(shared, QueueFilter):
        return None
    total = 0
    for lane in queue.lanes:
        heap = shared.found.get(lane.priority, ())
        if lane.interest is None or len(heap) > MOST_COUNTED:
            total += len(heap)
        else:
            wanted = lane.interest.wanted
            total += sum(shared in wanted.get(position, ()) for position in heap)
    return total


def _interest(lane: QueueLane) -> LaneInterest:
    assert lane.interest is not None
    return lane.interest
