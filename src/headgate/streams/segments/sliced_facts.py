"""Facts about a run of chunks, sliced from the facts about all chunks of a segment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from headgate.filters import DistinctSets, Facts, Field, FieldFacts


def slice_facts(facts: Facts, start: int, end: int) -> Facts:
    """Return the facts of the chunks in [start, end)."""
    if (start, end) == (0, len(facts)):
        return facts
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
