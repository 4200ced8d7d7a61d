"""The messages of one queue and one priority, in the order of their positions, most of them on disk when they are many.

    head     in memory, the next to be delivered          at most `bound` and `bound_bytes`, more only while nothing is in the gap
    gap      only in the store: how many, and between which positions
    tail     in memory until the commit that stores them is done, then they join the gap
    returned in memory, came back from a consumer: a heap, as few and in any order

Positions rise from head to tail; what returned stands in front of everything behind it.

A filter takes entries out of the middle. One that is in memory stays in its place, as a hole, until it comes to the front
or until the holes are many. One of the gap leaves a hole there: its row stays in the store until it is settled.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.broker.interest import LaneInterest
from headgate.broker.message import HOLE, LEFT, READY, BrokerMessage, QueueEntry
from headgate.broker.records import Decode, read_entry, read_message
from headgate.store import Store

if TYPE_CHECKING:
    from headgate.broker.contract import BrokerQueue

PAGE_ROWS: Final = 512
PAGE_BYTES: Final = 4 << 20
AHEAD: Final = 1024  # how far the mark of what may have been delivered runs ahead
FEW_HOLES: Final = 256  # more than these, and more than half of a lane, are removed


class LaneCommit(NamedTuple):
    """What a commit does to a lane: the last row it stores, its mark and notes, and the holes of the gap that it deletes."""

    written: int
    mark: int
    notes: set[int]
    closed: list[int]


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
        bound_bytes: int = sys.maxsize,
    ) -> None:
        self.queue, self.number, self.priority, self.bound = queue, number, priority, bound
        self._bound_bytes = bound_bytes  # of all lanes of the queue
        self._store, self._decode = store, decode
        self.head: deque[QueueEntry] = deque()
        self.tail: deque[QueueEntry] = deque()
        self.returned: list[QueueEntry] = []
        self.gap = 0  # rows only in the store
        # The positions of the gap are between these, the last included.
        self.gap_after = self.gap_last = -1
        self.holes = 0  # entries in memory that were taken and are still in their place
        # Positions of rows in the store that were taken out of the gap or the tail.
        self.gap_holes: set[int] = set()
        self.interest: LaneInterest | None = None  # what filters want of it, if there are filters
        # What may have been delivered, as the store knows it, as it will after the next commit; and what was handed to it.
        self.marked = self.marking = -1
        self.cut = -1
        self.is_waiting = False  # for its mark, to deliver more
        self.written = -1  # the last position given to the store
        self.wanted = -1  # the last position that was delivered, or that waits for its mark
        self.restored_to = -1  # entries up to here are of an earlier run
        self.crashed_at = -1  # entries up to here may have been delivered before a crash
        # Single positions that may have been delivered: durably noted, to be noted, of an earlier run.
        self.noted: set[int] = set()
        self.to_note: set[int] = set()
        self.noted_before: frozenset[int] = frozenset()
        self.unused_notes: set[int] = set()  # noted ahead, and not delivered yet
        self.closed: list[int] = []  # holes of the gap whose rows are to be deleted

    def __len__(self) -> int:
        return len(self.head) + len(self.tail) + len(self.returned) + self.gap - self.holes

    @property
    def is_tracked(self) -> bool:
        """Whether each entry that is taken is noted, because filters look for them."""
        return self.interest is not None

    @property
    def must_page(self) -> bool:
        """Whether the next entry must be paged out to disk, durable or not."""
        return bool(
            self.gap
            or self.tail
            or len(self.head) >= self.bound
            or self.queue.ready_bytes >= self._bound_bytes
        )

    def push(self, entry: QueueEntry) -> None:
        """Append an entry; one that is pushed while `must_page` is stored."""
        if (
            self.gap
            or self.tail
            or len(self.head) >= self.bound
            or self.queue.ready_bytes >= self._bound_bytes
        ):
            self.tail.append(entry)
        else:
            self.head.append(entry)

    def give_back(self, entry: QueueEntry) -> None:
        """Put an entry that was taken back at its position."""
        if entry.place == HOLE:
            self.holes -= 1
            if self.tail and entry.position >= self.tail[0].position:
                self.gap_holes.discard(entry.position)
        elif self.interest is None and not self.returned and self._is_in_front(entry.position):
            self.head.appendleft(entry)
        else:
            heappush(self.returned, entry)
        entry.place = READY
        if self.interest is not None:
            self.interest.fresh[entry.position] = entry

    def _is_in_front(self, position: int) -> bool:
        """Whether all entries of the lane are behind a position."""
        if self.head:
            return position < self.head[0].position
        if self.gap:
            return position <= self.gap_after
        return not self.tail or position < self.tail[0].position

    def peek(self) -> QueueEntry | None:
        """The next entry."""
        if self.holes:
            self._skip_holes()
        if not self.head:
            self._fill()
            if self.holes:
                self._skip_holes()
        if self.returned and (not self.head or self.returned[0].position < self.head[0].position):
            return self.returned[0]
        return self.head[0] if self.head else None

    def take(self) -> QueueEntry:
        """Remove the next entry; there must be one."""
        entry = self.peek()
        assert entry is not None
        if self.returned and entry is self.returned[0]:
            heappop(self.returned)
        else:
            self.head.popleft()
        if self.interest is not None:
            self.interest.left(entry.position)
            entry.place = LEFT
        return entry

    # ---- out of the middle

    def in_gap(self, position: int) -> bool:
        """Whether the entry at a position is only in the store."""
        is_between = self.gap > 0 and self.gap_after < position <= self.gap_last
        return is_between and position not in self.gap_holes

    def remove(self, entry: QueueEntry) -> None:
        """Take a ready entry that is in memory, wherever it stands."""
        if self.head and self.head[0] is entry:
            self.head.popleft()
            entry.place = LEFT
        elif self.head and self.head[-1] is entry:
            self._drop_last()
        else:
            entry.place = HOLE
            self.holes += 1
            if entry.stored and self.tail and entry.position >= self.tail[0].position:
                self.gap_holes.add(entry.position)
        if self.interest is not None:
            self.interest.left(entry.position)
        if self.holes > FEW_HOLES and self.holes > len(self):
            self.compact()

    def read_gap(self, positions: Sequence[int]) -> list[QueueEntry]:
        """Read ready entries of the gap; perhaps not all, if they are large."""
        rows = self._store.read_rows(self.number, positions, PAGE_BYTES)
        entries = [read_entry(row, self.priority, self._decode) for row in rows]
        for entry in entries:
            entry.redelivered = self._was_delivered(entry.position)
        return entries

    def remove_row(self, entry: QueueEntry) -> None:
        """Take a ready entry that was read from the gap."""
        entry.place = LEFT
        self.gap -= 1
        self.gap_holes.add(entry.position)
        if self.interest is not None:
            self.interest.left(entry.position)

    def delete(self, entry: QueueEntry) -> None:
        """Delete the row of an entry that was taken, if it has one."""
        if not entry.stored:
            return
        position = entry.position
        self._store.delete(self.number, position)
        if self.noted or self.to_note:
            self.noted.discard(position)
            self.to_note.discard(position)
            self.unused_notes.discard(position)
        if position in self.gap_holes:
            self.closed.append(position)

    def compact(self) -> None:
        """Remove the holes from memory."""
        for entries in (self.head, self.tail, self.returned):
            for entry in entries:
                if entry.place == HOLE:
                    entry.place = LEFT
        self.head = deque(entry for entry in self.head if entry.place == READY)
        self.tail = deque(entry for entry in self.tail if entry.place == READY)
        self.returned = [entry for entry in self.returned if entry.place == READY]
        heapify(self.returned)
        self.holes = 0

    def list_behind(self, position: int) -> list[QueueEntry] | None:
        """The entries behind a position, as far as they are in memory in front of the gap; None if the gap is next.

        Those that returned are not among them.
        """
        if self.head and self.head[-1].position > position:
            return _behind(self.head, position)
        if self.gap and self.gap_last > position:
            return None
        return _behind(self.tail, position)

    def page_heads(self, position: int, limit: int) -> tuple[int, list[tuple[int, BrokerMessage]]]:
        """Read messages of the gap behind a position, without their bodies; return the last position that was read, too."""
        after = max(position, self.gap_after)
        heads = self._store.page_heads(self.number, after, limit)
        found: list[tuple[int, BrokerMessage]] = []
        for head in heads:
            if head.position <= self.gap_last and head.position not in self.gap_holes:
                message = read_message(head, self._decode)
                if head.position > self.restored_to or message.persistent:
                    found.append((head.position, message))
        last = min(heads[-1].position, self.gap_last) if len(heads) == limit else self.gap_last
        return last, found

    # ---- what may have been delivered

    def may_deliver(self, position: int) -> bool:
        """Whether an entry may be delivered now: after a crash it would be flagged as redelivered, since its mark is durable."""
        return position <= self.marked or position > self.cut or position in self.noted

    def note(self, positions: Iterable[int]) -> None:
        """Note with the next commit that these positions may have been delivered."""
        new = [p for p in positions if p not in self.noted and p not in self.to_note]
        self._store.note(self.number, new)
        self.to_note.update(new)

    def commit_begins(self) -> LaneCommit:
        """What the commit that begins will store; `commit_done` takes it when it is done."""
        self.cut = max(self.cut, self.written)
        notes, self.to_note = self.to_note, set()
        closed, self.closed = self.closed, []
        return LaneCommit(self.written, self.marking, notes, closed)

    def commit_done(
        self, up_to: int, mark: int, notes: Iterable[int] = (), closed: Iterable[int] = ()
    ) -> None:
        """A commit stored the entries up to this position, with this mark and these notes, and deleted rows."""
        self.marked = max(self.marked, mark)
        self.noted.update(notes)
        self.gap_holes.difference_update(closed)
        tail, interest = self.tail, self.interest
        while tail and tail[0].position <= up_to and tail[0].stored:
            entry = tail.popleft()
            if entry.place == HOLE:
                entry.place = LEFT
                self.holes -= 1
                continue
            if entry.redelivered:  # which its row does not say
                self.gap_holes.add(entry.position)
                heappush(self.returned, entry)
                if interest is not None:  # a filter that is behind does not find it there
                    interest.fresh[entry.position] = entry
                continue
            if not self.gap:
                self.gap_after = entry.position - 1
            self.gap_last = entry.position
            self.gap += 1
            if interest is not None:
                interest.entries.pop(entry.position, None)

    # ---- restart, and the end

    def restore(self, rows: int, last: int, mark: int, notes: Iterable[int] = ()) -> None:
        """Begin with rows that are in the store, up to a last one; those up to a mark may have been delivered."""
        self.gap, self.gap_after, self.gap_last = rows, -1, last
        self.restored_to = self.cut = last
        self.marked = self.marking = self.crashed_at = mark
        self.noted_before = frozenset(notes)
        self.noted = set(self.noted_before)

    def drop_paged_out(self) -> None:
        """Delete the rows of an earlier run that were only paged out: their messages are not persistent."""
        for entry in self.read_on(self.gap_after) if self.restored_to >= 0 else ():
            if self._was_paged_out(entry):
                self.remove_row(entry)
                self.queue.ready_bytes -= entry.message.body_size
                self.delete(entry)
        self.restored_to = -1

    def _was_paged_out(self, entry: QueueEntry) -> bool:
        return entry.position <= self.restored_to and not entry.message.persistent

    def read_back(self, window: int, before: int | None = None) -> Iterator[QueueEntry]:
        """Yield the entries before a position that are only in the store, the last first, and leave them there."""
        end, left = self.gap_last, self.gap
        while left > 0 and end > self.gap_after:
            start = max(end - window, self.gap_after)
            positions = range(start + 1, end + 1)
            rows = self._store.read_rows(self.number, positions, sys.maxsize)
            for row in reversed(rows):
                if row.position not in self.gap_holes:
                    left -= 1
                    yield read_entry(row, self.priority, self._decode)
            end = start

    def read_on(self, after: int) -> Iterator[QueueEntry]:
        """Yield the entries behind a position that are only in the store, in order, and leave them there."""
        after = max(after, self.gap_after)
        while self.gap and after < self.gap_last:
            rows = self._store.page(self.number, after, PAGE_ROWS, PAGE_BYTES)
            if not rows:
                return
            for row in rows:
                after = row.position
                if self.in_gap(after):
                    yield read_entry(row, self.priority, self._decode)

    def take_out(self, entry: QueueEntry) -> None:
        """Remove an entry from wherever it is; the store still has it."""
        if self.in_gap(entry.position):
            self.remove_row(entry)
        elif self.interest is not None:
            self.remove(entry)
        else:
            held = next((h for h in (self.head, self.tail) if any(e is entry for e in h)), None)
            (self.returned if held is None else held).remove(entry)
            heapify(self.returned)

    def clear(self) -> list[QueueEntry]:
        """Forget all entries, and delete them from the store; those that were taken stay there. Return what was in memory."""
        entries = [*self.head, *self.returned, *self.tail]
        if self.gap:
            self._delete_gap()
        for entry in entries if self.number or self.interest is not None else ():
            if entry.place == HOLE:
                entry.place = LEFT
            else:
                entry.place = LEFT if self.interest is not None else READY
                self.delete(entry)
        self.head.clear()
        self.tail.clear()
        self.returned.clear()
        self.gap = self.holes = 0
        if self.interest is not None:
            self.interest.clear()
        return entries

    def _delete_gap(self) -> None:
        first = self.gap_after + 1
        for hole in sorted(p for p in self.gap_holes if self.gap_after < p <= self.gap_last):
            if hole > first:
                self._store.delete_range(self.number, first, hole - 1)
            first = hole + 1
        if first <= self.gap_last:
            self._store.delete_range(self.number, first, self.gap_last)
        self.gap_after = self.gap_last

    def _skip_holes(self) -> None:
        """Remove the holes at the front."""
        while self.head and self.head[0].place == HOLE:
            self.head.popleft().place = LEFT
            self.holes -= 1
        while self.returned and self.returned[0].place == HOLE:
            heappop(self.returned).place = LEFT
            self.holes -= 1

    def _drop_last(self) -> None:
        """Remove the last entry of the head, and the holes before it: filters often take the newest entry."""
        self.head.pop().place = LEFT
        while self.head and self.head[-1].place == HOLE:
            self.head.pop().place = LEFT
            self.holes -= 1

    def _was_delivered(self, position: int) -> bool:
        return position <= self.crashed_at or position in self.noted_before

    def _fill(self) -> None:
        """Read the next page of the gap; where there is none, the tail is next."""
        while self.gap and not self.head:
            rows = self._store.page(self.number, self.gap_after, PAGE_ROWS, PAGE_BYTES)
            # Rows of the tail may be committed as well: they come after those of the gap.
            rows = [row for row in rows if row.position <= self.gap_last]
            if not rows:
                self.gap = 0
            for row in rows:
                self.gap_after = row.position
                if row.position in self.gap_holes:
                    continue
                self.gap -= 1
                entry = read_entry(row, self.priority, self._decode)
                entry.redelivered = self._was_delivered(entry.position)
                if self._was_paged_out(entry):
                    self._store.delete(self.number, entry.position)
                    self.queue.ready_bytes -= entry.message.body_size
                else:
                    self.head.append(entry)
                    if self.interest is not None:
                        self.interest.read_entry(entry)
        if not self.head and self.tail:
            self.head, self.tail = self.tail, self.head


def free_entries(entries: list[QueueEntry]) -> Iterator[None]:
    """Free entries, some in each step: freeing a million at once takes too long."""
    while entries:
        del entries[-50:]
        yield


def _behind(entries: deque[QueueEntry], position: int) -> list[QueueEntry]:
    """The entries behind a position, holes included."""
    if not entries or entries[-1].position <= position:
        return []
    if entries[-1].position - position > len(entries) // 16:
        found = list(entries)
        return found[bisect_right(found, position, key=_position) :]
    found = list(takewhile(lambda entry: entry.position > position, reversed(entries)))
    found.reverse()
    return found


_position: Final = attrgetter("position")
