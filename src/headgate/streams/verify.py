"""Verify: is every byte of a stream what was written? Repair: heal what can be healed, and lose no more than that.

Verifying reads everything and changes nothing. Repairing takes the lock, cuts a torn tail, rebuilds indexes and puts a
hole in the place of every chunk that is damaged, so that the rest can be read without an error; the damaged bytes are
kept beside the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from headgate.errors import StreamCorrupt, StreamError
from headgate.streams.chunk import DAMAGED, HOLE
from headgate.streams.cold.segment import open_sealed
from headgate.streams.cold.tier import covered_files
from headgate.streams.encode import encode_hole
from headgate.streams.entries import end_of, next_offset_of
from headgate.streams.files import opened, overwrite, read_at, write_durably
from headgate.streams.inbox import REJECTED_SUFFIX
from headgate.streams.index import Entries, IndexShape
from headgate.streams.layout import (
    CHUNK_HEADER,
    INBOX,
    SegmentFile,
    index_path,
    log_path,
    segment_files,
)
from headgate.streams.lock import WriterLock
from headgate.streams.log import write_index
from headgate.streams.options import load_options
from headgate.streams.recovery import (
    Healed,
    examine_log,
    heal_log,
    producers_before,
    remove_leftovers,
)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is not as it should be."""

    file: str
    position: int | None
    what: str
    healable: bool  # by repair

    def __str__(self) -> str:
        where = self.file if self.position is None else f"{self.file}, byte {self.position}"
        return f"{where}: {self.what}"


@dataclass(frozen=True, slots=True)
class Report:
    """What verifying found."""

    segments: int = 0
    chunks: int = 0
    messages: int = 0
    nbytes: int = 0
    problems: tuple[Problem, ...] = ()

    @property
    def fine(self) -> bool:
        return not self.problems

    def joined(self, other: Report) -> Report:
        return Report(
            self.segments + other.segments,
            self.chunks + other.chunks,
            self.messages + other.messages,
            self.nbytes + other.nbytes,
            self.problems + other.problems,
        )


def verify(path: str | Path) -> Report:
    """Read every byte of a stream and say what is wrong with it."""
    directory = Path(path)
    options = load_options(directory)
    report, expected = Report(), None
    try:
        files = segment_files(directory)
        for file in files:
            if expected not in (None, file.first_offset):
                report = report.joined(_gap(file, expected))
            found, expected = _verify_segment(file, IndexShape.of(options), file is files[-1])
            report = report.joined(found)
        others = tuple(_leftovers(directory, files))
    except PermissionError as problem:
        raise StreamError(
            f"{problem.filename}: {problem.strerror}; it cannot be verified"
        ) from problem
    return replace(report, problems=report.problems + others)


def _gap(file: SegmentFile, expected: int | None) -> Report:
    what = f"begins at offset {file.first_offset}, the segment before it ends at {expected}"
    return Report(problems=(Problem(str(file.path), None, what, healable=False),))


def _verify_segment(
    file: SegmentFile, shape: IndexShape, is_last: bool
) -> tuple[Report, int | None]:
    """What there is to say about a segment, and the offset the next one should begin with."""
    try:
        return _verify_sealed(file) if file.sealed else _verify_hot(file, shape, is_last)
    except StreamCorrupt as damage:
        problem = Problem(damage.file, damage.position, damage.problem, healable=False)
        return Report(segments=1, problems=(problem,)), None


def _verify_sealed(file: SegmentFile) -> tuple[Report, int]:
    segment = open_sealed(file.path)
    segment.check()
    rows = int(segment.facts().rows.sum())
    return Report(1, len(segment), rows, segment.nbytes), segment.next_offset


def _verify_hot(file: SegmentFile, shape: IndexShape, is_last: bool) -> tuple[Report, int]:
    found = examine_log(file.path, shape, everything=True)
    entries = found.entries
    if found.torn_bytes and is_last and _is_growing(file.path, found):
        found = replace(found, torn_bytes=0)
    rows = int(entries["count"][entries["flags"] & (HOLE | DAMAGED) == 0].sum())
    end = next_offset_of(entries, found.head)
    problems = tuple(_hot_problems(file.path, found))
    return Report(1, len(entries), rows, file.path.stat().st_size, problems), end


def _is_growing(path: Path, found: Healed) -> bool:
    """Whether what looks torn is being written at this moment."""
    return examine_log(path, found.shape, everything=True).entries.nbytes > found.entries.nbytes


def _hot_problems(path: Path, found: Healed) -> Iterator[Problem]:
    file = str(path)
    if found.head.problem is not None:
        yield Problem(file, 0, found.head.problem, healable=True)
    for place in found.damage:
        yield Problem(
            file, place.position, f"{place.problem} ({place.length} bytes)", healable=True
        )
    yield from _inner_gaps(file, found.entries)
    if found.torn_bytes:
        size = path.stat().st_size
        what = f"{found.torn_bytes} bytes of an append that never finished"
        yield Problem(file, size - found.torn_bytes, what, healable=True)
    if found.index_problem is not None:
        index = index_path(path.parent, int(path.stem))
        yield Problem(str(index), None, found.index_problem, healable=True)


def _inner_gaps(file: str, entries: Entries) -> Iterator[Problem]:
    ends = entries["first_offset"] + entries["count"]
    for i in np.flatnonzero(ends[:-1] != entries["first_offset"][1:]).tolist():
        what = f"offsets {ends[i]} to {entries['first_offset'][i + 1] - 1} are missing"
        yield Problem(file, int(entries["position"][i + 1]), what, healable=False)


def _leftovers(directory: Path, files: list[SegmentFile]) -> Iterator[Problem]:
    for file in files:
        log = log_path(directory, file.first_offset)
        if file.sealed and log.exists():
            yield Problem(
                str(log), None, "was left behind when the segment was sealed", healable=True
            )
    for path in covered_files(directory):
        yield Problem(
            str(path), None, "was left behind when the segment became cold", healable=True
        )
    for path in sorted((directory / INBOX).glob(f"*{REJECTED_SUFFIX}")):
        yield Problem(str(path), None, "was deposited and could not be adopted", healable=False)


# ---- repair ------------------------------------------------------------------------------------------


def repair(path: str | Path) -> Report:
    """Heal what can be healed, and verify: what the report still names is beyond it. Needs the lock."""
    directory = Path(path)
    options = load_options(directory)
    with WriterLock(directory, "repair"):
        remove_leftovers(directory)
        files = segment_files(directory)
        for i, file in enumerate(files):
            if not file.sealed:
                _repair_log(file.path, IndexShape.of(options), files[: i + 1])
                if file is not files[-1]:
                    _fill_gap(file.path, IndexShape.of(options), files[i + 1].first_offset)
    return verify(directory)


def _repair_log(path: Path, shape: IndexShape, until_here: list[SegmentFile]) -> None:
    heal_log(path, shape, producers_before(until_here))
    found = examine_log(path, shape, everything=True)
    for place in found.damage:
        for entry in _entries_at(found.entries, place.position, place.length):
            _put_hole(path, entry)
    _write_index_anew(path, found.shape)


def _write_index_anew(path: Path, shape: IndexShape) -> None:
    found = examine_log(path, shape, everything=True)
    settled = end_of(found.entries, found.head)
    write_index(path.parent, found.head, found.shape, found.entries, settled)


def _fill_gap(path: Path, shape: IndexShape, following: int) -> None:
    """Messages that are missing between two segments are lost: say so at the end of the first."""
    found = examine_log(path, shape)
    missing = following - next_offset_of(found.entries, found.head)
    if missing > 0:
        hole = encode_hole(following - missing, missing, CHUNK_HEADER.size)
        overwrite(path, end_of(found.entries, found.head), hole)
        _write_index_anew(path, found.shape)


def _entries_at(entries: Entries, position: int, length: int) -> Entries:
    inside = (entries["position"] >= position) & (entries["position"] < position + length)
    found: Entries = entries[inside]
    return found


def _put_hole(path: Path, entry: Entries) -> None:
    """Keep the damaged bytes in a file of their own, and say in their place that they are lost."""
    position, length = int(entry["position"]), int(entry["length"])
    with opened(path) as fd:
        damaged = read_at(fd, position, length).to_pybytes()
    write_durably(path.with_name(f"{path.name}.damaged-{position}"), damaged)
    hole = encode_hole(int(entry["first_offset"]), int(entry["count"]), length)
    overwrite(path, position, hole)
