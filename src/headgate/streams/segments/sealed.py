"""A sealed segment: one Arrow file that any Arrow tool reads, with its summary and its checksums in the footer.

A chunk is a record batch. Its rows are clustered, not in the order of offsets: `gather` brings rows of many
chunks back into order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.errors import StreamCorrupt
from headgate.streams.segments.footer import column_crc, dictionary_crc, metadata_crc, read_footer
from headgate.streams.segments.gather import Gathering, Rows, gathering
from headgate.streams.segments.summarized import SummarizedChunk, SummarizedSegment


class SealedSegment(SummarizedSegment):
    """A memory-mapped sealed file. It never changes, so it may be shared by any number of readers."""

    tier = "sealed"

    def __init__(self, path: Path) -> None:
        self.path = path
        with pa.memory_map(str(path)) as mapped:
            self.data: pa.Buffer = mapped.read_buffer()
        try:
            self.reader = pa.ipc.open_file(pa.BufferReader(self.data))
            known = self.reader.metadata or {}
            self.footer_bytes = sum(map(len, known.values()))
            self.note, self._summary, self.checks = read_footer(known, self.reader.schema)
        except (pa.ArrowException, ValueError, KeyError, OSError) as problem:
            raise StreamCorrupt(str(path), self.data.size, f"the footer: {problem}") from problem
        self.names = self.reader.schema.names
        self.nbytes = self.data.size
        self._at = {name: i for i, name in enumerate(self.names)}
        self._checked_dictionaries: set[str] = set()
        self._reading = Lock()  # Arrow's reader loads the dictionaries with the first batch

    def chunk(self, i: int) -> SealedChunk:
        return SealedChunk(self, i)

    def lengths(self) -> npt.NDArray[np.int64]:
        found: npt.NDArray[np.int64] = self.checks["length"][:-1]
        return found

    def batch(self, i: int) -> pa.RecordBatch:
        """A chunk's record batch, its columns not yet checked."""
        position = int(self.checks["position"][i])
        if metadata_crc(self.data, position) != self.checks["metadata"][i]:
            raise StreamCorrupt(str(self.path), position, "the head of a chunk fails its CRC")
        try:
            with self._reading:
                return self.reader.get_batch(i)
        except (pa.ArrowException, OSError) as problem:
            raise StreamCorrupt(str(self.path), position, f"a chunk: {problem}") from problem

    def check_column(self, i: int, name: str, array: pa.Array) -> None:
        """Refuse a column whose bytes are not those that were written."""
        at = self._at[name]
        sound = column_crc(array) == self.checks["columns"][i, at]
        if sound and name not in self._checked_dictionaries:
            sound = dictionary_crc(array) == self.checks["columns"][-1, at]
            if sound:
                self._checked_dictionaries.add(name)
        if not sound:
            low, high = (int(bound[i]) for bound in self.offset_bounds())
            raise StreamCorrupt(
                str(self.path),
                int(self.checks["position"][i]),
                f"column {name!r} of a chunk with offsets from {low} to {high} fails its CRC",
            )

    def gather(self, chunks: Iterable[SealedChunk], columns: Sequence[str] | None) -> Gathered:
        """Rows of several chunks of this segment, in any order."""
        return Gathered(list(chunks), self.chosen(columns))

    def chosen(self, columns: Sequence[str] | None) -> list[str]:
        """Those of these columns that the segment has; None for all it has."""
        return [name for name in self.names if columns is None or name in columns]


class SealedChunk(SummarizedChunk):
    """One record batch of a sealed segment."""

    __slots__ = ("_batch", "_sound")

    _segment: SealedSegment

    def __init__(self, segment: SealedSegment, at: int) -> None:
        super().__init__(segment, at)
        self._batch: pa.RecordBatch = segment.batch(at)
        self._sound: set[str] = set()

    def column(self, name: str) -> pa.Array:
        array = self._batch.column(name)
        if name not in self._sound:
            self._segment.check_column(self.at, name, array)
            self._sound.add(name)
        return array

    def check(self, columns: Sequence[str] | None) -> None:
        """Refuse the chunk if one of these columns is not what was written."""
        for name in self._segment.chosen(columns):
            self.column(name)


class Gathered:
    """Some chunks of one segment, or what was taken of them, from which rows are taken in any order."""

    def __init__(
        self, chunks: Sequence[SealedChunk | pa.RecordBatch], names: Sequence[str]
    ) -> None:
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
