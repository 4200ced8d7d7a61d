"""Statistics of a stream: how many messages, how large, which headers with which values.

Each Spark task measures its segments and merges their statistics, and the driver merges those of the tasks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from dataclasses import field as member
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.columns import field_key, parse_column_name, parse_field_key
from headgate.filters import Field, Kind
from headgate.message import Scalar
from headgate.spark.jobs.segment_table import SegmentTable, read_all_columns
from headgate.spark.jobs.sketches import (
    NO_VALUES,
    Distinct,
    Heavy,
    distinct_from_json,
    distinct_json,
    distinct_of,
    heavy_from_json,
    heavy_json,
    heavy_of,
    merge_distinct,
    merge_heavy,
)
from headgate.spark.jobs.tasks import OnProgress, open_segments, run_tasks, segment_ranges
from headgate.spark.source.ranges import OffsetRange
from headgate.streams.segments import (
    Numbers,
    RangesColumn,
    Segment,
    SegmentColumn,
    Words,
    hash_numbers,
    hash_texts,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SIZE_CLASSES: Final = 33  # class i holds payloads shorter than 2**i bytes


@dataclass(frozen=True, slots=True)
class KindStats:
    """Statistics of the values of one kind of one field."""

    present: int
    distinct: Distinct
    heavy: Heavy
    low: Scalar | None
    high: Scalar | None


@dataclass(frozen=True, slots=True)
class FieldStats:
    """Statistics of the values of one field; `opaque` counts those that no filter can compare."""

    kinds: dict[Kind, KindStats] = member(default_factory=dict)
    opaque: int = 0

    @property
    def present(self) -> int:
        return self.opaque + sum(values.present for values in self.kinds.values())

    @property
    def distinct(self) -> Distinct:
        """The distinct values of all kinds; 1 and 1.0 are equal, as for a filter."""
        return reduce(merge_distinct, (v.distinct for v in self.kinds.values()), NO_VALUES)

    @property
    def heavy(self) -> Heavy:
        return reduce(merge_heavy, (values.heavy for values in self.kinds.values()), Heavy())


@dataclass(frozen=True, slots=True)
class Tier:
    """The segments of one tier: hot, sealed or cold."""

    segments: int = 0
    chunks: int = 0
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class StreamStats:
    """Statistics of a stream, or of a part of it."""

    messages: int = 0
    payload_bytes: int = 0
    largest_payload: int = 0
    size_classes: tuple[int, ...] = (0,) * SIZE_CLASSES
    first_us: int | None = None
    last_us: int | None = None
    tiers: dict[str, Tier] = member(default_factory=dict)
    fields: dict[str, FieldStats] = member(default_factory=dict)  # by `field_key`

    @property
    def nbytes(self) -> int:
        """The length of all chunks."""
        return sum(tier.nbytes for tier in self.tiers.values())

    def headers(self) -> dict[str, FieldStats]:
        """Statistics of all headers, by their names."""
        by_field = {parse_field_key(key): stats for key, stats in self.fields.items()}
        return {field.name: stats for field, stats in by_field.items() if field.scope == "header"}

    def size_below(self, share: float) -> int:
        """The least power of two that is above the payload size of this share of the messages."""
        reached = np.cumsum(self.size_classes) >= share * self.messages
        return 2 ** int(np.argmax(reached)) if self.messages else 0


# ---- merging -----------------------------------------------------------------------------------------


def merge_stats(parts: Iterable[StreamStats]) -> StreamStats:
    """Add up the statistics of disjoint parts of a stream."""
    return reduce(_merge, parts, StreamStats())


def _merge(one: StreamStats, other: StreamStats) -> StreamStats:
    firsts = [us for us in (one.first_us, other.first_us) if us is not None]
    lasts = [us for us in (one.last_us, other.last_us) if us is not None]
    classes = zip(one.size_classes, other.size_classes, strict=True)
    return StreamStats(
        messages=one.messages + other.messages,
        payload_bytes=one.payload_bytes + other.payload_bytes,
        largest_payload=max(one.largest_payload, other.largest_payload),
        size_classes=tuple(a + b for a, b in classes),
        first_us=min(firsts, default=None),
        last_us=max(lasts, default=None),
        tiers={
            name: _merge_tiers(one.tiers.get(name, Tier()), other.tiers.get(name, Tier()))
            for name in {**one.tiers, **other.tiers}
        },
        fields={
            key: merge_fields(
                one.fields.get(key, FieldStats()), other.fields.get(key, FieldStats())
            )
            for key in {**one.fields, **other.fields}
        },
    )


def _merge_tiers(one: Tier, other: Tier) -> Tier:
    return Tier(one.segments + other.segments, one.chunks + other.chunks, one.nbytes + other.nbytes)


def merge_fields(one: FieldStats, other: FieldStats) -> FieldStats:
    """Add up the statistics of one field in two parts of a stream."""
    kinds = dict(one.kinds)
    for kind, values in other.kinds.items():
        kinds[kind] = _merge_values(kinds[kind], values) if kind in kinds else values
    return FieldStats(kinds, one.opaque + other.opaque)


def _merge_values(one: KindStats, other: KindStats) -> KindStats:
    return KindStats(
        one.present + other.present,
        merge_distinct(one.distinct, other.distinct),
        merge_heavy(one.heavy, other.heavy),
        min((v for v in (one.low, other.low) if v is not None), default=None),
        max((v for v in (one.high, other.high) if v is not None), default=None),
    )


# ---- as JSON, for the driver -------------------------------------------------------------------------


def stats_to_json(stats: StreamStats) -> str:
    plain = {name: getattr(stats, name) for name in _PLAIN}
    tiers = {name: [t.segments, t.chunks, t.nbytes] for name, t in stats.tiers.items()}
    fields = {key: _field_json(found) for key, found in stats.fields.items()}
    return json.dumps({**plain, "tiers": tiers, "fields": fields})


_PLAIN: Final = (
    "messages", "payload_bytes", "largest_payload", "size_classes", "first_us", "last_us",
)  # fmt: skip


def _field_json(field: FieldStats) -> dict[str, Any]:
    kinds = {
        kind: {
            "present": values.present,
            "distinct": distinct_json(values.distinct),
            "heavy": heavy_json(values.heavy),
            "low": values.low,
            "high": values.high,
        }
        for kind, values in field.kinds.items()
    }
    return {"kinds": kinds, "opaque": field.opaque}


def stats_from_json(text: str) -> StreamStats:
    known = json.loads(text)
    return StreamStats(
        **{name: known[name] for name in _PLAIN if name != "size_classes"},
        size_classes=tuple(known["size_classes"]),
        tiers={name: Tier(*numbers) for name, numbers in known["tiers"].items()},
        fields={key: _field_from_json(found) for key, found in known["fields"].items()},
    )


def _field_from_json(known: dict[str, Any]) -> FieldStats:
    kinds: dict[Kind, KindStats] = {
        kind: KindStats(
            found["present"],
            distinct_from_json(found["distinct"]),
            heavy_from_json(found["heavy"]),
            found["low"],
            found["high"],
        )
        for kind, found in known["kinds"].items()
    }
    return FieldStats(kinds, known["opaque"])


# ---- measuring ---------------------------------------------------------------------------------------


def stream_stats(
    spark: SparkSession, path: str | Path, on_progress: OnProgress | None = None
) -> StreamStats:
    """Measure the whole stream."""
    return measure_stream(spark, segment_ranges(path), on_progress)


def measure_stream(
    spark: SparkSession, ranges: Sequence[OffsetRange], on_progress: OnProgress | None = None
) -> StreamStats:
    """Measure the segments with these ranges."""
    return merge_stats(map(stats_from_json, run_tasks(spark, ranges, measure_ranges, on_progress)))


def measure_ranges(ranges: Sequence[OffsetRange]) -> str:
    """The work of a task: measure its segments, and return their sum as JSON."""
    return stats_to_json(merge_stats(map(measure_segment, open_segments(ranges))))


def measure_segment(segment: Segment) -> StreamStats:
    """Measure one segment."""
    rows = read_all_columns(segment)
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
    """The tier of a segment: hot, sealed or cold."""
    return str(getattr(segment, "tier", "sealed" if segment.sealed else "hot"))


def _time_span(rows: SegmentTable) -> tuple[int | None, int | None]:
    column = rows.columns.get("timestamp")
    if not isinstance(column, Numbers):
        return None, None
    return int(column.values.min()), int(column.values.max())


def _size_classes(sizes: npt.NDArray[np.int64]) -> tuple[int, ...]:
    classes = np.ceil(np.log2(sizes + 1.0)).astype(np.int64)
    return tuple(np.bincount(classes, minlength=SIZE_CLASSES).tolist())


def _fields(rows: SegmentTable) -> dict[str, FieldStats]:
    stats: dict[str, FieldStats] = {}
    for name, column in rows.columns.items():
        field, view = parse_column_name(name)
        if field is None or view is None or name == "timestamp":
            continue
        own = (
            _opaque(column) if view == "opaque" else FieldStats({view: _kind_stats(field, column)})
        )
        key = field_key(field)
        stats[key] = merge_fields(stats.get(key, FieldStats()), own)
    return stats


def _opaque(column: SegmentColumn) -> FieldStats:
    assert isinstance(column, Numbers)
    marked = column.values if column.valid is None else column.values & column.valid
    return FieldStats(opaque=int(np.count_nonzero(marked)))


def _kind_stats(field: Field, column: SegmentColumn) -> KindStats:
    distinct, counts = _count_values(column)
    texts = isinstance(distinct, pa.Array)
    hashes = (hash_texts if texts else hash_numbers)(field, distinct)[:, 0]

    def at(places: npt.NDArray[np.intp]) -> list[Scalar]:
        values: list[Scalar] = distinct.take(places).tolist()
        return values

    low, high = _bounds(distinct)
    return KindStats(int(counts.sum()), distinct_of(hashes, at), heavy_of(at, counts), low, high)


def _bounds(distinct: pa.Array | npt.NDArray[Any]) -> tuple[Scalar | None, Scalar | None]:
    if not len(distinct):
        return None, None
    if isinstance(distinct, np.ndarray):
        return distinct[0].item(), distinct[-1].item()
    bounds = pc.min_max(distinct)
    return bounds["min"].as_py(), bounds["max"].as_py()


def _count_values(
    column: SegmentColumn,
) -> tuple[pa.Array | npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Count how often each distinct value occurs; numbers are in ascending order."""
    match column:
        case Numbers(values=values, valid=valid):
            return np.unique(values if valid is None else values[valid], return_counts=True)
        case Words(codes=codes, words=words, valid=valid):
            counts = np.bincount(codes if valid is None else codes[valid], minlength=len(words))
            used = np.flatnonzero(counts)
            return words.take(pa.array(used)), counts[used]
        case RangesColumn():
            text = column.take(np.arange(len(column.begins))).drop_null()
            found = text.value_counts()
            return found.field("values"), found.field("counts").to_numpy()
