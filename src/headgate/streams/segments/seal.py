"""Seal a segment: rewrite its chunks, clustered, into one Arrow file that takes the place of the hot pair.

The file appears whole or not at all: it is written under another name, checked, made durable and renamed.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.columns import (
    MAX_HEADER_COLUMNS,
    OVERFLOW,
    SYSTEM_COLUMNS,
    header_of,
    is_header_column,
    move_to_overflow,
    overflow_names,
    parse_column_name,
    read_overflow,
)
from headgate.files import sync_directory
from headgate.filters import Field
from headgate.message import Scalar
from headgate.streams.format import sealed_path
from headgate.streams.segments.clustering import ChunkSize, Clustering, Key, cluster, key_of
from headgate.streams.segments.footer import (
    CHECKS_KEY,
    SEGMENT_KEY,
    SUMMARY_KEY,
    SegmentNote,
    checks_dtype,
    compute_checks,
    encode_checks,
)
from headgate.streams.segments.gather import Positions
from headgate.streams.segments.segment import Chunks
from headgate.streams.segments.summary_build import summarize
from headgate.streams.segments.whole import Numbers, Scattered, Whole, count_of, whole_column

FILTER_VALUE: Final = Field("sys", "filter_value")
UNFINISHED: Final = ".unfinished"
# Holds the place of the checks in the footer until they are known.
_FILLER: Final = b"headgate.checks "

TINY_ROWS: Final = 256  # of a chunk that is not worth being looked at on its own
MOST_TINY: Final = 1024

_Part = dict[str, pa.Array]  # the columns of a chunk
_NOTHING: Final[_Part] = {
    "offset": pa.array([], pa.int64()),
    "timestamp": pa.array([], pa.int64()),
    "topic": pa.array([], pa.string()),
    "priority": pa.array([], pa.uint8()),
    "payload": pa.array([], pa.binary()),
}


@dataclass(frozen=True, slots=True)
class SegmentRows:
    """All messages of some segments, column by column, in the order they are read."""

    columns: dict[str, Whole]
    groups: np.ndarray[Any, np.dtype[np.int64]]  # which of `tuples` each row's properties are
    tuples: Sequence[dict[str, Scalar]]


def seal(segment: Chunks, directory: Path, indexed: Collection[str], created: int) -> Path:
    """Write the sealed form of a segment and rename it into place. Hot files are the caller's to remove."""
    path = sealed_path(directory, segment.first_offset)
    unfinished = path.with_name(path.name + UNFINISHED)
    rows = read_rows([segment], indexed)
    fields = key_fields(indexed)
    clustering = arrange(rows, keys_of(rows, fields))
    note = SegmentNote(
        first_offset=segment.first_offset,
        next_offset=segment.next_offset,
        indexed=tuple(indexed),
        producers=dict(segment.producers()),
        overflowed=overflowed(rows.columns),
        in_order=in_order(rows, clustering),
        created=created,
    )
    summary = summarize(
        rows.columns,
        clustering,
        indexed=fields,
        first_offset=segment.first_offset,
        properties=[rows.tuples[rows.groups[clustering.order[s]]] for s in clustering.starts],
    )
    try:
        _write(unfinished, rows.columns, clustering, note.to_json(), _encoded(summary))
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)  # a full disk needs its space
        raise
    sync_directory(directory)
    return path


# ---- reading the hot segment -------------------------------------------------------------------------


def read_rows(segments: Sequence[Chunks], indexed: Collection[str]) -> SegmentRows:
    """Every message of the segments, with no more columns than a segment may have."""
    lengths: list[int] = []
    groups: list[int] = []
    tuples: dict[str, tuple[int, dict[str, Scalar]]] = {}

    def read() -> Iterator[_Part]:
        for chunk in (segment.chunk(i) for segment in segments for i in range(len(segment))):
            if not chunk.num_rows:
                continue
            properties = dict(chunk.metadata().properties)
            groups.append(tuples.setdefault(repr(properties), (len(tuples), properties))[0])
            lengths.append(chunk.num_rows)
            batch = chunk.take(None)
            yield dict(zip(batch.schema.names, batch.columns, strict=True))

    parts = _capped(list(_without_tiny(read())) or [_NOTHING], indexed)
    columns = {
        name: whole_column([part.get(name) for part in parts], list(map(_rows_of, parts)))
        for name in _names(parts)
    }
    found = [properties for _, properties in tuples.values()]
    return SegmentRows(columns, np.repeat(np.array(groups, np.int64), lengths), found)


def _without_tiny(parts: Iterator[_Part]) -> Iterator[_Part]:
    """The same rows; what are many tiny parts in a row is made one, for each array has its price."""
    tiny: list[_Part] = []
    for part in parts:
        if _rows_of(part) < TINY_ROWS:
            tiny.append(part)
            if len(tiny) < MOST_TINY:
                continue
            part = _merged(tiny)
        elif tiny:
            yield _merged(tiny)
        tiny.clear()
        yield part
    if tiny:
        yield _merged(tiny)


def _merged(parts: list[_Part]) -> _Part:
    lengths = list(map(_rows_of, parts))
    rows = np.arange(sum(lengths))
    return {
        name: whole_column([part.get(name) for part in parts], lengths).take(rows)
        for name in _names(parts)
    }


def _rows_of(part: _Part) -> int:
    return len(part["offset"])


def _names(parts: Sequence[_Part]) -> list[str]:
    """Every column that holds something: those of the message itself, properties, headers, overflow."""
    found = {
        name
        for part in parts
        for name, array in part.items()
        if name in _NOTHING or array.null_count < len(array)
    }
    first = [name for name in SYSTEM_COLUMNS if name in found]
    typed = sorted(found - {*first, OVERFLOW}, key=lambda name: (is_header_column(name), name))
    return [*first, *typed, *(found & {OVERFLOW})]


def _capped(parts: list[_Part], indexed: Collection[str]) -> list[_Part]:
    """No more header columns than a chunk may have; the rarest of all chunks together go to the overflow."""
    filled: dict[str, int] = {}
    for part in parts:
        for name, array in part.items():
            if is_header_column(name):
                filled[name] = filled.get(name, 0) + len(array) - array.null_count
    if len(filled) <= MAX_HEADER_COLUMNS:
        return parts
    wanted = sorted(filled, key=lambda n: (header_of(n) not in indexed, -filled[n], n))
    moved = frozenset(wanted[MAX_HEADER_COLUMNS:])
    return [move_to_overflow(part, moved & part.keys()) for part in parts]


def overflowed(columns: dict[str, Whole]) -> tuple[str, ...]:
    """Every header name that occurs in the overflow."""
    column = columns.get(OVERFLOW)
    if column is None:
        return ()
    assert isinstance(column, Scattered)
    rows = read_overflow(column.take(np.arange(count_of(column))))
    return tuple(overflow_names(rows))


# ---- arranging ---------------------------------------------------------------------------------------


def arrange(rows: SegmentRows, keys: Sequence[Key], size: ChunkSize | None = None) -> Clustering:
    """Cluster the rows; those with equal keys stand in the order of their offsets, whatever order they come in."""
    offsets = _offsets(rows)
    if (np.diff(offsets) > 0).all():
        return cluster(rows.groups, keys, payload_lengths(rows), size)
    by_offset = np.argsort(offsets)
    found = cluster(
        rows.groups[by_offset],
        [Key(key.ranks[by_offset], key.size, key.distinct) for key in keys],
        payload_lengths(rows)[by_offset],
        size,
    )
    return Clustering(by_offset[found.order], found.starts)


def in_order(rows: SegmentRows, clustering: Clustering) -> bool:
    """Whether the rows stand in the order of their offsets."""
    return bool((np.diff(_offsets(rows)[clustering.order]) > 0).all())


def _offsets(rows: SegmentRows) -> np.ndarray[Any, np.dtype[np.int64]]:
    offsets = rows.columns["offset"]
    assert isinstance(offsets, Numbers)
    return offsets.values


def key_fields(indexed: Collection[str]) -> list[Field]:
    """What a stream with these indexed headers is clustered by."""
    return [FILTER_VALUE, *(Field("header", name) for name in indexed)]


def keys_of(rows: SegmentRows, fields: Sequence[Field]) -> list[Key]:
    """The sorting keys of those fields that occur."""
    return [key for field in fields if (key := _key(rows.columns, field)) is not None]


def payload_lengths(rows: SegmentRows) -> Positions:
    """How large each message's payload is."""
    payload = rows.columns["payload"]
    assert isinstance(payload, Scattered)
    return payload.ends - payload.begins


def _key(columns: dict[str, Whole], field: Field) -> Key | None:
    views = [column for name, column in columns.items() if _compares(name, field)]
    return key_of(views, count_of(columns["offset"])) if views else None


def _compares(name: str, field: Field) -> bool:
    found, view = parse_column_name(name)
    return found == field and view != "opaque"


# ---- writing -----------------------------------------------------------------------------------------


def _encoded(summary: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, summary.schema) as writer:
        writer.write_batch(summary)
    return base64.b64encode(sink.getvalue())  # readers in other languages want text in the footer


def _write(
    path: Path, columns: dict[str, Whole], clustering: Clustering, note: bytes, summary: bytes
) -> None:
    """The file with its checksums, durable under its present name."""
    schema = pa.schema([(name, column.type) for name, column in columns.items()])
    filler = _filler(len(clustering.starts), schema)
    metadata = {SEGMENT_KEY: note, SUMMARY_KEY: summary, CHECKS_KEY: filler}
    ends = []
    with (
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_file(sink, schema, metadata=metadata) as writer,
    ):
        for batch in _batches(columns, clustering):
            writer.write_batch(batch)
            ends.append((sink.tell(), pa.ipc.get_record_batch_size(batch)))
    places = [(end - length, length) for end, length in ends]
    _fill_in_checks(path, places, note, summary, filler)


def _batches(columns: dict[str, Whole], clustering: Clustering) -> Iterator[pa.RecordBatch]:
    for start, end in zip(clustering.starts, clustering.ends, strict=True):
        rows = clustering.order[start:end]
        arrays = [column.take(rows) for column in columns.values()]
        yield pa.RecordBatch.from_arrays(arrays, list(columns))


def _filler(chunks: int, schema: pa.Schema) -> bytes:
    empty = encode_checks(np.zeros(chunks + 1, checks_dtype(len(schema))), schema, b"", b"")
    return (_FILLER * (len(empty) // len(_FILLER) + 1))[: len(empty)]


def _fill_in_checks(
    path: Path, places: Sequence[tuple[int, int]], note: bytes, summary: bytes, filler: bytes
) -> None:
    """Put the checksums of what the file now holds in the place the footer kept for them."""
    with pa.memory_map(str(path)) as mapped:
        data = mapped.read_buffer()
    reader = pa.ipc.open_file(pa.BufferReader(data))
    encoded = encode_checks(compute_checks(data, reader, places), reader.schema, note, summary)
    footer = places[-1][0] if places else 0
    at = footer + data.slice(footer).to_pybytes().index(filler)
    with open(path, "r+b") as file:
        os.pwrite(file.fileno(), encoded, at)
        os.fsync(file.fileno())
