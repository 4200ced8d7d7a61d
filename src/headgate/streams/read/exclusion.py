"""Which sealed segments hold no match, judged all at once: by one row of facts a segment instead of one a chunk.

What is known of a segment as a whole is less than what is known of its chunks, and it has no Bloom filter. A segment that is
not excluded here is judged chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from headgate.filters import (
    KINDS,
    DistinctSets,
    Facts,
    Field,
    FieldFacts,
    Kind,
    NormalFilter,
    ValueRange,
)
from headgate.filters.compile import judge
from headgate.message import Scalar
from headgate.streams.segments.summarized import SummarizedSegment


class Excluded(NamedTuple):
    """A segment that a scan does not open, and what it has to count of it."""

    next_offset: int
    chunks: int
    nbytes: int

    @classmethod
    def of(cls, segment: SummarizedSegment) -> Excluded:
        return cls(segment.next_offset, len(segment), int(segment.lengths().sum()))


class SegmentGroup(Mapping[Field, FieldFacts]):
    """Facts about segments, one row each. Those about a field are gathered when a filter first asks for it."""

    def __init__(self, segments: Sequence[SummarizedSegment]) -> None:
        self._segments = segments
        self._sizes = [Excluded.of(segment) for segment in segments]
        self._rows = np.array([int(s.facts().rows.sum()) for s in segments], np.int64)
        self._known: dict[Field, FieldFacts] = {}

    def exclude(self, filter: NormalFilter) -> dict[int, Excluded]:
        """Return, by first offset, the segments that certainly hold no match."""
        if not self._segments:
            return {}
        some = judge(filter, Facts(self._rows, self)).some
        return {
            self._segments[i].first_offset: self._sizes[i] for i in np.flatnonzero(~some).tolist()
        }

    def __getitem__(self, field: Field) -> FieldFacts:
        if field not in self._known:
            self._known[field] = _join([_describe(s.facts(), field) for s in self._segments])
        return self._known[field]

    def __contains__(self, field: object) -> bool:
        return isinstance(field, Field)

    def __iter__(self) -> Iterator[Field]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


class _FieldOfSegment(NamedTuple):
    ranges: Mapping[Kind, tuple[int, Any, Any]]  # messages with this kind, lowest and highest value
    covered: bool
    opaque: int
    distinct: list[Scalar] | None  # all values; None when they are not known


def _describe(facts: Facts, field: Field) -> _FieldOfSegment:
    known = facts.fields[field]
    ranges, covered = {}, known.covered is None or bool(known.covered.all())
    for kind, found in known.ranges.items():
        present = found.count > 0
        if found.low is None or found.high is None:
            covered = False
        elif present.any():
            low, high = found.low[present].min(), found.high[present].max()
            ranges[kind] = int(found.count.sum()), low, high
    opaque = 0 if known.opaque is None else int(known.opaque.sum())
    return _FieldOfSegment(ranges, covered, opaque, _all_values(known.distinct))


def _all_values(sets: DistinctSets | None) -> list[Scalar] | None:
    if sets is None or not sets.complete.all():
        return None
    return [sets.values[code] for code in np.unique(sets.codes).tolist()]


def _join(found: Sequence[_FieldOfSegment]) -> FieldFacts:
    covered = np.array([part.covered for part in found], np.bool_)
    kinds = [kind for kind in KINDS if any(kind in part.ranges for part in found)]
    has_sets = any(part.distinct is not None for part in found)
    return FieldFacts(
        {kind: _join_ranges([part.ranges.get(kind) for part in found]) for kind in kinds},
        covered=None if covered.all() else covered,
        opaque=np.array([part.opaque for part in found], np.int64),
        distinct=DistinctSets.of(part.distinct for part in found) if has_sets else None,
    )


def _join_ranges(found: Sequence[tuple[int, Any, Any] | None]) -> ValueRange:
    some = next(part for part in found if part is not None)
    parts = [(0, some[1], some[2]) if part is None else part for part in found]
    counts, lows, highs = zip(*parts, strict=True)
    dtype = object if isinstance(some[1], str) else np.asarray(some[1]).dtype
    return ValueRange(np.array(counts, np.int64), np.array(lows, dtype), np.array(highs, dtype))
