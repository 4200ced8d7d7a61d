"""The hot index: what is known of every chunk of a log, in entries of one width.

    | INDEX_HEADER | meta JSON: indexed, restrict_same_values | pad | settled | entry | entry | …

`settled` is how far the log was known to be safely written: a chunk that cannot be read before it is damage, one
behind it an unfinished write. It is the only field that changes in place.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field as member
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.checksum import crc32
from headgate.columns import OVERFLOW, column_name, read_overflow
from headgate.filters import KINDS, Field
from headgate.streams.format import (
    CRC,
    FORMAT_VERSION,
    INDEX_HEADER,
    INDEX_MAGIC,
    SETTLED,
    entry_checksums,
    entry_dtype,
    padded,
)
from headgate.streams.options import StreamOptions
from headgate.streams.segments import bloom
from headgate.streams.segments.bloom import BloomShape, Hashes
from headgate.streams.segments.hot_chunk import DAMAGED, HOLE, ChunkHead
from headgate.streams.write.restriction import Restriction

Entries = npt.NDArray[Any]
ColumnOf = Callable[[str], pa.Array | None]

UNRESTRICTED: Final = Restriction({})
FILTER_VALUE: Final = Field("sys", "filter_value")


@dataclass(frozen=True, slots=True)
class IndexShape:
    """What the entries of an index hold."""

    bloom: BloomShape
    indexed: tuple[str, ...] = ()
    restriction: Restriction = UNRESTRICTED
    # The fields the Bloom filter may cover, by their bit in the coverage.
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
        mine, theirs = self.restriction.values, other.restriction.values
        return self.bloom == other.bloom and self.indexed == other.indexed and mine == theirs


@dataclass(frozen=True, slots=True)
class IndexHead:
    """The header of an index, read back."""

    shape: IndexShape
    first_offset: int
    log_crc: int
    length: int


def encode_index_header(shape: IndexShape, first_offset: int, log_crc: int, settled: int) -> bytes:
    """The bytes in front of the first entry."""
    known = {"indexed": shape.indexed, "restrict_same_values": shape.restriction.values}
    meta = json.dumps(known, separators=(",", ":")).encode()
    meta += b" " * (padded(len(meta)) - len(meta))
    sizes = (len(meta), shape.dtype.itemsize, shape.bloom.nbytes, shape.bloom.hashes)
    fixed = INDEX_HEADER.pack(INDEX_MAGIC, FORMAT_VERSION, *sizes, log_crc, first_offset, 0)
    fixed = fixed[: -CRC.size]
    crc = crc32(meta, crc32(fixed))
    return fixed + CRC.pack(crc) + meta + encode_settled(settled)


def encode_settled(position: int) -> bytes:
    return SETTLED.pack(position, position ^ 0xFFFF_FFFF_FFFF_FFFF)


def read_index_header(data: bytes | memoryview) -> IndexHead | str:
    """The header, or what is wrong with it."""
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
    """Where the settled mark is in the file."""
    return header_length - SETTLED.size


def settled_mark(data: bytes) -> int:
    """What the mark says; 0 when it cannot be believed."""
    position, inverse = SETTLED.unpack(data)
    return int(position) if position ^ inverse == 0xFFFF_FFFF_FFFF_FFFF else 0


# ---- entries -----------------------------------------------------------------------------------------


def index_entry(
    shape: IndexShape, head: ChunkHead, position: int, restricted: int, column: ColumnOf
) -> Entries:
    """The entry of one chunk, as an array of one."""
    entry = _unsealed_entry(shape, head, position, restricted)
    if not head.flags & HOLE:
        filled, coverage = _fill_bloom(shape, head, column)
        entry["bloom"][0, : shape.bloom.nbytes] = filled
        entry["coverage"] = coverage
    return sealed_entry(entry)


def bare_entry(shape: IndexShape, head: ChunkHead, position: int, restricted: int = 0) -> Entries:
    """The same with an empty Bloom filter that covers nothing."""
    return sealed_entry(_unsealed_entry(shape, head, position, restricted))


def _unsealed_entry(shape: IndexShape, head: ChunkHead, position: int, restricted: int) -> Entries:
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
    """The entry of a place in the log that cannot be read."""
    entry = np.zeros(1, shape.dtype)
    row = entry[0]
    row["first_offset"], row["count"], row["flags"] = first_offset, count, DAMAGED
    row["position"], row["length"] = position, length
    return sealed_entry(entry)


def sealed_entry(entry: Entries) -> Entries:
    """Put the checksum in."""
    entry["checksum"] = entry_checksums(entry)
    return entry


def _fill_bloom(
    shape: IndexShape, head: ChunkHead, column: ColumnOf
) -> tuple[npt.NDArray[np.uint8], int]:
    """The filter, and which fields it covers: those with few values first, while there is room."""
    found = {bit: _hashes(field, column, shape) for bit, field in enumerate(shape.fields)}
    covered = {bit: hashes for bit, hashes in found.items() if hashes is not None}
    room, coverage, chosen = room_for(shape), 0, []
    for bit, hashes in sorted(covered.items(), key=lambda item: len(item[1])):
        if len(hashes) <= room:
            room -= len(hashes)
            coverage |= 1 << bit
            chosen.append(hashes)
    chosen = [hashes for hashes in chosen if len(hashes)]
    if not chosen:
        return np.zeros(shape.bloom.nbytes, np.uint8), coverage
    return bloom.build(shape.bloom, np.concatenate(chosen), head.first_offset), coverage


def room_for(shape: IndexShape) -> int:
    """How many values a filter takes before it tells nothing any more."""
    # RabbitMQ's small filters are filled however many there are, until a miss is as good as impossible; a
    # filter over headers is kept below one false positive in seven.
    return shape.bloom.bits // 6 if shape.indexed else shape.bloom.bits * 4


def _hashes(field: Field, column: ColumnOf, shape: IndexShape) -> Hashes | None:
    """The hashes of the distinct values of a field; None when they are too many, or not all in columns."""
    if field.scope == "header" and _overflows(field.name, column):
        return None
    found = []
    for kind in KINDS if field.scope == "header" else ("string",):
        array = column(column_name(field, kind))
        if array is not None:
            hashes = _distinct_hashes(field, array, room_for(shape))
            if hashes is None:
                return None
            found.append(hashes)
    return np.concatenate(found) if found else np.empty((0, 2), np.uint64)


def _overflows(header: str, column: ColumnOf) -> bool:
    rest = column(OVERFLOW)
    return rest is not None and any(header in row for row in read_overflow(rest))


def _distinct_hashes(field: Field, array: pa.Array, room: int) -> Hashes | None:
    if isinstance(array, pa.DictionaryArray):
        return _text_hashes(field, array.dictionary, room)
    if not pa.types.is_string(array.type):
        values = np.unique(array.drop_null().to_numpy(zero_copy_only=False))
        return bloom.hash_numbers(field, values) if len(values) <= room else None
    if len(array) - array.null_count > 2 * room:  # texts without a dictionary are mostly different
        return None
    return _text_hashes(field, array.drop_null().unique(), room)


def _text_hashes(field: Field, texts: pa.StringArray, room: int) -> Hashes | None:
    return bloom.hash_texts(field, texts) if len(texts) <= room else None
