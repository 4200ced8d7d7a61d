"""Dump a segment for people: its head, its chunks, their columns with the state of their CRCs, and some messages.

00000000000000000000.arrow  sealed, offsets 0 to 449999, 59,913,216 bytes
  chunks: 53
  indexed: ['region']
chunk 0  offsets 12 to 449871  8,400 messages  1,118,208 bytes  2026-11-15T10:00:00+00:00 to 2026-11-15T10:00:04+00:00
  h.s.region   dictionary<…>   0 null   8,412 bytes  crc ok
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.columns import decode_records
from headgate.errors import StreamCorrupt
from headgate.message import Message
from headgate.streams.cold.segment import ColdSegment, open_sealed
from headgate.streams.format import LOG_SUFFIX
from headgate.streams.segments.hot_segment import HotSegment
from headgate.streams.segments.segment import ChunkMetadata
from headgate.streams.segments.summarized import SummarizedSegment

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ColumnDump:
    """A column of a chunk."""

    name: str
    type: str
    nulls: int
    nbytes: int
    problem: str | None  # what is wrong with it


@dataclass(frozen=True, slots=True)
class ChunkDump:
    """A chunk, its columns and some of its messages."""

    at: int
    metadata: ChunkMetadata | None
    columns: list[ColumnDump]
    sample: list[tuple[int, Message]]
    problem: str | None


@dataclass(frozen=True, slots=True)
class SegmentDump:
    """The content of a segment; `dump_lines` prints it."""

    path: Path
    sealed: bool
    first_offset: int
    next_offset: int
    nbytes: int
    facts: dict[str, Any]
    chunks: list[ChunkDump]


def dump_segment(path: Path, *, sample: int = 3, most_chunks: int | None = None) -> SegmentDump:
    """Read a segment, or its first chunks; damage of chunks and columns is part of the dump and not raised."""
    segment = HotSegment(path) if path.suffix == LOG_SUFFIX else open_sealed(path)
    shown = len(segment) if most_chunks is None else min(len(segment), most_chunks)
    facts: dict[str, Any] = {"chunks": len(segment), "producers": dict(segment.producers())}
    if isinstance(segment, SummarizedSegment):
        facts |= {"indexed": list(segment.note.indexed), "in order": segment.note.in_order}
        facts |= {"overflowing headers": len(segment.note.overflowed)}
        facts |= {"data": segment.known.file} if isinstance(segment, ColdSegment) else {}
    else:
        bloom = segment.shape.bloom
        facts |= {"indexed": list(segment.shape.indexed)}
        facts |= {"bloom": f"{bloom.nbytes} bytes, {bloom.hashes} hashes"}
    return SegmentDump(
        path,
        segment.sealed,
        segment.first_offset,
        segment.next_offset,
        segment.nbytes if isinstance(segment, SummarizedSegment) else path.stat().st_size,
        facts,
        [_chunk_dump(segment, i, sample) for i in range(shown)],
    )


def _chunk_dump(segment: SummarizedSegment | HotSegment, at: int, sample: int) -> ChunkDump:
    try:
        chunk = segment.chunk(at)
    except StreamCorrupt as damage:
        return ChunkDump(at, segment.metadata(at), [], [], damage.problem)
    names = segment.names if isinstance(segment, SummarizedSegment) else chunk.names  # type: ignore[union-attr]
    columns = [_column_dump(chunk, name) for name in names]
    sound = all(column.problem is None for column in columns)
    rows = np.arange(min(sample, chunk.num_rows))
    found = [(r.offset, r.message) for r in decode_records(chunk.take(rows))] if sound else []
    return ChunkDump(at, chunk.metadata(), columns, found, None)


def _column_dump(chunk: Any, name: str) -> ColumnDump:
    try:
        array: pa.Array = chunk.column(name)
    except StreamCorrupt as damage:
        return ColumnDump(name, "?", 0, 0, damage.problem)
    return ColumnDump(name, str(array.type), array.null_count, array.nbytes, None)


# ---- as text -----------------------------------------------------------------------------------------


def dump_lines(dump: SegmentDump) -> Iterator[str]:
    """Yield the dump line by line."""
    kind = "hot" if not dump.sealed else "cold" if "data" in dump.facts else "sealed"
    yield f"{dump.path.name}  {kind}, offsets {dump.first_offset} to {dump.next_offset - 1}, {dump.nbytes:,} bytes"
    for name, value in dump.facts.items():
        yield f"  {name}: {value}"
    for chunk in dump.chunks:
        yield from _chunk_lines(chunk)


def _chunk_lines(chunk: ChunkDump) -> Iterator[str]:
    known = chunk.metadata
    if known is not None:
        yield (
            f"chunk {chunk.at}  offsets {known.first_offset} to {known.last_offset}  {known.count:,} messages  "
            f"{known.nbytes:,} bytes  {_time_text(known.min_timestamp)} to {_time_text(known.max_timestamp)}"
            + (f"  {dict(known.properties)}" if known.properties else "")
        )
    if chunk.problem is not None:
        yield f"  DAMAGED: {chunk.problem}"
    for column in chunk.columns:
        state = "crc ok" if column.problem is None else f"DAMAGED: {column.problem}"
        yield f"  {column.name:<24} {column.type:<44} {column.nulls:>8,} null {column.nbytes:>12,} bytes  {state}"
    for offset, message in chunk.sample:
        yield f"  {offset:>10}  {_message_text(message)}"


def _message_text(message: Message) -> str:
    payload = bytes(message.payload[:40])
    more = "…" if len(message.payload) > len(payload) else ""
    parts = {
        "topic": message.topic,
        "headers": dict(message.headers),
        "priority": message.priority or None,
        "key": message.key,
        "filter_value": message.filter_value,
        "properties": dict(message.properties) or None,
    }
    text = "  ".join(f"{name}={value!r}" for name, value in parts.items() if value is not None)
    return f"{text}  payload={payload!r}{more} ({len(message.payload):,} bytes)"


def _time_text(microseconds: int) -> str:
    try:
        return (_EPOCH + timedelta(microseconds=microseconds)).isoformat()
    except OverflowError:
        return f"{microseconds} µs"
