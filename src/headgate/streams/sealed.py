"""A sealed segment: one Arrow file that any Arrow tool reads, with its summary and its checksums in the footer.

A chunk is a record batch. Its rows are clustered, not in the order of offsets: `gather` brings rows of many
chunks back into order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import StreamCorrupt
from headgate.filters.columns import View, column_name
from headgate.filters.facts import Facts
from headgate.filters.nodes import SYS_KINDS, Field
from headgate.message import Scalar
from headgate.streams import overflow
from headgate.streams.footer import column_crc, dictionary_crc, metadata_crc, read_footer
from headgate.streams.gather import Gathering, Rows, gathering
from headgate.streams.segment import ChunkMetadata


class SealedSegment:
    """A memory-mapped sealed file. It never changes, so it may be shared by any number of readers."""

    sealed: Final = True

    def __init__(self, path: Path) -> None:
        self.path = path
        with pa.memory_map(str(path)) as mapped:
            self.data: pa.Buffer = mapped.read_buffer()
        try:
            self.reader = pa.ipc.open_file(pa.BufferReader(self.data))
            known = self.reader.metadata or {}
            self.footer_bytes = sum(map(len, known.values()))
            self.note, self._summary, self._checks = read_footer(known, self.reader.schema)
        except (pa.ArrowException, ValueError, KeyError, OSError) as problem:
            raise StreamCorrupt(str(path), self.data.size, f"the footer: {problem}") from problem
        self.names: list[str] = self.reader.schema.names
        self._at = {name: i for i, name in enumerate(self.names)}
        self._checked_dictionaries: set[str] = set()
        self._reading = Lock()  # Arrow's reader loads the dictionaries with the first batch

    @property
    def first_offset(self) -> int:
        return self.note.first_offset

    @property
    def next_offset(self) -> int:
        return self.note.next_offset

    def __len__(self) -> int:
        return len(self._summary.rows)

    def facts(self) -> Facts:
        return self._summary.facts()

    def chunk(self, i: int) -> SealedChunk:
        return SealedChunk(self, i)

    def lengths(self) -> npt.NDArray[np.int64]:
        found: npt.NDArray[np.int64] = self._checks["length"][:-1]
        return found

    def offset_bounds(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The lowest and the highest offset of every chunk."""
        return self._summary.numbers("min:offset"), self._summary.numbers("max:offset")

    def metadata(self, i: int) -> ChunkMetadata:
        first, last, count, since, until, least, most = (
            int(self._summary.numbers(name)[i]) for name in _METADATA
        )
        return ChunkMetadata(
            first,
            last,
            count,
            since,
            until,
            least,
            most,
            int(self.lengths()[i]),
            self._properties(i),
        )

    def _properties(self, i: int) -> Mapping[str, Scalar]:
        column = self._summary.batch.schema.get_field_index("properties")
        found: Mapping[str, Scalar] = (
            {} if column < 0 else json.loads(self._summary.batch.column(column)[i].as_py())
        )
        return found

    def producers(self) -> Mapping[str, int]:
        return self.note.producers

    def close(self) -> None:
        """Nothing to do: the map goes when the last array that lies in it does."""

    def batch(self, i: int) -> pa.RecordBatch:
        """A chunk's record batch, its columns not yet checked."""
        position = int(self._checks["position"][i])
        if metadata_crc(self.data, position) != self._checks["metadata"][i]:
            raise StreamCorrupt(str(self.path), position, "the head of a chunk fails its CRC")
        try:
            with self._reading:
                return self.reader.get_batch(i)
        except (pa.ArrowException, OSError) as problem:
            raise StreamCorrupt(str(self.path), position, f"a chunk: {problem}") from problem

    def check_column(self, i: int, name: str, array: pa.Array) -> None:
        """Refuse a column whose bytes are not those that were written."""
        at = self._at[name]
        sound = column_crc(array) == self._checks["columns"][i, at]
        if sound and name not in self._checked_dictionaries:
            sound = dictionary_crc(array) == self._checks["columns"][-1, at]
            if sound:
                self._checked_dictionaries.add(name)
        if not sound:
            low, high = (int(bound[i]) for bound in self.offset_bounds())
            raise StreamCorrupt(
                str(self.path),
                int(self._checks["position"][i]),
                f"column {name!r} of a chunk with offsets from {low} to {high} fails its CRC",
            )

    def check(self) -> None:
        """Check every column of every chunk."""
        for i in range(len(self)):
            chunk = self.chunk(i)
            for name in self.names:
                chunk.column(name)

    def gather(self, chunks: Iterable[SealedChunk], columns: Sequence[str] | None) -> Gathered:
        """Rows of several chunks of this segment, in any order."""
        return Gathered(list(chunks), [n for n in self.names if columns is None or n in columns])


_METADATA: Final = (
    "min:offset", "max:offset", "rows", "min:timestamp", "max:timestamp", "min:priority", "max:priority",
)  # fmt: skip


class SealedChunk:
    """One record batch of a sealed segment."""

    __slots__ = ("_batch", "_overflowing", "_segment", "_sound", "at")

    def __init__(self, segment: SealedSegment, at: int) -> None:
        self._segment, self.at = segment, at
        self._batch: pa.RecordBatch = segment.batch(at)
        self._sound: set[str] = set()
        self._overflowing: list[dict[str, Any]] | None = None

    @property
    def first_offset(self) -> int:
        return int(self._segment.offset_bounds()[0][self.at])

    @property
    def num_rows(self) -> int:
        rows: int = self._batch.num_rows
        return rows

    @property
    def nbytes(self) -> int:
        return int(self._segment.lengths()[self.at])

    def offsets(self) -> npt.NDArray[np.int64]:
        offsets: npt.NDArray[np.int64] = self.column("offset").to_numpy()
        return offsets

    def metadata(self) -> ChunkMetadata:
        return self._segment.metadata(self.at)

    def column(self, name: str) -> pa.Array:
        """A column of the segment, checked the first time it is asked for."""
        array = self._batch.column(name)
        if name not in self._sound:
            self._segment.check_column(self.at, name, array)
            self._sound.add(name)
        return array

    def view(self, field: Field, view: View) -> pa.Array | None:
        if field.scope == "sys" and SYS_KINDS[field.name] != view:
            return None
        name = column_name(field, view)
        array = self.column(name) if self._batch.schema.get_field_index(name) >= 0 else None
        if field.scope == "header" and field.name in self._segment.note.overflowed:
            return _joined(array, overflow.view_of(self._overflowed(), field.name, view), view)
        return array

    def take(self, rows: Rows | None, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        names = [n for n in self._segment.names if columns is None or n in (*columns, "offset")]
        arrays = [self.column(name) for name in names]
        batch = pa.RecordBatch.from_arrays(arrays, names)
        return batch if rows is None else batch.take(pa.array(rows))

    def _overflowed(self) -> list[dict[str, Any]]:
        if self._overflowing is None:
            self._overflowing = overflow.overflowing(self.column(overflow.OVERFLOW))
        return self._overflowing


def _joined(array: pa.Array | None, more: pa.Array | None, view: View) -> pa.Array | None:
    """Rows of which some have the header in a column and others in their overflow."""
    if array is None or more is None:
        return more if array is None else array
    if view == "opaque":
        return pc.or_(array.fill_null(False), more)
    if view == "string":
        array, more = array.cast(pa.string()), more.cast(pa.string())
    return pc.coalesce(array, more)


class Gathered:
    """Some chunks of one segment, from which rows are taken in any order."""

    def __init__(self, chunks: Sequence[SealedChunk], names: Sequence[str]) -> None:
        self._chunks = chunks
        self._names = names if "offset" in names else ["offset", *names]
        self._columns: dict[str, Gathering] = {}

    def take(self, chunks: Rows, rows: Rows) -> pa.RecordBatch:
        """The messages at `rows[i]` of the `chunks[i]`-th chunk."""
        arrays = [self._column(name).take(chunks, rows) for name in self._names]
        return pa.RecordBatch.from_arrays(arrays, self._names)

    def _column(self, name: str) -> Gathering:
        if name not in self._columns:
            self._columns[name] = gathering([chunk.column(name) for chunk in self._chunks])
        return self._columns[name]
