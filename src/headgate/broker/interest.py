"""Which entries of one lane the filters of a queue match."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.broker.message import QueueEntry
    from headgate.broker.queue_filters import QueueFilter


class LaneInterest:
    """The ready positions of a lane that filters match, and the positions that were not examined yet.

    Each filter also keeps its positions in a heap; a position there that is not in `wanted` is out of date.
    """

    __slots__ = ("entries", "evaluated", "fresh", "lost", "wanted")

    def __init__(self, evaluated: int) -> None:
        self.wanted: dict[int, frozenset[QueueFilter]] = {}
        # The entries at wanted positions, as far as they are in memory.
        self.entries: dict[int, QueueEntry] = {}
        # Entries that were published or came back since filters were last asked.
        self.fresh: dict[int, QueueEntry] = {}
        # The position up to which the filters of the current group have examined everything.
        self.evaluated = evaluated
        # Positions whose last filter left, or that came back when it had, and when that was.
        self.lost: dict[int, int] = {}

    def left(self, position: int) -> None:
        """Forget a position whose entry was taken or deleted."""
        self.wanted.pop(position, None)
        self.entries.pop(position, None)
        self.fresh.pop(position, None)
        if self.lost:
            self.lost.pop(position, None)

    def read_entry(self, entry: QueueEntry) -> None:
        """Keep an entry that was read from the store, if its position is wanted or not examined yet."""
        if entry.position in self.wanted:
            self.entries[entry.position] = entry
        if entry.position in self.fresh:
            self.fresh[entry.position] = entry

    def want(
        self, position: int, filters: frozenset[QueueFilter], entry: QueueEntry | None
    ) -> None:
        """Note that filters match the message at a position; its entry is None where it is not in memory."""
        known = self.wanted.get(position)
        self.wanted[position] = filters if known is None else known | filters
        if entry is not None:
            self.entries[position] = entry
        if self.lost:
            self.lost.pop(position, None)

    def unwant(self, position: int, filter: QueueFilter, now: int) -> None:
        """Forget that a filter, which was removed, matched the message at a position."""
        known = self.wanted.get(position)
        if known is None:
            return
        if left := known - {filter}:
            self.wanted[position] = left
        else:
            del self.wanted[position]
            self.entries.pop(position, None)
            self.lost[position] = now

    def clear(self) -> None:
        """Forget all positions."""
        for positions in (self.wanted, self.entries, self.fresh, self.lost):
            positions.clear()
