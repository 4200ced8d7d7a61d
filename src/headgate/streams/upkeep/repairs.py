"""What repair does to the segments of a stream, so that the rest can be read without an error. Needs the lock.

In a log, a torn tail is cut off, the index is rebuilt, and a hole takes the place of every chunk that is damaged. A sealed
or cold segment is sealed anew from the chunks that are sound. Where messages are missing between two segments, one of
holes says so. Damaged bytes are kept beside, in files whose names end in `.damaged` or `.damaged-<byte>`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headgate.clock import now_us
from headgate.errors import StreamCorrupt
from headgate.files import opened, overwrite, read_at, write_durably
from headgate.streams.cold.segment import ColdSegment, open_sealed
from headgate.streams.cold.tier import changing
from headgate.streams.format import CHUNK_HEADER, SegmentFile, log_path, segment_files
from headgate.streams.options import StreamOptions
from headgate.streams.segments.hot_chunk import encode_hole
from headgate.streams.segments.hot_index import Entries, IndexShape, end_of
from headgate.streams.segments.hot_log import create_hot_log, write_index
from headgate.streams.segments.hot_segment import HotSegment
from headgate.streams.segments.segment import Segment
from headgate.streams.upkeep.recovery import examine_log, heal_log, producers_before
from headgate.streams.upkeep.salvage import (
    damaged_chunks,
    replace_cold,
    replace_sealed,
    salvage,
    salvage_unreadable,
)

_MOST_LOST: Final = 1 << 31  # messages that one hole stands for


def heal_segments(directory: Path, options: StreamOptions) -> None:
    """Heal every segment, then what is missing between them."""
    files, shape = segment_files(directory), IndexShape.of(options)
    for at, file in enumerate(files):
        if file.sealed:
            _heal_sealed(files, at, options)
    files = segment_files(directory)  # what was cold may be sealed by now
    for at, file in enumerate(files):
        if not file.sealed:
            _heal_log(file.path, shape, files[: at + 1])
    _fill_gaps(directory, shape)


# ---- sealed and cold segments ------------------------------------------------------------------------


def _heal_sealed(files: list[SegmentFile], at: int, options: StreamOptions) -> None:
    path = files[at].path
    try:
        segment = open_sealed(path)
    except StreamCorrupt:
        found = salvage_unreadable(files, at, options)
        if found is not None:
            replace_sealed(path, found, options.indexed, now_us())
        return
    if isinstance(segment, ColdSegment):
        _heal_cold(segment)
    elif next(damaged_chunks(segment), None) is not None:
        replace_sealed(path, salvage(segment), segment.note.indexed, now_us())


def _heal_cold(segment: ColdSegment) -> None:
    if not segment.file.is_local:
        return  # what a remote store does not give now, it may give later
    try:
        segment.check_file()
    except StreamCorrupt:
        found = salvage(segment)
        if len(
            found
        ):  # else it is the footer of the Parquet file, and the data is better left where it is
            with changing(segment.path.parent):
                replace_cold(segment, found, now_us())


# ---- logs --------------------------------------------------------------------------------------------


def _heal_log(path: Path, shape: IndexShape, until_here: list[SegmentFile]) -> None:
    heal_log(path, shape, producers_before(until_here))
    found = examine_log(path, shape, everything=True)
    for place in found.damage:
        for entry in _entries_at(found.entries, place.position, place.length):
            _put_hole(path, entry)
    _write_index_anew(path, found.shape)


def _write_index_anew(path: Path, shape: IndexShape) -> None:
    found = examine_log(path, shape, everything=True)
    settled = end_of(found.entries, found.head)
    write_index(path.parent, found.head, found.shape, found.entries, settled)


def _entries_at(entries: Entries, position: int, length: int) -> Entries:
    inside = (entries["position"] >= position) & (entries["position"] < position + length)
    found: Entries = entries[inside]
    return found


def _put_hole(path: Path, entry: Entries) -> None:
    """Keep the damaged bytes in a file of their own, and say in their place that they are lost."""
    position, length = int(entry["position"]), int(entry["length"])
    with opened(path) as fd:
        damaged = read_at(fd, position, length).to_pybytes()
    write_durably(path.with_name(f"{path.name}.damaged-{position}"), damaged)
    hole = encode_hole(int(entry["first_offset"]), int(entry["count"]), length)
    overwrite(path, position, hole)


# ---- gaps --------------------------------------------------------------------------------------------


def _fill_gaps(directory: Path, shape: IndexShape) -> None:
    """Messages that are missing between two segments are lost: say so in a segment of their own."""
    end: int | None = None
    producers: Mapping[str, int] = {}
    for file in segment_files(directory):
        if end is not None and end < file.first_offset:
            _write_holes(directory, end, file.first_offset, shape, producers)
        try:
            segment: Segment = open_sealed(file.path) if file.sealed else HotSegment(file.path)
        except StreamCorrupt:
            end = None
            continue
        end, producers = segment.next_offset, segment.producers()


def _write_holes(
    directory: Path, first: int, end: int, shape: IndexShape, producers: Mapping[str, int]
) -> None:
    holes = b"".join(
        encode_hole(start, min(end - start, _MOST_LOST), CHUNK_HEADER.size)
        for start in range(first, end, _MOST_LOST)
    )
    create_hot_log(directory, first, shape, producers, now_us()).close()
    path = log_path(directory, first)
    overwrite(path, path.stat().st_size, holes)
    _write_index_anew(path, shape)
