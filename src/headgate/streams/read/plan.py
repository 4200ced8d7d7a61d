"""Which chunks of a segment a scan must open: verdicts from facts, then entry filters. Opens no chunk itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headgate.filters import (
    TRUE,
    Chunks,
    DistinctSets,
    Facts,
    Field,
    FieldFacts,
    Flags,
    NormalFilter,
)
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
    first, last = segment.offset_bounds()
    candidates = np.flatnonzero((last >= low) & (first < high))
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


def _verdicts(segment: Segment, filter: NormalFilter, candidates: Chunks) -> tuple[Flags, Flags]:
    facts = segment.facts()
    if filter.tree == TRUE:
        filled = facts.rows[candidates] > 0
        return filled, filled
    start, end = int(candidates[0]), int(candidates[-1]) + 1
    judged = judge(filter, facts if end - start == len(facts) else slice_facts(facts, start, end))
    return judged.some[candidates - start], judged.all[candidates - start]


# ---- facts about a part of the chunks ----------------------------------------------------------------


def slice_facts(facts: Facts, start: int, end: int) -> Facts:
    """Return the facts of the chunks in [start, end): a consumer at the tail plans only the new ones."""
    return Facts(
        facts.rows[start:end],
        _SlicedFields(facts.fields, start, end),
        lambda field, value, chunks: facts.probe(field, value, chunks + start),
    )


class _SlicedFields(Mapping[Field, FieldFacts]):
    def __init__(self, fields: Mapping[Field, FieldFacts], start: int, end: int) -> None:
        self._fields, self._start, self._end = fields, start, end

    def __getitem__(self, field: Field) -> FieldFacts:
        known, part = self._fields[field], slice(self._start, self._end)
        chunks = np.arange(self._start, self._end)
        return FieldFacts(
            {kind: found.at(chunks) for kind, found in known.ranges.items()},
            covered=None if known.covered is None else known.covered[part],
            opaque=None if known.opaque is None else known.opaque[part],
            distinct=None if known.distinct is None else _slice_sets(known.distinct, part),
        )

    def __contains__(self, field: object) -> bool:
        return field in self._fields

    def __iter__(self) -> Iterator[Field]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


def _slice_sets(sets: DistinctSets, part: slice) -> DistinctSets:
    starts: npt.NDArray[np.intp] = sets.starts[part.start : part.stop + 1]
    return DistinctSets(sets.values, sets.codes, starts, sets.complete[part])
