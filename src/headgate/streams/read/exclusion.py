"""Which full segments hold no match, judged all at once, with one row of facts for each segment instead of each chunk.

The facts come from the outlines in a file of the stream, and from segments that are open. A segment that is not excluded
here is judged chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from headgate.filters import (
    KINDS,
    ChunkNumbers,
    DistinctSets,
    Facts,
    Field,
    FieldFacts,
    Flags,
    NormalFilter,
    ValueRange,
    fields_read,
)
from headgate.filters.compile import judge
from headgate.message import Scalar
from headgate.streams.listing import Listing
from headgate.streams.outlines import Outlines
from headgate.streams.segments.bloom import BloomShape, hash_value, probe, salts
from headgate.streams.segments.outline import (
    BLOOM_HASHES,
    FieldOutline,
    Outline,
    describe_field,
)
from headgate.streams.segments.summarized import SummarizedSegment

_GROUP: Final = 256  # outlines that are judged together


class Excluded(NamedTuple):
    """A segment that a scan does not open: its end, and the chunks and bytes that the scan counts as skipped."""

    next_offset: int
    chunks: int
    nbytes: int


# ---- outlines in the file ----------------------------------------------------------------------------


class OutlinedSegments:
    """The segments with an outline in the file of their stream. For one thread at a time."""

    def __init__(self, outlines: Outlines) -> None:
        self._outlines = outlines
        # Each of _GROUP outlines; the last may have fewer.
        self._groups: list[SegmentGroup[Outline]] = []
        self._grouped = 0  # outlines in them
        self._checked: dict[str, Outline] = {}  # by the name of the file that it is the outline of

    def read_on(self) -> None:
        """Read what was appended to the file."""
        if not self._outlines.read_on():
            self._groups, self._grouped, self._checked = [], 0, {}
        known = self._outlines.known
        if len(known) > self._grouped:
            whole = self._grouped // _GROUP
            starts = range(whole * _GROUP, len(known), _GROUP)
            self._groups[whole:] = [SegmentGroup(known[at : at + _GROUP]) for at in starts]
            self._grouped = len(known)

    def exclude(self, filter: NormalFilter, listing: Listing) -> dict[int, Excluded]:
        """Return, by first offset, listed segments that certainly hold no match."""
        found = {}
        for group in self._groups:
            for i in group.exclude(filter):
                outline = group.segments[i]
                if self._is_listed(outline, listing):
                    found[outline.first_offset] = Excluded(
                        outline.next_offset, outline.chunks, outline.nbytes
                    )
        return found

    def _is_listed(self, outline: Outline, listing: Listing) -> bool:
        """Return whether a listed file has this outline. A file is checked once: one that replaces it has no more messages."""
        name = outline.name
        file = listing.by_name.get(name)
        if file is None:
            return False
        if self._checked.get(name) is not outline and outline.is_of(file.path):
            self._checked[name] = outline
        return self._checked.get(name) is outline

    def __contains__(self, name: str) -> bool:
        """Whether the file of this name is known to have an outline."""
        return name in self._checked


@dataclass(frozen=True, slots=True)
class OpenSegment:
    """An open segment, described by the facts about its chunks."""

    segment: SummarizedSegment

    @property
    def first_offset(self) -> int:
        return self.segment.first_offset

    @property
    def rows(self) -> int:
        return int(self.segment.facts().rows.sum())

    def describe(self, fields: Collection[Field]) -> list[FieldOutline]:
        facts = self.segment.facts()
        return [describe_field(facts, field) for field in fields]

    def as_excluded(self) -> Excluded:
        segment = self.segment
        return Excluded(segment.next_offset, len(segment), int(segment.lengths().sum()))


# ---- facts about many segments -----------------------------------------------------------------------


class Described(Protocol):
    """A segment with facts about it as a whole."""

    @property
    def first_offset(self) -> int: ...

    @property
    def rows(self) -> int: ...

    def describe(self, fields: Collection[Field]) -> list[FieldOutline]: ...


DescribedT = TypeVar("DescribedT", bound=Described)


class SegmentGroup(Mapping[Field, FieldFacts], Generic[DescribedT]):
    """Facts about segments, one row each. Those about a field are gathered when a filter first asks for it."""

    def __init__(self, segments: Sequence[DescribedT]) -> None:
        self.segments = segments
        self._rows = np.array([segment.rows for segment in segments], np.int64)
        self._known: dict[Field, FieldFacts] = {}
        self._blooms: dict[Field, list[_Blooms]] = {}

    def exclude(self, filter: NormalFilter) -> list[int]:
        """Return the positions of the segments that certainly hold no match."""
        if not self.segments:
            return []
        self._gather(fields_read(filter.tree) - self._known.keys())
        some = judge(filter, Facts(self._rows, self, self._probe)).some
        excluded: list[int] = np.flatnonzero(~some).tolist()
        return excluded

    def _gather(self, fields: Collection[Field]) -> None:
        if not fields:
            return
        described = [segment.describe(fields) for segment in self.segments]
        for field, parts in zip(fields, zip(*described, strict=True), strict=True):
            self._blooms[field] = _stack_blooms(parts, self.segments)
            self._known[field] = _join(parts)

    def _probe(self, field: Field, value: Scalar, segments: ChunkNumbers) -> Flags | None:
        blooms = self._blooms.get(field)
        if not blooms:
            return None
        found = np.ones(len(self.segments), np.bool_)
        for bloom in blooms:
            found[bloom.segments] = probe(
                bloom.shape, bloom.filters, bloom.salts, hash_value(field, value)
            )
        return found[segments]

    def __getitem__(self, field: Field) -> FieldFacts:
        return self._known[field]

    def __contains__(self, field: object) -> bool:
        return field in self._known

    def __iter__(self) -> Iterator[Field]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


class _Blooms(NamedTuple):
    """The Bloom filters of one shape, of those segments that have one."""

    shape: BloomShape
    segments: npt.NDArray[np.intp]
    filters: npt.NDArray[np.uint8]
    salts: npt.NDArray[np.uint64]


def _stack_blooms(parts: Sequence[FieldOutline], segments: Sequence[Described]) -> list[_Blooms]:
    by_length: dict[int, list[int]] = {}
    for i, part in enumerate(parts):
        if part.bloom:
            by_length.setdefault(len(part.bloom), []).append(i)
    return [
        _Blooms(
            BloomShape(length, BLOOM_HASHES),
            np.array(found, np.intp),
            np.frombuffer(b"".join(parts[i].bloom or b"" for i in found), np.uint8).reshape(
                -1, length
            ),
            salts(np.array([segments[i].first_offset for i in found], np.int64)),
        )
        for length, found in by_length.items()
    ]


def _join(found: Sequence[FieldOutline]) -> FieldFacts:
    covered = np.array([part.covered for part in found], np.bool_)
    kinds = [kind for kind in KINDS if any(kind in part.ranges for part in found)]
    has_values = any(part.values is not None for part in found)
    return FieldFacts(
        {kind: _join_ranges([part.ranges.get(kind) for part in found]) for kind in kinds},
        covered=None if covered.all() else covered,
        opaque=np.array([part.opaque for part in found], np.int64),
        distinct=DistinctSets.of(part.values for part in found) if has_values else None,
    )


def _join_ranges(found: Sequence[tuple[int, Any, Any] | None]) -> ValueRange:
    some = next(part for part in found if part is not None)
    parts = [(0, some[1], some[2]) if part is None else part for part in found]
    counts, lows, highs = zip(*parts, strict=True)
    dtype = object if isinstance(some[1], str) else np.asarray(some[1]).dtype
    return ValueRange(np.array(counts, np.int64), np.array(lows, dtype), np.array(highs, dtype))
