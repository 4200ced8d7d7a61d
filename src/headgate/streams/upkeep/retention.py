"""Retention: seal full segments, and delete the oldest ones by age, by size or up to an offset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
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
from headgate.streams.format import SegmentFile, index_path, log_path, sealed_path
from headgate.streams.listing import list_segments
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
    # The latest time at which its last message can have been written, microseconds UTC; 0: unknown.
    written: int = 0

    def newest(self, now_us: int) -> int:
        """Return the time its age counts from: its latest timestamp, or when it was written if that is in the future."""
        return (
            self.written
            if 0 < self.written <= now_us < self.last_timestamp
            else self.last_timestamp
        )


def find_expired(
    segments: Iterable[SegmentInfo],
    *,
    now_us: int,
    max_age: timedelta | None = None,
    max_bytes: int | None = None,
    total_bytes: int = 0,
    before_offset: int = 0,
) -> list[SegmentInfo]:
    """Return the expired segments, oldest first; `total_bytes` is the size of all, which `max_bytes` limits.

    `segments` is read lazily, until one is kept. The newest never expires: it is still being written.
    """
    left = total_bytes
    horizon = None if max_age is None else now_us - max_age // timedelta(microseconds=1)
    candidates = []
    for segment, _ in pairwise(segments):
        too_old = horizon is not None and segment.newest(now_us) < horizon
        too_much = max_bytes is not None and left > max_bytes
        if not (too_old or too_much or segment.next_offset <= before_offset):
            break  # a younger segment is never deleted before an older one
        candidates.append(segment)
        left -= segment.nbytes
    return candidates


class SegmentSizes:
    """The sizes of segments on disk. Those of full segments do not change, and are looked up once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[SegmentFile, int] = {}

    def of(self, file: SegmentFile) -> int:
        """Return the bytes of one segment."""
        found = self._known.get(file)
        return _bytes_on_disk(self._directory, file) if found is None else found

    def total(self, files: Sequence[SegmentFile]) -> int:
        """Return the bytes of all these segments, the last of which may be growing."""
        self._known = {file: self.of(file) for file in files[:-1]}
        return sum(self._known.values()) + sum(map(self.of, files[-1:]))


def segment_infos(
    directory: Path,
    files: Sequence[SegmentFile] | None = None,
    sizes: SegmentSizes | None = None,
) -> Iterator[SegmentInfo]:
    """Describe segments as they are now, by default all, oldest first; each is opened when it is asked for."""
    catalog, sizes = SegmentCatalog(directory), sizes or SegmentSizes(directory)
    files = catalog.files if files is None else files
    for at, file in enumerate(files):
        yield _info_of(catalog, file, sizes, files[at + 1 : at + 2])


def _info_of(
    catalog: SegmentCatalog,
    file: SegmentFile,
    sizes: SegmentSizes,
    following: Sequence[SegmentFile],
) -> SegmentInfo:
    """Describe a segment; a log was last written before the `following` segment was begun, or sealed."""
    try:
        segment = catalog.open(file)
        ended = 0 if segment.sealed else sum(_created_in(catalog, next) for next in following)
        return segment_info(segment, sizes.of(file), ended)
    except StreamCorrupt as damage:
        if not damage.offsets:
            raise
        # Its footer cannot be read. No message in it is younger than the file.
        written, (first, last) = file.path.stat(), damage.offsets[0]
        return SegmentInfo(first, last + 1, written.st_mtime_ns // 1000, written.st_size)


def _created_in(catalog: SegmentCatalog, file: SegmentFile) -> int:
    try:
        return _creation_time(catalog.open(file))
    except StreamCorrupt:
        return 0


def _creation_time(segment: Segment) -> int:
    """Return when a log was begun, or a file sealed; 0 when that is unknown."""
    if isinstance(segment, HotSegment):
        return segment.head.created
    return segment.note.created if isinstance(segment, SummarizedSegment) else 0


def segment_info(segment: Segment, nbytes: int, following: int = 0) -> SegmentInfo:
    """Describe a segment by the facts about its chunks; `following` is when the next segment was begun, 0: unknown."""
    times = segment.facts().fields[_TIMESTAMP].ranges.get("int")
    known = times is not None and times.high is not None and (times.count > 0).any()
    last = int(times.high[times.count > 0].max()) if known else 0  # type: ignore[union-attr, index]
    written = _creation_time(segment) if segment.sealed else following
    return SegmentInfo(segment.first_offset, segment.next_offset, last, nbytes, written)


def _files_of(directory: Path, first_offset: int) -> list[Path]:
    """Return the paths that a segment may have, in the order of deletion: an index alone counts as no segment."""
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
    if not segments:
        return
    cold = {file.first_offset: file.path for file in list_segments(directory) if file.cold}
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
    sizes: SegmentSizes | None = None,
) -> list[SegmentInfo]:
    """Delete expired segments before the one being written, and return them. Needs the writer's lock."""
    tidy(directory)
    with locking_tier(directory):  # no segment may become cold between listing and deleting
        remove_covered_files(directory)
        sizes = sizes or SegmentSizes(directory)
        files = [f for f in list_segments(directory) if f.first_offset <= active_first_offset]
        deleted = find_expired(
            segment_infos(directory, files, sizes),
            now_us=now_us,
            max_age=max_age,
            max_bytes=max_bytes,
            total_bytes=0 if max_bytes is None else sizes.total(files),
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
        for file in [file for file in _full_segments(writer) if not file.sealed]:
            try:
                sealed.append(_seal(writer, file, created_us))
            except StreamError as problem:
                # One damaged segment does not keep the others from being sealed.
                problems.append(problem)
        # Also those of earlier versions, and what a crash left out.
        writer.outlines.complete(_full_segments(writer))
        if problems:
            raise problems[0]
        return sealed


def _full_segments(writer: Writer) -> list[SegmentFile]:
    # Read before the directory is listed: a roll may add segments after that.
    active = writer.active_first_offset
    return [file for file in list_segments(writer.directory) if file.first_offset < active]


def _seal(writer: Writer, file: SegmentFile, created_us: int) -> Path:
    segment = HotSegment(file.path)
    path = seal(segment, writer.directory, writer.options.indexed, created_us)
    writer.outlines.outline([SegmentFile(file.first_offset, path, sealed=True)])
    remove_files(file.path, index_path(writer.directory, file.first_offset))
    return path


def outline_rolled(writer: Writer, first_offset: int) -> int:
    """Outline the full segments from this offset on; return where the one begins that is being written."""
    with writer.maintaining:
        active = writer.active_first_offset
        while first_offset < active:
            file = SegmentFile(first_offset, log_path(writer.directory, first_offset), sealed=False)
            try:
                end = HotSegment(file.path).next_offset
            except (StreamError, FileNotFoundError):  # reading it reports the damage
                break
            writer.outlines.outline([file])
            first_offset = end
    return active


def delete_expired(
    writer: Writer,
    *,
    now_us: int,
    max_age: timedelta | None,
    max_bytes: int | None,
    before_offset: int = 0,
    sizes: SegmentSizes | None = None,
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
            sizes=sizes,
        )
