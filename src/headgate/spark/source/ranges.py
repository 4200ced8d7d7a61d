"""Which offsets of which streams a Spark task reads: planned on the driver, scanned on an executor.

The driver asks the summaries and leaves out what holds no match; an executor asks them again, which is cheap, so
sealing between the two cannot make an answer wrong, and what retention drops between the two is an error. A clustered segment is never split: every part of
its offsets lies all over it.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.clock import now_us
from headgate.spark.source.planned import PlannedCatalog
from headgate.streams import load_options
from headgate.streams.read import (
    Scan,
    ScanStats,
    SegmentCatalog,
    StreamQuery,
    resolve_entry_filters,
    survivors,
    sweep_segment,
)
from headgate.streams.segments import Segment

SMALLEST_PART: Final = 1 << 20  # bytes; less than that is not worth a task of its own
LARGEST_PART: Final = 512 << 20  # starting a task costs what scanning some 100 MiB does

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """The offsets [low, high) of the stream in the directory `path`."""

    path: str
    low: int
    high: int


class Run(NamedTuple):
    """Chunks of one segment that may hold matches; it may be cut between any two of them."""

    path: str
    lows: Numbers
    highs: Numbers
    weights: Numbers  # bytes


class Piece(NamedTuple):
    weight: int
    range: Range


def plan(
    paths: Sequence[str],
    query: StreamQuery,
    *,
    start: Mapping[str, int] | None = None,
    end: Mapping[str, int] | None = None,
    parts: int = 0,
    cores: int = 0,
    catalog_of: Callable[[str], SegmentCatalog] | None = None,
    stats: ScanStats | None = None,
) -> list[tuple[Range, ...]]:
    """Tasks of about the same weight that together hold every match; none when there is none.

    At most `parts`; 0 for as many as the weight is worth on so many cores, 0 for those of this machine. A stream
    missing in `start` is read from its oldest message, one missing in `end` up to its newest. `stats` counts what was
    come by and left out.
    """
    bound, listed = query.at(now_us()), catalog_of or listing
    since, until = start or {}, end or {}
    runs = [
        run
        for path in paths
        for run in _runs(
            listed(path),
            own_query(path, bound),
            path,
            since.get(path),
            until.get(path),
            ScanStats() if stats is None else stats,
        )
    ]
    total = sum(int(run.weights.sum()) for run in runs)
    tasks = parts or worthwhile(total, cores or os.cpu_count() or 1)
    pieces = [piece for run in runs for piece in cut(run, -(-total // tasks))]
    return balanced(pieces, tasks)


def listing(path: str) -> SegmentCatalog:
    """The segments that the stream in this directory has now."""
    return SegmentCatalog(Path(path))


def scan(range: Range, query: StreamQuery, catalog: SegmentCatalog | None = None) -> Scan:
    """The matches with an offset in the range, as stream columns in the order of offsets."""
    listed = catalog or PlannedCatalog(range.path)
    return Scan(listed, own_query(range.path, query), range.low, range.high)


def sweep(
    range: Range, query: StreamQuery, catalog: SegmentCatalog | None = None
) -> Iterator[pa.RecordBatch]:
    """The same matches as they lie: a clustered segment is not brought back into the order of offsets."""
    listed, own = catalog or PlannedCatalog(range.path), own_query(range.path, query)
    position, bound, stats = range.low, own.at(now_us()), ScanStats()
    while position < range.high and (segment := listed.covering(position)) is not None:
        low, high = max(position, segment.first_offset), min(segment.next_offset, range.high)
        yield from sweep_segment(segment, bound, low, high, stats)
        position = max(position, high)


def own_query(path: str, query: StreamQuery) -> StreamQuery:
    """The query with the entry filters that every reader of this stream applies."""
    own = resolve_entry_filters(load_options(Path(path)).entry_filters)
    return replace(query, entry_filters=(*own, *query.entry_filters)) if own else query


# ---- what survives -----------------------------------------------------------------------------------


def _runs(
    catalog: SegmentCatalog,
    own: StreamQuery,
    path: str,
    start: int | None,
    end: int | None,
    stats: ScanStats,
) -> Iterator[Run]:
    until = catalog.next_offset() if end is None else end
    position = catalog.first_offset() if start is None else start
    while position < until and (segment := catalog.covering(position)) is not None:
        low, high = max(position, segment.first_offset), min(segment.next_offset, until)
        run = _run(path, segment, own, low, high, stats)
        if len(run.lows):
            yield run
        position = max(position, high)


def _run(
    path: str, segment: Segment, query: StreamQuery, low: int, high: int, stats: ScanStats
) -> Run:
    found = survivors(segment, query.filter, query.entry_filters, low, high, stats)
    chosen = np.array([survivor.at for survivor in found], np.intp)
    first, last = (bound[chosen] for bound in segment.offset_bounds())
    run = Run(path, np.maximum(first, low), np.minimum(last + 1, high), segment.lengths()[chosen])
    return run if (first[1:] > last[:-1]).all() else _whole(run)


def _whole(run: Run) -> Run:
    lowest, highest, weight = run.lows.min(), run.highs.max(), run.weights.sum()
    return Run(run.path, np.array([lowest]), np.array([highest]), np.array([weight]))


# ---- fair shares -------------------------------------------------------------------------------------


def worthwhile(total: int, cores: int) -> int:
    """How many tasks so many bytes are worth."""
    wanted = max(1, min(cores, total // SMALLEST_PART), total // LARGEST_PART)
    return wanted if wanted <= cores else -(-wanted // cores) * cores  # no core idles at the end


def cut(run: Run, target: int) -> Iterator[Piece]:
    """The run in pieces of about `target` bytes."""
    ends = np.cumsum(run.weights, dtype=np.int64)
    share = (ends - 1) // max(target, 1)
    borders = [0, *(np.flatnonzero(np.diff(share)) + 1).tolist(), len(share)]
    for first, behind in pairwise(borders):
        offsets = Range(run.path, int(run.lows[first]), int(run.highs[behind - 1]))
        yield Piece(int(run.weights[first:behind].sum()), offsets)


def balanced(pieces: Iterable[Piece], parts: int) -> list[tuple[Range, ...]]:
    """The pieces on at most `parts` tasks: the heaviest first, each to whoever has least."""
    heaviest = sorted(pieces, key=lambda piece: (-piece.weight, piece.range))
    shares: list[list[Range]] = [[] for _ in heaviest[:parts]]
    lightest = [(0, at) for at in range(len(shares))]
    for weight, offsets in heaviest:
        carried, at = heapq.heappop(lightest)
        shares[at].append(offsets)
        heapq.heappush(lightest, (carried + weight, at))
    return [joined(share) for share in shares if share]


def in_sequence(tasks: Sequence[tuple[Range, ...]]) -> list[tuple[Range, ...]]:
    """The same ranges on as many tasks, each task's before those of the next: what is copied keeps its order."""
    ranges = sorted(one for task in tasks for one in task)
    whole, before = sum(one.high - one.low for one in ranges), 0
    shares: list[list[Range]] = [[] for _ in tasks]
    for one in ranges:
        middle = before + (one.high - one.low) // 2
        shares[middle * len(tasks) // whole].append(one)
        before += one.high - one.low
    return [joined(share) for share in shares if share]


def joined(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """The same offsets in order, neighbours as one range."""
    found: list[Range] = []
    for one in sorted(ranges):
        if found and found[-1].path == one.path and found[-1].high == one.low:
            found[-1] = replace(found[-1], high=one.high)
        else:
            found.append(one)
    return tuple(found)
