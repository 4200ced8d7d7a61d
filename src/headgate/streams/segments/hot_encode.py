"""Columns -> the bytes of a hot chunk. See `chunk` for what is left out because a reader knows it anyway."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headgate.checksum import crc32
from headgate.streams.format import (
    ALIGNMENT,
    CHUNK_HEADER,
    CHUNK_MAGIC,
    COLUMN,
    CRC,
    FORMAT_VERSION,
    padded,
)
from headgate.streams.segments.hot_chunk import HOLE, NO_META, ChunkHead, ChunkMeta
from headgate.streams.segments.hot_framing import Buffer, Framed, frame

_PADDING: Final = bytes(ALIGNMENT)


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """A chunk as it goes into the log."""

    head: ChunkHead
    parts: list[Buffer]

    @property
    def length(self) -> int:
        return self.head.length


def encode_chunk(
    arrays: Mapping[str, pa.Array], first_offset: int, meta: ChunkMeta = NO_META, flags: int = 0
) -> EncodedChunk:
    """The bytes of a chunk; `timestamp`, `topic`, `priority` and `payload` must be there."""
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
    """A chunk of exactly this length that says: `count` messages were here and are lost."""
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


def _lay_out(columns: Iterable[Framed]) -> tuple[bytes, list[Buffer], int]:
    """The column table and the body: every buffer padded, every column under its CRC."""
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


def _all_empty(column: Framed) -> bool:
    """Whether no text of the column has a single byte."""
    return not len(column.buffers[-1])
