"""Measuring a stream on Spark: a task sums up what is in its segments, and the driver adds the sums."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.columns import field_key, parse_column_name
from headgate.filters import Field
from headgate.message import Scalar
from headgate.spark.jobs.rows import SegmentRows, read_everything
from headgate.spark.jobs.running import OnProgress, run, segment_ranges, segments
from headgate.spark.jobs.sketches import distinct_of, heavy_of
from headgate.spark.jobs.stats import (
    SIZE_CLASSES,
    FieldStats,
    StreamStats,
    Tier,
    Values,
    from_json,
    merge_fields,
    merged,
    to_json,
)
from headgate.spark.source.ranges import Range
from headgate.streams.segments import (
    Numbers,
    Scattered,
    Segment,
    SegmentColumn,
    Words,
    hash_numbers,
    hash_texts,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def stream_stats(
    spark: SparkSession, path: str | Path, on_progress: OnProgress | None = None
) -> StreamStats:
    """Measure the whole stream, one segment after the other on every core."""
    return measured(spark, segment_ranges(path), on_progress)


def measured(
    spark: SparkSession, ranges: Sequence[Range], on_progress: OnProgress | None = None
) -> StreamStats:
    """The same of some of its segments."""
    return merged(map(from_json, run(spark, ranges, measure_ranges, on_progress)))


def measure_ranges(ranges: Sequence[Range]) -> str:
    """What a task does: measure its segments, and answer with their sum."""
    return to_json(merged(map(measure_segment, segments(ranges))))


# ---- one segment -------------------------------------------------------------------------------------


def measure_segment(segment: Segment) -> StreamStats:
    """All there is to know about one segment."""
    rows = read_everything(segment)
    tier = Tier(1, len(segment), int(segment.lengths().sum()))
    first, last = _time_span(rows)
    return StreamStats(
        messages=len(rows),
        payload_bytes=int(rows.sizes.sum()),
        largest_payload=int(rows.sizes.max(initial=0)),
        size_classes=_size_classes(rows.sizes),
        first_us=first,
        last_us=last,
        tiers={tier_of(segment): tier},
        fields=_fields(rows),
    )


def tier_of(segment: Segment) -> str:
    """In which form the segment is stored."""
    return str(getattr(segment, "tier", "sealed" if segment.sealed else "hot"))


def _time_span(rows: SegmentRows) -> tuple[int | None, int | None]:
    column = rows.columns.get("timestamp")
    if not isinstance(column, Numbers):
        return None, None
    return int(column.values.min()), int(column.values.max())


def _size_classes(sizes: npt.NDArray[np.int64]) -> tuple[int, ...]:
    classes = np.ceil(np.log2(sizes + 1.0)).astype(np.int64)
    return tuple(np.bincount(classes, minlength=SIZE_CLASSES).tolist())


def _fields(rows: SegmentRows) -> dict[str, FieldStats]:
    found: dict[str, FieldStats] = {}
    for name, column in rows.columns.items():
        field, view = parse_column_name(name)
        if field is None or view is None or name == "timestamp":
            continue
        own = _opaque(column) if view == "opaque" else FieldStats({view: _values(field, column)})
        key = field_key(field)
        found[key] = merge_fields(found.get(key, FieldStats()), own)
    return found


def _opaque(column: SegmentColumn) -> FieldStats:
    assert isinstance(column, Numbers)
    marked = column.values if column.valid is None else column.values & column.valid
    return FieldStats(opaque=int(np.count_nonzero(marked)))


def _values(field: Field, column: SegmentColumn) -> Values:
    counted, counts = _counted(column)
    texts = isinstance(counted, pa.Array)
    hashes = (hash_texts if texts else hash_numbers)(field, counted)[:, 0]

    def at(places: npt.NDArray[np.intp]) -> list[Scalar]:
        found: list[Scalar] = counted.take(places).tolist()
        return found

    low, high = _bounds(counted)
    return Values(int(counts.sum()), distinct_of(hashes, at), heavy_of(at, counts), low, high)


def _bounds(counted: pa.Array | npt.NDArray[Any]) -> tuple[Scalar | None, Scalar | None]:
    if not len(counted):
        return None, None
    if isinstance(counted, np.ndarray):
        return counted[0].item(), counted[-1].item()
    found = pc.min_max(counted)
    return found["min"].as_py(), found["max"].as_py()


def _counted(column: SegmentColumn) -> tuple[pa.Array | npt.NDArray[Any], npt.NDArray[np.int64]]:
    """The different values, numbers in ascending order, and how often each occurs."""
    match column:
        case Numbers(values=values, valid=valid):
            return np.unique(values if valid is None else values[valid], return_counts=True)
        case Words(codes=codes, words=words, valid=valid):
            counts = np.bincount(codes if valid is None else codes[valid], minlength=len(words))
            used = np.flatnonzero(counts)
            return words.take(pa.array(used)), counts[used]
        case Scattered():
            text = column.take(np.arange(len(column.begins))).drop_null()
            found = text.value_counts()
            return found.field("values"), found.field("counts").to_numpy()
