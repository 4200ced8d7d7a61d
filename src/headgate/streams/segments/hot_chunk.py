"""A hot chunk: a batch of messages as bare Arrow buffers behind one header.

The header, which describes the columns, has one CRC, and every column has its own, so that a reader checks only the
columns it reads. Offsets are not stored: row i has offset first_offset + i. A system column with one value for all
messages is not stored either:

    timestamp, priority    absent: all have the header's lowest
    topic, payload         absent: all are empty
    filter_value, key, id  absent: no message has one
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.checksum import crc32
from headgate.columns import OVERFLOW, column_name, join_views, overflow_view, read_overflow
from headgate.errors import StreamCorrupt
from headgate.filters import SYS_KINDS, Field, View
from headgate.message import HeaderValue, Scalar
from headgate.streams.format import (
    ALIGNMENT,
    CHUNK_HEADER,
    CHUNK_MAGIC,
    COLUMN,
    CRC,
    FORMAT_VERSION,
    padded,
)
from headgate.streams.segments.hot_framing import (
    Buffer,
    StoredColumn,
    frame,
    rebuild,
    slice_buffers,
)
from headgate.streams.segments.segment import ChunkMetadata

# Flags. MORE: the next chunk belongs to this append, too, and none of them counts without the last one.
MORE: Final = 1
HOLE: Final = 2  # the messages are lost; repair has put this chunk in their place
DAMAGED: Final = 4  # in an index only: the chunk's header cannot be read

ALWAYS: Final = ("timestamp", "topic", "priority", "payload")


class ChunkHead(NamedTuple):
    """The fixed part of a chunk's header."""

    magic: bytes
    version: int
    flags: int
    columns: int
    header_length: int
    names_length: int
    meta_length: int
    messages: int
    first_offset: int
    min_timestamp: int
    max_timestamp: int
    body_length: int
    filtered: int
    min_priority: int
    max_priority: int
    crc: int

    @property
    def length(self) -> int:
        return self.header_length + self.body_length


@dataclass(frozen=True, slots=True)
class ChunkMeta:
    """What the header of a chunk says besides its columns."""

    producers: Mapping[str, int]  # last publishing id of each named producer in the chunk
    properties: Mapping[str, Scalar]  # the values that restrict_same_values made equal

    def to_json(self) -> bytes:
        known = {"producers": dict(self.producers), "properties": dict(self.properties)}
        filled = {name: value for name, value in known.items() if value}
        return json.dumps(filled, separators=(",", ":")).encode() if filled else b""

    @classmethod
    def from_json(cls, text: bytes) -> ChunkMeta:
        if not text:
            return NO_META
        known = json.loads(text)
        return cls(known.get("producers", {}), known.get("properties", {}))


NO_META: Final = ChunkMeta({}, {})


class HotChunk:
    """A chunk in memory or in a memory map; opening it reads only its header."""

    __slots__ = (
        "_body",
        "_bytes",
        "_cache",
        "_columns",
        "_overflowing",
        "file",
        "head",
        "meta",
        "num_rows",
        "position",
    )

    def __init__(self, data: pa.Buffer, at: int, file: str, base: int = 0) -> None:
        """Open the chunk at `at` in `data`, which begins at byte `base` of the file."""
        self.file, self.position = file, base + at
        header = read_header(data, at)
        if isinstance(header, str):
            raise StreamCorrupt(file, self.position, header)
        self.head, names, table, meta = header
        self.num_rows = 0 if self.head.flags & HOLE else self.head.messages
        self.meta = ChunkMeta.from_json(meta)
        self._columns = dict(zip(names, COLUMN.iter_unpack(table), strict=True))
        self._body = data.slice(at + self.head.header_length, self.head.body_length)
        self._bytes = memoryview(self._body)
        self._cache: dict[str, pa.Array | None] = {}
        self._overflowing: list[dict[str, HeaderValue]] | None = None

    @property
    def first_offset(self) -> int:
        return self.head.first_offset

    @property
    def nbytes(self) -> int:
        return self.head.length

    @property
    def names(self) -> list[str]:
        """The stored columns."""
        return list(self._columns)

    def offsets(self) -> npt.NDArray[np.int64]:
        return np.arange(self.first_offset, self.first_offset + self.num_rows)

    def metadata(self) -> ChunkMetadata:
        head = self.head
        return ChunkMetadata(
            head.first_offset, head.first_offset + head.messages - 1, self.num_rows,
            head.min_timestamp, head.max_timestamp, head.min_priority, head.max_priority,
            head.length, self.meta.properties,
        )  # fmt: skip

    def view(self, field: Field, view: View) -> pa.Array | None:
        if field.scope == "sys" and SYS_KINDS[field.name] != view:
            return None
        array = self.column(column_name(field, view))
        if array is not None and view != "opaque" and not array.null_count:
            return array
        if field.scope == "header" and OVERFLOW in self._columns:
            more = overflow_view(self.overflowing(), field.name, view)
            return join_views(array, more, view)
        return array

    def column(self, name: str) -> pa.Array | None:
        """Return a column, checked and rebuilt at the first call; None when the chunk does not have it."""
        if name not in self._cache:
            self._cache[name] = self._rebuild(name)
        return self._cache[name]

    def overflowing(self) -> list[dict[str, HeaderValue]]:
        """Return, for every row, the headers that have no column."""
        if self._overflowing is None:
            array = self.column(OVERFLOW)
            self._overflowing = [{}] * self.num_rows if array is None else read_overflow(array)
        return self._overflowing

    def take(
        self, rows: npt.NDArray[np.intp] | None, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        if columns is None:
            columns = [*ALWAYS, *(name for name in self._columns if name not in ALWAYS)]
        names, arrays = ["offset"], [pa.array(self.offsets())]
        for name in columns:
            if (array := self.column(name)) is not None:
                names.append(name)
                arrays.append(array)
        batch = pa.RecordBatch.from_arrays(arrays, names)
        return batch if rows is None else batch.take(pa.array(rows))

    def check(self) -> None:
        """Check every column against its CRC."""
        for name in self._columns:
            self._check(name)

    def _rebuild(self, name: str) -> pa.Array | None:
        stored = self._columns.get(name)
        if stored is None:
            return self._build_constant_column(name)
        self._check(name)
        kind, width, nulls, distinct, _, start, *lengths = stored
        buffers = slice_buffers(self._body, kind, start, lengths)
        return rebuild(StoredColumn(kind, width, nulls, distinct, buffers), self.num_rows)

    def _check(self, name: str) -> None:
        crc, start, *lengths = self._columns[name][4:]
        end = start + sum([length + -length % ALIGNMENT for length in lengths])
        if crc32(self._bytes[start:end]) != crc:
            at = self.position + self.head.header_length + start
            last = self.first_offset + self.head.messages - 1
            raise StreamCorrupt(
                self.file,
                at,
                f"column {name!r} of offsets {self.first_offset} to {last} fails its CRC",
            )

    def _build_constant_column(self, name: str) -> pa.Array | None:
        rows, head = self.num_rows, self.head
        match name:
            case "timestamp":
                same = pa.py_buffer(head.min_timestamp.to_bytes(8, "little", signed=True) * rows)
                return pa.Array.from_buffers(pa.int64(), rows, [None, same], 0)
            case "priority":
                same = pa.py_buffer(bytes((head.min_priority,)) * rows)
                return pa.Array.from_buffers(pa.uint8(), rows, [None, same], 0)
            case "topic":
                codes = pa.array(np.zeros(rows, np.int8))
                return pa.DictionaryArray.from_arrays(codes, pa.array([""]))
            case "payload":
                ends = pa.py_buffer(bytes(4 * (rows + 1)))
                return pa.Array.from_buffers(pa.binary(), rows, [None, ends, pa.py_buffer(b"")])
            case _:
                return None


def read_header(
    data: pa.Buffer, position: int
) -> tuple[ChunkHead, Sequence[str], memoryview, bytes] | str:
    """Return head, column names, column table and meta of the chunk at `position`, or what is wrong there."""
    head = read_head(data, position)
    if isinstance(head, str):
        return head
    header = memoryview(data)[position : position + head.header_length]
    crc = crc32(header[: CHUNK_HEADER.size - CRC.size])
    if crc32(header[CHUNK_HEADER.size :], crc) != head.crc:
        return "the header of a chunk fails its CRC"
    names_at = CHUNK_HEADER.size + head.columns * COLUMN.size
    meta_at = names_at + head.names_length
    names = _names(bytes(header[names_at:meta_at])) if head.columns else ()
    meta = bytes(header[meta_at : meta_at + head.meta_length])
    return head, names, header[CHUNK_HEADER.size : names_at], meta


@lru_cache(256)
def _names(stored: bytes) -> tuple[str, ...]:
    """Split the names of a chunk's columns. Cached: most chunks of a stream have equal names."""
    return tuple(stored.decode().split("\0"))


def read_head(data: pa.Buffer, position: int) -> ChunkHead | str:
    """Return the fixed part at `position`, not yet checked against its CRC, or what is wrong there."""
    left = data.size - position
    if left < CHUNK_HEADER.size:
        return f"a chunk is cut off after {left} bytes"
    head = ChunkHead(*CHUNK_HEADER.unpack_from(data, position))
    if head.magic != CHUNK_MAGIC:
        return "there is no chunk"
    if head.version != FORMAT_VERSION:
        return f"a chunk of format {head.version}, this program reads {FORMAT_VERSION}"
    if head.header_length < CHUNK_HEADER.size or head.length > left:
        return f"a chunk of {head.length} bytes is cut off after {left}"
    return head


# ---- encoding ---------------------------------------------------------------------------------------


_PADDING: Final = bytes(ALIGNMENT)


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """The bytes of a chunk, ready to be appended to the log."""

    head: ChunkHead
    parts: list[Buffer]

    @property
    def length(self) -> int:
        return self.head.length


def encode_chunk(
    arrays: Mapping[str, pa.Array], first_offset: int, meta: ChunkMeta = NO_META, flags: int = 0
) -> EncodedChunk:
    """Encode columns as a chunk; `timestamp`, `topic`, `priority` and `payload` must be among them."""
    times, priorities = _bounds(arrays["timestamp"]), _bounds(arrays["priority"])
    filtered = arrays.get("filter_value")
    constant = {"timestamp": times[0] == times[1], "priority": priorities[0] == priorities[1]}
    framed = {name: frame(array) for name, array in arrays.items() if not constant.get(name)}
    for name in ("topic", "payload"):
        if _all_empty(framed[name]):
            del framed[name]
    table, body, body_length = _lay_out(framed.values())
    head = ChunkHead(
        CHUNK_MAGIC, FORMAT_VERSION, flags, len(framed), 0, 0, 0, len(arrays["timestamp"]), first_offset,
        *times, body_length, 0 if filtered is None else len(filtered) - filtered.null_count, *priorities, 0,
    )  # fmt: skip
    head, header = _encode_header(head, table, "\0".join(framed).encode(), meta.to_json())
    return EncodedChunk(head, [header, *body])


def encode_hole(first_offset: int, count: int, length: int) -> bytes:
    """Encode a chunk of exactly this length which says that `count` messages are lost."""
    head = ChunkHead(
        CHUNK_MAGIC, FORMAT_VERSION, HOLE, 0, 0, 0, 0, count, first_offset, 0, 0,
        length - CHUNK_HEADER.size, 0, 0, 0, 0,
    )  # fmt: skip
    return _encode_header(head, b"", b"", b"")[1] + bytes(length - CHUNK_HEADER.size)


def _encode_header(
    head: ChunkHead, table: bytes, names: bytes, meta: bytes
) -> tuple[ChunkHead, bytes]:
    length = CHUNK_HEADER.size + len(table) + len(names) + len(meta)
    head = head._replace(
        header_length=padded(length), names_length=len(names), meta_length=len(meta)
    )
    tail = table + names + meta + bytes(padded(length) - length)
    fixed = CHUNK_HEADER.pack(*head)[: -CRC.size]
    head = head._replace(crc=crc32(tail, crc32(fixed)))
    return head, fixed + CRC.pack(head.crc) + tail


def _lay_out(columns: Iterable[StoredColumn]) -> tuple[bytes, list[Buffer], int]:
    """Return the column table, the body with every buffer padded, and its length."""
    table: list[bytes] = []
    body: list[Buffer] = []
    position = 0
    for column in columns:
        crc, start, lengths = 0, position, [0, 0, 0, 0]
        for i, buffer in enumerate(column.buffers):
            lengths[i] = length = len(buffer)
            crc = crc32(buffer, crc)
            body.append(buffer)
            if padding := -length % ALIGNMENT:
                crc = crc32(_PADDING[:padding], crc)
                body.append(_PADDING[:padding])
            position += length + padding
        entry = (column.type, column.width, column.nulls, column.dictionary, crc, start, *lengths)
        table.append(COLUMN.pack(*entry))
    return b"".join(table), body, position


def _bounds(array: pa.Array) -> tuple[int, int]:
    values = array.to_numpy()
    return int(values.min()), int(values.max())


def _all_empty(column: StoredColumn) -> bool:
    """Whether all texts of the column are empty."""
    return not len(column.buffers[-1])
