"""What may be dropped: the oldest segments, by age, by size, or up to an offset. Never the newest one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from headgate.filters.nodes import Field
from headgate.streams.catalog import Catalog
from headgate.streams.cold.tier import (
    changing,
    cold_bytes,
    drop_cold,
    remove_covered_files,
    tidy,
)
from headgate.streams.files import sync_directory
from headgate.streams.layout import (
    SegmentFile,
    index_path,
    log_path,
    sealed_path,
    segment_files,
)
from headgate.streams.segment import Segment

_TIMESTAMP: Final = Field("sys", "timestamp")


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """What retention needs to know of a segment."""

    first_offset: int
    next_offset: int
    last_timestamp: int  # the latest of its messages, microseconds UTC
    nbytes: int


def expired(
    segments: Sequence[SegmentInfo],
    *,
    now_us: int,
    max_age: timedelta | None = None,
    max_bytes: int | None = None,
    before_offset: int = 0,
) -> list[SegmentInfo]:
    """Oldest first. The newest segment is never expired: it is still being written."""
    left = sum(segment.nbytes for segment in segments)
    horizon = None if max_age is None else now_us - max_age // timedelta(microseconds=1)
    dropped = []
    for segment in segments[:-1]:
        too_old = horizon is not None and segment.last_timestamp < horizon
        too_much = max_bytes is not None and left > max_bytes
        if not (too_old or too_much or segment.next_offset <= before_offset):
            break  # what is left has no holes
        dropped.append(segment)
        left -= segment.nbytes
    return dropped


def segment_infos(directory: Path) -> list[SegmentInfo]:
    """The segments of a stream as they are now."""
    catalog = Catalog(directory)
    return [
        segment_info(catalog.open(file), _bytes_on_disk(directory, file)) for file in catalog.files
    ]


def segment_info(segment: Segment, nbytes: int) -> SegmentInfo:
    """What its summary says of it."""
    times = segment.facts().fields[_TIMESTAMP].ranges.get("int")
    held = times is not None and times.high is not None and (times.count > 0).any()
    last = int(times.high[times.count > 0].max()) if held else 0  # type: ignore[union-attr, index]
    return SegmentInfo(segment.first_offset, segment.next_offset, last, nbytes)


def _files_of(directory: Path, first_offset: int) -> list[Path]:
    """The log before its index: a segment is there as long as its log or its sealed file is."""
    places = (sealed_path, log_path, index_path)
    return [place(directory, first_offset) for place in places]


def _bytes_on_disk(directory: Path, file: SegmentFile) -> int:
    total = cold_bytes(file.path) if file.cold else 0
    for path in _files_of(directory, file.first_offset):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def drop(directory: Path, segments: Sequence[SegmentInfo]) -> None:
    """Delete the segments, oldest first, so that a crash in between leaves no hole. Needs the lock."""
    cold = {file.first_offset: file.path for file in segment_files(directory) if file.cold}
    for segment in segments:
        for path in _files_of(directory, segment.first_offset):
            path.unlink(missing_ok=True)
        sync_directory(directory)
        if segment.first_offset in cold:
            drop_cold(cold[segment.first_offset])


def trim(
    directory: Path,
    *,
    active_first_offset: int,
    now_us: int,
    max_age: timedelta | None = None,
    max_bytes: int | None = None,
    before_offset: int = 0,
) -> list[SegmentInfo]:
    """Drop what is expired and before the segment that is being written; what was dropped. Needs the lock."""
    tidy(directory)
    with changing(directory):  # from the look to the drop, nothing may become cold
        remove_covered_files(directory)
        infos = segment_infos(directory)
        dropped = expired(
            [info for info in infos if info.first_offset <= active_first_offset],
            now_us=now_us,
            max_age=max_age,
            max_bytes=max_bytes,
            before_offset=before_offset,
        )
        drop(directory, dropped)
    return dropped
