"""Seal a segment: rewrite its rows, clustered, into one Arrow file that replaces the log and its index.

The file appears as a whole or not at all: it is written under another name, made durable and renamed.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from headgate.files import sync_directory
from headgate.streams.format import sealed_path
from headgate.streams.segments.clustering import Clustering, arrange, in_order, key_fields, keys_of
from headgate.streams.segments.pages import (
    PAGES_KEY,
    compute_page_checks,
    encode_pages,
    page_checks_dtype,
    summarize_pages,
)
from headgate.streams.segments.sealed import (
    CHECKS_KEY,
    SEGMENT_KEY,
    SUMMARY_KEY,
    SealedSegment,
    checks_dtype,
    compute_checks,
    encode_checks,
)
from headgate.streams.segments.segment import Chunks
from headgate.streams.segments.segment_rows import SegmentColumn, overflowed_headers, read_rows
from headgate.streams.segments.summarized import SegmentNote
from headgate.streams.segments.summary import summarize

UNFINISHED: Final = ".unfinished"
# Reserves the space of the checks in the footer until they are known. No name in the footer holds a NUL.
_FILLER: Final = b"headgate.checks\0"


def seal(segment: Chunks, directory: Path, indexed: Collection[str], created: int) -> Path:
    """Write the sealed form of a segment and rename it into place. The caller removes the hot files."""
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
        overflowed=overflowed_headers(rows.columns),
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
        pages = summarize_pages(rows.columns, clustering, fields)
        _write(unfinished, rows.columns, clustering, note.to_json(), _encode(summary), pages)
        SealedSegment(unfinished)  # raises if it cannot be read: the log would be lost
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)  # a full disk needs its space
        raise
    sync_directory(directory)
    return path


# ---- the file ------------------------------------------------------------------------------------------


def _encode(summary: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, summary.schema) as writer:
        writer.write_batch(summary)
    return base64.b64encode(sink.getvalue())  # other languages read the footer as text


def _write(
    path: Path,
    columns: dict[str, SegmentColumn],
    clustering: Clustering,
    note: bytes,
    summary: bytes,
    pages: pa.RecordBatch | None,
) -> None:
    """Write the file with its checksums; it is durable when this returns."""
    schema = pa.schema([(name, column.type) for name, column in columns.items()])
    filler = _filler(len(clustering.starts), schema)
    metadata = {SEGMENT_KEY: note, SUMMARY_KEY: summary, CHECKS_KEY: filler}
    if pages is not None:
        unchecked = encode_pages(pages, np.zeros(pages.num_rows, page_checks_dtype(len(schema))))
        metadata[PAGES_KEY] = unchecked
    ends = []
    with (
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_file(sink, schema, metadata=metadata) as writer,
    ):
        for batch in _batches(columns, clustering):
            writer.write_batch(batch)
            ends.append((sink.tell(), pa.ipc.get_record_batch_size(batch)))
    places = [(end - length, length) for end, length in ends]
    with pa.memory_map(str(path)) as mapped:
        data = mapped.read_buffer()
    reader = pa.ipc.open_file(pa.BufferReader(data))
    checks = encode_checks(compute_checks(data, reader, places), reader.schema, note, summary)
    fillers = {filler: checks}
    if pages is not None:
        fillers[unchecked] = encode_pages(pages, compute_page_checks(reader))
    _fill_in(path, data, places[-1][0] if places else 0, fillers)


def _batches(columns: dict[str, SegmentColumn], clustering: Clustering) -> Iterator[pa.RecordBatch]:
    for start, end in zip(clustering.starts, clustering.ends, strict=True):
        rows = clustering.order[start:end]
        arrays = [column.take(rows) for column in columns.values()]
        yield pa.RecordBatch.from_arrays(arrays, list(columns))


def _filler(chunks: int, schema: pa.Schema) -> bytes:
    empty = encode_checks(np.zeros(chunks + 1, checks_dtype(len(schema))), schema, b"", b"")
    return (_FILLER * (len(empty) // len(_FILLER) + 1))[: len(empty)]


def _fill_in(path: Path, data: pa.Buffer, footer: int, fillers: Mapping[bytes, bytes]) -> None:
    """Overwrite each filler behind this position with the bytes it reserves space for, and make the file durable."""
    behind = data.slice(footer).to_pybytes()
    with open(path, "r+b") as file:
        for filler, encoded in fillers.items():
            os.pwrite(file.fileno(), encoded, footer + behind.rindex(filler))
        os.fsync(file.fileno())
