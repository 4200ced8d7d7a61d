"""Compaction on Spark: a task reads its sealed segments and writes one Parquet file; no message crosses into the JVM.

Tasks return manifests. The driver commits them wave by wave, so that the work of an interrupted job is not lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headgate.clock import now_us
from headgate.spark.jobs.tasks import OnProgress
from headgate.spark.sessions import DEFAULT_CORES, cores_of
from headgate.streams.cold import (
    ColdTask,
    CompactionResult,
    WrittenColdFile,
    compaction,
    try_write_cold,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAVE_TASKS_PER_CORE: Final = 4  # of one wave
_RESULT: Final = pa.schema(
    [
        ("sources", pa.list_(pa.string())),
        ("first_offset", pa.int64()),
        ("next_offset", pa.int64()),
        ("rows", pa.int64()),
        ("file", pa.string()),
        ("nbytes", pa.int64()),
        ("manifest", pa.binary()),
        ("problem", pa.string()),
    ]
)
_DDL: Final = (
    "sources array<string>, first_offset long, next_offset long, rows long, file string, nbytes long, "
    "manifest binary, problem string"
)


def compact(
    spark: SparkSession,
    path: str | Path,
    *,
    to: str | None = None,
    older_than: timedelta | None = None,
    before_offset: int | None = None,
    clock: Callable[[], int] = now_us,
    on_progress: OnProgress | None = None,
) -> CompactionResult:
    """Move sealed segments of a stream to the cold tier: all, those of messages older than this, or those before an offset.

    `on_progress` is called with the number of Parquet files that are written, and of all that will be written.
    """
    now = clock()
    return compaction.compact(
        path,
        lambda tasks: _write_waves(spark, tasks, on_progress),
        to=to,
        horizon_us=None if older_than is None else now - older_than // timedelta(microseconds=1),
        before_offset=before_offset,
        created_us=now,
    )


def _write_waves(
    spark: SparkSession, tasks: Sequence[ColdTask], on_progress: OnProgress | None
) -> Iterator[WrittenColdFile | str]:
    size = WAVE_TASKS_PER_CORE * (cores_of(spark) or DEFAULT_CORES)
    for start in range(0, len(tasks), size):
        if on_progress is not None:
            on_progress(start, len(tasks))
        yield from _wave(spark, tasks[start : start + size])


def _wave(spark: SparkSession, tasks: Sequence[ColdTask]) -> Iterator[WrittenColdFile | str]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield _to_batch(try_write_cold(tasks[number]))

    numbered = spark.range(0, len(tasks), 1, len(tasks))
    for row in numbered.mapInArrow(write, _DDL).collect():
        yield _result(row.asDict())


def _to_batch(result: WrittenColdFile | str) -> pa.RecordBatch:
    row = dict.fromkeys(_RESULT.names)
    if isinstance(result, str):
        row |= {"problem": result}
    else:
        row |= {name: getattr(result, name) for name in _RESULT.names if name != "problem"}
    return pa.RecordBatch.from_pylist([row], _RESULT)


def _result(row: dict[str, Any]) -> WrittenColdFile | str:
    problem: str | None = row.pop("problem")
    if problem is not None:
        return problem
    return WrittenColdFile(
        **{**row, "sources": tuple(row["sources"]), "manifest": bytes(row["manifest"])}
    )
