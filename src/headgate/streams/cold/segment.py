"""A cold segment: a Parquet file that any engine reads. A chunk is a row group; planning reads only the manifest.

Rows are clustered as in a sealed segment, in row groups far larger than its chunks. Of a row group, only the columns
that are asked for are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.checksum import crc32
from headgate.errors import StreamCorrupt, StreamError
from headgate.streams.cold.location import cold_file
from headgate.streams.cold.manifest import LENGTH, read_manifest
from headgate.streams.cold.names import parquet_name, stream_name
from headgate.streams.format import COLD_SUFFIX
from headgate.streams.segments.gather import Rows
from headgate.streams.segments.sealed import SealedSegment
from headgate.streams.segments.summarized import SummarizedChunk, SummarizedSegment
from headgate.streams.segments.summary import Summary

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

_ENDING: Final = 8  # length of the footer, and the magic behind it
_READ_BYTES: Final = 1 << 20


def open_sealed(path: Path) -> SealedSegment | ColdSegment:
    """The segment of a file that never changes any more."""
    return ColdSegment(path) if path.suffix == COLD_SUFFIX else SealedSegment(path)


class ColdSegment(SummarizedSegment):
    """The manifest in memory, the Parquet file read when a chunk is."""

    tier = "cold"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known, table = read_manifest(path)
        self.note = self.known.segment
        self.names = list(self.known.columns)
        self.footer_bytes = table.nbytes
        self.nbytes = self.known.nbytes
        self._summary = Summary(table, self.note.first_offset, self.note.overflowed)
        self.file = cold_file(path.parent, self.known.file)
        # A local file is mapped here and now: then retention may delete it while it is read.
        self._source = self._opened() if self.file.is_local else None
        self._parquet: ParquetFile | None = None
        self._reading = Lock()

    def chunk(self, i: int) -> ColdChunk:
        return ColdChunk(self, i)

    def lengths(self) -> npt.NDArray[np.int64]:
        return self._summary.numbers(LENGTH)

    def read(self, i: int, names: Sequence[str]) -> dict[str, pa.Array]:
        """These columns of a row group, their pages checked."""
        wanted = list(map(parquet_name, names))
        try:
            with self._reading:
                table = self._file().read_row_group(i, columns=wanted)
        except FileNotFoundError as problem:
            raise StreamError(
                f"{self.known.file} is gone: if retention has dropped it since, read again from a later offset"
            ) from problem
        except (pa.ArrowException, OSError) as problem:
            low, high = (int(bound[i]) for bound in self.offset_bounds())
            what = f"row group {i} with offsets from {low} to {high}: {problem}"
            if not self.file.is_local:  # it may as well be the network
                raise StreamError(f"{self.known.file} cannot be read, {what}") from problem
            raise StreamCorrupt(self.known.file, 0, what) from problem
        return {
            stream_name(name): _as_stored(column.combine_chunks())
            for name, column in zip(table.column_names, table.columns, strict=True)
        }

    def check_file(self) -> None:
        """Check every byte of the Parquet file, also those between its pages."""
        crc, source = 0, self._source or self._opened()
        source.seek(0)
        while part := source.read(_READ_BYTES):
            crc = crc32(part, crc)
        if crc != self.known.crc:
            raise StreamCorrupt(self.known.file, 0, "the file fails its CRC")

    # ---- the Parquet file ----------------------------------------------------------------------------

    def _opened(self) -> pa.NativeFile:
        try:
            return self.file.open()
        except FileNotFoundError:
            if self.path.exists():  # retention removes the manifest first
                raise StreamCorrupt(
                    self.known.file, 0, "the file of a cold segment is missing"
                ) from None
            raise

    def _file(self) -> ParquetFile:
        if self._parquet is None:
            self._parquet = self._parsed(self._source or self._opened())
        return self._parquet

    def _parsed(self, source: pa.NativeFile) -> ParquetFile:
        from pyarrow import parquet  # slow to load, and most streams have no cold tier

        ending = read_ending(source)
        if source.size() != self.nbytes or crc32(ending) != self.known.footer_crc:
            raise StreamCorrupt(self.known.file, source.size(), "the footer fails its CRC")
        return parquet.ParquetFile(
            source,
            metadata=parquet.read_metadata(pa.BufferReader(ending)),
            read_dictionary=list(map(parquet_name, self.known.dictionaries)),
            page_checksum_verification=True,
            pre_buffer=not self.file.is_local,
        )


def read_ending(source: pa.NativeFile) -> bytes:
    """The footer of a Parquet file, with its length and the magic behind it."""
    size = source.size()
    length = int.from_bytes(source.read_at(4, max(size - _ENDING, 0)), "little") + _ENDING
    found: bytes = source.read_at(min(length, size), max(size - length, 0))
    return found


def _as_stored(array: pa.Array) -> pa.Array:
    """Moments are numbers in a stream; the same bytes either way."""
    return array.cast(pa.int64()) if pa.types.is_timestamp(array.type) else array


class ColdChunk(SummarizedChunk):
    """One row group of a cold segment."""

    __slots__ = ("_arrays",)

    _segment: ColdSegment

    def __init__(self, segment: ColdSegment, at: int) -> None:
        super().__init__(segment, at)
        self._arrays: dict[str, pa.Array] = {}

    def column(self, name: str) -> pa.Array:
        if name not in self._arrays:
            self._arrays |= self._segment.read(self.at, [name])
        return self._arrays[name]

    def take(self, rows: Rows | None, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        names = [n for n in self._segment.names if columns is None or n in (*columns, "offset")]
        missing = [name for name in names if name not in self._arrays]
        if missing:
            self._arrays |= self._segment.read(self.at, missing)
        return super().take(rows, columns)


# ---- what was taken of several row groups ------------------------------------------------------------


def united(parts: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The same rows; a dictionary is one for all parts, or none where it would be longer than they are."""
    names: list[str] = parts[0].schema.names
    columns = [_united([part.column(name) for part in parts]) for name in names]
    return [
        pa.RecordBatch.from_arrays(list(arrays), names) for arrays in zip(*columns, strict=True)
    ]


def _united(arrays: list[pa.Array]) -> list[pa.Array]:
    if not pa.types.is_dictionary(arrays[0].type):
        return arrays
    if sum(len(array.dictionary) for array in arrays) > sum(map(len, arrays)):
        return [array.dictionary_decode() for array in arrays]
    found: list[pa.Array] = pa.chunked_array(arrays).unify_dictionaries().chunks
    return found
