"""The offsets that each Spark task reads: planned on the driver, scanned on an executor.

The driver reads the summaries and leaves out chunks without a match. An executor reads them again, which is cheap, so
sealing in between cannot make an answer wrong; messages that retention deletes in between are an error. A clustered
segment is never split: every part of its offsets is spread over the whole segment.
"""

from __future__ import annotations

import heapq
import logging
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
from headgate.errors import DataLost
from headgate.spark.source.projection import join_short
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
from headgate.streams.segments import SealedSegment, Segment

SMALLEST_TASK: Final = 1 << 20  # bytes; less is not worth a task of its own
LARGEST_TASK: Final = 512 << 20  # starting a task costs as much as scanning some 100 MiB
LOSS_HINT: Final = (
    "skip them with failOnDataLoss=false, or fail_on_data_loss = false in a pipeline's [source]"
)

_Ints = npt.NDArray[np.int64]

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets [low, high) of the stream in the directory `path`."""

    path: str
    low: int
    high: int


class Run(NamedTuple):
    """Chunks of one segment that may hold matches; it can be cut between any two of them."""

    path: str
    lows: _Ints
    highs: _Ints
    weights: _Ints  # bytes of the pages to read


class WeightedRange(NamedTuple):
    """A range, and the bytes of its chunks."""

    weight: int
    range: OffsetRange


def plan(
    paths: Sequence[str],
    query: StreamQuery,
    *,
    start: Mapping[str, int] | None = None,
    end: Mapping[str, int] | None = None,
    tasks: int = 0,
    cores: int = 0,
    catalog_of: Callable[[str], SegmentCatalog] | None = None,
    stats: ScanStats | None = None,
) -> list[tuple[OffsetRange, ...]]:
    """Plan tasks of similar weight that together hold every match; no task when no chunk can match.

    There are at most `tasks` of them; 0 lets the bytes to read and `cores` decide (0: the cores of this machine). A stream
    missing in `start` is read from its oldest message, one missing in `end` up to its newest. `stats` counts the
    scanned and skipped chunks.
    """
    bound, open_catalog = query.at(now_us()), catalog_of or stream_catalog
    since, until = start or {}, end or {}
    runs = [
        run
        for path in paths
        for run in _runs(
            open_catalog(path),
            own_query(path, bound),
            path,
            since.get(path),
            until.get(path),
            ScanStats() if stats is None else stats,
        )
    ]
    total = sum(int(run.weights.sum()) for run in runs)
    count = tasks or worthwhile_tasks(total, cores or os.cpu_count() or 1)
    pieces = [piece for run in runs for piece in cut(run, -(-total // count))]
    return balance(pieces, count)


def scan(range: OffsetRange, query: StreamQuery, catalog: SegmentCatalog | None = None) -> Scan:
    """Scan a range: its matches, as stream columns in the order of offsets."""
    own = catalog or PlannedCatalog(range.path)
    return Scan(own, own_query(range.path, query), range.low, range.high)


def sweep(
    range: OffsetRange,
    query: StreamQuery,
    catalog: SegmentCatalog | None = None,
    stats: ScanStats | None = None,
) -> Iterator[pa.RecordBatch]:
    """Scan a range in storage order: its matches, clustered where segments are clustered."""
    catalog, own = catalog or PlannedCatalog(range.path), own_query(range.path, query)
    position, bound, counted = range.low, own.at(now_us()), stats or ScanStats()
    while position < range.high and (segment := catalog.covering(position)) is not None:
        low, high = max(position, segment.first_offset), min(segment.next_offset, range.high)
        matches = sweep_segment(segment, bound, low, high, counted)
        # Converting a few large batches takes less time than many small ones.
        yield from join_short(matches) if isinstance(segment, SealedSegment) else matches
        position = max(position, high)


def own_query(path: str, query: StreamQuery) -> StreamQuery:
    """Add the entry filters that every reader of this stream applies to the query."""
    own = resolve_entry_filters(load_options(Path(path)).entry_filters)
    return replace(query, entry_filters=(*own, *query.entry_filters)) if own else query


# ---- catalogs ----------------------------------------------------------------------------------------


def stream_catalog(path: str) -> SegmentCatalog:
    """The segments that the stream in this directory has now."""
    return SegmentCatalog(Path(path))


class PlannedCatalog(SegmentCatalog):
    """The segments of a stream, asked only for offsets that existed when they were planned.

    Messages that are gone are a `DataLost`, or a line in the log when `fail` is false.
    """

    def __init__(self, path: str, *, fail: bool = True, hint: str = LOSS_HINT) -> None:
        super().__init__(Path(path))
        self._path, self._fail, self._hint = path, fail, hint

    def covering(self, offset: int) -> Segment | None:
        segment = super().covering(offset)
        if segment is None:
            self._lose(
                f"{self._path}: the stream ends before offset {offset}, which existed when it was planned"
            )
        elif segment.first_offset > offset:
            last = segment.first_offset - 1
            self._lose(
                f"{self._path}: offsets {offset} to {last} were deleted before the query read them"
            )
        return segment

    def _lose(self, problem: str) -> None:
        report_loss(problem, f"keep more (max_age, max_bytes), or {self._hint}", fail=self._fail)


def report_loss(problem: str, remedy: str, *, fail: bool) -> None:
    """Raise `DataLost`, or only log the loss when `fail` is false."""
    if fail:
        raise DataLost(f"{problem}; {remedy}")
    _log.warning("%s", problem)


# ---- chunks that may match ---------------------------------------------------------------------------


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
    excluded = catalog.exclude(own.filter, position, until)
    while position < until:
        known = excluded.get(position)
        if known is not None and known.next_offset <= until:
            stats.chunks_none += known.chunks
            stats.bytes_total += known.nbytes
            position = known.next_offset
            continue
        segment = catalog.covering(position)
        if segment is None:
            return
        low, high = max(position, segment.first_offset), min(segment.next_offset, until)
        run = _run(path, segment, own, low, high, stats)
        if len(run.lows):
            yield run
        position = max(position, high)


def _run(
    path: str, segment: Segment, query: StreamQuery, low: int, high: int, stats: ScanStats
) -> Run:
    weight_of: dict[int, int] = {}
    for part in survivors(segment, query.filter, query.entry_filters, low, high, stats):
        weight_of[part.at] = weight_of.get(part.at, 0) + part.nbytes
    chunks, weights = (
        np.array(list(weight_of), np.intp),
        np.array(list(weight_of.values()), np.int64),
    )
    first, last = (bound[chunks] for bound in segment.offset_bounds())
    run = Run(path, np.maximum(first, low), np.minimum(last + 1, high), weights)
    return run if (first[1:] > last[:-1]).all() else _merge_chunks(run)


def _merge_chunks(run: Run) -> Run:
    lowest, highest, weight = run.lows.min(), run.highs.max(), run.weights.sum()
    return Run(run.path, np.array([lowest]), np.array([highest]), np.array([weight]))


# ---- tasks of similar weight -------------------------------------------------------------------------


def worthwhile_tasks(total: int, cores: int) -> int:
    """Choose the number of tasks to read this many bytes on this many cores."""
    tasks = max(1, min(cores, total // SMALLEST_TASK), total // LARGEST_TASK)
    return tasks if tasks <= cores else -(-tasks // cores) * cores  # no core idles at the end


def cut(run: Run, target: int) -> Iterator[WeightedRange]:
    """Cut the run into ranges of about `target` bytes."""
    ends = np.cumsum(run.weights, dtype=np.int64)
    share = (ends - 1) // max(target, 1)
    borders = [0, *(np.flatnonzero(np.diff(share)) + 1).tolist(), len(share)]
    for first, behind in pairwise(borders):
        offsets = OffsetRange(run.path, int(run.lows[first]), int(run.highs[behind - 1]))
        yield WeightedRange(int(run.weights[first:behind].sum()), offsets)


def balance(pieces: Iterable[WeightedRange], count: int) -> list[tuple[OffsetRange, ...]]:
    """Distribute the pieces over at most `count` tasks: heaviest first, each to the task with the least weight."""
    heaviest = sorted(pieces, key=lambda piece: (-piece.weight, piece.range))
    shares: list[list[OffsetRange]] = [[] for _ in heaviest[:count]]
    lightest = [(0, at) for at in range(len(shares))]
    for weight, offsets in heaviest:
        carried, at = heapq.heappop(lightest)
        shares[at].append(offsets)
        heapq.heappush(lightest, (carried + weight, at))
    return [join_ranges(share) for share in shares if share]


def order_tasks(tasks: Sequence[tuple[OffsetRange, ...]]) -> list[tuple[OffsetRange, ...]]:
    """Redistribute the ranges over as many tasks, in order of offsets, so that what tasks write keeps that order."""
    ranges = sorted(one for task in tasks for one in task)
    total, before = sum(one.high - one.low for one in ranges), 0
    shares: list[list[OffsetRange]] = [[] for _ in tasks]
    for one in ranges:
        middle = before + (one.high - one.low) // 2
        shares[middle * len(tasks) // total].append(one)
        before += one.high - one.low
    return [join_ranges(share) for share in shares if share]


def join_ranges(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Sort the ranges, and join neighbours."""
    joined: list[OffsetRange] = []
    for one in sorted(ranges):
        if joined and joined[-1].path == one.path and joined[-1].high == one.low:
            joined[-1] = replace(joined[-1], high=one.high)
        else:
            joined.append(one)
    return tuple(joined)
