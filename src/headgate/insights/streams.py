"""Facts about streams: how much is stored, in which form, and how far consumers have read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headgate.errors import HeadgateError, StreamError, StreamNotFound
from headgate.filters import Field, FilterLike
from headgate.streams import OPTIONS_FILE, Stream, segment_files
from headgate.streams.cold import list_manifests, read_note
from headgate.streams.read import OnCorrupt, OnLost, SegmentCatalog


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """How much a stream holds, read from its files and indexes, not from its messages."""

    stream: str
    messages: int
    first_offset: int
    next_offset: int
    segments: int
    sealed: int
    cold: int
    bytes: int
    indexed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CursorFacts:
    """How far a named cursor has read."""

    name: str
    position: int
    lag: int  # messages between the position and the end of the stream
    updated_us: int | None


@dataclass(frozen=True, slots=True)
class StreamDetails:
    """A stream with its options and its cursors."""

    facts: StreamFacts
    options: Mapping[str, Any]
    cursors: tuple[CursorFacts, ...]


def list_streams(directory: Path) -> list[StreamFacts]:
    """The streams in a directory and below, named by their path from there."""
    if not os.access(directory, os.R_OK | os.X_OK) or not directory.is_dir():
        raise HeadgateError(
            f"{directory} is not a directory that this user can read; name one with streams in it"
        )
    names = list_stream_names(directory)
    return [stream_facts(directory / name, name=name) for name in names]


def list_stream_names(directory: Path) -> list[str]:
    """The paths from a directory to the streams in it and below."""
    found = (path.parent for path in directory.glob(f"**/{OPTIONS_FILE}"))
    return sorted(str(path.relative_to(directory)) for path in found)


def find_stream(directory: Path, name: str) -> Path:
    """The stream of this name in a directory or below; a name cannot lead out of it."""
    path = (directory / name).resolve() if name and "\0" not in name else directory
    inside = path != directory.resolve() and path.is_relative_to(directory.resolve())
    try:
        is_there = inside and (path / OPTIONS_FILE).is_file()
    except OSError:  # a name that no file can have
        is_there = False
    if not is_there:
        raise StreamNotFound(f"there is no stream {name!r} in {directory}")
    return path


def stream_facts(path: Path, *, name: str | None = None) -> StreamFacts:
    """Count a stream's messages, segments and bytes."""
    with Stream.open(path) as stream:
        files = segment_files(path)
        first, following = stream.first_offset, stream.next_offset
        return StreamFacts(
            stream=path.name if name is None else name,
            messages=following - first,
            first_offset=first,
            next_offset=following,
            segments=len(files),
            sealed=sum(file.sealed and not file.cold for file in files),
            cold=sum(file.cold for file in files),
            bytes=stored_bytes(path),
            indexed=tuple(stream.options.indexed),
        )


def stream_details(path: Path) -> StreamDetails:
    """Read a stream's facts, its options and its cursors."""
    with Stream.open(path) as stream:
        names = stream.options.__dataclass_fields__
        options = {name: getattr(stream.options, name) for name in names}
        end = stream.next_offset
        cursors = tuple(
            CursorFacts(cursor.name, cursor.position, max(end - cursor.position, 0), cursor.updated)
            for cursor in stream.cursors().list()
        )
    return StreamDetails(stream_facts(path), options, cursors)


def time_bounds(path: Path) -> tuple[int | None, int | None]:
    """The earliest time in the oldest segment of a stream and the latest in its newest, in microseconds; None: it is empty."""
    with Stream.open(path):  # refuses what is no stream
        catalog = SegmentCatalog(path)
    first, end = catalog.first_offset(), catalog.next_offset()
    if first == end:
        return None, None
    return _times_around(catalog, first)[0], _times_around(catalog, end - 1)[1]


def _times_around(catalog: SegmentCatalog, offset: int) -> tuple[int | None, int | None]:
    """The times of the segment that holds an offset; None when it cannot be read."""
    try:
        segment = catalog.covering(offset)
    except StreamError:
        return None, None
    known = None if segment is None else segment.facts().fields[Field("sys", "timestamp")]
    times = None if known is None else known.ranges.get("int")
    if times is None or times.low is None or times.high is None or not times.count.any():
        return None, None
    present = times.count > 0
    return int(times.low[present].min()), int(times.high[present].max())


def stored_bytes(path: Path) -> int:
    """The size of a stream's files, its cold tier included, which may be stored elsewhere."""
    cold = sum(read_note(manifest).nbytes for manifest in list_manifests(path))
    return cold + sum(file.stat().st_size for file in path.iterdir() if file.is_file())


def find_last_matches(
    stream: Stream,
    filter: FilterLike,
    number: int,
    *,
    on_lost: OnLost = "error",
    on_corrupt: OnCorrupt = "error",
) -> int:
    """The offset of the n-th last message that matches; segments are searched from the newest back."""
    needed, end = number, stream.next_offset
    if needed <= 0:
        return end
    for file in reversed(segment_files(stream.path)):
        start = max(file.first_offset, stream.first_offset)  # retention may move it meanwhile
        scan = stream.scan(
            filter, start=start, end=end, columns=["offset"], on_lost=on_lost, on_corrupt=on_corrupt
        )
        offsets = [offset for batch in scan for offset in batch.column("offset").to_pylist()]
        if len(offsets) >= needed:
            return int(offsets[-needed])
        needed, end = needed - len(offsets), file.first_offset
    return stream.first_offset
