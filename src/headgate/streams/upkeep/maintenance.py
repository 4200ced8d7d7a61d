"""What the lock holder does to old segments: seal them, drop them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from headgate.errors import StreamError
from headgate.files import remove_files
from headgate.streams.cold.tier import tidy
from headgate.streams.format import SegmentFile, index_path, segment_files
from headgate.streams.segments.hot_segment import HotSegment
from headgate.streams.segments.seal import seal
from headgate.streams.upkeep.retention import SegmentInfo, trim
from headgate.streams.write.writer import Writer


def seal_segments(writer: Writer, *, all: bool, created_us: int) -> list[Path]:
    """Seal every full segment, and with `all` the one that is being written too; the files that came of it."""
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
    # Asked before the directory is listed: what a roll adds after that is none of ours.
    active = writer.active_first_offset
    found = segment_files(writer.directory)
    return [file for file in found if not file.sealed and file.first_offset < active]


def _seal(writer: Writer, file: SegmentFile, created_us: int) -> Path:
    segment = HotSegment(file.path)
    path = seal(segment, writer.directory, writer.options.indexed, created_us)
    remove_files(file.path, index_path(writer.directory, file.first_offset))
    return path


def drop_segments(
    writer: Writer,
    *,
    now_us: int,
    max_age: timedelta | None,
    max_bytes: int | None,
    before_offset: int = 0,
) -> list[SegmentInfo]:
    """Drop the oldest segments that are past one of the limits; what was dropped."""
    with writer.maintaining:
        return trim(
            writer.directory,
            active_first_offset=writer.active_first_offset,
            now_us=now_us,
            max_age=max_age,
            max_bytes=max_bytes,
            before_offset=before_offset,
        )
