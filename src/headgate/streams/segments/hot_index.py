"""The hot index: an *entry* of fixed width for every chunk of a log, as the writer and readers use it.

    | INDEX_HEADER | meta JSON: indexed, restrict_same_values | pad | settled | entry | entry | …

`settled` is the position up to which the log was known to be durable: an unreadable chunk before it is damage, one
behind it an unfinished write. It is the only field that changes in place.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from dataclasses import field as member
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from headgate.checksum import crc32
from headgate.files import open_for_reading, read_at
from headgate.filters import Field
from headgate.streams.format import (
    CRC,
    FORMAT_VERSION,
    INDEX_HEADER,
    INDEX_MAGIC,
    SETTLED,
    entry_checksums,
    entry_dtype,
    index_path,
    padded,
)
from headgate.streams.options import StreamOptions
from headgate.streams.segments import bloom
from headgate.streams.segments.bloom import BloomShape, ColumnOf
from headgate.streams.segments.entry_columns import extended
from headgate.streams.segments.hot_chunk import DAMAGED, HOLE, ChunkHead
from headgate.streams.segments.hot_walk import LogHead, LogPlace
from headgate.streams.segments.restriction import Restriction
from headgate.streams.segments.segment import FILTER_VALUE

Entries = npt.NDArray[Any]

UNRESTRICTED: Final = Restriction({})


@dataclass(frozen=True, slots=True)
class IndexShape:
    """What the entries of an index hold: the Bloom filter, the indexed headers, the restricted values."""

    bloom: BloomShape
    indexed: tuple[str, ...] = ()
    restriction: Restriction = UNRESTRICTED
    # The fields the Bloom filter may cover; the position of a field is its bit in `coverage`.
    fields: tuple[Field, ...] = member(init=False)

    def __post_init__(self) -> None:
        headers = (Field("header", name) for name in self.indexed)
        object.__setattr__(self, "fields", (FILTER_VALUE, *headers))

    @classmethod
    def of(cls, options: StreamOptions) -> IndexShape:
        shape = BloomShape(options.filter_size, options.bloom_hashes)
        return cls(shape, options.indexed, Restriction(options.restrict_same_values))

    @property
    def dtype(self) -> np.dtype[Any]:
        return entry_dtype(self.bloom.nbytes)

    def same_as(self, other: IndexShape) -> bool:
        # As text: the order of the headers counts, and 1 is not true.
        return self.bloom == other.bloom and self.described() == other.described()

    def described(self) -> bytes:
        """Return the headers and values as the index stores them."""
        known = {"indexed": self.indexed, "restrict_same_values": self.restriction.values}
        return json.dumps(known, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class IndexHead:
    """The header of an index, read back."""

    shape: IndexShape
    first_offset: int
    log_crc: int
    length: int


def encode_index_header(shape: IndexShape, first_offset: int, log_crc: int, settled: int) -> bytes:
    """Encode everything before the first entry."""
    meta = shape.described()
    meta += b" " * (padded(len(meta)) - len(meta))
    sizes = (len(meta), shape.dtype.itemsize, shape.bloom.nbytes, shape.bloom.hashes)
    fixed = INDEX_HEADER.pack(INDEX_MAGIC, FORMAT_VERSION, *sizes, log_crc, first_offset, 0)
    fixed = fixed[: -CRC.size]
    crc = crc32(meta, crc32(fixed))
    return fixed + CRC.pack(crc) + meta + encode_settled(settled)


def encode_settled(position: int) -> bytes:
    return SETTLED.pack(position, position ^ 0xFFFF_FFFF_FFFF_FFFF)


def read_index_header(data: bytes | memoryview) -> IndexHead | str:
    """Return the header, or what is wrong with it."""
    if len(data) < INDEX_HEADER.size:
        return "the index is cut off in its header"
    magic, version, meta_length, width, nbytes, hashes, log_crc, first_offset, crc = (
        INDEX_HEADER.unpack_from(data)
    )
    if magic != INDEX_MAGIC or version != FORMAT_VERSION:
        return f"this is no index of format {FORMAT_VERSION}"
    meta = bytes(data[INDEX_HEADER.size : INDEX_HEADER.size + meta_length])
    if crc32(meta, crc32(data[: INDEX_HEADER.size - CRC.size])) != crc:
        return "the header of the index fails its CRC"
    length = INDEX_HEADER.size + meta_length + SETTLED.size
    if len(data) < length:
        return "the index is cut off in its header"
    known = json.loads(meta)
    restriction = Restriction(known["restrict_same_values"])
    shape = IndexShape(BloomShape(nbytes, hashes), tuple(known["indexed"]), restriction)
    assert shape.dtype.itemsize == width
    return IndexHead(shape, first_offset, log_crc, length)


def settled_at(header_length: int) -> int:
    """Return the position of `settled` in the file."""
    return header_length - SETTLED.size


def decode_settled(data: bytes) -> int:
    """Return the settled position; 0 when its two copies disagree."""
    position, inverse = SETTLED.unpack(data)
    return int(position) if position ^ inverse == 0xFFFF_FFFF_FFFF_FFFF else 0


# ---- entries -----------------------------------------------------------------------------------------


def index_entry(
    shape: IndexShape, head: ChunkHead, position: int, restricted: int, column: ColumnOf
) -> Entries:
    """Build the entry of one chunk, as an array of length one."""
    entry = _entry_without_checksum(shape, head, position, restricted)
    if not head.flags & HOLE:
        filled, coverage = _fill_bloom(shape, head, column)
        entry["bloom"][0, : shape.bloom.nbytes] = filled
        entry["coverage"] = coverage
    return add_checksum(entry)


def bare_entry(shape: IndexShape, head: ChunkHead, position: int, restricted: int = 0) -> Entries:
    """Build the entry of one chunk with an empty Bloom filter that covers nothing."""
    return add_checksum(_entry_without_checksum(shape, head, position, restricted))


def _entry_without_checksum(
    shape: IndexShape, head: ChunkHead, position: int, restricted: int
) -> Entries:
    entry = np.zeros(1, shape.dtype)
    row = entry[0]
    row["first_offset"], row["position"], row["length"] = head.first_offset, position, head.length
    row["count"], row["filtered"] = head.messages, head.filtered
    row["min_timestamp"], row["max_timestamp"] = head.min_timestamp, head.max_timestamp
    row["min_priority"], row["max_priority"] = head.min_priority, head.max_priority
    row["flags"], row["header_crc"], row["restricted"] = head.flags, head.crc, restricted
    return entry


def damaged_entry(
    shape: IndexShape, first_offset: int, count: int, position: int, length: int
) -> Entries:
    """Build the entry of a place in the log that cannot be read."""
    entry = np.zeros(1, shape.dtype)
    row = entry[0]
    row["first_offset"], row["count"], row["flags"] = first_offset, count, DAMAGED
    row["position"], row["length"] = position, length
    return add_checksum(entry)


def add_checksum(entry: Entries) -> Entries:
    """Fill in the checksum of an entry."""
    entry["checksum"] = entry_checksums(entry)
    return entry


def _fill_bloom(
    shape: IndexShape, head: ChunkHead, column: ColumnOf
) -> tuple[npt.NDArray[np.uint8], int]:
    """Return the Bloom filter and the fields it covers: those with few values first, while there is room."""
    room = room_for(shape)
    found = {bit: bloom.hash_field(f, column, room) for bit, f in enumerate(shape.fields)}
    covered = {bit: hashes for bit, hashes in found.items() if hashes is not None}
    coverage, added = 0, []
    for bit, hashes in sorted(covered.items(), key=lambda item: len(item[1])):
        if len(hashes) <= room:
            room -= len(hashes)
            coverage |= 1 << bit
            added.append(hashes)
    added = [hashes for hashes in added if len(hashes)]
    if not added:
        return np.zeros(shape.bloom.nbytes, np.uint8), coverage
    return bloom.build(shape.bloom, np.concatenate(added), head.first_offset), coverage


def room_for(shape: IndexShape) -> int:
    """Return the number of values that a filter may hold."""
    # A full filter over headers has 6 bits for each value: with 7 hashes, about one probe in 13 is then a false
    # positive. RabbitMQ's small filters may fill up until nearly every probe is positive.
    return shape.bloom.bits // 6 if shape.indexed else shape.bloom.bits * 4


# ---- reading an index -------------------------------------------------------------------------------


MISSING: Final = "the index is missing"
_HEADER_READ: Final = 64 << 10  # bytes; nearly every header is shorter
NO_SHAPE: Final = IndexShape(BloomShape(16, 2))


@dataclass(frozen=True, slots=True)
class HotIndex:
    """An index as it was read: the entries of committed chunks, up to the first entry with a wrong checksum.

    `reach` is how far the log is committed, by its entries or by `settled`; None when that is not known.
    """

    shape: IndexShape = NO_SHAPE
    entries: Entries = dataclass_field(default_factory=lambda: np.zeros(0, NO_SHAPE.dtype))
    settled: int = 0
    reach: int | None = None
    problem: str | None = None  # what is wrong with all or part of it
    uncommitted: bool = False  # there are more bytes behind the committed entries
    inode: int = 0
    header_length: int = 0


def read_index(directory: Path, head: LogHead, before: HotIndex | None = None) -> HotIndex:
    """Read the index of a log; entries that were read `before` are not read again."""
    try:
        # Read, not mapped: its writer may cut it off again.
        with open_for_reading(index_path(directory, head.first_offset)) as fd:
            return _read_index(fd, head, before)
    except FileNotFoundError:
        return HotIndex(problem=MISSING)


def _read_index(fd: int, head: LogHead, before: HotIndex | None) -> HotIndex:
    if before is None or before.inode != os.fstat(fd).st_ino:
        before = _read_header(fd, head)
        if before.problem is not None:
            return before
    settled = decode_settled(os.pread(fd, SETTLED.size, settled_at(before.header_length)))
    known, dtype = before.entries, before.shape.dtype
    behind = memoryview(read_at(fd, before.header_length + known.nbytes))
    fresh = np.frombuffer(behind, dtype, len(behind) // dtype.itemsize)
    bad = np.flatnonzero(entry_checksums(fresh) != fresh["checksum"])
    sound = fresh[: bad[0]] if len(bad) else fresh
    # The first time, entries that are all sound are not copied: most logs are read only once.
    entries = extended(known, sound) if len(known) or len(bad) else fresh
    # Zeros are the gap for the first entry of an append of several chunks, which is written last.
    is_harmless = len(bad) == 0 or bad[0] == len(fresh) - 1 or not any(fresh[bad[0]].tobytes())
    return replace(
        before,
        entries=entries,
        settled=settled,
        reach=max(settled, end_of(entries, head)),
        problem=None if is_harmless else f"entry {len(entries)} of the index fails its checksum",
        uncommitted=sound.nbytes < len(behind),
    )


def _read_head(fd: int) -> IndexHead | str:
    found = read_index_header(memoryview(read_at(fd, 0, _HEADER_READ)))
    # The header may be longer than the bytes that were read.
    return read_index_header(memoryview(read_at(fd, 0))) if isinstance(found, str) else found


def _read_header(fd: int, head: LogHead) -> HotIndex:
    found = _read_head(fd)
    if isinstance(found, str):
        return HotIndex(problem=found)
    same_log = head.problem is not None or found.log_crc == head.crc
    if found.first_offset != head.first_offset or not same_log:
        return HotIndex(problem="the index belongs to another log")
    nothing = np.zeros(0, found.shape.dtype)
    inode = os.fstat(fd).st_ino
    return HotIndex(found.shape, nothing, inode=inode, header_length=found.length)


def count_entries(directory: Path, first_offset: int) -> int:
    """Count the entries of an index by the size of its file, without reading them; 0 when there is none."""
    try:
        with open_for_reading(index_path(directory, first_offset)) as fd:
            found = _read_head(fd)
            size = os.fstat(fd).st_size
    except FileNotFoundError:
        return 0
    return 0 if isinstance(found, str) else (size - found.length) // found.shape.dtype.itemsize


def drop_cut_off(
    entries: Entries, head: LogHead, shape: IndexShape, log_size: int, settled: int
) -> Entries:
    """Drop the entries of chunks behind the end of the log; entries of settled chunks become damage."""
    if end_of(entries, head) <= log_size:
        return entries
    ends = entries["position"] + entries["length"]
    there = ends <= log_size
    lost = [
        damaged_entry(shape, *(int(e[n]) for n in ("first_offset", "count", "position", "length")))
        for e in entries[~there & (ends <= settled)]
    ]
    return np.concatenate([entries[there], *lost])


def end_of(entries: Entries, head: LogHead) -> int:
    """Return the position in the log where the last chunk of the index ends."""
    return int(entries["position"][-1] + entries["length"][-1]) if len(entries) else head.length


def next_offset_of(entries: Entries, head: LogHead) -> int:
    """Return the offset behind the last message of the index."""
    if not len(entries):
        return head.first_offset
    return int(entries["first_offset"][-1]) + int(entries["count"][-1])


def entries_of(places: list[LogPlace], shape: IndexShape, expected: int) -> list[Entries]:
    """Build bare entries for places of a log; an unreadable place gets an entry that says so."""
    found = []
    for place, next_first in zip(places, next_first_offsets(places), strict=True):
        if place.chunk is not None:
            head = place.chunk.head
            restricted = shape.restriction.code(place.chunk.meta.properties)
            found.append(bare_entry(shape, head, place.position, restricted))
            expected = head.first_offset + head.messages
            continue
        count = 0 if next_first is None else next_first - expected
        found.append(damaged_entry(shape, expected, count, place.position, place.length))
        expected += count
    return found


def next_first_offsets(places: list[LogPlace]) -> list[int | None]:
    """Return for each place the first offset of the next chunk behind it; None behind the last."""
    found: list[int | None] = []
    following = None
    for place in reversed(places):
        found.append(following)
        following = following if place.chunk is None else place.chunk.first_offset
    return found[::-1]
