"""The segments in a stream's directory, listed again only after the directory has changed.

Listing a directory takes time: while a segment is sealed, a listing may miss both of its files, the new one because
it did not exist yet and the old one because it was removed meanwhile. The next listing cannot miss both. So a listing
counts only when the directory did not change meanwhile, or when a second listing has the same segments, except for new
and dropped ones.

A directory's times tell whether a name was added, renamed or removed, but not two changes within one tick of the file
system's clock. So a listing is kept only if the last change was a while before it began.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headgate.errors import StreamError, StreamNotFound
from headgate.streams.format import SegmentFile, sealed_path, segment_files

MOST_KEPT: Final = 200_000  # segments, in the listings of all streams
MOST_STREAMS: Final = 10_000  # whose listings are kept; those of deleted streams are among them
_TICK_NS: Final = 50_000_000
_COARSE_TICK_NS: Final = 2_000_000_000  # of a file system that stores whole seconds
_SECOND_NS: Final = 1_000_000_000

_Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Listing:
    """The segments of one moment, oldest first."""

    files: tuple[SegmentFile, ...]
    by_name: dict[str, SegmentFile]  # the segments by the names of their files
    stamp: _Stamp | None  # of the directory; None when it may change without a new stamp

    def __contains__(self, path: Path) -> bool:
        return path.name in self.by_name

    def extend(self, file: SegmentFile) -> Listing:
        """Return a listing with one more segment behind the others."""
        self.by_name[file.path.name] = file  # shared: one more name here does no harm
        return Listing((*self.files, file), self.by_name, self.stamp)

    def covering(self, offset: int) -> int:
        """Return the position of the last segment that begins at or before the offset; -1 when there is none."""
        return bisect_right(self.files, offset, key=_first_offset) - 1


def _first_offset(file: SegmentFile) -> int:
    return file.first_offset


_kept: dict[str, Listing] = {}


def current_listing(directory: Path) -> Listing:
    """Return the segments of one moment; the same object as long as the directory has not changed."""
    key = os.fspath(directory)
    try:
        stamp = _stamp(key)
        known = _kept.get(key)
        if known is not None and known.stamp == stamp:
            return known
        listing = _list(directory, known)
    except FileNotFoundError:
        _kept.pop(key, None)
        raise StreamNotFound(f"the stream in {directory} was deleted") from None
    except OSError as problem:
        raise StreamError(f"cannot read {directory}: {problem}") from problem
    if known is not None and listing.files == known.files and listing.stamp is None:
        return known
    _keep(key, listing)
    return listing


def list_segments(directory: Path) -> list[SegmentFile]:
    """List the segments of one moment, oldest first."""
    return list(current_listing(directory).files)


def is_followed(directory: Path, first_offset: int) -> bool:
    """Tell whether another segment follows the one with this first offset, which is then complete."""
    files = current_listing(directory).files
    return bool(files) and files[-1].first_offset > first_offset


def _list(directory: Path, known: Listing | None) -> Listing:
    by_name = {} if known is None else known.by_name
    while True:
        stamp, began = _stamp(directory), time.time_ns()
        seen = segment_files(directory, by_name)
        settled = began - max(stamp[1:]) > _tick(stamp)
        if settled and _stamp(directory) == stamp:
            break
        by_name = {file.path.name: file for file in seen}
        again = segment_files(directory, by_name)
        if _is_sound(seen, again):
            seen = again
            break
    names = {file.path.name: file for file in seen}
    return Listing(tuple(seen), names, stamp if settled else None)


def _is_sound(seen: Sequence[SegmentFile], again: Sequence[SegmentFile]) -> bool:
    """Tell whether two listings differ only by new segments at the end and dropped ones at the start, so that none is missing."""
    first = again[0].first_offset if again else 0
    dropped = [file for file in seen if file.first_offset < first]
    kept = seen[len(dropped) :]
    return again[: len(kept)] == kept and not any(map(_exists, dropped))


def _exists(file: SegmentFile) -> bool:
    """Whether a listed segment is still there, maybe sealed by now."""
    return file.path.exists() or sealed_path(file.path.parent, file.first_offset).exists()


def _stamp(directory: str | Path) -> _Stamp:
    found = os.stat(directory)
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def _tick(stamp: _Stamp) -> int:
    """Return how long, in nanoseconds, two changes of the directory may have equal times."""
    return _COARSE_TICK_NS if stamp[1] % _SECOND_NS == 0 else _TICK_NS


def _keep(key: str, listing: Listing) -> None:
    _kept.pop(key, None)  # the newest is last
    _kept[key] = listing
    total = sum(len(kept.files) for kept in list(_kept.values()))
    while (total > MOST_KEPT or len(_kept) > MOST_STREAMS) and len(_kept) > 1:
        oldest = _kept.pop(next(iter(_kept)), None)
        total -= 0 if oldest is None else len(oldest.files)
