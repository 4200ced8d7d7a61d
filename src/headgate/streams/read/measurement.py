"""What a filter costs on a stream: which chunks are skipped, passed whole or scanned, and which of these hold a match.

Verdicts come from the facts about all chunks of a segment at once; only the chunks that these leave open are read.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias
from typing import Literal as OneOf

import numpy as np
import numpy.typing as npt

from headgate.clock import now_us
from headgate.errors import StreamCorrupt, StreamError
from headgate.filters import FilterLike
from headgate.streams.format import SegmentFile
from headgate.streams.outlines import Outlines
from headgate.streams.read.catalog import SealedSegments, SegmentCatalog
from headgate.streams.read.plan import ScanStats, Survivor, judge_chunks
from headgate.streams.read.query import StreamQuery, make_query
from headgate.streams.read.scan import SegmentScan, open_chunk
from headgate.streams.segments.hot_index import count_entries
from headgate.streams.segments.outline import Outline
from headgate.streams.segments.segment import Segment

if TYPE_CHECKING:
    from headgate.streams.stream import Stream

SegmentTier: TypeAlias = OneOf["hot", "sealed", "cold"]
_Numbers: TypeAlias = npt.NDArray[np.int64]


class ChunkOutcome(IntEnum):
    """What a scan does with a chunk."""

    SKIPPED = 0  # the facts prove that no message matches
    PASSED = 1  # the facts prove that every message matches
    SCANNED = 2  # read, and no message matched
    HIT = 3  # read, and some messages matched
    OPEN = 4  # it has to be read, and was not: there was no time left


@dataclass(frozen=True, slots=True)
class SegmentMeasure:
    """The chunks of one segment, in the order of the file."""

    tier: SegmentTier
    first_offset: int
    next_offset: int
    outcomes: npt.NDArray[np.uint8]
    lengths: _Numbers  # bytes on disk
    read: _Numbers  # bytes of them that a scan reads
    matches: _Numbers  # messages


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a scan with a filter does; `hits` counts the scanned chunks that held a match."""

    stats: ScanStats
    hits: int

    @property
    def false_positives(self) -> int:
        """Chunks that were scanned and held no match."""
        return self.stats.chunks_some - self.hits

    @property
    def chunks(self) -> int:
        return self.stats.chunks_none + self.stats.chunks_all + self.stats.chunks_some


def measure(stream: Stream, filter: FilterLike) -> Measurement:
    """Judge every chunk of the stream, and count the matches of those that have to be scanned."""
    query, stats, hits = make_query(filter).at(now_us()), ScanStats(), 0
    catalog = SegmentCatalog(stream.path)
    position = catalog.first_offset()
    while (segment := catalog.covering(position)) is not None:
        position = segment.next_offset
        found = _measure_segment(segment, "hot", query, stats)
        hits += int(np.count_nonzero(found.outcomes == ChunkOutcome.HIT))
    return Measurement(stats, hits)


def measure_chunks(
    directory: Path,
    filter: FilterLike | None,
    *,
    until: float,
    stats: ScanStats,
    sealed: SealedSegments | None = None,
) -> Iterator[SegmentMeasure]:
    """Yield what a scan does with the chunks of each segment, the newest first.

    At the time `until`, of time.monotonic(), reading ends: what has to be read is then OPEN. Each segment gets an equal
    share of the time that is left, so that a look at a large stream shows something of all of it. Segments that cannot
    be read are left out.
    """
    query = make_query(filter).at(now_us())
    catalog = SegmentCatalog(directory, sealed)
    outlines = _read_outlines(directory)
    excluded = catalog.exclude(query.filter, catalog.first_offset(), catalog.next_offset())
    for left, file in zip(range(len(catalog.files), 0, -1), reversed(catalog.files), strict=True):
        known, outline = excluded.get(file.first_offset), outlines.get(file.path.name)
        if known is not None:
            yield _uniform(file, known.next_offset, known.chunks, known.nbytes)
        elif outline is not None and filter is None:
            yield _pass_whole(file, outline)
        elif time.monotonic() > until:
            with suppress(FileNotFoundError):  # sealed or dropped meanwhile
                yield _leave_open(catalog, file, outline)
        else:
            now = time.monotonic()
            yield from _measure_file(catalog, file, query, stats, now + (until - now) / left)


def _read_outlines(directory: Path) -> dict[str, Outline]:
    outlines = Outlines(directory)
    outlines.read_on()
    return {outline.name: outline for outline in outlines.known}


def _measure_file(
    catalog: SegmentCatalog,
    file: SegmentFile,
    query: StreamQuery,
    stats: ScanStats,
    until: float,
) -> Iterator[SegmentMeasure]:
    try:
        yield _measure_segment(catalog.open(file), tier_of(file), query, stats, until)
    except (FileNotFoundError, StreamCorrupt, StreamError):  # sealed, dropped or damaged meanwhile
        return


def tier_of(file: SegmentFile) -> SegmentTier:
    """Return the tier of a segment, by its file."""
    return "cold" if file.cold else "sealed" if file.sealed else "hot"


# ---- one segment -------------------------------------------------------------------------------------


def _measure_segment(
    segment: Segment,
    tier: SegmentTier,
    query: StreamQuery,
    stats: ScanStats,
    until: float = math.inf,
) -> SegmentMeasure:
    outcomes, lengths = _judge(segment, query), segment.lengths()
    whole = outcomes == ChunkOutcome.PASSED
    matches = np.where(whole, segment.facts().rows, 0)
    read = np.where(whole, lengths, 0)
    found = SegmentMeasure(
        tier, segment.first_offset, segment.next_offset, outcomes, lengths, read, matches
    )
    undecided = np.flatnonzero(outcomes == ChunkOutcome.OPEN)
    scan = SegmentScan(segment, query, 0, segment.next_offset, stats, "error")
    if len(undecided) and segment.pages is not None:
        _read_parts(scan, found, until)
    else:
        _count_decided(stats, outcomes, lengths)
        _read_spread(scan, found, undecided, until)
    stats.rows_matched += int(matches.sum())
    return found


def _read_parts(scan: SegmentScan, found: SegmentMeasure, until: float) -> None:
    """Read the chunks that are undecided, or those of their pages that may hold a match."""
    stats = scan.stats
    for survivor in scan.survivors:
        if time.monotonic() > until:
            return
        if survivor.all and survivor.pages is None:
            stats.chunks_all += 1
            stats.bytes_read += survivor.nbytes
        else:
            _read_survivor(scan, survivor, found)
    outcomes = found.outcomes
    outcomes[outcomes == ChunkOutcome.OPEN] = ChunkOutcome.SKIPPED  # by their pages


def _read_spread(
    scan: SegmentScan, found: SegmentMeasure, undecided: npt.NDArray[np.intp], until: float
) -> None:
    """Read chunks that have no pages, in an order that touches every part of the segment early."""
    order = undecided if until == math.inf else np.random.default_rng(0).permutation(undecided)
    for at in order.tolist():
        if time.monotonic() > until:
            return
        _read_survivor(scan, Survivor(at, all=False, within=True, nbytes=0), found)


def _count_decided(stats: ScanStats, outcomes: npt.NDArray[np.uint8], lengths: _Numbers) -> None:
    """Count the chunks that are skipped or passed whole, and the bytes of all."""
    whole = outcomes == ChunkOutcome.PASSED
    stats.chunks_all += int(np.count_nonzero(whole))
    stats.chunks_none += int(np.count_nonzero(outcomes == ChunkOutcome.SKIPPED))
    stats.bytes_total += int(lengths.sum())
    stats.bytes_read += int(lengths[whole].sum())


def _judge(segment: Segment, query: StreamQuery) -> npt.NDArray[np.uint8]:
    """Return SKIPPED, PASSED or OPEN for every chunk."""
    if not len(segment):
        return np.empty(0, np.uint8)
    some, every = judge_chunks(segment, query.filter, np.arange(len(segment)))
    outcomes = np.where(some, ChunkOutcome.OPEN, ChunkOutcome.SKIPPED)
    outcomes[some & every] = ChunkOutcome.PASSED
    return outcomes.astype(np.uint8)


def _read_survivor(scan: SegmentScan, survivor: Survivor, found: SegmentMeasure) -> None:
    """Read a chunk, or some pages of it, and count its matches."""
    at, read, matches = survivor.at, found.read, found.matches
    chunk = open_chunk(scan.segment, at, survivor.pages)
    rows = scan.match_rows(chunk, survivor)
    read[at] += chunk.nbytes
    matches[at] += chunk.num_rows if rows is None else len(rows)
    found.outcomes[at] = ChunkOutcome.HIT if matches[at] else ChunkOutcome.SCANNED


# ---- segments that are not opened --------------------------------------------------------------------


def _uniform(
    file: SegmentFile,
    next_offset: int,
    chunks: int,
    nbytes: int,
    outcome: ChunkOutcome = ChunkOutcome.SKIPPED,
) -> SegmentMeasure:
    """Give every chunk of a segment the same outcome and the same share of its bytes."""
    outcomes = np.full(chunks, outcome, np.uint8)
    lengths = np.full(chunks, nbytes // max(chunks, 1), np.int64)
    nothing: _Numbers = np.zeros(chunks, np.int64)
    return SegmentMeasure(
        tier_of(file), file.first_offset, next_offset, outcomes, lengths, nothing, nothing
    )


def _pass_whole(file: SegmentFile, outline: Outline) -> SegmentMeasure:
    found = _uniform(file, outline.next_offset, outline.chunks, outline.nbytes, ChunkOutcome.PASSED)
    rows = np.full(outline.chunks, outline.rows // max(outline.chunks, 1), np.int64)
    return SegmentMeasure(
        found.tier,
        found.first_offset,
        found.next_offset,
        found.outcomes,
        found.lengths,
        read=found.lengths,
        matches=rows,
    )


def _leave_open(
    catalog: SegmentCatalog, file: SegmentFile, outline: Outline | None
) -> SegmentMeasure:
    if outline is not None:
        return _uniform(
            file, outline.next_offset, outline.chunks, outline.nbytes, ChunkOutcome.OPEN
        )
    end: Final = catalog.end_of(file) or file.first_offset
    chunks = 1 if file.sealed else count_entries(file.path.parent, file.first_offset)
    return _uniform(file, end, chunks, file.path.stat().st_size, ChunkOutcome.OPEN)
