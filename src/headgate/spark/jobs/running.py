"""One piece of work for every segment of a stream, spread over Spark's tasks.

A task merges what its own segments say before it answers, so what reaches the driver grows with the number of tasks
and not with the stream.
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

from headgate.spark.sessions import UNSEEN_CORES, cores_of
from headgate.spark.source.ranges import Range
from headgate.streams.read import SegmentCatalog
from headgate.streams.segments import Segment

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

# Called with how many tasks are done, and how many there are.
OnProgress: TypeAlias = Callable[[int, int], None]

TASKS_PER_CORE: Final = 8
_LOOK_EVERY_S: Final = 0.2


def segment_ranges(path: str | Path) -> list[Range]:
    """Every segment of the stream that holds messages, oldest first."""
    directory = Path(path).resolve()  # a task may run in another directory than the driver
    catalog = SegmentCatalog(directory)
    found, position = [], catalog.first_offset()
    while (segment := catalog.covering(position)) is not None:
        found.append(Range(str(directory), segment.first_offset, segment.next_offset))
        position = segment.next_offset
    return found


def spread(ranges: Sequence[Range], most: int) -> list[Range]:
    """So many of them at most, evenly from the oldest to the newest."""
    if len(ranges) <= most:
        return list(ranges)
    return [ranges[at] for at in np.linspace(0, len(ranges) - 1, most).round().astype(int)]


def segments(ranges: Iterable[Range]) -> Iterator[Segment]:
    """The segments of these ranges as they are now, without what retention has dropped since."""
    for range in ranges:
        found = SegmentCatalog(Path(range.path)).covering(range.low)
        if found is not None and found.first_offset < range.high:
            yield found


def run(
    spark: SparkSession,
    ranges: Sequence[Range],
    work: Callable[[Sequence[Range]], str],
    on_progress: OnProgress | None = None,
) -> list[str]:
    """What `work` answers to the ranges of each task, neighbours being given to the same one."""
    tasks = min(len(ranges), TASKS_PER_CORE * (cores_of(spark) or UNSEEN_CORES))
    if not tasks:
        return []

    def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        mine = [ranges[i] for batch in batches for i in batch.column("id").to_pylist()]
        answers = pa.array([work(mine)] if mine else [], pa.string())
        yield pa.RecordBatch.from_arrays([answers], ["answer"])

    numbered = spark.range(0, len(ranges), 1, tasks)
    with watched(spark, on_progress):
        rows = numbered.mapInArrow(answer, "answer string").collect()
    return [row.answer for row in rows]


@contextmanager
def watched(spark: SparkSession, on_progress: OnProgress | None) -> Iterator[None]:
    """Report how far the jobs started inside are."""
    context, group, done = _context(spark), f"headgate-{uuid4()}", Event()
    if on_progress is None or context is None:
        yield
        return
    context.setJobGroup(group, "headgate")

    def look() -> None:
        tracker = context.statusTracker()
        while not done.wait(_LOOK_EVERY_S):
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
            ids = [stage for job in jobs if job is not None for stage in job.stageIds]
            stages = [stage for i in ids if (stage := tracker.getStageInfo(i)) is not None]
            on_progress(
                sum(stage.numCompletedTasks for stage in stages),
                sum(stage.numTasks for stage in stages),
            )

    watcher = Thread(target=look, name="headgate-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def _context(spark: SparkSession) -> SparkContext | None:
    """None for a client of Spark Connect: it cannot look into the cluster."""
    return getattr(spark, "sparkContext", None)
