"""Which chunks of a segment a scan must open: verdicts from facts, then entry filters. Opens no chunk itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from headgate.filters import TRUE, ChunkNumbers, Flags, NormalFilter
from headgate.filters.compile import judge
from headgate.streams.read.entry_filters import EntryFilter, accepts
from headgate.streams.segments.segment import Segment


@dataclass(slots=True)
class ScanStats:
    """What a scan has done so far."""

    chunks_none: int = 0  # skipped: the facts prove that no message matches
    chunks_all: int = 0  # passed on whole: the facts prove that every message matches
    chunks_some: int = 0  # scanned row by row
    chunks_rejected: int = 0  # by an entry filter
    bytes_read: int = 0  # the length of every opened chunk
    bytes_total: int = 0  # the length of every chunk within the scanned offsets
    rows_examined: int = 0
    rows_matched: int = 0
    messages_lost: int = 0  # skipped because they cannot be read
    messages_dropped: int = 0  # by retention, before the scan reached them


class Survivor(NamedTuple):
    """A chunk that the scan has to open."""

    at: int  # its index in the segment
    all: bool  # every message matches
    within: bool  # every offset is one the scan reads


def survivors(
    segment: Segment,
    filter: NormalFilter,
    entry_filters: tuple[EntryFilter, ...],
    low: int,
    high: int,
    stats: ScanStats,
) -> Iterator[Survivor]:
    """Yield the chunks that may hold a match with an offset in [low, high), in the order of the segment."""
    start, end = segment.chunks_between(low, high)
    first, last = segment.offset_bounds()
    candidates = np.flatnonzero((last[start:end] >= low) & (first[start:end] < high)) + start
    if not len(candidates):
        return
    stats.bytes_total += int(segment.lengths()[candidates].sum())
    some, every = _verdicts(segment, filter, candidates)
    stats.chunks_none += len(candidates) - int(np.count_nonzero(some))
    for at, all_match in zip(candidates[some].tolist(), every[some].tolist(), strict=True):
        if entry_filters and not accepts(entry_filters, segment.metadata(at)):
            stats.chunks_rejected += 1
            continue
        yield Survivor(at, all_match, bool(first[at] >= low and last[at] < high))


def _verdicts(
    segment: Segment, filter: NormalFilter, candidates: ChunkNumbers
) -> tuple[Flags, Flags]:
    start, end = int(candidates[0]), int(candidates[-1]) + 1
    facts = segment.facts(start, end)
    if filter.tree == TRUE:
        filled = facts.rows[candidates - start] > 0
        return filled, filled
    judged = judge(filter, facts)
    return judged.some[candidates - start], judged.all[candidates - start]
