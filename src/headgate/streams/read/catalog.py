"""The catalog: the segments of a stream at one moment, while writing, sealing and retention go on."""

from __future__ import annotations

import time
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import Final, TypeAlias

from headgate.errors import StreamCorrupt, StreamError
from headgate.filters import TRUE, NormalFilter
from headgate.streams.cold.segment import open_sealed
from headgate.streams.format import (
    SEALED_SUFFIX,
    SegmentFile,
    cold_bounds,
    log_path,
    sealed_path,
)
from headgate.streams.listing import Listing, current_listing
from headgate.streams.outlines import Outlines
from headgate.streams.read.exclusion import (
    Excluded,
    OpenSegment,
    OutlinedSegments,
    SegmentGroup,
)
from headgate.streams.segments.hot_segment import HotSegment
from headgate.streams.segments.segment import Segment
from headgate.streams.segments.summarized import SummarizedSegment

MOST_CACHED: Final = 32 << 20  # bytes of the footers of sealed segments
MANY: Final = 16  # segments that are judged all at once
_MOST_ATTEMPTS: Final = 1000
_FEW: Final = 64  # segments that are listed whenever the directory has changed
_PATIENCE: Final = 100  # times as long as a listing of more segments took, until the next one
_MOST_STEPS: Final = 8  # from segment to segment, instead of listing them

_Identity: TypeAlias = tuple[int, int]  # of a file: its inode, and when it was modified


class SealedSegments:
    """A cache of open sealed and cold segments; only repair replaces them, so readers share them."""

    def __init__(self) -> None:
        self._open: OrderedDict[Path, tuple[SummarizedSegment, _Identity | None]] = OrderedDict()
        self._cached = 0  # bytes
        self._listing: Listing | None = None
        self._outlined: OutlinedSegments | None = None
        # Facts about the open segments; None after one was opened or closed.
        self._group: SegmentGroup[OpenSegment] | None = None
        self._changing, self._judging = Lock(), Lock()

    def open(self, path: Path) -> SummarizedSegment:
        """Open a segment, or return it from the cache unless repair has replaced its file."""
        identity = _identify(path)
        with self._changing:
            known = self._open.get(path)
            if known is not None and identity in (
                known[1],
                None,
            ):  # a dropped file can still be read
                self._open.move_to_end(path)
                return known[0]
        segment = open_sealed(path)
        with self._changing:
            self._close(path)  # another thread may have opened it too
            self._open[path] = segment, identity
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

    def exclude(self, filter: NormalFilter, listing: Listing) -> dict[int, Excluded]:
        """Return, by first offset, the segments that certainly hold no match, as far as they have an outline or are open."""
        with self._judging:
            outlined = self._outlined or OutlinedSegments(Outlines(listing.files[0].path.parent))
            self._outlined = outlined
            outlined.read_on()
            found = outlined.exclude(filter, listing)
            with self._changing:
                group = self._group = self._group or SegmentGroup(
                    [
                        OpenSegment(segment)
                        for path, (segment, _) in self._open.items()
                        if path.name not in outlined
                    ]
                )
            for i in group.exclude(filter):
                segment = group.segments[i]
                found[segment.first_offset] = segment.as_excluded()
        return found

    def _close(self, path: Path) -> None:
        self._group = None
        known = self._open.pop(path, None)
        self._cached -= 0 if known is None else known[0].footer_bytes


def _identify(path: Path) -> _Identity | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


class SegmentCatalog:
    """The segments of one stream as one reader sees them. For one thread at a time."""

    def __init__(self, directory: Path, sealed: SealedSegments | None = None) -> None:
        self._directory = directory
        self._sealed = sealed or SealedSegments()
        self._hot: dict[Path, HotSegment] = {}
        self.relist()

    def relist(self) -> None:
        """List the directory again."""
        began = time.monotonic()
        self._listing = current_listing(self._directory)
        self._sealed.keep_only(self._listing)
        ended = time.monotonic()
        self._relist_at = ended + _PATIENCE * (ended - began)
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
        self._look_behind()
        for _ in range(_MOST_ATTEMPTS):
            if not self._files:
                return 0
            try:
                return self.open(self._files[-1]).next_offset
            except FileNotFoundError:
                self.relist()
        raise self._changing_too_fast()

    def _look_behind(self) -> None:
        """Find the segments that were begun since the directory was listed, at a cost that does not grow with their number.

        In a stream of many segments, the end of the last one known leads to the next. The directory is listed again when
        that takes a small share of the time since the last listing: dropped segments have to be closed.
        """
        if len(self._files) < _FEW or time.monotonic() >= self._relist_at:
            return self.relist()
        try:
            for _ in range(_MOST_STEPS):
                following = self._find_following()
                if following is None:
                    return None
                self._listing = self._listing.extend(following)
        except (FileNotFoundError, StreamCorrupt):
            pass
        return self.relist()

    def _find_following(self) -> SegmentFile | None:
        """Find the segment behind the last one of the listing; None when there is none."""
        last = self._files[-1]
        end = self.open(last).next_offset
        if end == last.first_offset:
            return None
        for path in (log_path(self._directory, end), sealed_path(self._directory, end)):
            if path.exists():
                return SegmentFile(end, path, path.suffix == SEALED_SUFFIX)
        return None

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
                if found is None:
                    self._look_behind()
                    fresh = True
                    continue
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
        """Return, by first offset, segments that certainly hold no match; none when only few lie between the offsets."""
        listed = self._listing.covering(high) - self._listing.covering(low)
        if listed < MANY or filter.tree == TRUE:
            return {}
        return self._sealed.exclude(filter, self._listing)

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
