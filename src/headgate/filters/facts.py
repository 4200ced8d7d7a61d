"""Facts about chunks that are known without opening them, for many chunks at once.

Facts only exclude: what is not known stays possible. Everything is an array with one entry for each chunk, so that
planning a scan over a million chunks is a handful of numpy operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as member
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from headgate.filters.nodes import Field, Kind
from headgate.message import Scalar

Flags: TypeAlias = npt.NDArray[np.bool_]
Counts: TypeAlias = npt.NDArray[np.int64]
Bounds: TypeAlias = npt.NDArray[Any]  # int64, float64, bool or, for strings, object
ChunkNumbers: TypeAlias = npt.NDArray[np.intp]  # positions of chunks

# Whether each of these chunks may hold a message whose field has this value. A False is a promise.
ValueProbe: TypeAlias = Callable[[Field, Scalar, ChunkNumbers], Flags | None]


@dataclass(frozen=True, slots=True)
class ValueRange:
    """For each chunk: how many messages hold this kind, and within which bounds. Without a message they mean nothing."""

    count: Counts
    low: Bounds | None = None
    high: Bounds | None = None

    def at(self, chunks: ChunkNumbers) -> ValueRange:
        """Select some chunks."""
        low = None if self.low is None else self.low[chunks]
        high = None if self.high is None else self.high[chunks]
        return ValueRange(self.count[chunks], low, high)


@dataclass(frozen=True, slots=True)
class DistinctSets:
    """For each chunk: all values of a field in it, as codes into one list; only where `complete` is true."""

    values: Sequence[Scalar]
    codes: npt.NDArray[np.intp]
    starts: npt.NDArray[np.intp]  # chunk i holds codes[starts[i]:starts[i + 1]]
    complete: Flags

    @classmethod
    def of(cls, sets: Iterable[Iterable[Scalar] | None]) -> DistinctSets:
        """Make them from one set for each chunk; None where it is not known."""
        code_of: dict[tuple[type, Scalar], int] = {}
        codes: list[int] = []
        starts, complete = [0], []
        for values in sets:
            complete.append(values is not None)
            codes.extend(code_of.setdefault((type(v), v), len(code_of)) for v in values or ())
            starts.append(len(codes))
        return cls(
            [value for _, value in code_of],
            np.array(codes, np.intp),
            np.array(starts, np.intp),
            np.array(complete, np.bool_),
        )

    def any_and_all(self, truth: Flags, chunks: ChunkNumbers) -> tuple[Flags, Flags]:
        """Return for each chunk whether any, and whether every, value in it is true in `truth`."""
        true_before = np.concatenate(([0], np.cumsum(truth[self.codes])))
        starts, ends = self.starts[chunks], self.starts[chunks + 1]
        true_count = true_before[ends] - true_before[starts]
        return true_count > 0, true_count == ends - starts


@dataclass(frozen=True, slots=True)
class FieldFacts:
    """The facts about one field. A kind that is not in `ranges` occurs in no covered chunk."""

    ranges: Mapping[Kind, ValueRange]
    covered: Flags | None = None  # None: all chunks; where False, nothing is known
    opaque: Counts | None = None  # messages with a value that no filter can compare
    distinct: DistinctSets | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about `len(rows)` chunks. A field that is not in `fields` may hold anything."""

    rows: Counts
    fields: Mapping[Field, FieldFacts] = member(default_factory=dict)
    probe: ValueProbe = lambda field, value, chunks: None

    def __len__(self) -> int:
        return len(self.rows)
