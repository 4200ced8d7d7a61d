"""The catalog: the segments of a stream at one moment, while writing, sealing and retention go on."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import Final

from headgate.errors import StreamCorrupt, StreamError
from headgate.filters import TRUE, NormalFilter
from headgate.streams.cold.segment import open_sealed
from headgate.streams.format import SegmentFile, cold_bounds
from headgate.streams.listing import Listing, current_listing
from headgate.streams.read.exclusion import Excluded, SegmentGroup
from headgate.streams.segments.hot_segment import HotSegment
from headgate.streams.segments.segment import Segment
from headgate.streams.segments.summarized import SummarizedSegment

MOST_CACHED: Final = 32 << 20  # bytes of the footers of sealed segments
MANY: Final = 16  # segments that are judged all at once
_MOST_ATTEMPTS: Final = 1000


class SealedSegments:
    """A cache of open sealed and cold segments; they never change, so readers share them."""

    def __init__(self) -> None:
        self._open: OrderedDict[Path, SummarizedSegment] = OrderedDict()
        self._cached = 0  # bytes
        self._listing: Listing | None = None
        self._group: SegmentGroup | None = None  # all open segments; None: others than before
        self._changing = Lock()

    def open(self, path: Path) -> SummarizedSegment:
        """Open a segment, or return it from the cache."""
        with self._changing:
            if path in self._open:
                self._open.move_to_end(path)
                return self._open[path]
        segment = open_sealed(path)
        with self._changing:
            self._close(path)  # another thread may have opened it too
            self._open[path] = segment
            self._group = None
            self._cached += segment.footer_bytes
            while len(self._open) > 1 and self._cached > MOST_CACHED:
                self._close(next(iter(self._open)))
        return segment

    def keep_only(self, listing: Listing) -> None:
        """Close all other segments: a dropped file takes disk space as long as it is mapped."""
        with self._changing:
            if listing is not self._listing:
                for path in [path for path in self._open if path not in listing]:
                    self._close(path)
            self._listing = listing

    def exclude(self, filter: NormalFilter) -> dict[int, Excluded]:
        """Return, by first offset, segments that are open and certainly hold no match."""
        with self._changing:
            group = self._group = self._group or SegmentGroup(list(self._open.values()))
        return group.exclude(filter)

    def _close(self, path: Path) -> None:
        self._group = None
        segment = self._open.pop(path, None)
        self._cached -= 0 if segment is None else segment.footer_bytes


class SegmentCatalog:
    """The segments of one stream as one reader sees them. For one thread at a time."""

    def __init__(self, directory: Path, sealed: SealedSegments | None = None) -> None:
        self._directory = directory
        self._sealed = sealed or SealedSegments()
        self._hot: dict[Path, HotSegment] = {}
        self.relist()

    def relist(self) -> None:
        """List the directory again."""
        self._listing = current_listing(self._directory)
        self._sealed.keep_only(self._listing)
        self._hot = {path: hot for path, hot in self._hot.items() if path in self._listing}

    def fresh(self) -> SegmentCatalog:
        """Return another catalog of the same stream, for another reader."""
        return SegmentCatalog(self._directory, self._sealed)

    @property
    def files(self) -> list[SegmentFile]:
        """The listed segments, oldest first."""
        return list(self._listing.files)

    @property
    def _files(self) -> tuple[SegmentFile, ...]:
        return self._listing.files

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
        at = max(self._listing.covering(offset), 0)
        segment = self.open(self._files[at])
        if segment.next_offset > offset:
            return segment
        following = self._files[at + 1 : at + 2]
        if not following:
            return None
        gap = (segment.next_offset, following[0].first_offset - 1)
        what = "the messages before this segment are missing"
        raise StreamCorrupt(str(following[0].path), None, what, [gap])

    def exclude(self, filter: NormalFilter, low: int, high: int) -> dict[int, Excluded]:
        """Return, by first offset, segments that certainly hold no match; nothing for a few segments."""
        listed = self._listing.covering(high) - self._listing.covering(low)
        return self._sealed.exclude(filter) if listed >= MANY and filter.tree != TRUE else {}

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
        behind = self._listing.covering(file.first_offset) + 1
        return self._files[behind].first_offset if behind < len(self._files) else None

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
