"""Retention: seal full segments, and delete the oldest ones by age, by size or up to an offset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from headgate.errors import StreamCorrupt, StreamError
from headgate.files import remove_files, sync_directory
from headgate.filters import Field
from headgate.streams.cold.manifest import (
    cold_segment_bytes,
    delete_cold,
    locking_tier,
    remove_covered_files,
    tidy,
)
from headgate.streams.format import SegmentFile, index_path, log_path, sealed_path, segment_files
from headgate.streams.read.catalog import SegmentCatalog
from headgate.streams.segments.hot_segment import HotSegment
from headgate.streams.segments.seal import seal
from headgate.streams.segments.segment import Segment
from headgate.streams.segments.summarized import SummarizedSegment
from headgate.streams.write.writer import Writer

_TIMESTAMP: Final = Field("sys", "timestamp")


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """Size, offsets and age of a segment."""

    first_offset: int
    next_offset: int
    last_timestamp: int  # of its latest message, microseconds UTC
    nbytes: int
    written: int = (
        0  # when its last message was written at the latest, microseconds UTC; 0: unknown
    )

    def newest(self, now_us: int) -> int:
        """Return the time its age counts from: its latest timestamp, or when it was written if that is in the future."""
        return (
            self.written
            if 0 < self.written <= now_us < self.last_timestamp
            else self.last_timestamp
        )


def expired(
    segments: Sequence[SegmentInfo],
    *,
    now_us: int,
    max_age: timedelta | None = None,
    max_bytes: int | None = None,
    before_offset: int = 0,
) -> list[SegmentInfo]:
    """Return the expired segments, oldest first. The newest never expires: it is still being written."""
    left = sum(segment.nbytes for segment in segments)
    horizon = None if max_age is None else now_us - max_age // timedelta(microseconds=1)
    deleted = []
    for segment in segments[:-1]:
        too_old = horizon is not None and segment.newest(now_us) < horizon
        too_much = max_bytes is not None and left > max_bytes
        if not (too_old or too_much or segment.next_offset <= before_offset):
            break  # a younger segment is never deleted before an older one
        deleted.append(segment)
        left -= segment.nbytes
    return deleted


def segment_infos(directory: Path) -> list[SegmentInfo]:
    """Describe the segments of a stream as they are now, oldest first."""
    catalog = SegmentCatalog(directory)
    found: list[SegmentInfo] = []
    following = 0  # when the next segment was begun, or sealed
    for file in reversed(catalog.files):
        info, following = _info_of(catalog, directory, file, following)
        found.append(info)
    return found[::-1]


def _info_of(
    catalog: SegmentCatalog, directory: Path, file: SegmentFile, following: int
) -> tuple[SegmentInfo, int]:
    """Describe a segment and return when it was begun or sealed; `following` is that time of the next segment."""
    try:
        segment = catalog.open(file)
        return segment_info(segment, _bytes_on_disk(directory, file), following), _created(segment)
    except StreamCorrupt as damage:
        if not damage.offsets:
            raise
        # Its footer cannot be read. No message in it is younger than the file.
        written, (first, last) = file.path.stat(), damage.offsets[0]
        info = SegmentInfo(first, last + 1, written.st_mtime_ns // 1000, written.st_size)
        return info, 0


def _created(segment: Segment) -> int:
    """Return when a log was begun, or a file sealed; 0 when that is unknown."""
    if isinstance(segment, HotSegment):
        return segment.head.created
    return segment.note.created if isinstance(segment, SummarizedSegment) else 0


def segment_info(segment: Segment, nbytes: int, following: int = 0) -> SegmentInfo:
    """Describe a segment from its summary. A log ends before the next segment begins, at `following`."""
    times = segment.facts().fields[_TIMESTAMP].ranges.get("int")
    known = times is not None and times.high is not None and (times.count > 0).any()
    last = int(times.high[times.count > 0].max()) if known else 0  # type: ignore[union-attr, index]
    written = _created(segment) if segment.sealed else following
    return SegmentInfo(segment.first_offset, segment.next_offset, last, nbytes, written)


def _files_of(directory: Path, first_offset: int) -> list[Path]:
    """Return the files of a segment, the log before its index: without log and sealed file it does not exist."""
    return [path_of(directory, first_offset) for path_of in (sealed_path, log_path, index_path)]


def _bytes_on_disk(directory: Path, file: SegmentFile) -> int:
    total = cold_segment_bytes(file.path) if file.cold else 0
    for path in _files_of(directory, file.first_offset):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def delete_segments(directory: Path, segments: Sequence[SegmentInfo]) -> None:
    """Delete segments, oldest first, so that a crash in between leaves no gap. Needs the writer's lock."""
    cold = {file.first_offset: file.path for file in segment_files(directory) if file.cold}
    for segment in segments:
        for path in _files_of(directory, segment.first_offset):
            path.unlink(missing_ok=True)
        sync_directory(directory)
        if segment.first_offset in cold:
            delete_cold(cold[segment.first_offset])


def trim(
    directory: Path,
    *,
    active_first_offset: int,
    now_us: int,
    max_age: timedelta | None = None,
    max_bytes: int | None = None,
    before_offset: int = 0,
) -> list[SegmentInfo]:
    """Delete expired segments before the one being written, and return them. Needs the writer's lock."""
    tidy(directory)
    with locking_tier(directory):  # no segment may become cold between listing and deleting
        remove_covered_files(directory)
        infos = segment_infos(directory)
        deleted = expired(
            [info for info in infos if info.first_offset <= active_first_offset],
            now_us=now_us,
            max_age=max_age,
            max_bytes=max_bytes,
            before_offset=before_offset,
        )
        delete_segments(directory, deleted)
    return deleted


# ---- for the holder of the writer's lock -------------------------------------------------------------


def seal_segments(writer: Writer, *, all: bool, created_us: int) -> list[Path]:
    """Seal every full segment, and with `all` the one being written too; return the sealed files."""
    with writer.maintaining:
        tidy(writer.directory)
        if all:
            writer.roll()
        sealed: list[Path] = []
        problems: list[StreamError] = []
        for file in _full_segments(writer):
            try:
                sealed.append(_seal(writer, file, created_us))
            except StreamError as problem:
                # One damaged segment does not keep the others from being sealed.
                problems.append(problem)
        if problems:
            raise problems[0]
        return sealed


def _full_segments(writer: Writer) -> list[SegmentFile]:
    # Read before the directory is listed: a roll may add segments after that.
    active = writer.active_first_offset
    files = segment_files(writer.directory)
    return [file for file in files if not file.sealed and file.first_offset < active]


def _seal(writer: Writer, file: SegmentFile, created_us: int) -> Path:
    segment = HotSegment(file.path)
    path = seal(segment, writer.directory, writer.options.indexed, created_us)
    remove_files(file.path, index_path(writer.directory, file.first_offset))
    return path


def delete_expired(
    writer: Writer,
    *,
    now_us: int,
    max_age: timedelta | None,
    max_bytes: int | None,
    before_offset: int = 0,
) -> list[SegmentInfo]:
    """Delete the oldest segments that exceed one of the limits, and return them."""
    with writer.maintaining:
        return trim(
            writer.directory,
            active_first_offset=writer.active_first_offset,
            now_us=now_us,
            max_age=max_age,
            max_bytes=max_bytes,
            before_offset=before_offset,
        )
