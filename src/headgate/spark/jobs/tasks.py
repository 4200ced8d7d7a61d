"""Run a function over the segments of a stream in Spark's tasks.

A task merges the results of its segments, so the data that reaches the driver grows with the number of tasks and not with
the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import uuid4

import numpy as np
import pyarrow as pa

from headgate.spark.sessions import DEFAULT_CORES, cores_of
from headgate.spark.source.ranges import OffsetRange
from headgate.streams.read import SegmentCatalog
from headgate.streams.segments import Segment

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

# Called with the number of finished tasks, and of all tasks.
OnProgress: TypeAlias = Callable[[int, int], None]

TASKS_PER_CORE: Final = 8
_POLL_S: Final = 0.2


def segment_ranges(path: str | Path) -> list[OffsetRange]:
    """The offsets of every segment of the stream that holds messages, oldest first."""
    directory = Path(path).resolve()  # a task may run in another directory than the driver
    catalog = SegmentCatalog(directory)
    ranges, position = [], catalog.first_offset()
    while (segment := catalog.covering(position)) is not None:
        ranges.append(OffsetRange(str(directory), segment.first_offset, segment.next_offset))
        position = segment.next_offset
    return ranges


def sample_ranges(ranges: Sequence[OffsetRange], most: int) -> list[OffsetRange]:
    """Choose at most `most` of the ranges, evenly from the oldest to the newest."""
    if len(ranges) <= most:
        return list(ranges)
    return [ranges[at] for at in np.linspace(0, len(ranges) - 1, most).round().astype(int)]


def open_segments(ranges: Iterable[OffsetRange]) -> Iterator[Segment]:
    """Open the segments of these ranges as they are now, without those that retention has deleted since."""
    for range in ranges:
        segment = SegmentCatalog(Path(range.path)).covering(range.low)
        if segment is not None and segment.first_offset < range.high:
            yield segment


def run_tasks(
    spark: SparkSession,
    ranges: Sequence[OffsetRange],
    work: Callable[[Sequence[OffsetRange]], str],
    on_progress: OnProgress | None = None,
) -> list[str]:
    """Run `work` in tasks, each over neighbouring ranges, and return the result of every task."""
    tasks = min(len(ranges), TASKS_PER_CORE * (cores_of(spark) or DEFAULT_CORES))
    if not tasks:
        return []

    def run_work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = [ranges[i] for batch in batches for i in batch.column("id").to_pylist()]
        results = pa.array([work(own)] if own else [], pa.string())
        yield pa.RecordBatch.from_arrays([results], ["result"])

    numbered = spark.range(0, len(ranges), 1, tasks)
    with report_progress(spark, on_progress):
        rows = numbered.mapInArrow(run_work, "result string").collect()
    return [row.result for row in rows]


@contextmanager
def report_progress(spark: SparkSession, on_progress: OnProgress | None) -> Iterator[None]:
    """Report the progress of jobs that are started inside the block."""
    context, group, done = _context(spark), f"headgate-{uuid4()}", Event()
    if on_progress is None or context is None:
        yield
        return
    context.setJobGroup(group, "headgate")

    def poll() -> None:
        tracker = context.statusTracker()
        while not done.wait(_POLL_S):
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
            ids = [stage for job in jobs if job is not None for stage in job.stageIds]
            stages = [stage for i in ids if (stage := tracker.getStageInfo(i)) is not None]
            on_progress(
                sum(stage.numCompletedTasks for stage in stages),
                sum(stage.numTasks for stage in stages),
            )

    poller = Thread(target=poll, name="headgate-progress", daemon=True)
    poller.start()
    try:
        yield
    finally:
        done.set()
        poller.join()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def _context(spark: SparkSession) -> SparkContext | None:
    """The Spark context; None for a client of Spark Connect, which has no access to it."""
    return getattr(spark, "sparkContext", None)
