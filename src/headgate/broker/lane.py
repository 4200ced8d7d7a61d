"""The messages of one queue and one priority, in the order of their positions, most of them on disk when they are many.

    head     in memory, the next to be delivered          at most `bound`, more only while nothing is in the gap
    gap      only in the store: how many, and after which position
    tail     in memory until the commit that stores them is done, then they join the gap
    returned in memory, came back from a consumer: a heap, as few and in any order

Positions rise from head to tail; what returned stands in front of everything behind it.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from headgate.broker.message import QueueEntry
from headgate.broker.records import Decode, read_entry
from headgate.store import Store

if TYPE_CHECKING:
    from headgate.broker.contract import BrokerQueue

PAGE_ROWS: Final = 512
PAGE_BYTES: Final = 4 << 20
AHEAD: Final = 1024  # how far the mark of what may have been delivered runs ahead


class QueueLane:
    """A queue of entries that need not all be in memory."""

    def __init__(
        self,
        queue: BrokerQueue,
        number: int,
        priority: int,
        store: Store,
        decode: Decode,
        bound: int,
    ) -> None:
        self.queue, self.number, self.priority, self.bound = queue, number, priority, bound
        self._store, self._decode = store, decode
        self.head: deque[QueueEntry] = deque()
        self.tail: deque[QueueEntry] = deque()
        self.returned: list[QueueEntry] = []
        self.gap = 0  # rows only in the store
        self._gap_after = -1
        self._taken_out: set[int] = set()  # of the gap; the store may have them until it commits
        # What may have been delivered, as the store knows it, as it will after the next commit; and what was handed to it.
        self.marked = self.marking = -1
        self.cut = -1
        self.is_waiting = False  # for its mark, to deliver more
        self.written = -1  # the last position given to the store
        self.wanted = -1  # the last position that was delivered, or that waits for its mark
        self.restored_to = -1  # entries up to here are of an earlier run
        self.crashed_at = -1  # entries up to here may have been delivered before a crash

    def __len__(self) -> int:
        return len(self.head) + len(self.tail) + len(self.returned) + self.gap

    @property
    def must_page(self) -> bool:
        """Whether the next entry belongs on disk, whatever it is."""
        return bool(self.gap or self.tail) or len(self.head) >= self.bound

    def push(self, entry: QueueEntry) -> None:
        """Append an entry; one that is pushed while `must_page` is stored."""
        if self.gap or self.tail or len(self.head) >= self.bound:
            self.tail.append(entry)
        else:
            self.head.append(entry)

    def give_back(self, entry: QueueEntry) -> None:
        """Put an entry that was taken back at its position."""
        if not self.returned and (not self.head or entry.position < self.head[0].position):
            self.head.appendleft(entry)
        else:
            heappush(self.returned, entry)

    def peek(self) -> QueueEntry | None:
        """The next entry."""
        if not self.head:
            self._fill()
        if self.returned and (not self.head or self.returned[0].position < self.head[0].position):
            return self.returned[0]
        return self.head[0] if self.head else None

    def take(self) -> QueueEntry:
        """Remove the next entry; there must be one."""
        entry = self.peek()
        assert entry is not None
        if self.returned and entry is self.returned[0]:
            return heappop(self.returned)
        return self.head.popleft()

    def may_deliver(self, entry: QueueEntry) -> bool:
        """Whether a crash would be followed by a delivery that is flagged: the mark of the entry must be durable."""
        return not entry.stored or entry.position <= self.marked or entry.position > self.cut

    def commit_done(self, up_to: int, mark: int) -> None:
        """A commit stored the entries up to this position, with this mark."""
        self.marked = max(self.marked, mark)
        tail = self.tail
        while tail and tail[0].position <= up_to and tail[0].stored:
            if not self.gap:
                self._gap_after = tail[0].position - 1
            tail.popleft()
            self.gap += 1

    def restore(self, rows: int, last: int, mark: int) -> None:
        """Begin with rows that are in the store, up to a last one; those up to a mark may have been delivered."""
        self.gap, self._gap_after = rows, -1
        self.restored_to = self.cut = last
        self.marked = self.marking = self.crashed_at = mark

    def read_back(self, window: int) -> Iterator[QueueEntry]:
        """Yield the entries that are only in the store, the last first, and leave them there."""
        last = self.tail[0].position - 1 if self.tail else max(self.written, self.restored_to)
        end, left = last, self.gap
        while left > 0 and end > self._gap_after:
            start = max(end - window, self._gap_after)
            positions = range(start + 1, end + 1)
            rows = self._store.read_rows(self.number, positions, sys.maxsize)
            for row in reversed(rows):
                if row.position in self._taken_out:
                    continue
                left -= 1
                yield read_entry(row, self.priority, self._decode)
            end = start

    def take_out(self, entry: QueueEntry) -> None:
        """Remove an entry from wherever it is; the store still has it."""
        for held in (self.head, self.tail):
            if any(each is entry for each in held):
                held.remove(entry)
                return
        if entry in self.returned:
            self.returned.remove(entry)
            heapify(self.returned)
        elif self.gap:
            self._taken_out.add(entry.position)
            self.gap -= 1

    def clear(self) -> None:
        """Forget all entries, and delete them from the store; those that were taken stay there."""
        entries = [*self.head, *self.returned, *self.tail]
        if self.gap:
            last = self.tail[0].position - 1 if self.tail else max(self.written, self.restored_to)
            self._store.delete_range(self.number, self._gap_after + 1, last)
        for entry in entries:
            if entry.stored:
                self._store.delete(self.number, entry.position)
        self.head.clear()
        self.tail.clear()
        self.returned.clear()
        self.gap = 0

    def _fill(self) -> None:
        """Read the next page of the gap; where there is none, the tail is next."""
        while self.gap and not self.head:
            # Rows of the tail may be committed as well: they come after those of the gap.
            limit = min(self.gap, PAGE_ROWS)
            rows = self._store.page(self.number, self._gap_after, limit, PAGE_BYTES)
            self.gap -= len(rows) if rows else self.gap
            for row in rows:
                self._gap_after = row.position
                if row.position in self._taken_out:
                    self.gap += 1  # it was counted when it was taken out
                    continue
                entry = read_entry(row, self.priority, self._decode)
                entry.redelivered = entry.position <= self.crashed_at
                if entry.position <= self.restored_to and not entry.message.persistent:
                    self._store.delete(self.number, entry.position)  # it was only paged out
                else:
                    self.head.append(entry)
        if not self.head and self.tail:
            self.head, self.tail = self.tail, self.head
