"""The hot segment as readers see it: a memory map of the log, planned through the index.

Reading never locks and never repairs. What the index does not tell, because it is missing, damaged, or shorter than
the log after a crash, is read from the log itself: the answers are the same, only slower to get.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from weakref import WeakMethod

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.errors import StreamCorrupt
from headgate.filters.facts import Chunks, Facts, FieldFacts, Flags, Probe, Range
from headgate.filters.nodes import Field
from headgate.message import Scalar
from headgate.streams import bloom
from headgate.streams.bloom import BloomShape
from headgate.streams.chunk import DAMAGED, HOLE, ChunkMeta, HotChunk, read_header
from headgate.streams.entries import (
    drop_cut_off,
    end_of,
    entries_of,
    load_index,
    next_offset_of,
    read_tail,
)
from headgate.streams.files import map_file
from headgate.streams.index import FILTER_VALUE, Entries, IndexShape
from headgate.streams.layout import index_path
from headgate.streams.restriction import listed_digit, restricted_facts
from headgate.streams.segment import ChunkMetadata
from headgate.streams.walk import read_log_header, walk

_TIMESTAMP: Final = Field("sys", "timestamp")
_PRIORITY: Final = Field("sys", "priority")
NO_INDEX: Final = IndexShape(BloomShape(16, 2))


class HotSegment:
    """A log that may still be growing; `refresh` looks for what came since."""

    sealed: Final = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self._directory, self._first = path.parent, int(path.stem)
        self._load(verified=0)

    def _load(self, verified: int) -> None:
        """Read the index, believing so many of its entries that were checked before."""
        self._seen = self._state()
        self.head = read_log_header(map_file(self.path), self.path)
        index = load_index(self._directory, self.head, verified)
        self.shape, entries, settled = index or (NO_INDEX, np.zeros(0, NO_INDEX.dtype), 0)
        self._verified = len(entries)
        # After the index: the log is never shorter than an index that was read before it.
        self._data = map_file(self.path)
        entries = drop_cut_off(entries, self.shape, self._data.size, settled)
        self._tail_at = end_of(entries, self.head)
        self._tail = read_tail(self.path, self._tail_at)
        expected = next_offset_of(entries, self.head)
        places = walk(self._tail, str(self.path), expected, base=self._tail_at, settled=settled)
        self._entries = np.concatenate([entries, *entries_of(places, self.shape, expected)])
        # By themselves: a field of an entry is slow to come by, and these are asked for once a chunk.
        self._positions = np.ascontiguousarray(self._entries["position"])
        self._damaged = (self._entries["flags"] & DAMAGED) != 0
        self._facts: Facts | None = None
        self._salts: npt.NDArray[np.uint64] | None = None

    def _state(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return _identity(self.path), _identity(index_path(self._directory, self._first))

    def refresh(self) -> bool:
        """Whether there is more than before."""
        now = self._state()
        if now == self._seen:
            return False
        before, same_index = len(self._entries), now[1][0] == self._seen[1][0]
        self._load(self._verified if same_index else 0)
        return len(self._entries) != before

    @property
    def first_offset(self) -> int:
        return self.head.first_offset

    @property
    def next_offset(self) -> int:
        return next_offset_of(self._entries, self.head)

    @property
    def nbytes(self) -> int:
        """The length of the log that can be read."""
        return int(self._data.size)

    @property
    def entries(self) -> Entries:
        """The index, one entry a chunk."""
        return self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def lengths(self) -> npt.NDArray[np.int64]:
        return np.asarray(self._entries["length"])

    def offset_bounds(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        first = np.asarray(self._entries["first_offset"])
        return first, first + self._entries["count"].astype(np.int64) - 1

    def chunk(self, i: int) -> HotChunk:
        position = int(self._positions[i])
        if self._damaged[i]:
            entry = self._entries[i]
            last = int(entry["first_offset"]) + int(entry["count"]) - 1
            problem = f"offsets {entry['first_offset']} to {last} cannot be read"
            raise StreamCorrupt(str(self.path), position, problem)
        data, base = self._bytes_at(position)
        return HotChunk(data, position - base, str(self.path), base)

    def _bytes_at(self, position: int) -> tuple[pa.Buffer, int]:
        """The bytes that hold this position, and the position they begin at."""
        return (self._data, 0) if position < self._tail_at else (self._tail, self._tail_at)

    def metadata(self, i: int) -> ChunkMetadata:
        entry = self._entries[i]
        first, count = int(entry["first_offset"]), int(entry["count"])
        return ChunkMetadata(
            first, first + count - 1, 0 if entry["flags"] & HOLE else count,
            int(entry["min_timestamp"]), int(entry["max_timestamp"]),
            int(entry["min_priority"]), int(entry["max_priority"]),
            int(entry["length"]), self.shape.restriction.properties(int(entry["restricted"])),
        )  # fmt: skip

    def producers(self) -> Mapping[str, int]:
        found = dict(self.head.producers)
        for position in self._entries["position"][self._entries["flags"] & DAMAGED == 0].tolist():
            data, base = self._bytes_at(position)
            header = read_header(data, position - base)
            if not isinstance(header, str):
                found.update(ChunkMeta.from_json(header[3]).producers)
        return found

    def close(self) -> None:
        """Let go of the files; arrays that were handed out keep what they need."""
        self._data, self._entries = pa.py_buffer(b""), np.zeros(0, self.shape.dtype)

    # ---- what a filter can know without opening a chunk ----------------------------------------------

    def facts(self) -> Facts:
        if self._facts is None:
            self._facts = self._gather_facts()
        return self._facts

    def _gather_facts(self) -> Facts:
        entries = self._entries
        rows = np.where(entries["flags"] & HOLE, 0, entries["count"]).astype(np.int64)
        readable = (
            None if not (entries["flags"] & DAMAGED).any() else (entries["flags"] & DAMAGED) == 0
        )
        filtered = Range(entries["filtered"].astype(np.int64))
        times = Range(rows, entries["min_timestamp"], entries["max_timestamp"])
        low, high = (entries[name].astype(np.int64) for name in ("min_priority", "max_priority"))
        fields = {
            _TIMESTAMP: FieldFacts({"int": times}, readable),
            _PRIORITY: FieldFacts({"int": Range(rows, low, high)}, readable),
            FILTER_VALUE: FieldFacts({"string": filtered}, readable),
        }
        for name in self.shape.restriction.values:
            fields[Field("header", name)] = restricted_facts(
                self.shape.restriction, name, entries["restricted"], rows
            )
        return Facts(rows, fields, _weak_probe(self._probe))

    def _probe(self, field: Field, value: Scalar, chunks: Chunks) -> Flags | None:
        by_bloom = self._probe_bloom(field, value, chunks)
        by_tuple = self._probe_restricted(field, value, chunks)
        if by_bloom is None or by_tuple is None:
            return by_tuple if by_bloom is None else by_bloom
        return by_bloom & by_tuple

    def _probe_bloom(self, field: Field, value: Scalar, chunks: Chunks) -> Flags | None:
        if field not in self.shape.fields:
            return None
        if self._salts is None:
            self._salts = bloom.salts(self._entries["first_offset"])
        entries, bit = self._entries, np.uint64(self.shape.fields.index(field))
        covered = (entries["coverage"][chunks] >> bit) & np.uint64(1) != 0
        asked = chunks[covered]
        answer = np.ones(len(chunks), np.bool_)
        everything = len(asked) == len(entries)
        filters = entries["bloom"] if everything else entries["bloom"][asked]
        salts = self._salts if everything else self._salts[asked]
        answer[covered] = bloom.probe(
            self.shape.bloom, filters, salts, bloom.hash_value(field, value)
        )
        return answer

    def _probe_restricted(self, field: Field, value: Scalar, chunks: Chunks) -> Flags | None:
        """A chunk whose tuple has none of the listed values holds no message with this listed one."""
        listed = (
            self.shape.restriction.values.get(field.name, ()) if field.scope == "header" else ()
        )
        # A number may be there as the other kind of number, which the tuple does not list.
        if not isinstance(value, str) or not listed_digit(listed, value):
            return None
        entries = self._entries[chunks]
        digits = self.shape.restriction.digits(field.name, entries["restricted"])
        answer: Flags = digits == listed_digit(listed, value)
        answer |= (entries["flags"] & DAMAGED) != 0
        return answer


def _weak_probe(probe: Probe) -> Probe:
    """A probe that does not keep its segment: in a circle with its facts, a dropped log would stay mapped."""
    reference = WeakMethod(probe)

    def ask(field: Field, value: Scalar, chunks: Chunks) -> Flags | None:
        bound = reference()
        return None if bound is None else bound(field, value, chunks)

    return ask


def _identity(path: Path) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return 0, 0
    return found.st_ino, found.st_size
