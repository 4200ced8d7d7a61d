"""Which chunks of a segment a scan must look at: verdicts from facts, then entry filters. No chunk is opened."""

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
from headgate.message import Scalar
from headgate.streams.read.entry_filters import EntryFilter, accepts
from headgate.streams.segments.segment import Segment


@dataclass(slots=True)
class ScanStats:
    """What a scan has done so far."""

    chunks_none: int = 0  # skipped: the facts say that no message matches
    chunks_all: int = 0  # passed on without looking at messages
    chunks_some: int = 0  # looked into
    chunks_rejected: int = 0  # by an entry filter
    bytes_read: int = 0  # the length of every chunk that was opened
    bytes_total: int = 0  # the length of every chunk the scan came by
    rows_examined: int = 0
    rows_matched: int = 0
    messages_lost: int = 0  # passed over because they cannot be read
    messages_dropped: int = 0  # by retention, before the scan came to them


class Survivor(NamedTuple):
    """A chunk to open."""

    at: int
    all: bool  # every message matches
    within: bool  # every message has an offset the scan asks for


def survivors(
    segment: Segment,
    filter: NormalFilter,
    entry_filters: tuple[EntryFilter, ...],
    low: int,
    high: int,
    stats: ScanStats,
) -> Iterator[Survivor]:
    """The chunks that may hold a match with an offset in [low, high), in the order they lie in the segment."""
    first, last = segment.offset_bounds()
    asked = np.flatnonzero((last >= low) & (first < high))
    if not len(asked):
        return
    stats.bytes_total += int(segment.lengths()[asked].sum())
    some, every = _verdicts(segment, filter, asked)
    stats.chunks_none += len(asked) - int(np.count_nonzero(some))
    for at, all_match in zip(asked[some].tolist(), every[some].tolist(), strict=True):
        if entry_filters and not accepts(entry_filters, segment.metadata(at)):
            stats.chunks_rejected += 1
            continue
        yield Survivor(at, all_match, bool(first[at] >= low and last[at] < high))


def _verdicts(segment: Segment, filter: NormalFilter, asked: Chunks) -> tuple[Flags, Flags]:
    facts = segment.facts()
    if filter.tree == TRUE:
        filled = facts.rows[asked] > 0
        return filled, filled
    start, end = int(asked[0]), int(asked[-1]) + 1
    judged = judge(filter, facts if end - start == len(facts) else sliced(facts, start, end))
    return judged.some[asked - start], judged.all[asked - start]


# ---- some chunks of many -----------------------------------------------------------------------------


def sliced(facts: Facts, start: int, end: int) -> Facts:
    """The facts of the chunks from `start` to `end`: a reader at the tail plans only what is new."""
    return Facts(
        facts.rows[start:end],
        _Sliced(facts.fields, start, end),
        lambda field, value, chunks: _shifted(facts, field, value, chunks, start),
    )


def _shifted(facts: Facts, field: Field, value: Scalar, chunks: Chunks, start: int) -> Flags | None:
    return facts.probe(field, value, chunks + start)


class _Sliced(Mapping[Field, FieldFacts]):
    def __init__(self, fields: Mapping[Field, FieldFacts], start: int, end: int) -> None:
        self._fields, self._start, self._end = fields, start, end

    def __getitem__(self, field: Field) -> FieldFacts:
        known, part = self._fields[field], slice(self._start, self._end)
        chunks = np.arange(self._start, self._end)
        return FieldFacts(
            {kind: found.at(chunks) for kind, found in known.ranges.items()},
            covered=None if known.covered is None else known.covered[part],
            opaque=None if known.opaque is None else known.opaque[part],
            distinct=None if known.distinct is None else _sliced_sets(known.distinct, part),
        )

    def __contains__(self, field: object) -> bool:
        return field in self._fields

    def __iter__(self) -> Iterator[Field]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


def _sliced_sets(sets: DistinctSets, part: slice) -> DistinctSets:
    starts: npt.NDArray[np.intp] = sets.starts[part.start : part.stop + 1]
    return DistinctSets(sets.values, sets.codes, starts, sets.complete[part])
