"""Which chunks of a segment a scan must open, and which pages of them: verdicts from facts, then entry filters.

Opens no chunk itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from headgate.errors import StreamCorrupt
from headgate.filters import TRUE, ChunkNumbers, Facts, Flags, NormalFilter, fields_read
from headgate.filters.compile import judge
from headgate.streams.read.entry_filters import EntryFilter, accepts
from headgate.streams.segments.pages import PAGE_ROWS, PageFacts
from headgate.streams.segments.segment import Segment

NEAR: Final = 2  # pages this near to each other are read at once, with the one between them


@dataclass(slots=True)
class ScanStats:
    """What a scan has done so far."""

    chunks_none: int = 0  # skipped: the facts prove that no message matches
    chunks_all: int = 0  # passed on whole: the facts prove that every message matches
    chunks_some: int = 0  # scanned row by row, or read in part
    # Chunks scanned whole in which no message matched: false positives of the facts.
    chunks_missed: int = 0
    chunks_rejected: int = 0  # by an entry filter
    bytes_read: int = 0  # the length of every opened chunk, or of those of its pages that are read
    bytes_total: int = 0  # the length of every chunk within the scanned offsets
    rows_examined: int = 0
    rows_matched: int = 0
    messages_lost: int = 0  # skipped because they cannot be read
    messages_dropped: int = 0  # by retention, before the scan reached them


class Survivor(NamedTuple):
    """A chunk that the scan has to open, or some pages of one; several of these may be of the same chunk."""

    at: int  # its index in the segment
    all: bool  # every message matches
    within: bool  # every offset is one the scan reads
    nbytes: int  # about; exactly for a whole chunk
    pages: range | None = None  # None: the whole chunk


def survivors(
    segment: Segment,
    filter: NormalFilter,
    entry_filters: tuple[EntryFilter, ...],
    low: int,
    high: int,
    stats: ScanStats,
    chunk_filter: NormalFilter | None = None,
) -> Iterator[Survivor]:
    """Yield the chunks that may hold a match with an offset in [low, high), in the order of the segment.

    A chunk in which no message can match `chunk_filter` is skipped too; in other chunks, messages need not match it.
    """
    start, end = segment.chunks_between(low, high)
    first, last = segment.offset_bounds()
    candidates = np.flatnonzero((last[start:end] >= low) & (first[start:end] < high)) + start
    if not len(candidates):
        return
    lengths = segment.lengths()
    stats.bytes_total += int(lengths[candidates].sum())
    some, every = judge_chunks(segment, filter, candidates)
    if chunk_filter is not None:
        some = some & judge_chunks(segment, chunk_filter, candidates)[0]
    parts = _find_parts(segment, filter, candidates[some & ~every])
    stats.chunks_none += len(candidates) - int(np.count_nonzero(some))
    for at, all_match in zip(candidates[some].tolist(), every[some].tolist(), strict=True):
        within, length = bool(first[at] >= low and last[at] < high), int(lengths[at])
        found = parts.get(at)
        if found is not None and not found:
            stats.chunks_none += 1
        elif entry_filters and not accepts(entry_filters, segment.metadata(at)):
            stats.chunks_rejected += 1
        elif found is None:
            yield Survivor(at, all_match, within, length)
        else:
            for part in found:
                yield Survivor(at, part.all, within, int(part.share * length), part.pages)


def judge_chunks(
    segment: Segment, filter: NormalFilter, candidates: ChunkNumbers
) -> tuple[Flags, Flags]:
    """Return for each of these chunks whether it may hold a match, and whether every message of it matches."""
    start, end = int(candidates[0]), int(candidates[-1]) + 1
    facts = segment.facts(start, end)
    if filter.tree == TRUE:
        filled = facts.rows[candidates - start] > 0
        return filled, filled
    judged = judge(filter, facts)
    return judged.some[candidates - start], judged.all[candidates - start]


# ---- pages -------------------------------------------------------------------------------------------


class ChunkPart(NamedTuple):
    """Pages of a chunk, one behind the other, that may hold a match."""

    pages: range
    all: bool  # every message matches
    share: float  # of the rows of the chunk


def _find_parts(
    segment: Segment, filter: NormalFilter, chunks: ChunkNumbers
) -> dict[int, list[ChunkPart]]:
    pages = segment.pages if len(chunks) else None
    if pages is None:
        return {}
    try:
        return find_parts(pages, filter, segment.facts(), chunks)
    except StreamCorrupt:  # of a dictionary: reading its column reports it
        return {}


def find_parts(
    pages: PageFacts, filter: NormalFilter, known: Facts, chunks: ChunkNumbers
) -> dict[int, list[ChunkPart]]:
    """Return the parts of each of these chunks that may hold a match; a chunk to be read whole is left out."""
    fields = fields_read(filter.tree) & pages.fields
    if not fields:
        return {}
    judged = judge(filter, pages.facts_of(chunks, fields, known))
    counts = pages.first[chunks + 1] - pages.first[chunks]
    ends = np.cumsum(counts)
    left = np.add.reduceat(judged.some, ends - counts, dtype=np.int64)
    found = {}
    for i in np.flatnonzero(left < counts).tolist():
        of_chunk = slice(ends[i] - counts[i], ends[i])
        parts = _parts(judged.some[of_chunk], judged.all[of_chunk], int(known.rows[chunks[i]]))
        if not parts or parts[0].share < 1:
            found[int(chunks[i])] = parts
    return found


def _parts(some: Flags, every: Flags, rows: int) -> list[ChunkPart]:
    """Join pages that may match, and are near to each other, to parts."""
    ranges: list[range] = []
    for page in some.nonzero()[0].tolist():
        near = ranges and page - ranges[-1][-1] <= NEAR
        start = ranges.pop().start if near else page
        ranges.append(range(start, page + 1))
    whole = every.tolist()
    return [
        ChunkPart(
            pages,
            all(whole[pages.start : pages.stop]),
            (min(pages.stop * PAGE_ROWS, rows) - pages.start * PAGE_ROWS) / rows,
        )
        for pages in ranges
    ]
