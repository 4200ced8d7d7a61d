"""Recovery: bring the files of a stream into order when a writer opens it.

At whatever moment the last writer died: its log is cut behind the last complete append, the index is made to agree with the
log, and the publishing ids of producers are read back from both.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from headgate.errors import StreamCorrupt
from headgate.files import UNFINISHED_SUFFIX, open_for_reading, overwrite, read_at, remove_files
from headgate.streams.cold.manifest import tidy
from headgate.streams.cold.segment import open_sealed
from headgate.streams.format import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SegmentFile,
    index_path,
    log_path,
    segment_files,
)
from headgate.streams.options import mend_options
from headgate.streams.segments.bloom import ColumnOf
from headgate.streams.segments.hot_chunk import DAMAGED, HotChunk
from headgate.streams.segments.hot_index import (
    Entries,
    IndexShape,
    bare_entry,
    damaged_entry,
    end_of,
    index_entry,
    next_first_offsets,
    next_offset_of,
    read_index,
)
from headgate.streams.segments.hot_log import HotLog, create_hot_log, write_index
from headgate.streams.segments.hot_segment import HotSegment
from headgate.streams.segments.hot_walk import (
    LogHead,
    LogPlace,
    encode_log_header,
    read_head_of,
    read_log_head,
    walk,
)
from headgate.streams.segments.seal import UNFINISHED
from headgate.streams.segments.segment import Segment
from headgate.streams.write.inbox import abandoned_deposits
from headgate.streams.write.publishing_ids import ProducerTable

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogState:
    """What a log holds, and what is wrong with it."""

    head: LogHead
    shape: IndexShape
    entries: Entries
    settled: int  # the log is durable up to this byte
    torn_bytes: int = 0
    index_problem: str | None = None
    damage: tuple[LogPlace, ...] = ()


def open_last_segment(
    directory: Path, shape: IndexShape, now_us: int
) -> tuple[HotLog, ProducerTable]:
    """Open the segment to append to; return it and the producers' table. Needs the writer's lock."""
    remove_leftovers(directory)
    mend_options(directory)
    segments = segment_files(directory)
    if not segments:
        return create_hot_log(directory, 0, shape, {}, now_us), ProducerTable({})
    last = segments[-1]
    if last.sealed:
        sealed = open_sealed(last.path)
        ids = dict(sealed.producers())
        seen = dict.fromkeys(ids, sealed.note.created)  # they published before
        log = create_hot_log(directory, sealed.next_offset, shape, ids, now_us, seen)
        return log, ProducerTable(ids, seen)
    before = producers_before(segments) if _header_problem(last.path) else {}
    healed = heal_log(last.path, shape, before)
    ids = dict(HotSegment(last.path).producers())
    seen = last_seen(healed.head, ids, last.path.stat().st_mtime_ns // 1000)
    if not len(healed.entries) and not healed.shape.same_as(shape):
        write_index(directory, healed.head, shape, np.zeros(0, shape.dtype), healed.head.length)
        healed = LogState(healed.head, shape, np.zeros(0, shape.dtype), healed.head.length)
    log = HotLog(directory, healed.head, healed.shape, healed.entries, healed.settled)
    return log, ProducerTable(ids, seen)


def last_seen(head: LogHead, ids: Mapping[str, int], written_us: int) -> dict[str, int]:
    """Return the latest moment at which each producer can have published last: the last write, for those of this log."""
    before = head.created or written_us
    return {
        name: head.seen.get(name, before) if head.producers.get(name) == last else written_us
        for name, last in ids.items()
    }


def producers_before(segments: Sequence[SegmentFile]) -> dict[str, int]:
    """Return the publishing ids at the end of the last segment but one."""
    if len(segments) < 2:
        return {}
    file = segments[-2]
    try:
        segment: Segment = open_sealed(file.path) if file.sealed else HotSegment(file.path)
    except StreamCorrupt as damage:
        _log.warning("%s; the publishing ids of its producers are unknown", damage)
        return {}
    return dict(segment.producers())


def _header_problem(path: Path) -> str | None:
    return read_log_head(path).problem


def remove_leftovers(directory: Path) -> None:
    """Remove what a crash left: unfinished files, logs that are sealed or cold by now, indexes without a log."""
    tidy(directory)
    files = list(directory.iterdir())
    sealed = {file.first_offset for file in segment_files(directory) if file.sealed}
    logs = {path.stem for path in files if path.suffix == LOG_SUFFIX}
    leftovers = [path for path in files if path.suffix in (UNFINISHED_SUFFIX, UNFINISHED)]
    leftovers += [
        p for first in sealed for p in (log_path(directory, first), index_path(directory, first))
    ]
    leftovers += [p for p in files if p.suffix == INDEX_SUFFIX and p.stem not in logs]
    leftovers += abandoned_deposits(directory)
    leftovers = [path for path in leftovers if path.exists()]
    if leftovers:
        remove_files(*leftovers)


def heal_log(path: Path, shape: IndexShape, producers: Mapping[str, int]) -> LogState:
    """Cut off an unfinished append, complete the index, and rewrite a damaged header. Needs the writer's lock."""
    if problem := _header_problem(path):
        _rewrite_header(path, producers, problem)
    found = examine_log(path, shape)
    end = end_of(found.entries, found.head)
    if found.torn_bytes:
        _log.warning("%s: cut off %d bytes of an unfinished append", path, found.torn_bytes)
    if found.index_problem is not None:
        _log.warning("%s: %s; rebuilding it", path.with_suffix(INDEX_SUFFIX), found.index_problem)
    if found.index_problem is not None or found.torn_bytes:
        _truncate(path, end)  # and sync: the rest counts as durable from now on
        write_index(path.parent, found.head, found.shape, found.entries, settled=end)
        found = replace(found, settled=end)
    return found


def _rewrite_header(path: Path, producers: Mapping[str, int], problem: str) -> None:
    """Overwrite a damaged header."""
    length = read_log_head(path).length
    created_us = path.stat().st_ctime_ns // 1000
    header = encode_log_header(int(path.stem), created_us, producers, length)
    if len(header) > length and path.stat().st_size > length:
        raise StreamCorrupt(str(path), 0, f"{problem}, and a new one does not fit in its place")
    _log.warning("%s: %s; rewriting it", path, problem)
    overwrite(path, 0, header)


def _truncate(path: Path, end: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.ftruncate(fd, end)
        os.fsync(fd)
    finally:
        os.close(fd)


# ---- examining a log ---------------------------------------------------------------------------------


def examine_log(
    path: Path, shape: IndexShape, *, everything: bool = False, growing: bool = False
) -> LogState:
    """Compare a log with its index; up to the settled mark the index is trusted.

    With `everything`, every byte is checked instead. While the log is `growing`, only the committed part is read.
    """
    with open_for_reading(path) as fd:
        head = read_head_of(fd, path)
        index = read_index(path.parent, head)
        shape = index.shape if index.header_length else shape
        known = index.entries if index.header_length else np.zeros(0, shape.dtype)
        problem, settled, size = index.problem, index.settled, os.fstat(fd).st_size
        if growing and index.reach is not None:
            size = min(size, index.reach)
        trusted = known[:0] if everything else _select_trusted(known, size, settled)
        start, expected = end_of(trusted, head), next_offset_of(trusted, head)
        tail = read_at(fd, start, max(size - start, 0))
    places = walk(tail, str(path), expected, base=start, settled=settled)
    entries = np.concatenate([trusted, *_entries(places, shape, expected, known)])
    torn = size - end_of(entries, head)
    if problem is None and not _same_chunks(entries, known):
        problem = "the index does not agree with the log"
        if len(entries) > len(known) and _same_chunks(entries[: len(known)], known):
            problem = f"the index lacks the last {len(entries) - len(known)} chunks of the log"
    elif problem is None and index.uncommitted and not growing:
        problem = "the index holds entries of an append that never finished"
    damage = tuple(place for place in places if place.problem is not None)
    return LogState(head, shape, entries, settled, torn, problem, damage)


def _select_trusted(known: Entries, log_size: int, settled: int) -> Entries:
    ends = known["position"] + known["length"]
    return known[: np.count_nonzero((ends <= settled) & (ends <= log_size))]


def _same_chunks(entries: Entries, known: Entries) -> bool:
    names = ("first_offset", "count", "position", "length", "header_crc")
    return len(entries) == len(known) and all((entries[n] == known[n]).all() for n in names)


def _entries(
    places: list[LogPlace], shape: IndexShape, expected: int, known: Entries
) -> list[Entries]:
    """Make the index entries of the places; a chunk or damage that the index knows keeps its old entry."""
    found: list[Entries] = []
    following = next_first_offsets(places)
    for place, old, next_first in zip(places, _known_at(known, places), following, strict=True):
        if place.chunk is not None:
            entry = _entry(place, place.chunk, shape, old)
        elif len(old):
            entry = old
        else:
            lost = 0 if next_first is None else next_first - expected
            entry = damaged_entry(shape, expected, lost, place.position, place.length)
        found.append(entry)
        expected = int(entry["first_offset"][-1]) + int(entry["count"][-1])
    return found


def _known_at(known: Entries, places: list[LogPlace]) -> Iterator[Entries]:
    """Yield for each place the entries that cover exactly it."""
    starts = np.ascontiguousarray(known["position"])
    ends = starts + known["length"]
    firsts = np.searchsorted(starts, [place.position for place in places]).tolist()
    lasts = np.searchsorted(ends, [p.position + p.length for p in places], "right").tolist()
    for place, first, last in zip(places, firsts, lasts, strict=True):
        fits = (
            first < last
            and starts[first] == place.position
            and known["length"][first:last].sum() == place.length
        )
        yield known[first:last] if fits else known[:0]


def _entry(place: LogPlace, chunk: HotChunk, shape: IndexShape, old: Entries) -> Entries:
    head = chunk.head
    if len(old) == 1 and old["header_crc"][0] == head.crc and not old["flags"][0] & DAMAGED:
        return old
    restricted = shape.restriction.code(chunk.meta.properties)
    try:
        return index_entry(shape, head, place.position, restricted, _column_lookup(chunk))
    except StreamCorrupt:  # a column of the Bloom filter is damaged
        return old if len(old) == 1 else bare_entry(shape, head, place.position, restricted)


def _column_lookup(chunk: HotChunk) -> ColumnOf:
    """Return a lookup of the columns that are stored in a chunk."""
    names = set(chunk.names)
    return lambda name: chunk.column(name) if name in names else None
