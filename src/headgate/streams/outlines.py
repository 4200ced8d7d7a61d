"""The file `outlines` of a stream: the outlines of its full segments. A filter reads one file instead of opening all of them.

    | OUTLINES_HEADER | outline | outline | …

It is a cache, never the truth. An outline counts only for the file that it was made of; a segment without one is
opened. Rolling, sealing and compaction append to it, under the lock of the cold tier, and cut it off before a damaged outline.
Outlines of dropped segments stay in it until there are more of them than of others; then it is written anew.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from headgate.errors import StreamError
from headgate.files import open_for_reading, put_file, read_at, write_all
from headgate.streams.cold.manifest import locking_tier
from headgate.streams.cold.segment import ColdSegment, open_sealed
from headgate.streams.format import (
    OUTLINES_FILE,
    OUTLINES_HEADER,
    OUTLINES_MAGIC,
    OUTLINES_VERSION,
    SegmentFile,
)
from headgate.streams.listing import list_segments
from headgate.streams.segments.hot_segment import HotSegment
from headgate.streams.segments.outline import (
    Outline,
    decode_outlines,
    encode_outline,
    outline_of,
)
from headgate.streams.segments.segment import Segment

_HEADER: Final = OUTLINES_HEADER.pack(OUTLINES_MAGIC, OUTLINES_VERSION)
_BATCH: Final = 64  # outlines that are appended at a time
_FEW: Final = 64  # outlines that are never too many
_log: Final = logging.getLogger(__name__)


class Outlines:
    """The outlines in a stream's file, read incrementally. For one thread at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._path = directory, directory / OUTLINES_FILE
        self._start_over()

    def _start_over(self, inode: int = 0) -> None:
        # In the order of the file: of two outlines with one name the later counts.
        self.known: list[Outline] = []
        self.problem: str | None = None  # what is wrong with the file
        self._inode, self._size, self._end = inode, 0, 0
        self._most = _FEW  # with more outlines than that, those of dropped segments are removed

    def read_on(self) -> bool:
        """Read the outlines appended since; return False when the file was replaced, so that `known` begins anew."""
        try:
            with open_for_reading(self._path) as fd:
                found = os.fstat(fd)
                same = found.st_ino == self._inode and found.st_size >= self._end
                if not same:
                    self._start_over(found.st_ino)
                if found.st_size != self._size:
                    self._read(fd, found.st_size)
                return same
        except FileNotFoundError:
            same = not self._inode
            self._start_over()
            return same

    def _read(self, fd: int, size: int) -> None:
        content = memoryview(read_at(fd, self._end, size - self._end))
        self._size, start = size, 0
        if not self._end:
            if bytes(content[: len(_HEADER)]) != _HEADER:
                self.problem = f"this is no file of outlines of version {OUTLINES_VERSION}"
                return
            start = len(_HEADER)
        found, length = decode_outlines(content[start:])
        self.known += found
        self._end += start + length
        self.problem = None if self._end == size else f"damaged from byte {self._end} on"

    # ---- writing -------------------------------------------------------------------------------------

    def add(self, outlines: Sequence[Outline]) -> None:
        """Append outlines. Needs the lock of the cold tier."""
        self.read_on()
        if self._size and not self._end and self._is_of_another_version():
            return
        if not self._end:
            put_file(self._path, _HEADER + b"".join(map(encode_outline, outlines)))
        elif len(self.known) + len(outlines) > self._most:
            self._write_anew(outlines)
        else:
            self._append(b"".join(map(encode_outline, outlines)))
        self.read_on()

    def _is_of_another_version(self) -> bool:
        with open_for_reading(self._path) as fd:
            return os.pread(fd, len(OUTLINES_MAGIC), 0) == OUTLINES_MAGIC

    def _append(self, content: bytes) -> None:
        fd = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            if self._size > self._end:
                os.ftruncate(fd, self._end)
            os.lseek(fd, self._end, os.SEEK_SET)
            write_all(fd, content)
        finally:
            os.close(fd)

    def _write_anew(self, outlines: Sequence[Outline] = ()) -> None:
        """Replace the file by one without the outlines of segments that are gone."""
        listed = {file.path.name for file in list_segments(self._directory)}
        latest = {outline.name: outline for outline in (*self.known, *outlines)}
        kept = [outline for name, outline in latest.items() if name in listed]
        put_file(self._path, _HEADER + b"".join(map(encode_outline, kept)))
        self.read_on()
        self._most = _FEW + 2 * len(kept)

    def rebuild(self) -> None:
        """Make all outlines anew. Needs the writer's lock."""
        full = list_segments(self._directory)[:-1]
        with locking_tier(self._directory):
            self._path.unlink(missing_ok=True)
        self.outline(full)

    def outline(self, files: Iterable[SegmentFile]) -> None:
        """Outline full segments. Those that cannot be read get none: reading them reports the damage."""
        made: list[Outline] = []
        for file in files:
            try:
                made.append(make_outline(file))
            except (StreamError, OSError) as problem:
                _log.debug("%s gets no outline: %s", file.path, problem)
            if len(made) >= _BATCH:
                self._store(made)
                made = []
        if made:
            self._store(made)

    def _store(self, outlines: Sequence[Outline]) -> None:
        try:
            with locking_tier(self._directory):
                self.add(outlines)
        except OSError as problem:
            _log.warning("%s: cannot be written, filters open more files: %s", self._path, problem)

    def complete(self, files: Sequence[SegmentFile]) -> None:
        """Outline the full segments among these that have no outline yet."""
        self.read_on()
        latest = {outline.name: outline for outline in self.known}
        self.outline(file for file in files if not _has_outline(file, latest.get))


def _has_outline(file: SegmentFile, find: Callable[[str], Outline | None]) -> bool:
    found = find(file.path.name)
    return found is not None and found.is_of(file.path)


def make_outline(file: SegmentFile) -> Outline:
    """Outline a full segment. Columns of a cold segment are read only when its Parquet file is local."""
    segment: Segment = open_sealed(file.path) if file.sealed else HotSegment(file.path)
    try:
        far = isinstance(segment, ColdSegment) and not segment.file.is_local
        return outline_of(file.path, segment, read_columns=not far)
    finally:
        segment.close()


def find_wrong_outlines(directory: Path) -> Iterator[str]:
    """Yield what is wrong with the file of outlines, and each outline that does not agree with its segment."""
    outlines = Outlines(directory)
    outlines.read_on()
    if outlines.problem is not None:
        yield f"{outlines.problem}; no message is lost, filters open more files"
    latest = {outline.name: outline for outline in outlines.known}
    for file in list_segments(directory):
        if not _has_outline(file, latest.get):
            continue
        with suppress(StreamError, OSError):  # a segment that cannot be read is reported itself
            if make_outline(file) != latest[file.path.name]:
                yield f"the outline of {file.path.name} does not agree with it"
