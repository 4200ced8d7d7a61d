"""The heat strip of a stream: what a filter does with its chunks, grouped into a few cells."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

import numpy as np

from headgate.filters import FilterLike
from headgate.streams.read import (
    ChunkOutcome,
    ScanStats,
    SegmentMeasure,
    SegmentTier,
    measure_chunks,
)

MOST_CELLS: Final = 240
BUDGET_S: Final = 0.3  # of reading chunks
_BY_HEAT: Final = ("hits", "passed", "open", "scanned", "skipped")


@dataclass(frozen=True, slots=True)
class HeatCell:
    """Neighbouring chunks of one tier, counted by what a scan does with them."""

    tier: SegmentTier
    first_offset: int
    next_offset: int
    chunks: int
    skipped: int
    passed: int
    scanned: int  # without a match
    hits: int
    open: int  # not read: the time budget was used up
    bytes: int
    bytes_read: int
    matches: int

    @property
    def heat(self) -> str:
        """The outcome that colours the cell; hits take precedence over all others."""
        return next((name for name in _BY_HEAT if getattr(self, name)), "skipped")


@dataclass(frozen=True, slots=True)
class HeatStrip:
    """The cells of a stream, oldest first, and their sums."""

    cells: tuple[HeatCell, ...]
    seconds: float

    def total(self, name: str) -> int:
        """The sum of one number over all cells."""
        return sum(getattr(cell, name) for cell in self.cells)

    @property
    def complete(self) -> bool:
        """Whether everything that had to be read was read."""
        return not self.total("open")

    @property
    def tiers(self) -> tuple[tuple[SegmentTier, tuple[HeatCell, ...]], ...]:
        """The cells by tier, oldest first: cold, sealed, hot."""
        order: tuple[SegmentTier, ...] = ("cold", "sealed", "hot")
        found = ((tier, tuple(c for c in self.cells if c.tier == tier)) for tier in order)
        return tuple((tier, cells) for tier, cells in found if cells)


def heat_strip(
    stream: Path,
    filter: FilterLike | None = None,
    *,
    most_cells: int = MOST_CELLS,
    budget_s: float = BUDGET_S,
) -> HeatStrip:
    """Judge every chunk of a stream, and read those that the filter needs, as far as the time allows."""
    began = time.monotonic()
    found = list(measure_chunks(stream, filter, until=began + budget_s, stats=ScanStats()))
    found.reverse()
    chunks = sum(len(segment.outcomes) for segment in found)
    size = max(-(-chunks // most_cells), 1)
    cells = [
        cell
        for tier, segments in groupby(found, key=lambda segment: segment.tier)
        for cell in _group(tier, list(segments), size)
    ]
    return HeatStrip(tuple(cells), time.monotonic() - began)


def _group(tier: SegmentTier, segments: Sequence[SegmentMeasure], size: int) -> Iterator[HeatCell]:
    """Join every `size` chunks of neighbouring segments to a cell."""
    counts = [len(segment.outcomes) for segment in segments]
    if not sum(counts):
        return
    outcomes = np.concatenate([segment.outcomes for segment in segments])
    firsts = np.repeat([segment.first_offset for segment in segments], counts)
    ends = np.repeat([segment.next_offset for segment in segments], counts)
    starts = np.arange(0, len(outcomes), size)
    lasts = np.append(starts[1:], len(outcomes)) - 1

    def add(name: str) -> list[int]:
        numbers = np.concatenate([getattr(segment, name) for segment in segments])
        sums: list[int] = np.add.reduceat(numbers, starts).tolist()
        return sums

    def count(outcome: ChunkOutcome) -> list[int]:
        counted: list[int] = np.add.reduceat(outcomes == outcome, starts, dtype=np.int64).tolist()
        return counted

    rows = zip(
        firsts[starts].tolist(),
        ends[lasts].tolist(),
        (lasts - starts + 1).tolist(),
        count(ChunkOutcome.SKIPPED),
        count(ChunkOutcome.PASSED),
        count(ChunkOutcome.SCANNED),
        count(ChunkOutcome.HIT),
        count(ChunkOutcome.OPEN),
        add("lengths"),
        add("read"),
        add("matches"),
        strict=True,
    )
    yield from (HeatCell(tier, *row) for row in rows)
