"""A log's index as it is found: read, checked, and completed from the log where it says too little or too much."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from headgate.streams.files import map_file
from headgate.streams.index import (
    Entries,
    IndexHead,
    IndexShape,
    bare_entry,
    damaged_entry,
    read_index_header,
)
from headgate.streams.layout import entry_checksums, index_path
from headgate.streams.walk import LogHead, Place

MOST_READ: Final = 256 << 20


def load_index(
    directory: Path, head: LogHead, verified: int
) -> tuple[IndexShape, Entries, int] | None:
    """Shape, entries and settled mark of a log's index; None when it cannot be trusted."""
    index = read_index(directory, head, verified)
    return None if isinstance(index, str) else (index[0].shape, index[1], index[0].settled)


def read_index(
    directory: Path, head: LogHead, verified: int = 0
) -> tuple[IndexHead, Entries] | str:
    """Header and entries of a log's index, or what is wrong with it; some entries are known to be right."""
    try:
        data = map_file(index_path(directory, head.first_offset))
    except FileNotFoundError:
        return "the index is missing"
    found = read_index_header(memoryview(data))
    if isinstance(found, str):
        return found
    same_log = head.problem is not None or found.log_crc == head.crc
    if found.first_offset != head.first_offset or not same_log:
        return "the index belongs to another log"
    dtype = found.shape.dtype
    count = (data.size - found.length) // dtype.itemsize
    entries = np.frombuffer(data, dtype, count, found.length)
    unsure = entries[verified:]
    bad = verified + np.flatnonzero(entry_checksums(unsure) != unsure["checksum"])
    if not len(bad):
        return found, entries
    if bad[0] == count - 1:  # it may be on its way
        return found, entries[:-1]
    return f"entry {bad[0]} of the index fails its checksum"


def drop_cut_off(entries: Entries, shape: IndexShape, log_size: int, settled: int) -> Entries:
    """Without the chunks the log is too short for; those that were settled stay as damage."""
    ends = entries["position"] + entries["length"]
    there = ends <= log_size
    if there.all():
        return entries
    lost = [
        damaged_entry(shape, *(int(e[n]) for n in ("first_offset", "count", "position", "length")))
        for e in entries[~there & (ends <= settled)]
    ]
    return np.concatenate([entries[there], *lost])


def end_of(entries: Entries, head: LogHead) -> int:
    """Where the last chunk of the index ends in the log."""
    return int(entries["position"][-1] + entries["length"][-1]) if len(entries) else head.length


def next_offset_of(entries: Entries, head: LogHead) -> int:
    """The offset behind the last message of the index."""
    if not len(entries):
        return head.first_offset
    return int(entries["first_offset"][-1]) + int(entries["count"][-1])


def read_tail(path: Path, position: int) -> pa.Buffer:
    """What the log holds from there on: read, not mapped, for its writer may yet take it back."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        left = max(os.fstat(fd).st_size - position, 0)
        if left <= MOST_READ:
            return pa.py_buffer(os.pread(fd, left, position))
    finally:
        os.close(fd)
    return map_file(path).slice(position)  # so much is no append that is under way


def entries_of(places: list[Place], shape: IndexShape, expected: int) -> list[Entries]:
    """Bare entries of the places of a log; a place that cannot be read gets one that says so."""
    found = []
    for at, place in enumerate(places):
        if place.chunk is not None:
            head = place.chunk.head
            restricted = shape.restriction.code_of(place.chunk.meta.properties)
            found.append(bare_entry(shape, head, place.position, restricted))
            expected = head.first_offset + head.messages
            continue
        following = (p.chunk.first_offset for p in places[at + 1 :] if p.chunk is not None)
        count = next(following, expected) - expected
        found.append(damaged_entry(shape, expected, count, place.position, place.length))
        expected += count
    return found
