"""What tasks count, and how the counts of many become one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields

from headgate.routing import RoutedBatch
from headgate.streams.read import ScanStats


@dataclass(slots=True)
class Counters:
    """Counts of a task, of a batch, or of a whole run: they add up."""

    read: int = 0  # messages that passed the source's filter
    routed: int = 0  # of these, the ones that some queue gets
    unroutable: int = 0
    malformed: int = 0  # records of the source that are no messages
    chunks_skipped: int = 0  # without opening them
    chunks_opened: int = 0
    bytes_read: int = 0
    bytes_total: int = 0  # of all chunks that were come by, read or skipped
    queues: dict[str, int] = field(default_factory=dict)
    came_by: int = 0  # messages of the source, those its filter left out too

    def add(self, other: Counters) -> None:
        for each in fields(self):
            if each.name != "queues":
                setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        for queue, count in other.queues.items():
            self.queues[queue] = self.queues.get(queue, 0) + count

    def add_routed(self, routed: RoutedBatch) -> None:
        """Count one routed window."""
        lost = len(routed.unroutable)
        self.read += routed.num_rows
        self.routed += routed.num_rows - lost
        self.unroutable += lost
        for queue, rows in routed.selections().items():
            self.queues[queue] = self.queues.get(queue, 0) + len(rows)

    def add_scanned(self, stats: ScanStats) -> None:
        """Count what one scan opened."""
        self.chunks_opened += stats.chunks_all + stats.chunks_some
        self.bytes_read += stats.bytes_read

    def add_planned(self, stats: ScanStats) -> None:
        """Count what planning came by and left out."""
        self.chunks_skipped += stats.chunks_none + stats.chunks_rejected
        self.bytes_total += stats.bytes_total


def to_text(counters: Counters) -> str:
    """As it travels through Spark."""
    return json.dumps(asdict(counters), separators=(",", ":"))


def total(texts: Iterable[str]) -> Counters:
    """The sum of what tasks counted."""
    whole = Counters()
    for text in texts:
        whole.add(Counters(**json.loads(text)))
    return whole
