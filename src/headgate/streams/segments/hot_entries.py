"""A log's index as it is found: read, checked, and completed from the log where it says too little or too much."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import Final

import numpy as np

from headgate.files import opened, read_at
from headgate.streams.format import SETTLED, entry_checksums, index_path
from headgate.streams.segments.bloom import BloomShape
from headgate.streams.segments.hot_index import (
    Entries,
    IndexShape,
    bare_entry,
    damaged_entry,
    read_index_header,
    settled_at,
    settled_mark,
)
from headgate.streams.segments.hot_walk import LogHead, Place

MISSING: Final = "the index is missing"
NO_SHAPE: Final = IndexShape(BloomShape(16, 2))


@dataclass(frozen=True, slots=True)
class Index:
    """An index as it was read: the entries of committed chunks, from the first on, up to the first that is not sound.

    `reach` is how far the log is known to be committed, by the entries or by the settled mark; None when nothing is known.
    """

    shape: IndexShape = NO_SHAPE
    entries: Entries = dataclass_field(default_factory=lambda: np.zeros(0, NO_SHAPE.dtype))
    settled: int = 0
    reach: int | None = None
    problem: str | None = None  # why it cannot be believed, or not all of it
    uncommitted: bool = False  # there are bytes behind the committed entries
    inode: int = 0
    header_length: int = 0


def read_index(directory: Path, head: LogHead, before: Index | None = None) -> Index:
    """What the index of a log says now; of what was read `before`, no entry is read again."""
    try:
        # Read, not mapped: its writer takes back what it cannot finish.
        with opened(index_path(directory, head.first_offset)) as fd:
            return _read_index(fd, head, before)
    except FileNotFoundError:
        return Index(problem=MISSING)


def _read_index(fd: int, head: LogHead, before: Index | None) -> Index:
    if before is None or before.inode != os.fstat(fd).st_ino:
        before = _read_header(fd, head)
        if before.problem is not None:
            return before
    settled = settled_mark(os.pread(fd, SETTLED.size, settled_at(before.header_length)))
    known, dtype = before.entries, before.shape.dtype
    behind = memoryview(read_at(fd, before.header_length + known.nbytes))
    fresh = np.frombuffer(behind, dtype, len(behind) // dtype.itemsize)
    bad = np.flatnonzero(entry_checksums(fresh) != fresh["checksum"])
    sound = fresh[: bad[0]] if len(bad) else fresh
    entries = np.concatenate([known, sound]) if len(sound) else known
    # Zeros are the gap that is left for the first entry of an append of several chunks.
    torn = len(bad) == 0 or bad[0] == len(fresh) - 1 or not any(fresh[bad[0]].tobytes())
    return replace(
        before,
        entries=entries,
        settled=settled,
        reach=max(settled, end_of(entries, head)),
        problem=None if torn else f"entry {len(entries)} of the index fails its checksum",
        uncommitted=sound.nbytes < len(behind),
    )


def _read_header(fd: int, head: LogHead) -> Index:
    found = read_index_header(memoryview(read_at(fd, 0)))
    if isinstance(found, str):
        return Index(problem=found)
    same_log = head.problem is not None or found.log_crc == head.crc
    if found.first_offset != head.first_offset or not same_log:
        return Index(problem="the index belongs to another log")
    nothing = np.zeros(0, found.shape.dtype)
    inode = os.fstat(fd).st_ino
    return Index(found.shape, nothing, inode=inode, header_length=found.length)


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
