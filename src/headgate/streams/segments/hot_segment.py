"""The hot segment as readers see it: the committed chunks of the log, planned through the index.

A chunk is committed when its entry is in the index behind the entries of all chunks before it, when it is settled, or
when it is whole and the segment has no writer, so that none can roll it back. Only the settled part of the log is mapped:
anything behind it may be cut off. Reading never repairs. Where the index is missing, damaged, or shorter than the log
after a crash, the log itself is read: with equal answers, only slower.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from weakref import WeakMethod

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.errors import StreamCorrupt
from headgate.files import map_beginning, read_at
from headgate.filters import ChunkNumbers, Facts, Field, FieldFacts, Flags, ValueProbe, ValueRange
from headgate.message import Scalar
from headgate.streams.format import index_path
from headgate.streams.listing import is_followed
from headgate.streams.segments import bloom
from headgate.streams.segments.entry_columns import NO_COLUMNS, read_columns
from headgate.streams.segments.hot_chunk import DAMAGED, HOLE, ChunkMeta, HotChunk, read_header
from headgate.streams.segments.hot_index import (
    MISSING,
    NO_SHAPE,
    Entries,
    HotIndex,
    drop_cut_off,
    end_of,
    entries_of,
    next_offset_of,
    read_index,
)
from headgate.streams.segments.hot_walk import read_head_of, walk
from headgate.streams.segments.restriction import listed_digit, restricted_facts
from headgate.streams.segments.segment import FILTER_VALUE, ChunkMetadata
from headgate.streams.write.lock import exclude_writers

_TIMESTAMP: Final = Field("sys", "timestamp")
_PRIORITY: Final = Field("sys", "priority")


class HotSegment:
    """A log that may still be growing; `refresh` looks for more chunks."""

    sealed: Final = False
    pages: Final = None  # its chunks are small

    def __init__(self, path: Path) -> None:
        self.path = path
        self._directory, self._first = path.parent, int(path.stem)
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._closing = weakref.finalize(self, os.close, self._fd)
        self.head = read_head_of(self._fd, path)
        self._index: HotIndex | None = None
        self._seen: tuple[tuple[int, int], tuple[int, int]] | None = None
        self._data = pa.py_buffer(b"")
        self._entries = np.zeros(0, NO_SHAPE.dtype)
        self._columns = NO_COLUMNS
        self._load()

    def _load(self) -> None:
        """Read the entries of the chunks that are committed by now; map more of the log if more is settled."""
        state = self._state()
        if self.head.problem is not None:
            self.head = read_head_of(self._fd, self.path)
        index = read_index(self._directory, self.head, self._index)
        if index.problem == MISSING and not self.path.exists():
            raise FileNotFoundError(self.path)  # sealed or dropped
        # After the index: the log is never shorter than an index that was read before it.
        size = os.fstat(self._fd).st_size
        entries = drop_cut_off(index.entries, self.head, index.shape, size, index.settled)
        start, expected = end_of(entries, self.head), next_offset_of(entries, self.head)
        tail, finished = self._read_tail(start, size, index)
        places = walk(tail, str(self.path), expected, base=start, settled=index.settled)
        if places:
            entries = np.concatenate([entries, *entries_of(places, index.shape, expected)])
        being_healed = self._index is not None and self._index.inode == index.inode and not finished
        if being_healed and len(entries) < len(self._entries):
            return  # a new writer is about to write the entries of chunks that a dead one left: keep those
        uncommitted = not finished and (index.uncommitted or size > end_of(entries, self.head))
        # The rest may become committed while both files keep their sizes.
        self._seen = None if uncommitted else state
        known = self._columns if self._is_grown(index, entries) else NO_COLUMNS
        self._index, self._entries, self.shape = index, entries, index.shape
        # No crash and no rollback cuts off the settled part.
        mapped = min(index.settled, size)
        if mapped > self._data.size:
            self._data = map_beginning(self._fd, mapped)
        self._columns = read_columns(entries, known)

    def _is_grown(self, index: HotIndex, entries: Entries) -> bool:
        """Tell whether the known entries are the first of these: an index only grows, entries made from the log may change."""
        before = self._index
        if before is None or before.inode != index.inode:
            return False
        return self._entries is before.entries and entries is index.entries

    def _read_tail(self, start: int, size: int, index: HotIndex) -> tuple[pa.Buffer, bool]:
        """Return the committed bytes behind `start`, which have no entry, and whether no writer can roll them back.

        A writer may roll back chunks without an entry. Chunks of a dead writer are kept by the next writer.
        """
        if start >= size:
            return read_at(self._fd, start, 0), False
        with exclude_writers(self._directory) as alone:
            finished = alone or is_followed(self._directory, self._first)
            if finished or index.reach is None:
                return read_at(self._fd, start), finished
            return read_at(self._fd, start, max(min(index.reach, size) - start, 0)), False

    def _state(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return _identity(self.path), _identity(index_path(self._directory, self._first))

    def refresh(self) -> bool:
        """Read the chunks that were committed since; return whether there are any."""
        if self._state() == self._seen:
            return False
        before = len(self._entries)
        self._load()
        return len(self._entries) != before

    @property
    def first_offset(self) -> int:
        return self.head.first_offset

    @property
    def next_offset(self) -> int:
        return next_offset_of(self._entries, self.head)

    @property
    def nbytes(self) -> int:
        """The length of the committed part of the log."""
        return end_of(self._entries, self.head)

    @property
    def entries(self) -> Entries:
        """The index, one entry a chunk."""
        return self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def lengths(self) -> npt.NDArray[np.int64]:
        return self._columns.length

    def offset_bounds(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        return self._columns.first_offset, self._columns.last_offset

    def chunks_between(self, low: int, high: int) -> tuple[int, int]:
        start = np.searchsorted(self._columns.last_offset, low)
        return int(start), int(np.searchsorted(self._columns.first_offset, high))

    def chunk(self, i: int) -> HotChunk:
        position = int(self._columns.position[i])
        if self._columns.damaged[i]:
            entry = self._entries[i]
            last = int(entry["first_offset"]) + int(entry["count"]) - 1
            problem = f"offsets {entry['first_offset']} to {last} cannot be read"
            raise StreamCorrupt(str(self.path), position, problem)
        data, base = self._bytes_of(i, position)
        return HotChunk(data, position - base, str(self.path), base)

    def _bytes_of(self, i: int, position: int) -> tuple[pa.Buffer, int]:
        """Return bytes that hold the chunk at this position, and the position they begin at."""
        if position < self._data.size:
            return self._data, 0
        return read_at(self._fd, position, int(self._columns.length[i])), position

    def metadata(self, i: int) -> ChunkMetadata:
        entry = self._entries[i]
        first, count = int(entry["first_offset"]), int(entry["count"])
        return ChunkMetadata(
            first, first + count - 1, 0 if entry["flags"] & HOLE else count,
            int(entry["min_timestamp"]), int(entry["max_timestamp"]),
            int(entry["min_priority"]), int(entry["max_priority"]),
            int(entry["length"]), self.shape.restriction.properties(int(entry["restricted"])),
        )  # fmt: skip

    def column_names(self, low: int, high: int) -> frozenset[str]:
        found: set[str] = set()
        for i in range(*self.chunks_between(low, high)):
            if not self._columns.damaged[i]:
                position = int(self._columns.position[i])
                data, base = self._bytes_of(i, position)
                header = read_header(data, position - base)
                found.update(() if isinstance(header, str) else header[1])
        return frozenset(found)

    def producers(self) -> Mapping[str, int]:
        found = dict(self.head.producers)
        for i in np.flatnonzero(~self._columns.damaged).tolist():
            position = int(self._columns.position[i])
            data, base = self._bytes_of(i, position)
            header = read_header(data, position - base)
            if not isinstance(header, str):
                for name, last in ChunkMeta.from_json(header[3]).producers.items():
                    found[name] = max(last, found.get(name, -1))
        return found

    def close(self) -> None:
        """Close the files; arrays that were handed out keep their memory."""
        self._data, self._entries = pa.py_buffer(b""), np.zeros(0, self.shape.dtype)
        self._closing()

    # ---- facts for the verdict of a filter, without opening a chunk ----------------------------------------------

    def facts(self, start: int = 0, end: int | None = None) -> Facts:
        entries = self._entries[start:end]
        rows = np.where(entries["flags"] & HOLE, 0, entries["count"]).astype(np.int64)
        damaged = self._columns.damaged[start:end]
        readable = ~damaged if damaged.any() else None
        filtered = ValueRange(entries["filtered"].astype(np.int64))
        times = ValueRange(rows, entries["min_timestamp"], entries["max_timestamp"])
        low, high = (entries[name].astype(np.int64) for name in ("min_priority", "max_priority"))
        fields = {
            _TIMESTAMP: FieldFacts({"int": times}, readable),
            _PRIORITY: FieldFacts({"int": ValueRange(rows, low, high)}, readable),
            FILTER_VALUE: FieldFacts({"string": filtered}, readable),
        }
        for name in self.shape.restriction.values:
            fields[Field("header", name)] = restricted_facts(
                self.shape.restriction, name, entries["restricted"], rows
            )
        return Facts(rows, fields, _weak_probe(self._probe, start))

    def _probe(self, field: Field, value: Scalar, chunks: ChunkNumbers) -> Flags | None:
        by_bloom = self._probe_bloom(field, value, chunks)
        by_tuple = self._probe_restricted(field, value, chunks)
        if by_bloom is None or by_tuple is None:
            return by_tuple if by_bloom is None else by_bloom
        return by_bloom & by_tuple

    def _probe_bloom(self, field: Field, value: Scalar, chunks: ChunkNumbers) -> Flags | None:
        if field not in self.shape.fields:
            return None
        bit = np.uint64(self.shape.fields.index(field))
        covered = (self._entries["coverage"][chunks] >> bit) & np.uint64(1) != 0
        answer = np.ones(len(chunks), np.bool_)
        asked = self._entries[_run_of(chunks[covered])]
        answer[covered] = bloom.probe(
            self.shape.bloom,
            asked["bloom"],
            bloom.salts(asked["first_offset"]),
            bloom.hash_value(field, value),
        )
        return answer

    def _probe_restricted(self, field: Field, value: Scalar, chunks: ChunkNumbers) -> Flags | None:
        """Ask the tuples: a chunk whose tuple has another value, or none, holds no message with this listed value."""
        listed = (
            self.shape.restriction.values.get(field.name, ()) if field.scope == "header" else ()
        )
        # A number may occur as the other kind of number, which the tuple does not list.
        if not isinstance(value, str) or not listed_digit(listed, value):
            return None
        entries = self._entries[_run_of(chunks)]
        digits = self.shape.restriction.digits(field.name, entries["restricted"])
        answer: Flags = digits == listed_digit(listed, value)
        answer |= (entries["flags"] & DAMAGED) != 0
        return answer


def _run_of(chunks: ChunkNumbers) -> ChunkNumbers | slice:
    """Return the chunks as a slice where they are one run: an array sliced by it is not copied."""
    if len(chunks) and chunks[-1] - chunks[0] + 1 == len(chunks):
        return slice(int(chunks[0]), int(chunks[-1]) + 1)
    return chunks


def _weak_probe(probe: ValueProbe, start: int) -> ValueProbe:
    """Wrap a probe so that facts do not keep their segment alive: a dropped log would stay mapped.

    The facts count chunks from `start` on.
    """
    reference = WeakMethod(probe)

    def ask(field: Field, value: Scalar, chunks: ChunkNumbers) -> Flags | None:
        bound = reference()
        return None if bound is None else bound(field, value, chunks + start)

    return ask


def _identity(path: Path) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return 0, 0
    return found.st_ino, found.st_size
