"""Verification: check every byte of a stream, and repair it.

Verifying reads everything and changes nothing. Repairing takes the writer's lock and heals what it can (see `repairs`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from headgate.errors import StreamCorrupt, StreamError
from headgate.message import INT64_MAX
from headgate.streams.cold.manifest import COMPACTION_LOCK, list_covered_files
from headgate.streams.cold.segment import ColdSegment, open_sealed
from headgate.streams.format import (
    INBOX,
    OUTLINES_FILE,
    SegmentFile,
    cold_bounds,
    index_path,
    log_path,
    segment_files,
)
from headgate.streams.listing import is_followed, list_segments
from headgate.streams.options import (
    StreamOptions,
    damaged_options,
    load_options,
    mend_options,
)
from headgate.streams.outlines import Outlines, find_wrong_outlines
from headgate.streams.read.catalog import SegmentCatalog
from headgate.streams.read.scan import locate_damage
from headgate.streams.segments.hot_chunk import DAMAGED, HOLE
from headgate.streams.segments.hot_index import Entries, IndexShape, next_offset_of
from headgate.streams.segments.sealed import SealedSegment
from headgate.streams.segments.summarized import SummarizedSegment
from headgate.streams.upkeep.recovery import LogState, examine_log, remove_leftovers
from headgate.streams.upkeep.repairs import (
    damage_of_pages,
    damaged_chunks,
    heal_segments,
    salvage_unreadable,
)
from headgate.streams.write.inbox import REJECTED_SUFFIX
from headgate.streams.write.lock import WriterLock, exclude_writers, is_held


@dataclass(frozen=True, slots=True)
class VerifyProblem:
    """One thing that is wrong with a stream."""

    file: str
    position: int | None
    what: str
    healable: bool  # by repair

    def __str__(self) -> str:
        where = self.file if self.position is None else f"{self.file}, byte {self.position}"
        return f"{where}: {self.what}"


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """How much was verified, and what is wrong."""

    segments: int = 0
    chunks: int = 0
    messages: int = 0
    nbytes: int = 0
    problems: tuple[VerifyProblem, ...] = ()

    @property
    def fine(self) -> bool:
        return not self.problems

    def __add__(self, other: VerifyReport) -> VerifyReport:
        return VerifyReport(
            self.segments + other.segments,
            self.chunks + other.chunks,
            self.messages + other.messages,
            self.nbytes + other.nbytes,
            self.problems + other.problems,
        )


def verify(path: str | Path) -> VerifyReport:
    """Check every byte of a stream. It may be written and read meanwhile."""
    directory = Path(path)
    options = load_options(directory)
    try:
        report = _verify_segments(directory, options)
        others = (
            *_options_problems(directory),
            *_outline_problems(directory),
            *_leftovers(directory),
        )
    except PermissionError as problem:
        raise StreamError(
            f"{problem.filename}: {problem.strerror}; it cannot be verified"
        ) from problem
    return replace(report, problems=report.problems + others)


def _verify_segments(directory: Path, options: StreamOptions) -> VerifyReport:
    report, expected, at = VerifyReport(), None, 0
    files = list_segments(directory)
    while at < len(files):
        try:
            found, end = _verify_segment(files, at, options)
        except FileNotFoundError:  # sealed, cold or dropped since it was listed
            files, at = _find_again(directory, files[at].first_offset)
            continue
        if expected != files[at].first_offset:
            report += _gap(directory, expected)
        report += found
        expected, at = end, at + 1
    return report


def _find_again(directory: Path, offset: int) -> tuple[list[SegmentFile], int]:
    """List the segments again; return them and the index of the one that holds the offset, or the first after it."""
    files = list_segments(directory)
    at = next((i for i in range(len(files)) if _end(files, i) > offset), len(files))
    return files, at


def _end(files: Sequence[SegmentFile], at: int) -> int:
    """Return the end offset of a segment according to the file names."""
    if (bounds := cold_bounds(files[at].path)) is not None:
        return bounds[1]
    return files[at + 1].first_offset if at + 1 < len(files) else INT64_MAX


def _gap(directory: Path, expected: int | None) -> VerifyReport:
    """Report the messages that are missing from the offset `expected` on, if a reader would miss them too."""
    try:
        if expected is not None:
            SegmentCatalog(directory).covering(expected)
    except StreamCorrupt as damage:
        if damage.position is None:  # else the segment cannot be opened, which is reported with it
            what = f"{damage.problem}{damage.affected}"
            return VerifyReport(problems=(VerifyProblem(damage.file, None, what, healable=True),))
    return VerifyReport()


def _verify_segment(
    files: Sequence[SegmentFile], at: int, options: StreamOptions
) -> tuple[VerifyReport, int]:
    """Check a segment; return the report and the offset at which the next one should begin."""
    found, end = _check_segment(files, at, options)
    if found.problems:
        # A writer may have begun, or ended, during the check: only what is found twice is a problem.
        again, end = _check_segment(files, at, options)
        problems = tuple(problem for problem in again.problems if problem in found.problems)
        found = replace(again, problems=problems)
    return found, end


def _check_segment(
    files: Sequence[SegmentFile], at: int, options: StreamOptions
) -> tuple[VerifyReport, int]:
    file = files[at]
    if not file.sealed:
        return _verify_hot(file, IndexShape.of(options))
    try:
        return _verify_sealed(file)
    except StreamCorrupt as damage:
        healable = salvage_unreadable(files, at, options) is not None
        problem = VerifyProblem(damage.file, damage.position, damage.problem, healable)
        return VerifyReport(segments=1, problems=(problem,)), _end(files, at)


def _verify_sealed(file: SegmentFile) -> tuple[VerifyReport, int]:
    segment = open_sealed(file.path)
    if isinstance(segment, ColdSegment):
        problems = _cold_problems(segment)
    else:
        problems = [*_chunk_problems(segment), *_page_problems(segment)]
    rows = int(segment.facts().rows.sum())
    report = VerifyReport(1, len(segment), rows, segment.nbytes, tuple(problems))
    return report, segment.next_offset


def _cold_problems(segment: ColdSegment) -> list[VerifyProblem]:
    """Check a Parquet file; single row groups are checked only if it is local."""
    try:
        segment.check_file()
    except StreamCorrupt as damage:
        found = _chunk_problems(segment) if segment.file.is_local else []
        healable = len(found) < len(segment) and segment.file.is_local
        whole = VerifyProblem(damage.file, damage.position, damage.problem, healable)
        return [replace(problem, healable=healable) for problem in found] or [whole]
    return []


def _chunk_problems(segment: SummarizedSegment) -> list[VerifyProblem]:
    low, high = segment.first_offset, segment.next_offset
    return [
        VerifyProblem(known.file, known.position, f"{known.problem}{known.affected}", healable=True)
        for at, damage in damaged_chunks(segment)
        for known in [locate_damage(segment, at, low, high, damage)]
    ]


def _page_problems(segment: SealedSegment) -> list[VerifyProblem]:
    damage = damage_of_pages(segment)
    if damage is None:
        return []
    what = f"{damage.problem}; no message is lost, its chunks are read whole"
    return [VerifyProblem(damage.file, damage.position, what, healable=True)]


def _verify_hot(file: SegmentFile, shape: IndexShape) -> tuple[VerifyReport, int]:
    directory = file.path.parent
    growing = is_held(directory) and not is_followed(directory, file.first_offset)
    found = examine_log(file.path, shape, everything=True, growing=growing)
    entries = found.entries
    rows = int(entries["count"][entries["flags"] & (HOLE | DAMAGED) == 0].sum())
    end = next_offset_of(entries, found.head)
    problems = tuple(_hot_problems(file.path, found))
    return VerifyReport(1, len(entries), rows, file.path.stat().st_size, problems), end


def _hot_problems(path: Path, found: LogState) -> Iterator[VerifyProblem]:
    file = str(path)
    if found.head.problem is not None:
        yield VerifyProblem(file, 0, found.head.problem, healable=True)
    for place in found.damage:
        yield VerifyProblem(
            file, place.position, f"{place.problem} ({place.length} bytes)", healable=True
        )
    yield from _inner_gaps(file, found.entries)
    if found.torn_bytes:
        size = path.stat().st_size
        what = f"{found.torn_bytes} bytes of an unfinished append"
        yield VerifyProblem(file, size - found.torn_bytes, what, healable=True)
    if found.index_problem is not None:
        index = index_path(path.parent, int(path.stem))
        yield VerifyProblem(str(index), None, found.index_problem, healable=True)


def _inner_gaps(file: str, entries: Entries) -> Iterator[VerifyProblem]:
    ends = entries["first_offset"] + entries["count"]
    for i in np.flatnonzero(ends[:-1] != entries["first_offset"][1:]).tolist():
        what = f"offsets {ends[i]} to {entries['first_offset'][i + 1] - 1} are missing"
        yield VerifyProblem(file, int(entries["position"][i + 1]), what, healable=False)


def _options_problems(directory: Path) -> Iterator[VerifyProblem]:
    damaged = damaged_options(directory)
    for path, problem in damaged.items():
        yield VerifyProblem(str(path), None, problem, healable=len(damaged) == 1)


def _outline_problems(directory: Path) -> list[VerifyProblem]:
    """Report outlines that are damaged or disagree with their segment; checked twice, for a writer may append one."""
    wrong = set(find_wrong_outlines(directory))
    wrong &= set(find_wrong_outlines(directory)) if wrong else set()
    return [
        VerifyProblem(str(directory / OUTLINES_FILE), None, what, healable=True)
        for what in sorted(wrong)
    ]


def _leftovers(directory: Path) -> Iterator[VerifyProblem]:
    # While the stream is written or compacted, such files are normal for a moment.
    with (
        exclude_writers(directory) as alone,
        exclude_writers(directory, COMPACTION_LOCK) as uncompacted,
    ):
        if alone and uncompacted:
            yield from _list_leftovers(directory)
    for path in sorted((directory / INBOX).glob(f"*{REJECTED_SUFFIX}")):
        yield VerifyProblem(str(path), None, "a deposit that could not be adopted", healable=False)


def _list_leftovers(directory: Path) -> Iterator[VerifyProblem]:
    for file in segment_files(directory):
        log = log_path(directory, file.first_offset)
        if file.sealed and log.exists():
            what = "left behind when the segment was sealed"
            yield VerifyProblem(str(log), None, what, healable=True)
    for path in list_covered_files(directory):
        what = "left behind when the segment became cold"
        yield VerifyProblem(str(path), None, what, healable=True)


def repair(path: str | Path) -> VerifyReport:
    """Heal what can be healed, then verify: the report names the remaining damage. Takes the writer's lock."""
    directory = Path(path)
    options = load_options(directory)
    with WriterLock(directory, "repair"):
        remove_leftovers(directory)
        mend_options(directory)
        heal_segments(directory, options)
        if any(find_wrong_outlines(directory)):
            Outlines(directory).rebuild()
    return verify(directory)
