"""A cold segment: a Parquet file that any engine reads. A chunk is a row group; planning reads only the manifest.

Rows are clustered as in a sealed segment, in row groups far larger than its chunks. Only the columns that a query needs
are read.

Columns are named without dots, which other engines take for nested fields. Every byte of a header's name that is not an
ASCII letter, digit or underscore is written as `$` and two hexadecimal digits:

    h.s.region   h_s_region          h.i.x-total   h_i_x$2dtotal          topic, offset, …   unchanged
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
from headgate.streams.format import COLD_SUFFIX
from headgate.streams.segments.gather import RowIndices
from headgate.streams.segments.sealed import SealedSegment
from headgate.streams.segments.summarized import SummarizedChunk, SummarizedSegment
from headgate.streams.segments.summary import Summary

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile


import re

_ENDING: Final = 8  # length of the footer, and the magic behind it
_READ_BYTES: Final = 1 << 20


def open_sealed(path: Path) -> SealedSegment | ColdSegment:
    """Open a sealed or cold segment."""
    return ColdSegment(path) if path.suffix == COLD_SUFFIX else SealedSegment(path)


class ColdSegment(SummarizedSegment):
    """A manifest in memory, and its Parquet file, which is read chunk by chunk."""

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
        # A local file is mapped at once, so that retention may delete it while it is read.
        self._source = self._open() if self.file.is_local else None
        self._parquet: ParquetFile | None = None
        self._reading = Lock()

    def chunk(self, i: int) -> ColdChunk:
        return ColdChunk(self, i)

    def lengths(self) -> npt.NDArray[np.int64]:
        return self._summary.numbers(LENGTH)

    def read(self, i: int, names: Sequence[str]) -> dict[str, pa.Array]:
        """Read columns of a row group, checking the CRC of their pages."""
        wanted = list(map(parquet_name, names))
        try:
            with self._reading:
                table = self._file().read_row_group(i, columns=wanted)
        except FileNotFoundError as problem:
            raise StreamError(
                f"{self.known.file} no longer exists: if retention has deleted it, read again from a later offset"
            ) from problem
        except (pa.ArrowException, OSError) as problem:
            low, high = (int(bound[i]) for bound in self.offset_bounds())
            what = f"row group {i} with offsets from {low} to {high}: {problem}"
            if not self.file.is_local:  # the network may have failed
                raise StreamError(f"{self.known.file} cannot be read, {what}") from problem
            raise StreamCorrupt(self.known.file, 0, what) from problem
        return {
            stream_name(name): _to_integers(column.combine_chunks())
            for name, column in zip(table.column_names, table.columns, strict=True)
        }

    def check_file(self) -> None:
        """Check every byte of the Parquet file, including those between its pages."""
        crc, source = 0, self._source or self._open()
        source.seek(0)
        while part := source.read(_READ_BYTES):
            crc = crc32(part, crc)
        if crc != self.known.crc:
            raise StreamCorrupt(self.known.file, 0, "the file fails its CRC")

    # ---- the Parquet file ----------------------------------------------------------------------------

    def _open(self) -> pa.NativeFile:
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
            self._parquet = self._parse_footer(self._source or self._open())
        return self._parquet

    def _parse_footer(self, source: pa.NativeFile) -> ParquetFile:
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
    """Read the footer of a Parquet file, with its length and the magic."""
    size = source.size()
    length = int.from_bytes(source.read_at(4, max(size - _ENDING, 0)), "little") + _ENDING
    found: bytes = source.read_at(min(length, size), max(size - length, 0))
    return found


def _to_integers(array: pa.Array) -> pa.Array:
    """Turn a timestamp column into integers, as in other segments; the bytes are equal."""
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

    def take(self, rows: RowIndices | None, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        names = [n for n in self._segment.names if columns is None or n in (*columns, "offset")]
        missing = [name for name in names if name not in self._arrays]
        if missing:
            self._arrays |= self._segment.read(self.at, missing)
        return super().take(rows, columns)


# ---- rows of several row groups ----------------------------------------------------------------------


def unify_dictionaries(parts: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Give all parts one dictionary for each column, or none where it would be longer than the parts."""
    names: list[str] = parts[0].schema.names
    columns = [_unify([part.column(name) for part in parts]) for name in names]
    return [
        pa.RecordBatch.from_arrays(list(arrays), names) for arrays in zip(*columns, strict=True)
    ]


def _unify(arrays: list[pa.Array]) -> list[pa.Array]:
    if not pa.types.is_dictionary(arrays[0].type):
        return arrays
    if sum(len(array.dictionary) for array in arrays) > sum(map(len, arrays)):
        return [array.dictionary_decode() for array in arrays]
    found: list[pa.Array] = pa.chunked_array(arrays).unify_dictionaries().chunks
    return found


# ---- column names in Parquet -------------------------------------------------------------------------


_TYPED: Final = re.compile(r"([hp])\.([sifbo])\.(.+)", re.DOTALL)
_TYPED_IN_PARQUET: Final = re.compile(r"([hp])_([sifbo])_(.+)")
_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


def parquet_name(column: str) -> str:
    """Return the name of a stream's column in Parquet."""
    found = _TYPED.fullmatch(column)
    return f"{found[1]}_{found[2]}_{_escape(found[3])}" if found else column


def stream_name(parquet: str) -> str:
    """Return the name of a Parquet column in the stream."""
    found = _TYPED_IN_PARQUET.fullmatch(parquet)
    return f"{found[1]}.{found[2]}.{_unescape(found[3])}" if found else parquet


def _escape(name: str) -> str:
    return "".join(chr(byte) if byte in _PLAIN else f"${byte:02x}" for byte in name.encode())


def _unescape(name: str) -> str:
    first, *rest = name.encode().split(b"$")
    return (first + b"".join(bytes([int(part[:2], 16)]) + part[2:] for part in rest)).decode()
