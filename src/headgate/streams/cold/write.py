"""Write sealed segments as one Parquet file: clustered again, with Bloom filters for indexed headers and a summary.

The file is complete and durable before a manifest refers to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa

from headgate.checksum import crc32
from headgate.columns import parse_column_name
from headgate.errors import StreamError
from headgate.filters import Field
from headgate.streams.cold.location import ColdFile, cold_file
from headgate.streams.cold.manifest import LENGTH, ColdNote, encode_manifest
from headgate.streams.cold.segment import parquet_name, read_ending
from headgate.streams.segments.clustering import (
    ChunkSize,
    Clustering,
    arrange,
    in_order,
    key_fields,
    keys_of,
)
from headgate.streams.segments.seal import UNFINISHED
from headgate.streams.segments.sealed import SealedSegment
from headgate.streams.segments.segment_rows import (
    SegmentColumn,
    SegmentRows,
    Words,
    overflowed_headers,
    read_rows,
)
from headgate.streams.segments.summarized import SegmentNote
from headgate.streams.segments.summary import summarize

ROW_GROUP_ROWS: Final = 1 << 16  # up to twice as many, to end where a key changes
ROW_GROUP_BYTES: Final = 32 << 20  # of payload
BLOOM_BYTES: Final = range(16, (80 << 10) + 1)  # of a row group in the summary
BLOOM_ERRORS: Final = 0.01  # false positives of the Bloom filters in the Parquet file
_MOMENT: Final = pa.timestamp("us", "UTC")
_TOPIC: Final = Field("sys", "topic")


@dataclass(frozen=True, slots=True)
class ColdTask:
    """Sealed segments of a stream to be rewritten as one Parquet file."""

    directory: str
    sources: tuple[str, ...]  # the names of their files, in the order of offsets
    indexed: tuple[str, ...]
    location: str
    run: str  # part of the file's name, to find the files of a crashed run
    created: int  # microseconds UTC


@dataclass(frozen=True, slots=True)
class WrittenColdFile:
    """A complete Parquet file that is not committed yet."""

    sources: tuple[str, ...]
    first_offset: int
    next_offset: int
    rows: int
    file: str  # the name it will have
    nbytes: int
    manifest: bytes


def try_write_cold(task: ColdTask) -> WrittenColdFile | str:
    """Write the Parquet file of a task; return the reason as text when that fails."""
    try:
        return write_cold(task)
    except FileNotFoundError as problem:
        return (
            f"{problem.filename or problem} does not exist: retention has deleted it, or this machine does not "
            "share the stream's file system"
        )
    except (StreamError, OSError) as problem:
        return str(problem)


def write_cold(task: ColdTask) -> WrittenColdFile:
    """Write the Parquet file of a task; `Compaction.commit` makes it part of the stream."""
    directory = Path(task.directory)
    sources = [SealedSegment(directory / name) for name in task.sources]
    rows = read_rows(sources, task.indexed)
    size = ChunkSize(ROW_GROUP_ROWS, ROW_GROUP_BYTES)
    clustering = arrange(rows, keys_of(rows, key_fields(task.indexed)), size)
    segment = _segment_note(task, sources, rows, clustering)
    name = f"{task.location}/{segment.first_offset:020d}-{task.run}-{uuid4().hex[:8]}.parquet"
    try:
        target = cold_file(directory, name + UNFINISHED)
        file = _write(target, rows.columns, clustering, key_fields(task.indexed))
    except (pa.ArrowException, OSError) as problem:
        raise StreamError(f"{name} cannot be written: {problem}") from problem
    return WrittenColdFile(
        task.sources,
        segment.first_offset,
        segment.next_offset,
        len(clustering.order),
        name,
        file.nbytes,
        encode_manifest(
            _cold_note(segment, name, file, rows), _summary(segment, file, rows, clustering)
        ),
    )


def _segment_note(
    task: ColdTask, sources: Sequence[SealedSegment], rows: SegmentRows, clustering: Clustering
) -> SegmentNote:
    return SegmentNote(
        first_offset=sources[0].first_offset,
        next_offset=sources[-1].next_offset,
        indexed=task.indexed,
        producers=dict(sources[-1].producers()),
        overflowed=overflowed_headers(rows.columns),
        in_order=in_order(rows, clustering),
        created=task.created,
    )


def _cold_note(segment: SegmentNote, name: str, file: _File, rows: SegmentRows) -> ColdNote:
    return ColdNote(
        segment,
        name,
        file.nbytes,
        file.crc,
        file.footer_crc,
        tuple(rows.columns),
        tuple(name for name, column in rows.columns.items() if isinstance(column, Words)),
    )


def _summary(
    segment: SegmentNote, file: _File, rows: SegmentRows, clustering: Clustering
) -> pa.RecordBatch:
    found = summarize(
        rows.columns,
        clustering,
        indexed=key_fields(segment.indexed),
        first_offset=segment.first_offset,
        properties=[rows.tuples[rows.groups[clustering.order[s]]] for s in clustering.starts],
        bloom_bytes=BLOOM_BYTES,
    )
    return found.append_column(LENGTH, pa.array(file.lengths, pa.int64()))


# ---- writing -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _File:
    """A written Parquet file."""

    nbytes: int
    crc: int
    footer_crc: int
    lengths: list[int]  # of its row groups


class _ChecksummingSink:
    """A sink that counts and checksums what is written through it."""

    def __init__(self, sink: pa.NativeFile) -> None:
        self._sink, self.crc, self.nbytes, self.closed = sink, 0, 0, False

    def write(self, content: bytes) -> int:
        self.crc = crc32(content, self.crc)
        self.nbytes += len(content)
        self._sink.write(content)
        return len(content)

    def tell(self) -> int:
        return self.nbytes

    def flush(self) -> None:
        self._sink.flush()

    def close(self) -> None:
        self.closed = True


def _write(
    target: ColdFile,
    columns: dict[str, SegmentColumn],
    clustering: Clustering,
    fields: Sequence[Field],
) -> _File:
    from pyarrow import parquet  # slow to load, and only compaction writes Parquet

    schema = pa.schema([(parquet_name(n), _type_of(n, c)) for n, c in columns.items()])
    with target.system.open_output_stream(target.path) as sink:
        checksummed = _ChecksummingSink(sink)
        with parquet.ParquetWriter(
            pa.PythonFile(checksummed, "w"),
            schema,
            compression="zstd",
            store_schema=False,
            write_page_index=True,
            write_page_checksum=True,
            bloom_filter_options=_bloom_filters(columns, clustering, fields),
        ) as writer:
            for batch in _batches(schema, columns, clustering):
                writer.write_batch(batch, row_group_size=batch.num_rows)
    target.sync()
    with target.open() as source:
        ending = read_ending(source)
    metadata = parquet.read_metadata(pa.BufferReader(ending))
    lengths = [_length(metadata.row_group(i)) for i in range(metadata.num_row_groups)]
    return _File(checksummed.nbytes, checksummed.crc, crc32(ending), lengths)


def _length(row_group: Any) -> int:
    return sum(row_group.column(i).total_compressed_size for i in range(row_group.num_columns))


def _type_of(name: str, column: SegmentColumn) -> pa.DataType:
    if name == "timestamp":
        return _MOMENT
    return pa.string() if isinstance(column, Words) else column.type


def _batches(
    schema: pa.Schema, columns: dict[str, SegmentColumn], clustering: Clustering
) -> Iterator[pa.RecordBatch]:
    """Yield one batch for each row group, with a dictionary of only the words in it."""
    for start, end in zip(clustering.starts, clustering.ends, strict=True):
        rows = clustering.order[start:end]
        arrays = [
            column.take(rows).cast(field.type)
            for column, field in zip(columns.values(), schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _bloom_filters(
    columns: dict[str, SegmentColumn], clustering: Clustering, fields: Sequence[Field]
) -> dict[str, dict[str, object]]:
    """Return the Bloom filter options of topic, filter value and indexed headers, where they are text or integers.

    Doubles get none: engines disagree on whether 0.0 and -0.0 are one value.
    """
    most = int((clustering.ends - clustering.starts).max(initial=1))
    found: dict[str, dict[str, object]] = {}
    for name, column in columns.items():
        field, view = parse_column_name(name)
        if field in (_TOPIC, *fields) and view in ("string", "int"):
            distinct = min(most, len(column.words)) if isinstance(column, Words) else most
            found[parquet_name(name)] = {"ndv": max(distinct, 1), "fpp": BLOOM_ERRORS}
    return found
