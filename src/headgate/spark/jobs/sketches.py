"""Sketches: statistics of very many values in a few kilobytes, which can be merged.

`Distinct` keeps the smallest hashes. While there are few, the number of distinct values is exact; later the largest kept
hash gives an estimate. It also keeps the values of the very smallest hashes: a fair sample of the distinct values,
however often each of them occurs.

`Heavy` keeps the counts of the most frequent values, and how often a value without a count can have occurred at most.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from headgate.message import Scalar

HashArray: TypeAlias = npt.NDArray[np.uint64]
ValuesAt: TypeAlias = Callable[[npt.NDArray[np.intp]], list[Scalar]]  # the values at these places

KEPT: Final = 2048  # hashes: two thousand give an error of 2 %
SAMPLED: Final = 64  # values: within one chunk, pages make some skip much more than others
HEAVY: Final = 128  # values with their counts


@dataclass(frozen=True, slots=True)
class Distinct:
    """How many distinct values there are."""

    hashes: HashArray  # the smallest, ascending, without duplicates
    sample: tuple[tuple[int, Scalar], ...] = ()  # hash and value of the very smallest

    @property
    def exact(self) -> bool:
        return len(self.hashes) < KEPT

    @property
    def estimate(self) -> int:
        if self.exact:
            return len(self.hashes)
        return round((KEPT - 1) / (int(self.hashes[-1]) / 2.0**64))

    @property
    def error(self) -> float:
        """The standard error of the estimate, as a share of it."""
        return 0.0 if self.exact else 1 / math.sqrt(KEPT - 2)

    @property
    def values(self) -> list[Scalar]:
        """A fair sample of the distinct values."""
        return [value for _, value in self.sample]


NO_VALUES: Final = Distinct(np.empty(0, np.uint64))


def distinct_of(hashes: HashArray, values_at: ValuesAt) -> Distinct:
    """Make the sketch of distinct values with these hashes."""
    few = np.argpartition(hashes, KEPT)[:KEPT] if len(hashes) > KEPT else np.arange(len(hashes))
    order = few[np.argsort(hashes[few])]
    first = order[:SAMPLED]
    sample = zip(hashes[first].tolist(), values_at(first), strict=True)
    return Distinct(np.unique(hashes[order]), tuple(sample))


def merge_distinct(one: Distinct, other: Distinct) -> Distinct:
    """Merge the sketches of two sets of values."""
    hashes = np.union1d(one.hashes, other.hashes)[:KEPT]
    sample = sorted(dict((*one.sample, *other.sample)).items())[:SAMPLED]
    return Distinct(hashes, tuple(sample))


@dataclass(frozen=True, slots=True)
class Heavy:
    """The most frequent values; each occurs at least as often as counted, and at most `missed` times more."""

    counts: tuple[tuple[Scalar, int], ...] = ()
    missed: int = 0

    def top(self, most: int) -> list[tuple[Scalar, int]]:
        """Values that are certainly among the most frequent, and how often they occur at least."""
        return [(value, count) for value, count in self.counts[:most] if count > self.missed]


def heavy_of(values_at: ValuesAt, counts: npt.NDArray[np.int64]) -> Heavy:
    """Make the sketch of distinct values with these exact counts."""
    order = np.argsort(-counts, kind="stable")[: HEAVY + 1]
    kept = zip(values_at(order[:HEAVY]), counts[order[:HEAVY]].tolist(), strict=True)
    return Heavy(tuple(kept), int(counts[order[HEAVY]]) if len(order) > HEAVY else 0)


def merge_heavy(one: Heavy, other: Heavy) -> Heavy:
    """Merge the sketches of two sets of values."""
    total: dict[tuple[type, Scalar], int] = {}
    for value, count in (*one.counts, *other.counts):
        total[type(value), value] = total.get((type(value), value), 0) + count
    ranked = sorted(total.items(), key=lambda item: -item[1])
    dropped = ranked[HEAVY][1] if len(ranked) > HEAVY else 0
    kept = tuple((value, count) for (_, value), count in ranked[:HEAVY])
    return Heavy(kept, one.missed + other.missed + dropped)


# ---- as JSON, for the driver -------------------------------------------------------------------------


def distinct_json(sketch: Distinct) -> dict[str, Any]:
    hashes = base64.b64encode(sketch.hashes.astype("<u8").tobytes()).decode()
    return {"hashes": hashes, "sample": [list(pair) for pair in sketch.sample]}


def distinct_from_json(known: dict[str, Any]) -> Distinct:
    hashes = np.frombuffer(base64.b64decode(known["hashes"]), "<u8").astype(np.uint64)
    return Distinct(hashes, tuple((int(hash), value) for hash, value in known["sample"]))


def heavy_json(sketch: Heavy) -> dict[str, Any]:
    return {"counts": [list(pair) for pair in sketch.counts], "missed": sketch.missed}


def heavy_from_json(known: dict[str, Any]) -> Heavy:
    return Heavy(tuple((value, count) for value, count in known["counts"]), known["missed"])
