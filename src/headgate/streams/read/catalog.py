"""Which segments a stream has at this moment, while writing, sealing and retention go on.

A directory is not read in one moment: while a segment is sealed, a listing may miss both its forms, the new one
because it was not there yet and the old one because it is not there any more. The next listing cannot. So a
listing counts only when two in a row agree.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Collection
from pathlib import Path
from threading import Lock
from typing import Final

from headgate.errors import StreamCorrupt, StreamError, StreamNotFound
from headgate.streams.cold.segment import open_sealed
from headgate.streams.format import SegmentFile, cold_bounds, segment_files
from headgate.streams.segments.hot_segment import HotSegment
from headgate.streams.segments.segment import Segment
from headgate.streams.segments.summarized import SummarizedSegment

MOST_KEPT: Final = 32 << 20  # bytes of the footers of sealed segments
_MOST_LOOKS: Final = 1000


class SealedSegments:
    """Sealed and cold segments that were opened before; they never change, so readers share them."""

    def __init__(self) -> None:
        self._open: OrderedDict[Path, SummarizedSegment] = OrderedDict()
        self._changing = Lock()

    def open(self, path: Path) -> SummarizedSegment:
        with self._changing:
            if path in self._open:
                self._open.move_to_end(path)
                return self._open[path]
        found = open_sealed(path)
        with self._changing:
            self._open[path] = found
            while len(self._open) > 1 and self._kept() > MOST_KEPT:
                self._open.popitem(last=False)
        return found

    def keep_only(self, paths: Collection[Path]) -> None:
        """Let go of the others: a dropped file takes its space as long as it is mapped."""
        with self._changing:
            for path in self._open.keys() - paths:
                del self._open[path]

    def _kept(self) -> int:
        return sum(segment.footer_bytes for segment in self._open.values())


class SegmentCatalog:
    """The segments of one stream as one reader sees them. Not for two threads at once."""

    def __init__(self, directory: Path, sealed: SealedSegments | None = None) -> None:
        self._directory = directory
        self._sealed = sealed or SealedSegments()
        self._hot: dict[Path, HotSegment] = {}
        self.relist()

    def relist(self) -> None:
        """Look at the directory again."""
        self._files = list_segments(self._directory)
        there = {file.path for file in self._files}
        self._sealed.keep_only(there)
        self._hot = {path: segment for path, segment in self._hot.items() if path in there}

    @property
    def files(self) -> list[SegmentFile]:
        return list(self._files)

    def first_offset(self) -> int:
        """The oldest offset that may still be there."""
        return self._files[0].first_offset if self._files else 0

    def next_offset(self) -> int:
        """The offset the next message will get."""
        self.relist()
        for _ in range(_MOST_LOOKS):
            if not self._files:
                return 0
            try:
                return self.open(self._files[-1]).next_offset
            except FileNotFoundError:
                self.relist()
        raise self._restless()

    def covering(self, offset: int) -> Segment | None:
        """The segment that holds the offset, or the oldest one if retention has dropped it; None at the end.

        An offset that is missing between two segments is a StreamCorrupt.
        """
        fresh = False
        for _ in range(_MOST_LOOKS):
            try:
                found = self._covering(offset)
            except FileNotFoundError:  # sealed or dropped since it was listed
                self.relist()
                continue
            except StreamCorrupt:
                if fresh:
                    raise
            else:
                if fresh or (found is not None and found.first_offset <= offset):
                    return found
            self.relist()
            fresh = True
        raise self._restless()

    def _covering(self, offset: int) -> Segment | None:
        if not self._files:
            return None
        firsts = [file.first_offset for file in self._files]
        at = max(bisect_right(firsts, offset) - 1, 0)
        segment = self.open(self._files[at])
        if segment.next_offset > offset:
            return segment
        following = self._files[at + 1 : at + 2]
        if not following:
            return None
        gap = (segment.next_offset, following[0].first_offset - 1)
        what = "the messages before this segment are missing"
        raise StreamCorrupt(str(following[0].path), None, what, [gap])

    def open(self, file: SegmentFile) -> Segment:
        """The segment of a listed file, with all that was published until now."""
        try:
            return self._sealed.open(file.path) if file.sealed else self._open_hot(file)
        except FileNotFoundError:
            raise
        except StreamCorrupt as damage:
            end = self.end_of(file)
            offsets = [] if end is None else [(file.first_offset, end - 1)]
            raise StreamCorrupt(damage.file, damage.position, damage.problem, offsets) from damage
        except OSError as problem:
            raise StreamError(f"{file.path} cannot be read: {problem}") from problem

    def end_of(self, file: SegmentFile) -> int | None:
        """Where a segment ends according to the names of the files; None for the last one."""
        if (bounds := cold_bounds(file.path)) is not None:
            return bounds[1]
        behind = (f.first_offset for f in self._files if f.first_offset > file.first_offset)
        return next(behind, None)

    def _open_hot(self, file: SegmentFile) -> HotSegment:
        segment = self._hot.get(file.path)
        if segment is not None:
            segment.refresh()
            return segment
        segment = HotSegment(file.path)
        while len(self._hot) > 1:
            del self._hot[next(iter(self._hot))]
        self._hot[file.path] = segment
        return segment

    def _restless(self) -> StreamError:
        return StreamError(
            f"the files of {self._directory} change faster than they can be read; "
            "is something other than headgate writing there?"
        )


def list_segments(directory: Path) -> list[SegmentFile]:
    """The segments that are there at one moment, oldest first."""
    try:
        seen = segment_files(directory)
        while (again := segment_files(directory)) != seen:
            seen = again
    except FileNotFoundError:
        raise StreamNotFound(f"there is no stream in {directory} any more") from None
    except OSError as problem:
        raise StreamError(f"{directory} cannot be read: {problem}") from problem
    return seen
