"""Consumers that browse a queue and take nothing: each gets the ready entries behind its position, then new ones.

Entries come in the order of their positions, whatever their priority. One that another consumer holds is passed over.
A slice of a queue is examined in one turn of the broker; of rows in the store the bodies of those that match are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import merge
from operator import attrgetter
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.broker.consumer import BrokerConsumer, ConsumerFilter
from headgate.broker.filter_argument import read_filter
from headgate.broker.message import HOLE, BrokerMessage, QueueEntry
from headgate.broker.refusals import PreconditionFailed
from headgate.filters import compile_filter

if TYPE_CHECKING:
    from headgate.broker.lane import QueueLane
    from headgate.broker.queue import ClassicQueue

SLICE: Final = 256  # entries that a browser examines in one turn


class BrowseFilter(ConsumerFilter):
    """The filter of a consumer that browses, with counts of its own."""

    __slots__ = ("_examined", "_seconds")

    def __init__(self, text: str) -> None:
        self.text, self.delivered = text, 0
        self._examined, self._seconds = 0, 0.0

    @property
    def examined(self) -> int:
        return self._examined

    @property
    def skipped(self) -> int:
        return self._examined - self.delivered

    @property
    def seconds(self) -> float:
        return self._seconds

    def add(self, examined: int, delivered: int, seconds: float) -> None:
        self._examined += examined
        self.delivered += delivered
        self._seconds += seconds


class UnseenEntry(NamedTuple):
    """A ready entry that a browser has not examined; one that is only in the store is read if it matches."""

    position: int
    message: BrokerMessage
    lane: QueueLane
    entry: QueueEntry | None


class QueueBrowser:
    """One consumer that browses: its filter, and the position up to which it has seen the queue."""

    def __init__(self, queue: ClassicQueue, consumer: BrokerConsumer) -> None:
        self._queue, self.consumer = queue, consumer
        self._broker = queue.vhost.broker
        self.after = 0
        wish = None
        if consumer.filter_text is not None:
            wish = read_filter(consumer.filter_text, f"for a consumer of queue '{queue.name}'")
        self._test = None if wish is None else compile_filter(wish.tree)
        self._filter = None if wish is None else BrowseFilter(wish.text)
        consumer.filter = self._filter

    def give_slice(self) -> bool:
        """Send the next entries that match; return whether there is more to examine now."""
        room = self.consumer.room()
        if room <= 0 or self.after >= self._queue.last_position:
            return False
        began = perf_counter()
        candidates, end = self._list_candidates()
        matched, examined, end = self._match(candidates, end, min(room, SLICE))
        entries, self.after = self._read(matched, end)
        if self._filter is not None:
            self._filter.add(examined, len(entries), perf_counter() - began)
        if entries:
            self.consumer.deliver(entries)
        return self.after < self._queue.last_position

    def _list_candidates(self) -> tuple[Iterable[UnseenEntry], int]:
        """The next entries behind the position, in order, and the position up to which the list is complete."""
        found = [_list_lane(lane, self.after) for lane in self._queue.lanes]
        end = min(
            (last for _, last in found if last is not None), default=self._queue.last_position
        )
        lanes = [[c for c in candidates if c.position <= end] for candidates, _ in found]
        return merge(*lanes, key=attrgetter("position")), end

    def _match(
        self, candidates: Iterable[UnseenEntry], end: int, most: int
    ) -> tuple[list[UnseenEntry], int, int]:
        """The candidates that match, how many were examined, and up to which position."""
        ends, examined = perf_counter() + self._broker.slice_s, 0
        matched: list[UnseenEntry] = []
        for candidate in candidates:
            examined += 1
            if self._test is None or self._test(candidate.message.seen_by_filters()):
                matched.append(candidate)
            if len(matched) == most or examined == SLICE or perf_counter() >= ends:
                return matched, examined, candidate.position
        return matched, examined, end

    def _read(self, matched: list[UnseenEntry], end: int) -> tuple[list[QueueEntry], int]:
        """The entries of candidates, as many as may be read at once, and the position up to which they were read."""
        entries = [candidate.entry for candidate in matched if candidate.entry is not None]
        for lane in self._queue.lanes:
            rows = [c.position for c in matched if c.entry is None and c.lane is lane]
            read = lane.read_gap(rows) if rows else []
            if read and len(read) < len(rows):
                end = min(end, read[-1].position)
            entries += read
        now = self._broker.now()
        return sorted(
            e for e in entries if e.position <= end and (e.expires is None or e.expires > now)
        ), end


class QueueBrowsers:
    """The consumers of one queue that browse it."""

    def __init__(self, queue: ClassicQueue) -> None:
        self._queue = queue
        self._broker = queue.vhost.broker
        self._browsers: list[QueueBrowser] = []
        self._is_scheduled = False

    def add(self, consumer: BrokerConsumer) -> None:
        if consumer.exclusive:
            raise PreconditionFailed(
                f"a consumer of queue '{self._queue.name}' with x-browse cannot be exclusive: it takes nothing"
            )
        if not consumer.no_ack:
            raise PreconditionFailed(
                f"a consumer of queue '{self._queue.name}' with x-browse acknowledges nothing: set no_ack"
            )
        self._browsers.append(QueueBrowser(self._queue, consumer))
        self._broker.dirty.add(self._queue)

    def remove(self, consumer: BrokerConsumer) -> None:
        self._browsers = [b for b in self._browsers if b.consumer is not consumer]

    def cancel(self) -> None:
        """Cancel all browsing consumers: the queue is deleted."""
        browsers, self._browsers = self._browsers, []
        for browser in browsers:
            browser.consumer.notify_cancel()

    def drain(self) -> None:
        """Let each see a slice; the rest is seen in a later turn."""
        has_more = [browser.give_slice() for browser in self._browsers]
        if any(has_more) and not self._is_scheduled:
            self._is_scheduled = True
            self._broker.call_at(self._broker.now(), self._go_on)

    def _go_on(self) -> None:
        self._is_scheduled = False
        if not self._queue.is_deleted:
            self._broker.dirty.add(self._queue)


def _list_lane(lane: QueueLane, after: int) -> tuple[list[UnseenEntry], int | None]:
    """The next ready entries of a lane behind a position, and the position up to which the list is complete; None: to the end."""
    behind, last = lane.list_behind(after), None
    if behind is None:
        last, heads = lane.page_heads(after, SLICE)
        found = [UnseenEntry(position, message, lane, None) for position, message in heads]
    else:
        is_followed = lane.gap > 0 if not lane.tail else behind[-1:] != [lane.tail[-1]]
        if len(behind) > SLICE or (behind and is_followed):
            behind = behind[:SLICE]
            last = behind[-1].position
        found = [UnseenEntry(e.position, e.message, lane, e) for e in behind if e.place != HOLE]
    found += [
        UnseenEntry(e.position, e.message, lane, e)
        for e in lane.returned
        if e.place != HOLE and e.position > after and (last is None or e.position <= last)
    ]
    found.sort(key=attrgetter("position"))
    return found, last
