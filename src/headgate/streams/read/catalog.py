"""The catalog: the segments of a stream at one moment, while writing, sealing and retention go on.

Listing a directory takes time: while a segment is sealed, a listing may miss both of its files, the new one because
it did not exist yet and the old one because it was removed meanwhile. The next listing cannot miss both. So a listing
counts only when two in a row are equal.
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

MOST_CACHED: Final = 32 << 20  # bytes of the footers of sealed segments
_MOST_ATTEMPTS: Final = 1000


class SealedSegments:
    """A cache of open sealed and cold segments; they never change, so readers share them."""

    def __init__(self) -> None:
        self._open: OrderedDict[Path, SummarizedSegment] = OrderedDict()
        self._changing = Lock()

    def open(self, path: Path) -> SummarizedSegment:
        """Open a segment, or return it from the cache."""
        with self._changing:
            if path in self._open:
                self._open.move_to_end(path)
                return self._open[path]
        segment = open_sealed(path)
        with self._changing:
            self._open[path] = segment
            while len(self._open) > 1 and self._cached_bytes() > MOST_CACHED:
                self._open.popitem(last=False)
        return segment

    def keep_only(self, paths: Collection[Path]) -> None:
        """Close all other segments: a dropped file takes disk space as long as it is mapped."""
        with self._changing:
            for path in self._open.keys() - paths:
                del self._open[path]

    def _cached_bytes(self) -> int:
        return sum(segment.footer_bytes for segment in self._open.values())


class SegmentCatalog:
    """The segments of one stream as one reader sees them. For one thread at a time."""

    def __init__(self, directory: Path, sealed: SealedSegments | None = None) -> None:
        self._directory = directory
        self._sealed = sealed or SealedSegments()
        self._hot: dict[Path, HotSegment] = {}
        self.relist()

    def relist(self) -> None:
        """List the directory again."""
        self._files = list_segments(self._directory)
        listed = {file.path for file in self._files}
        self._sealed.keep_only(listed)
        self._hot = {path: segment for path, segment in self._hot.items() if path in listed}

    @property
    def files(self) -> list[SegmentFile]:
        """The listed segments, oldest first."""
        return list(self._files)

    def first_offset(self) -> int:
        """Return the oldest offset the stream still has."""
        return self._files[0].first_offset if self._files else 0

    def next_offset(self) -> int:
        """Return the offset the next message will get."""
        self.relist()
        for _ in range(_MOST_ATTEMPTS):
            if not self._files:
                return 0
            try:
                return self.open(self._files[-1]).next_offset
            except FileNotFoundError:
                self.relist()
        raise self._changing_too_fast()

    def covering(self, offset: int) -> Segment | None:
        """Return the segment that holds the offset, or the oldest one if retention has dropped it; None at the end.

        Raises StreamCorrupt when the offset is missing between two segments.
        """
        fresh = False
        for _ in range(_MOST_ATTEMPTS):
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
        raise self._changing_too_fast()

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
        """Open the segment of a listed file, with everything published until now."""
        try:
            return self._sealed.open(file.path) if file.sealed else self._open_hot(file)
        except FileNotFoundError:
            raise
        except StreamCorrupt as damage:
            end = self.end_of(file)
            offsets = [] if end is None else [(file.first_offset, end - 1)]
            raise StreamCorrupt(damage.file, damage.position, damage.problem, offsets) from damage
        except OSError as problem:
            raise StreamError(f"cannot read {file.path}: {problem}") from problem

    def end_of(self, file: SegmentFile) -> int | None:
        """Return the end offset of a segment according to the file names; None for the last segment."""
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

    def _changing_too_fast(self) -> StreamError:
        return StreamError(
            f"the files of {self._directory} change faster than they can be read; "
            "does another program write there?"
        )


def list_segments(directory: Path) -> list[SegmentFile]:
    """List the segments of one moment, oldest first."""
    try:
        seen = segment_files(directory)
        while (again := segment_files(directory)) != seen:
            seen = again
    except FileNotFoundError:
        raise StreamNotFound(f"the stream in {directory} was deleted") from None
    except OSError as problem:
        raise StreamError(f"cannot read {directory}: {problem}") from problem
    return seen
