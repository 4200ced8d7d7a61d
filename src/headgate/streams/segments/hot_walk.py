"""Reading a log without its index: from chunk to chunk, and past bytes that cannot be read.

An unreadable chunk is *damage* when a readable one follows, or when it was settled; at the very end it is a *torn tail*,
an append that never finished.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from headgate.checksum import crc32
from headgate.errors import StreamCorrupt
from headgate.files import open_for_reading, read_at
from headgate.streams.format import (
    ALIGNMENT,
    CHUNK_MAGIC,
    CRC,
    FORMAT_VERSION,
    LOG_HEADER,
    LOG_MAGIC,
    padded,
)
from headgate.streams.segments.hot_chunk import MORE, HotChunk, read_header

_MAGIC: Final = re.compile(re.escape(CHUNK_MAGIC))  # searches a buffer without a copy
_FIRST_READ: Final = 1 << 16  # bytes; a header is hardly ever longer


@dataclass(frozen=True, slots=True)
class LogHead:
    """The header of a log: its first offset, and the last publishing id of each producer before it."""

    first_offset: int
    producers: Mapping[str, int]
    crc: int
    length: int
    # What is wrong with the header; then the producers are not known.
    problem: str | None = None
    created: int = 0  # microseconds UTC; 0: not known
    # When each producer published last, microseconds UTC; without an entry, before the log was created.
    seen: Mapping[str, int] = field(default_factory=dict)


def encode_log_header(
    first_offset: int,
    created_us: int,
    producers: Mapping[str, int],
    length: int = 0,
    seen: Mapping[str, int] = MappingProxyType({}),
) -> bytes:
    """Encode the header, filled up with blanks to at least `length` bytes."""
    known = {"producers": dict(producers)} | ({"seen": dict(seen)} if seen else {})
    meta = json.dumps(known, separators=(",", ":")).encode()
    size = max(padded(LOG_HEADER.size + len(meta)), length) - LOG_HEADER.size
    meta += b" " * (size - len(meta))
    fixed = LOG_HEADER.pack(LOG_MAGIC, FORMAT_VERSION, len(meta), first_offset, created_us, 0)
    fixed = fixed[: -CRC.size]
    return fixed + CRC.pack(crc32(meta, crc32(fixed))) + meta


def log_header_crc(header: bytes) -> int:
    """Return the CRC of a header, which ties an index to its log."""
    return int(CRC.unpack_from(header, LOG_HEADER.size - CRC.size)[0])


def read_head_of(fd: int, file: Path) -> LogHead:
    """Read the header of an open log."""
    found = _read_log_header(read_at(fd, 0, _FIRST_READ))
    return found if isinstance(found, LogHead) else read_log_header(read_at(fd, 0), file)


def read_log_head(file: Path) -> LogHead:
    """Read the header of a log."""
    with open_for_reading(file) as fd:
        return read_head_of(fd, file)


def read_log_header(data: pa.Buffer, file: Path) -> LogHead:
    """Decode the header of a log. Behind a damaged one chunks can still be read: the file name is the first offset."""
    found = _read_log_header(data)
    if isinstance(found, LogHead):
        return found
    first_offset = int(file.stem)
    length = _next_chunk(data, padded(LOG_HEADER.size), first_offset - 1)
    return LogHead(first_offset, {}, 0, length, found)


def _read_log_header(data: pa.Buffer) -> LogHead | str:
    if data.size < LOG_HEADER.size:
        return f"the log is cut off after {data.size} bytes"
    magic, version, meta_length, first_offset, created, crc = LOG_HEADER.unpack_from(data)
    length = LOG_HEADER.size + meta_length
    if magic != LOG_MAGIC or data.size < length:
        return f"this is no log of format {FORMAT_VERSION}, or it is cut off"
    meta = data.slice(LOG_HEADER.size, meta_length)
    if crc32(meta, crc32(data.slice(0, LOG_HEADER.size - CRC.size))) != crc:
        return "the header of the log fails its CRC"
    if version != FORMAT_VERSION:
        return f"a log of format {version}, this program reads {FORMAT_VERSION}"
    known = json.loads(meta.to_pybytes())
    producers, seen = known["producers"], known.get("seen", {})
    return LogHead(first_offset, producers, crc, length, created=created, seen=seen)


@dataclass(frozen=True, slots=True)
class LogPlace:
    """A stretch of a log: a chunk, whole or with damaged columns, or bytes that are no chunk."""

    position: int
    length: int
    chunk: HotChunk | None
    problem: str | None = None


def walk(
    data: pa.Buffer, file: str, first_offset: int, *, base: int = 0, settled: int = 0
) -> list[LogPlace]:
    """List every place in `data`, which begins at byte `base` of the log, without a torn tail.

    The last place ends where the torn tail begins.
    """
    places = list(_places(data, file, first_offset, base))
    end = base + data.size
    settled = settled if settled <= end else 0  # the settled part itself is cut off
    while places and _is_torn(places[-1], settled):
        torn = places.pop()
        if torn.problem is not None and torn.position < settled:
            # Its beginning was durable, and readers may have it mapped: that part is damage.
            places.append(LogPlace(torn.position, settled - torn.position, None, torn.problem))
    return places


def _is_torn(last: LogPlace, settled: int) -> bool:
    if last.position + last.length <= settled:
        return False
    # A chunk that says MORE belongs to an append that never finished.
    unfinished = last.chunk is not None and bool(last.chunk.head.flags & MORE)
    return last.problem is not None or unfinished


def _places(data: pa.Buffer, file: str, first_offset: int, base: int) -> Iterator[LogPlace]:
    at = 0
    while at < data.size:
        place = _place_at(data, at, file, base)
        if place.chunk is None or place.chunk.first_offset < first_offset:
            length = _next_chunk(data, at + ALIGNMENT, first_offset) - at
            place = LogPlace(base + at, length, None, place.problem or "a chunk is out of order")
        else:
            first_offset = place.chunk.first_offset + place.chunk.head.messages
        yield place
        at += place.length


def _place_at(data: pa.Buffer, at: int, file: str, base: int) -> LogPlace:
    header = read_header(data, at)
    if isinstance(header, str):
        return LogPlace(base + at, 0, None, header)
    chunk = HotChunk(data, at, file, base)
    try:
        chunk.check()
    except StreamCorrupt as damage:
        return LogPlace(base + at, chunk.nbytes, chunk, damage.problem)
    return LogPlace(base + at, chunk.nbytes, chunk)


def _next_chunk(data: pa.Buffer, start: int, first_offset: int) -> int:
    """Return the position of the next readable header, or the end of the data."""
    for found in _MAGIC.finditer(memoryview(data), start):
        at = found.start()
        if at % ALIGNMENT == 0:
            header = read_header(data, at)
            if not isinstance(header, str) and header[0].first_offset > first_offset:
                return at
    return int(data.size)
