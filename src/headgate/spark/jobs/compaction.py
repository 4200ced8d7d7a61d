"""Compaction on Spark: a task reads its sealed segments and writes one Parquet file; no message crosses into the JVM.

What comes back are manifests. The driver commits them wave by wave, so that a job that dies has not worked in vain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from headgate.clock import now_us
from headgate.spark.sessions import UNSEEN_CORES, cores_of
from headgate.streams.cold import (
    ColdTask,
    CompactionResult,
    WrittenColdFile,
    compaction,
    try_write_cold,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Called with how many Parquet files are written, and how many there will be.
OnProgress: TypeAlias = Callable[[int, int], None]

TASKS_PER_CORE: Final = 4  # of one wave
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
    """Make the sealed segments of a stream cold: all, those of messages older than this, or those before an offset."""
    now = clock()
    return compaction.compact(
        path,
        lambda tasks: _written(spark, tasks, on_progress),
        to=to,
        horizon_us=None if older_than is None else now - older_than // timedelta(microseconds=1),
        before_offset=before_offset,
        created_us=now,
    )


def _written(
    spark: SparkSession, tasks: Sequence[ColdTask], on_progress: OnProgress | None
) -> Iterator[WrittenColdFile | str]:
    size = TASKS_PER_CORE * (cores_of(spark) or UNSEEN_CORES)
    for start in range(0, len(tasks), size):
        if on_progress is not None:
            on_progress(start, len(tasks))
        yield from _wave(spark, tasks[start : start + size])


def _wave(spark: SparkSession, tasks: Sequence[ColdTask]) -> Iterator[WrittenColdFile | str]:
    def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield _described(try_write_cold(tasks[number]))

    numbered = spark.range(0, len(tasks), 1, len(tasks))
    for row in numbered.mapInArrow(answer, _DDL).collect():
        yield _result(row.asDict())


def _described(result: WrittenColdFile | str) -> pa.RecordBatch:
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
