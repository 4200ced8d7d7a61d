"""Streams on disk for the tests of the read side: real hot segments, written chunk by chunk as the test says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from headgate.columns.shred import shred_chunk
from headgate.message import Message, Scalar
from headgate.streams.format import index_path, log_path
from headgate.streams.options import StreamOptions
from headgate.streams.read.catalog import SegmentCatalog
from headgate.streams.read.plan import ScanStats
from headgate.streams.read.query import make_query
from headgate.streams.read.scan import Scan
from headgate.streams.segments.hot_chunk import ChunkMeta, encode_chunk
from headgate.streams.segments.hot_index import IndexShape, index_entry
from headgate.streams.segments.hot_log import create_hot_log
from headgate.streams.segments.hot_segment import HotSegment
from headgate.streams.segments.seal import seal

CLOCK = 1_750_000_000_000_000


def arrays_of(messages: Sequence[Message], indexed: Iterable[str] = ()) -> dict[str, pa.Array]:
    """The columns of a chunk; messages without a timestamp are stamped."""
    payloads = [bytes(message.payload) for message in messages]
    return shred_chunk(messages, payloads, tuple(indexed), CLOCK)


def write_hot(
    directory: Path,
    first_offset: int,
    chunks: Sequence[Sequence[Message]],
    options: StreamOptions | None = None,
    properties: Sequence[Mapping[str, Scalar]] = (),
    producers: Mapping[str, int] | None = None,
) -> int:
    """A hot segment with these chunks; the offset behind its last message."""
    options = options or StreamOptions()
    shape = IndexShape.of(options)
    log = create_hot_log(directory, first_offset, shape, producers or {}, CLOCK)
    for i, messages in enumerate(chunks):
        arrays = arrays_of(messages, options.indexed)
        meta = ChunkMeta({}, properties[i] if properties else {})
        chunk = encode_chunk(arrays, log.next_offset, meta)
        code = shape.restriction.code(meta.properties)
        log.append(chunk, index_entry(shape, chunk.head, log.end, code, arrays.get))
    log.commit()
    log.close()
    return log.next_offset


def seal_at(directory: Path, first_offset: int, indexed: Sequence[str] = ()) -> Path:
    """Seal one hot segment and remove its hot files, as the stream does."""
    segment = HotSegment(log_path(directory, first_offset))
    path = seal(segment, directory, indexed, CLOCK)
    log_path(directory, first_offset).unlink()
    index_path(directory, first_offset).unlink()
    return path


def scan_all(
    directory: Path, filter: object = None, start: int = 0, end: int = 2**62, **more: object
) -> tuple[pa.Table, ScanStats]:
    """What a scan finds, and what it did."""
    query = make_query(filter, **more)  # type: ignore[arg-type]
    scan = Scan(SegmentCatalog(directory), query, start, end)
    return scan.to_table(), scan.stats


def offsets_of(table: pa.Table) -> list[int]:
    return np.asarray(table.column("offset")).tolist()


def stamped(message: Message) -> Message:
    """The message as it comes back: stamped, absent headers left out."""
    return Message(
        bytes(message.payload),
        message.topic,
        {k: v for k, v in message.headers.items() if v is not None},
        message.priority,
        CLOCK if message.timestamp is None else message.timestamp,
        message.id,
        message.filter_value,
        message.key,
        {k: v for k, v in message.properties.items() if v is not None},
    )
