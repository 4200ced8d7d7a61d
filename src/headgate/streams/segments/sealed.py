"""A sealed segment: one Arrow file that any Arrow tool reads, with a note, a summary and checksums in its footer.

A chunk is a record batch. Its rows are clustered, not in the order of offsets: `gather` brings rows of many
chunks back into order. The footer has up to four values besides Arrow's own:

    headgate.segment   JSON: what the segment is, see `SegmentNote`
    headgate.summary   base64 of an Arrow stream: what is known of every chunk, see `summary`
    headgate.checks    base64 of a table: the position of every chunk, and the CRCs of all its columns
    headgate.pages     what is known of every 512 rows of a chunk, see `pages`

Base64, because other languages read the values of a footer as text.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.checksum import crc32
from headgate.errors import StreamCorrupt
from headgate.streams.segments.gather import ColumnOfChunks, RowIndices, column_of_chunks
from headgate.streams.segments.pages import (
    PAGE_ROWS,
    PAGES_KEY,
    PageChecks,
    PageFacts,
    decode_pages,
    page_crcs,
)
from headgate.streams.segments.summarized import SegmentNote, SummarizedChunk, SummarizedSegment
from headgate.streams.segments.summary import Summary

Crcs: TypeAlias = list[list[int]]  # for each column, of each page


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
            self.encoded_pages = known.get(PAGES_KEY)
        except (pa.ArrowException, ValueError, KeyError, OSError) as problem:
            raise StreamCorrupt(str(path), self.data.size, f"the footer: {problem}") from problem
        self.names = self.reader.schema.names
        self.nbytes = self.data.size
        self._at = {name: i for i, name in enumerate(self.names)}
        self._checked_dictionaries: set[str] = set()
        self._dictionaries: dict[str, pa.Array | None] = {}
        self._reading = Lock()  # Arrow's reader loads the dictionaries with the first batch

    def chunk(self, i: int) -> SealedChunk:
        return SealedChunk(self, i)

    def part(self, i: int, pages: range) -> SealedPart:
        """Return some pages of a chunk, as a chunk of their own."""
        return SealedPart(self, i, pages)

    def lengths(self) -> npt.NDArray[np.int64]:
        found: npt.NDArray[np.int64] = self.checks["length"][:-1]
        return found

    def batch(self, i: int) -> pa.RecordBatch:
        """Return the record batch of a chunk, its columns not yet checked."""
        position = int(self.checks["position"][i])
        if metadata_crc(self.data, position) != self.checks["metadata"][i]:
            raise StreamCorrupt(str(self.path), position, "the head of a chunk fails its CRC")
        try:
            with self._reading:
                return self.reader.get_batch(i)
        except (pa.ArrowException, OSError) as problem:
            raise StreamCorrupt(str(self.path), position, f"a chunk: {problem}") from problem

    def check_column(self, i: int, name: str, array: pa.Array) -> None:
        """Raise when the bytes of a column fail their CRC."""
        self._require(column_crc(array) == self.checks["columns"][i, self._at[name]], i, name)
        self._check_dictionary(i, name, array)

    def check_pages(self, i: int, name: str, array: pa.Array, pages: range, crcs: Crcs) -> None:
        """Raise when the bytes of a column fail their CRC in some of these pages of a chunk."""
        self._require(page_crcs(array, pages) == crcs[self._at[name]], i, name)
        self._check_dictionary(i, name, array)

    def _check_dictionary(self, i: int, name: str, array: pa.Array) -> None:
        if name not in self._checked_dictionaries:
            crc = self.checks["columns"][-1, self._at[name]]
            self._require(_is_whole(array) and dictionary_crc(array) == crc, i, name)
            self._checked_dictionaries.add(name)

    def _require(self, sound: bool, i: int, name: str) -> None:
        if not sound:
            low, high = (int(bound[i]) for bound in self.offset_bounds())
            raise StreamCorrupt(
                str(self.path),
                int(self.checks["position"][i]),
                f"column {name!r} of a chunk with offsets from {low} to {high} fails its CRC",
            )

    # ---- pages ---------------------------------------------------------------------------------------

    @cached_property
    def pages(self) -> PageFacts | None:
        found = self._sound_pages
        return None if found is None else PageFacts(found[0], self._summary.rows, self._words)

    def page_checks(self, i: int, pages: range) -> PageChecks:
        """Return the length and CRCs of some pages of a chunk."""
        assert self.pages is not None
        assert self._sound_pages is not None
        first = int(self.pages.first[i])
        return self._sound_pages[1][first + pages.start : first + pages.stop]

    @cached_property
    def _sound_pages(self) -> tuple[pa.RecordBatch, PageChecks] | None:
        try:
            return self.read_pages()
        except StreamCorrupt as damage:
            _log.warning("chunks are read whole: %s", damage)
            return None

    def read_pages(self) -> tuple[pa.RecordBatch, PageChecks] | None:
        """Read the pages from the footer; None when the file has none that this program knows."""
        if self.encoded_pages is None:
            return None
        try:
            return decode_pages(self.encoded_pages, self._summary.rows, len(self.names))
        except (pa.ArrowException, ValueError, OSError) as problem:
            raise StreamCorrupt(
                str(self.path), self.data.size, f"the pages in the footer: {problem}"
            ) from problem

    def _words(self, name: str) -> pa.Array | None:
        """Return the dictionary of a column, checked; None when it has none."""
        if name not in self._dictionaries:
            array = self.batch(0).column(name)
            self._check_dictionary(0, name, array)
            coded = isinstance(array, pa.DictionaryArray)
            self._dictionaries[name] = array.dictionary if coded else None
        return self._dictionaries[name]

    # ---- columns -------------------------------------------------------------------------------------

    def gather(
        self, chunks: Iterable[SealedChunk], columns: Sequence[str] | None
    ) -> GatheredChunks:
        """Take rows of several chunks of this segment in any order."""
        return GatheredChunks(list(chunks), self.existing(columns))

    def existing(self, columns: Sequence[str] | None) -> list[str]:
        """Return the given columns that the segment has; for None all of its columns."""
        return [name for name in self.names if columns is None or name in columns]


class SealedChunk(SummarizedChunk):
    """One record batch of a sealed segment."""

    __slots__ = ("_batch", "_columns")

    _segment: SealedSegment

    def __init__(self, segment: SealedSegment, at: int) -> None:
        super().__init__(segment, at)
        self._batch: pa.RecordBatch = segment.batch(at)
        self._columns: dict[str, pa.Array] = {}

    def column(self, name: str) -> pa.Array:
        if name not in self._columns:
            self._columns[name] = self._read(name)
        return self._columns[name]

    def _read(self, name: str) -> pa.Array:
        array = self._batch.column(name)
        self._segment.check_column(self.at, name, array)
        return array

    def check(self, columns: Sequence[str] | None) -> None:
        """Raise when one of these columns fails its CRC."""
        for name in self._segment.existing(columns):
            self.column(name)


class SealedPart(SealedChunk):
    """Some pages of a chunk, one behind the other. Nothing else of the chunk is read but its message header."""

    __slots__ = ("_checks", "_crcs", "_pages", "_rows")

    def __init__(self, segment: SealedSegment, at: int, pages: range) -> None:
        super().__init__(segment, at)
        self._pages = pages
        self._rows = min(pages.stop * PAGE_ROWS, segment.rows_of(at)) - pages.start * PAGE_ROWS
        self._checks = segment.page_checks(at, pages)
        self._crcs: Crcs = self._checks["columns"].T.tolist()

    @property
    def num_rows(self) -> int:
        return self._rows

    @property
    def nbytes(self) -> int:
        header = metadata_length(self._segment.data, int(self._segment.checks["position"][self.at]))
        return header + int(self._checks["length"].sum())

    def _read(self, name: str) -> pa.Array:
        array = self._batch.column(name)
        self._segment.check_pages(self.at, name, array, self._pages, self._crcs)
        return array.slice(self._pages.start * PAGE_ROWS, self._rows)


class GatheredChunks:
    """Chunks of one segment, or batches made of them, from which rows are taken in any order."""

    def __init__(
        self, chunks: Sequence[SealedChunk | pa.RecordBatch], names: Sequence[str]
    ) -> None:
        self._chunks = chunks
        self._names = names if "offset" in names else ["offset", *names]
        self._columns: dict[str, ColumnOfChunks] = {}

    def take(self, chunks: RowIndices, rows: RowIndices) -> pa.RecordBatch:
        """Return the messages at `rows[i]` of the `chunks[i]`-th chunk."""
        arrays = [self._column(name).take(chunks, rows) for name in self._names]
        return pa.RecordBatch.from_arrays(arrays, self._names)

    def _column(self, name: str) -> ColumnOfChunks:
        if name not in self._columns:
            self._columns[name] = column_of_chunks([chunk.column(name) for chunk in self._chunks])
        return self._columns[name]


SEGMENT_KEY: Final = b"headgate.segment"
SUMMARY_KEY: Final = b"headgate.summary"
CHECKS_KEY: Final = b"headgate.checks"
_log: Final = logging.getLogger(__name__)
_MESSAGE_PREFIX: Final = 8  # Arrow's continuation mark and the length of the metadata behind it


# ---- checksums ---------------------------------------------------------------------------------------


def checks_dtype(columns: int) -> np.dtype[Any]:
    """Return the type of a row of `headgate.checks`; its last row holds the CRCs of the dictionaries."""
    return np.dtype(
        [
            ("position", "<i8"),
            ("length", "<i8"),
            ("metadata", "<u4"),
            ("columns", "<u4", (columns,)),
        ]
    )


def encode_checks(
    checks: npt.NDArray[Any], schema: pa.Schema, note: bytes, summary: bytes
) -> bytes:
    """Encode the table and, behind it, one CRC over the whole footer."""
    whole = footer_crc(checks, schema, note, summary)
    return base64.b64encode(checks.tobytes() + whole.to_bytes(4, "little"))


def footer_crc(checks: npt.NDArray[Any], schema: pa.Schema, note: bytes, summary: bytes) -> int:
    """Compute the CRC over the schema, note, summary and checks of a footer."""
    whole = 0
    for part in (_describe_schema(schema), note, summary, checks.tobytes()):
        whole = crc32(part, whole)
    return whole


def _describe_schema(schema: pa.Schema) -> bytes:
    """Describe the columns by name and type, in words that no version of Arrow changes."""
    kinds = map(_describe_type, schema.types)
    return "\n".join(map("{} {}".format, schema.names, kinds)).encode()


@lru_cache(64)
def _describe_type(type: pa.DataType) -> str:
    return f"codes {type.index_type}" if pa.types.is_dictionary(type) else str(type)


def compute_checks(
    data: pa.Buffer, reader: pa.RecordBatchFileReader, ends: Sequence[tuple[int, int]]
) -> npt.NDArray[Any]:
    """Compute the checksums of a file whose chunks are at these (position, length)."""
    columns = len(reader.schema)
    checks = np.zeros(len(ends) + 1, checks_dtype(columns))
    for i, (position, length) in enumerate(ends):
        batch = reader.get_batch(i)
        crcs = [column_crc(array) for array in batch.columns]
        checks[i] = (position, length, metadata_crc(data, position), crcs)
    if ends:
        checks[-1]["columns"] = [dictionary_crc(array) for array in reader.get_batch(0).columns]
    return checks


def metadata_crc(data: pa.Buffer, position: int) -> int:
    """Compute the CRC of the message header of a chunk: its length, null counts, positions of buffers."""
    length = metadata_length(data, position)
    return crc32(data.slice(position, min(length, data.size - position)))


def metadata_length(data: pa.Buffer, position: int) -> int:
    """Return the length of the message header of a chunk."""
    prefix = data.slice(position, _MESSAGE_PREFIX).to_pybytes()
    return _MESSAGE_PREFIX + int.from_bytes(prefix[4:], "little")


def column_crc(array: pa.Array) -> int:
    """Compute the CRC of the buffers of one chunk's column; a dictionary has its own CRC."""
    crc = 0
    for buffer in (array.indices if isinstance(array, pa.DictionaryArray) else array).buffers():
        if buffer is not None:
            crc = crc32(buffer, crc)
    return crc


def dictionary_crc(array: pa.Array) -> int:
    return column_crc(array.dictionary) if isinstance(array, pa.DictionaryArray) else 0


def _is_whole(array: pa.Array) -> bool:
    """Tell whether the length and null count of a dictionary, which no CRC covers, fit its bytes."""
    if not isinstance(array, pa.DictionaryArray) or not len(array.dictionary):
        return True
    words = array.dictionary
    if words.type != pa.string() or words.null_count:
        return False
    ends = words.buffers()[1]
    return ends is not None and ends.size == 4 * (len(words) + 1)


def read_footer(
    known: Mapping[bytes, bytes], schema: pa.Schema
) -> tuple[SegmentNote, Summary, npt.NDArray[Any]]:
    """Return note, summary and checks; ValueError when they fail their CRC."""
    note, summary = known[SEGMENT_KEY], known[SUMMARY_KEY]
    raw = base64.b64decode(known[CHECKS_KEY])
    checks = np.frombuffer(raw[:-4], checks_dtype(len(schema)))
    if footer_crc(checks, schema, note, summary) != int.from_bytes(raw[-4:], "little"):
        raise ValueError("it fails its CRC")
    segment = SegmentNote.from_json(note)
    table = pa.ipc.open_stream(base64.b64decode(summary)).read_next_batch()
    return segment, Summary(table, segment.first_offset, segment.overflowed), checks
