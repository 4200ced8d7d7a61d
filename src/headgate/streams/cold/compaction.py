"""Compaction: choose sealed segments, rewrite them as Parquet files, and commit those to the stream.

One process, which holds the compaction lock, chooses and commits; any number of processes that can read the stream's
directory write the files. Producers and readers go on meanwhile.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias
from uuid import uuid4

from headgate.errors import StreamError, StreamLocked
from headgate.files import remove_files, sync_directory, write_durably
from headgate.streams.cold.location import (
    cold_file,
    create_location,
    default_location,
    list_files,
    parse_location,
)
from headgate.streams.cold.manifest import (
    COMPACTION_LOCK,
    DROPPED,
    list_manifests,
    locking_tier,
    read_note,
    tidy,
)
from headgate.streams.cold.write import ColdTask, WrittenColdFile, try_write_cold
from headgate.streams.format import SegmentFile, cold_path, segment_files
from headgate.streams.options import load_options
from headgate.streams.outlines import Outlines
from headgate.streams.read.catalog import SegmentCatalog
from headgate.streams.segments.seal import UNFINISHED
from headgate.streams.upkeep.retention import SegmentInfo, segment_info
from headgate.streams.write.lock import WriterLock

COLD_BYTES: Final = 128 << 20  # of sealed segments that become one Parquet file
RUN_FILE: Final = "compaction.json"
_UNCOMMITTED: Final = ".uncommitted"


@dataclass(frozen=True, slots=True)
class ColdCandidate:
    """A sealed segment that may become cold."""

    file: SegmentFile
    info: SegmentInfo


# ---- candidates --------------------------------------------------------------------------------------


def list_candidates(directory: Path) -> list[ColdCandidate]:
    """List the sealed segments that are not cold yet, up to the first that is not sealed."""
    catalog = SegmentCatalog(directory)
    candidates = []
    for file in catalog.files:
        if file.cold:
            continue
        if not file.sealed:
            break
        with suppress(FileNotFoundError):  # retention has deleted it meanwhile
            info = segment_info(catalog.open(file), file.path.stat().st_size)
            candidates.append(ColdCandidate(file, info))
    return candidates


def select_candidates(
    candidates: Sequence[ColdCandidate],
    *,
    now_us: int,
    horizon_us: int | None = None,
    before_offset: int | None = None,
) -> list[ColdCandidate]:
    """Select candidates, oldest first, up to the first that is too young or ends too late: the cold tier has no gaps."""
    selected = []
    for candidate in candidates:
        too_young = horizon_us is not None and candidate.info.newest(now_us) >= horizon_us
        too_late = before_offset is not None and candidate.info.next_offset > before_offset
        if too_young or too_late:
            break
        selected.append(candidate)
    return selected


def group_candidates(
    candidates: Sequence[ColdCandidate], most_bytes: int
) -> list[list[ColdCandidate]]:
    """Group neighbours up to `most_bytes`; a larger candidate is a group of its own."""
    groups: list[list[ColdCandidate]] = []
    size = 0
    for candidate in candidates:
        size += candidate.info.nbytes
        if not groups or size > most_bytes:
            groups.append([])
            size = candidate.info.nbytes
        groups[-1].append(candidate)
    return groups


# ---- one run -----------------------------------------------------------------------------------------


class Compaction:
    """One run of a compaction: its tasks, and the commit of their files. Use `run_compaction`."""

    def __init__(self, directory: Path, location: str) -> None:
        self.directory, self.location, self.run = directory, location, uuid4().hex[:12]
        self._indexed = load_options(directory).indexed
        self._outlines = Outlines(directory)

    def tasks(self, selected: Sequence[ColdCandidate], created_us: int) -> list[ColdTask]:
        """Return a task for each Parquet file to be written."""
        return [
            ColdTask(
                str(self.directory),
                tuple(candidate.file.path.name for candidate in group),
                self._indexed,
                self.location,
                self.run,
                created_us,
            )
            for group in group_candidates(selected, COLD_BYTES)
        ]

    def commit(self, written: WrittenColdFile) -> bool:
        """Make a Parquet file part of the stream; False when retention has deleted its sources meanwhile."""
        target = cold_file(self.directory, written.file)
        unfinished = target.at(target.path + UNFINISHED)
        with locking_tier(self.directory):
            if not self._has_sources(written):
                unfinished.delete()
                return False
            unfinished.move(target)
            manifest = cold_path(self.directory, written.first_offset, written.next_offset)
            _write_whole(manifest, written.manifest)
        self._outlines.outline([SegmentFile(written.first_offset, manifest, sealed=True)])
        return True

    def _has_sources(self, written: WrittenColdFile) -> bool:
        first, end = written.first_offset, written.next_offset
        files = [f for f in segment_files(self.directory) if first <= f.first_offset < end]
        return [file.path.name for file in files] == list(written.sources)


@contextmanager
def run_compaction(path: str | Path, location: str) -> Iterator[Compaction]:
    """Run a compaction, one at a time for a stream; delete what crashed runs left before and after it."""
    directory = Path(path)
    load_options(directory)
    try:
        lock = WriterLock(directory, "compact", COMPACTION_LOCK)
    except StreamLocked as held:
        who = ", ".join(f"{name} {value}" for name, value in held.holder.items())
        raise StreamError(f"{path} is being compacted already ({who}); let it finish") from None
    with lock:
        collect_orphans(directory)
        create_location(directory, location)
        run = Compaction(directory, location)
        _write_whole(directory / RUN_FILE, json.dumps({"run": run.run, "place": location}).encode())
        yield run
        collect_orphans(directory)


def _write_whole(path: Path, content: bytes) -> None:
    """Write a file as a whole or not at all, under a temporary name that no writer removes as its own."""
    new = path.with_name(f".{path.name}{_UNCOMMITTED}")
    write_durably(new, content)
    os.replace(new, path)
    sync_directory(path.parent)


def collect_orphans(directory: Path) -> list[str]:
    """Delete Parquet files without a manifest, and return their names. Needs the compaction lock.

    In the stream's own folder all such files are deleted; elsewhere, where other streams may have files, those of the last run.
    """
    record = directory / RUN_FILE
    last = json.loads(record.read_bytes()) if record.exists() else {"run": "", "place": ""}
    found = list_files(directory, default_location())
    if last["place"] not in ("", default_location()):
        found += [f for f in list_files(directory, last["place"]) if f"-{last['run']}-" in f]
    with locking_tier(directory):
        known = {read_note(path).file for path in _list_references(directory)}
        orphans = [name for name in found if name not in known]
    for name in orphans:
        cold_file(directory, name).delete()
    remove_files(record, *directory.glob(f".*{_UNCOMMITTED}"))
    return orphans


def _list_references(directory: Path) -> list[Path]:
    return [*list_manifests(directory), *directory.glob(f"*{DROPPED}")]


# ---- compact -----------------------------------------------------------------------------------------

Write: TypeAlias = Callable[[Sequence[ColdTask]], Iterable[WrittenColdFile | str]]
WRITE_HERE: Final[Write] = partial(map, try_write_cold)


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What a compaction did."""

    added: tuple[WrittenColdFile, ...]
    abandoned: tuple[WrittenColdFile, ...]  # retention has deleted their sources meanwhile
    problems: tuple[str, ...]  # why segments could not be compacted
    removed: tuple[Path, ...]  # files of segments that are cold now
    holder: Mapping[str, object] | None  # the writer that will remove them instead


def compact(
    path: str | Path,
    write: Write = WRITE_HERE,
    *,
    to: str | None = None,
    horizon_us: int | None = None,
    before_offset: int | None = None,
    created_us: int,
) -> CompactionResult:
    """Make sealed segments cold: all, those with only messages older than the horizon, or those before the offset.

    `write` runs the tasks, here or elsewhere, in any order; each result is a written file, which is committed at once,
    or the reason of a failure.
    """
    added: list[WrittenColdFile] = []
    abandoned: list[WrittenColdFile] = []
    problems: list[str] = []
    directory = Path(path).absolute()  # a task may run in another working directory
    with run_compaction(directory, parse_location(to)) as run:
        selected = select_candidates(
            list_candidates(directory),
            now_us=created_us,
            horizon_us=horizon_us,
            before_offset=before_offset,
        )
        for result in write(run.tasks(selected, created_us)):
            if isinstance(result, str):
                problems.append(result)
            else:
                # Without its manifest: those of a large stream would fill the memory.
                outcome = added if run.commit(result) else abandoned
                outcome.append(replace(result, manifest=b""))
    removed, holder = _remove_covered(directory)
    return CompactionResult(tuple(added), tuple(abandoned), tuple(problems), removed, holder)


def clean_up(directory: Path) -> CompactionResult:
    """Delete what crashed compactions left, and remove the files that the cold tier covers."""
    with run_compaction(directory, default_location()):
        pass
    return CompactionResult((), (), (), *_remove_covered(directory))


def _remove_covered(directory: Path) -> tuple[tuple[Path, ...], Mapping[str, object] | None]:
    try:
        with WriterLock(directory, "compact"):
            return tuple(tidy(directory)), None
    except StreamLocked as held:
        return (), held.holder
