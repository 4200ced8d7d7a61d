"""Messages of a queue that no filter of a consumer matches: how many, since when, and what is done with them.

Without a consumer, or with one that has no filter, no message is unmatched. Moments are noted for positions up to one, a
second apart at least, so that a few numbers say how long millions of messages have been waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from headgate.broker.message import READY, QueueEntry

if TYPE_CHECKING:
    from headgate.broker.interest import LaneInterest
    from headgate.broker.lane import QueueLane
    from headgate.broker.queue import ClassicQueue
    from headgate.broker.queue_filters import QueueFilters

STEP_MS: Final = 1_000
SWEEP: Final = 256  # messages that are looked at in one turn
ENOUGH: Final = 10_000  # wanted messages in front, behind which no unmatched one is looked for


class UnmatchedMessages:
    """The unmatched messages of one queue."""

    def __init__(self, queue: ClassicQueue, filters: QueueFilters) -> None:
        self._queue, self._filters = queue, filters
        self._broker = queue.vhost.broker
        self._moments: deque[tuple[int, int]] = deque()  # positions up to one, and since when
        self._is_armed = False

    def count(self) -> int:
        """How many ready messages all filters have examined and none matches; a lower bound."""
        if not self._moments:
            return 0
        return sum(map(self._count_in, self._queue.lanes))

    def _count_in(self, lane: QueueLane) -> int:
        interest = _interest(lane)
        examined = self._filters.examined_by_all(lane)
        unknown = interest.evaluated - examined + len(interest.fresh)
        return max(0, len(lane) - len(interest.wanted) - unknown)

    def since(self) -> int | None:
        """When the oldest of them was found to be unmatched, in milliseconds; None if there is none."""
        if not self.count():
            return None
        oldest = min(map(self._first_position, self._queue.lanes))
        return next((when for upto, when in self._moments if oldest <= upto), self._moments[-1][1])

    def _first_position(self, lane: QueueLane) -> int:
        wanted = _interest(lane).wanted
        for entry in islice(lane.head, ENOUGH):
            if entry.place == READY and entry.position not in wanted:
                return entry.position
        return lane.gap_after + 1 if lane.gap else self._queue.last_position

    def update(self, *, is_selective: bool) -> None:
        """Note how far messages are examined; `is_selective` says whether all consumers have filters, and there is one."""
        if not is_selective:
            self._moments.clear()
            return
        now, position = self._broker.now(), self._queue.last_position
        if self._filters.is_examining:
            return
        if not self._moments or now - self._moments[-1][1] >= STEP_MS:
            if not self._moments or position > self._moments[-1][0]:
                self._moments.append((position, now))
        else:
            self._moments[-1] = position, now  # a little late for some of them
        self._arm()

    # ---- discarding

    def _arm(self) -> None:
        definition = self._queue.definition
        if definition.unmatched == "keep" or self._is_armed or not self._moments:
            return
        self._is_armed = True
        due = self._moments[0][1] + definition.unmatched_after
        self._broker.call_at(due, self._sweep)

    def _sweep(self) -> None:
        """Discard messages that have been unmatched for long enough, a few in each turn."""
        self._is_armed = False
        after = self._queue.definition.unmatched_after
        selection = self._queue.selection
        if self._queue.is_deleted or selection is None or selection.unmatched is not self:
            return
        if self._filters.is_examining or not self._moments:
            return
        upto, when = self._moments[0]
        now = self._broker.now()
        if when + after <= now:
            found = list(islice(self._find(upto, now - after), SWEEP))
            for lane, entry in found:
                self._discard(lane, entry)
            if not found:
                self._moments.popleft()
        self._broker.dirty.add(self._queue)
        self._arm()

    def _find(self, upto: int, horizon: int) -> Iterator[tuple[QueueLane, QueueEntry]]:
        """Unmatched entries up to a position; not those that lost their last filter after a moment."""
        for lane in self._queue.lanes:
            interest = _interest(lane)

            def is_old(position: int, interest: LaneInterest = interest) -> bool:
                is_wanted = position in interest.wanted or position in interest.fresh
                return not is_wanted and interest.lost.get(position, 0) <= horizon

            for entry in [*lane.returned, *islice(lane.head, ENOUGH)]:
                if entry.place == READY and entry.position <= upto and is_old(entry.position):
                    yield lane, entry
            after = lane.gap_after
            while lane.gap and after < min(upto, lane.gap_last):
                after, heads = lane.page_heads(after, SWEEP)
                rows = [p for p, _ in heads if p <= upto and is_old(p)]
                for entry in lane.read_gap(rows) if rows else ():
                    yield lane, entry

    def _discard(self, lane: QueueLane, entry: QueueEntry) -> None:
        lane.take_out(entry)
        self._queue.ready_bytes -= entry.message.body_size
        if self._queue.definition.unmatched == "dead-letter":
            self._queue.discard(entry, "unmatched")
        else:
            self._queue.drop(entry)


def _interest(lane: QueueLane) -> LaneInterest:
    assert lane.interest is not None
    return lane.interest
