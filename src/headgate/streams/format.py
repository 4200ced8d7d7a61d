"""The files of a stream, byte by byte. FORMAT.md explains the figures; this module packs them.

    stream.json                      options; replaced atomically
    lock                             flock; its JSON names the holder
    <first offset, 20 digits>.log    hot segment: a header, then chunks
    <first offset, 20 digits>.idx    its index: a header, then one entry a chunk; rebuilt from the log when lost
    <first offset, 20 digits>.arrow  sealed segment; hides a hot segment with this first offset
    <first>-<next offset>.cold       the manifest of a cold segment, whose data is a Parquet file; hides the segments it covers
    cold/                            the Parquet files, unless they are kept elsewhere
    outlines                         what is known of every full segment as a whole; rebuilt from the segments when lost
    inbox/                           deposits of processes without the writer lock, waiting to be adopted; staged/ holds files they name
    cursors.db                       the positions of named consumers

All numbers are little-endian. Every part begins at a multiple of 8 bytes.

    log      | LOG_HEADER | meta JSON | pad | chunk | chunk | …
    chunk    | CHUNK_HEADER | COLUMN x columns | names, NUL between | meta JSON | pad | body: buffers, each padded |
    index    | INDEX_HEADER | meta JSON | pad | SETTLED | entry | entry | …
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

FORMAT_VERSION: Final = 1
ALIGNMENT: Final = 8

# ---- the directory -----------------------------------------------------------------------------------

OPTIONS_FILE: Final = "stream.json"
SUPER_FILE: Final = "super.json"  # of a super stream; its partitions have their own directories
LOCK_FILE: Final = "lock"
CURSORS_FILE: Final = "cursors.db"
INBOX: Final = "inbox"
MEMBERS: Final = "members"  # of consumer groups: a locked file for each that lives
LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".idx"
SEALED_SUFFIX: Final = ".arrow"
COLD_SUFFIX: Final = ".cold"
COLD_DIRECTORY: Final = "cold"
OUTLINES_FILE: Final = "outlines"


def log_path(directory: Path, first_offset: int) -> Path:
    return directory / f"{first_offset:020d}{LOG_SUFFIX}"


def index_path(directory: Path, first_offset: int) -> Path:
    return directory / f"{first_offset:020d}{INDEX_SUFFIX}"


def sealed_path(directory: Path, first_offset: int) -> Path:
    return directory / f"{first_offset:020d}{SEALED_SUFFIX}"


def cold_path(directory: Path, first_offset: int, next_offset: int) -> Path:
    return directory / f"{first_offset:020d}-{next_offset:020d}{COLD_SUFFIX}"


TIERS: Final = (LOG_SUFFIX, SEALED_SUFFIX, COLD_SUFFIX)


def segment_name(tier: int, first_offset: int, next_offset: int) -> str:
    """Return the name of a segment's file; the tier is a position in TIERS."""
    suffix = TIERS[tier]
    bounds = (
        f"{first_offset:020d}-{next_offset:020d}"
        if suffix == COLD_SUFFIX
        else f"{first_offset:020d}"
    )
    return bounds + suffix


@dataclass(frozen=True, slots=True, order=True)
class SegmentFile:
    """A segment as the directory lists it."""

    first_offset: int
    path: Path  # the .log, the .arrow or the .cold
    sealed: bool  # it is sealed or cold, and never changes

    @property
    def cold(self) -> bool:
        return self.sealed and self.path.suffix == COLD_SUFFIX


def segment_files(
    directory: Path, known: Mapping[str, SegmentFile] = MappingProxyType({})
) -> list[SegmentFile]:
    """List the segments of a stream in offset order: a cold one hides those it was made of, a sealed one its log.

    A file whose name is in `known` is not parsed again.
    """
    found: dict[int, SegmentFile] = {}
    cold: list[SegmentFile] = []
    for name in os.listdir(directory):
        file = known.get(name) or _segment_file(directory, name)
        if file is None:
            continue
        if file.cold:
            cold.append(file)
        elif file.sealed or file.first_offset not in found:
            found[file.first_offset] = file
    if not cold:
        return sorted(found.values(), key=lambda file: file.first_offset)
    covered = ColdRanges(file.path for file in cold)
    cold += [file for first, file in found.items() if first not in covered]
    return sorted(cold)


def _segment_file(directory: Path, name: str) -> SegmentFile | None:
    stem, suffix = os.path.splitext(name)
    if suffix in (LOG_SUFFIX, SEALED_SUFFIX) and _is_offset(stem):
        return SegmentFile(int(stem), directory / name, suffix == SEALED_SUFFIX)
    bounds = cold_bounds(directory / name) if suffix == COLD_SUFFIX else None
    return None if bounds is None else SegmentFile(bounds[0], directory / name, sealed=True)


def cold_bounds(path: Path) -> tuple[int, int] | None:
    """Return the offsets [first, next) in the name of a cold segment's manifest; None for another file."""
    if path.suffix != COLD_SUFFIX:
        return None
    first, _, end = path.stem.partition("-")
    return (int(first), int(end)) if _is_offset(first) and _is_offset(end) else None


class ColdRanges:
    """The offsets of cold segments, by the names of their manifests."""

    def __init__(self, manifests: Iterable[Path]) -> None:
        self._ranges = sorted(bounds for path in manifests if (bounds := cold_bounds(path)))

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._ranges, offset, key=lambda bounds: bounds[0])
        return at > 0 and offset < self._ranges[at - 1][1]


def _is_offset(stem: str) -> bool:
    return len(stem) == 20 and stem.isascii() and stem.isdigit()


# ---- the log -----------------------------------------------------------------------------------------

LOG_MAGIC: Final = b"HEADGLOG"
# magic, version, meta length, first offset, created (microseconds UTC), CRC-32 of the header without it and of the meta
LOG_HEADER: Final = struct.Struct("<8sIIqq4xI")

CHUNK_MAGIC: Final = b"HGCK"
# magic, version, flags, columns, header length, names length, meta length, messages, first offset,
# lowest timestamp, highest timestamp, body length, messages with a filter value, lowest priority, highest priority,
# CRC-32 of the whole header without it
CHUNK_HEADER: Final = struct.Struct("<4sBBHIIIIqqqIIBB2xI")
# type, index type, nulls, dictionary length, CRC-32 of the column's bytes, where they begin in the body,
# length of each buffer without its padding: validity, offsets or indices or values, data or dictionary offsets, dictionary data
COLUMN: Final = struct.Struct("<BB2xIIII4I")
CRC: Final = struct.Struct("<I")

MAX_BODY_BYTES: Final = 2**31 - 2**20  # one binary column addresses its bytes with 32 bits

# ---- the index ---------------------------------------------------------------------------------------

INDEX_MAGIC: Final = b"HEADGIDX"
# magic, version, meta length, entry width, Bloom bytes, hashes, CRC-32 of the log's header, first offset,
# CRC-32 of the header without it and of the meta
INDEX_HEADER: Final = struct.Struct("<8sIIIIIIq4xI")
# The position up to which the log is settled, and its bits inverted.
SETTLED: Final = struct.Struct("<QQ")


@lru_cache(64)
def entry_dtype(bloom_bytes: int) -> np.dtype[Any]:
    """Return the type of an index entry. `coverage` bit 0 is filter_value, bit i + 1 the i-th indexed header."""
    return np.dtype(
        [
            ("first_offset", "<i8"),
            ("position", "<i8"),
            ("length", "<i8"),
            ("count", "<u4"),
            ("filtered", "<u4"),  # messages with a filter value
            ("min_timestamp", "<i8"),
            ("max_timestamp", "<i8"),
            ("min_priority", "u1"),
            ("max_priority", "u1"),
            ("flags", "<u2"),
            ("header_crc", "<u4"),
            ("coverage", "<u8"),
            ("restricted", "<u8"),  # the code of the restricted values; see segments/restriction.py
            ("bloom", "u1", (padded(bloom_bytes),)),
            ("checksum", "<u8"),
        ]
    )


def padded(length: int) -> int:
    """Return the next multiple of the alignment."""
    return -(-length // ALIGNMENT) * ALIGNMENT


def entry_checksums(entries: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Compute the `checksum` of each entry: the sum of its other words, each times its own odd number.

    A changed word always changes the sum, and a million entries are checked in one numpy expression.
    """
    words = entries.view(np.uint8).reshape(len(entries), entries.itemsize).view("<u8")[:, :-1]
    return words @ _odd_numbers(words.shape[1]) + _CHECKSUM_START


_CHECKSUM_START: Final = np.uint64(0x9E3779B97F4A7C15)  # so that a hole of zeros is no valid entry


@lru_cache(16)
def _odd_numbers(count: int) -> npt.NDArray[np.uint64]:
    found, state = [], 0x853C49E6748FEA9B
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        found.append(state | 1)
    return np.array(found, np.uint64)


# ---- the outlines ------------------------------------------------------------------------------------

OUTLINES_MAGIC: Final = b"HEADGOUT"
OUTLINES_VERSION: Final = 1
OUTLINES_HEADER: Final = struct.Struct("<8sI4x")  # magic, version
# length of the whole outline, CRC-32 of all behind it, length of the JSON, tier, first offset, next offset,
# length of the segment's file, when that was modified (nanoseconds UTC), messages, chunks, bytes of the chunks
OUTLINE: Final = struct.Struct("<IIIB3xqqqqqqq")
OUTLINE_CHECKED: Final = 8  # the position in an outline from which on the CRC-32 covers it
