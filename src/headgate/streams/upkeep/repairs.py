"""Repairs: heal the segments of a stream, so that the rest can be read without an error. Needs the writer's lock.

In a log, an unfinished append is cut off, the index is rebuilt, and a hole replaces every damaged chunk. A sealed or cold
segment is sealed again from its sound chunks. Where messages are missing between two segments, a segment of holes takes
their place. Damaged bytes are kept in files whose names end in `.damaged` or `.damaged-<byte>`.

A chunk of a sealed segment is sound when all its columns have the checksums of the footer. If the footer is damaged, the
chunks are read one after the other as the stream of Arrow messages they are, and the table of checksums is searched for in
the rest of the footer.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.clock import now_us
from headgate.columns import OVERFLOW, BatchColumns, read_overflow
from headgate.errors import StreamCorrupt
from headgate.files import (
    map_file,
    open_for_reading,
    overwrite,
    read_at,
    sync_directory,
    write_durably,
)
from headgate.streams.cold.manifest import locking_tier
from headgate.streams.cold.segment import ColdSegment, open_sealed
from headgate.streams.format import CHUNK_HEADER, SegmentFile, log_path, segment_files
from headgate.streams.options import StreamOptions
from headgate.streams.segments.hot_chunk import encode_hole
from headgate.streams.segments.hot_index import Entries, IndexShape, end_of
from headgate.streams.segments.hot_log import create_hot_log, write_index
from headgate.streams.segments.hot_segment import HotSegment
from headgate.streams.segments.hot_walk import read_log_head
from headgate.streams.segments.restriction import Restriction
from headgate.streams.segments.seal import seal
from headgate.streams.segments.sealed import (
    SEGMENT_KEY,
    SUMMARY_KEY,
    SealedSegment,
    checks_dtype,
    column_crc,
    dictionary_crc,
    footer_crc,
    metadata_crc,
)
from headgate.streams.segments.segment import Chunk, ChunkMetadata, Segment
from headgate.streams.segments.summarized import SummarizedSegment
from headgate.streams.upkeep.recovery import examine_log, heal_log, producers_before

_MOST_LOST: Final = 1 << 31  # messages of one hole


def heal_segments(directory: Path, options: StreamOptions) -> None:
    """Heal every segment, then fill the gaps between them."""
    files, shape = segment_files(directory), IndexShape.of(options)
    for at, file in enumerate(files):
        if file.sealed:
            _heal_sealed(files, at, options)
    files = segment_files(directory)  # a cold segment may be sealed by now
    for at, file in enumerate(files):
        if not file.sealed:
            _heal_log(file.path, shape, files[: at + 1])
    _fill_gaps(directory, shape)


# ---- sealed and cold segments ------------------------------------------------------------------------


def _heal_sealed(files: list[SegmentFile], at: int, options: StreamOptions) -> None:
    path = files[at].path
    try:
        segment = open_sealed(path)
    except StreamCorrupt:
        found = salvage_unreadable(files, at, options)
        if found is not None:
            replace_sealed(path, found, options.indexed, now_us())
        return
    if isinstance(segment, ColdSegment):
        _heal_cold(segment)
    elif next(damaged_chunks(segment), None) is not None or damage_of_pages(segment) is not None:
        replace_sealed(path, salvage(segment), segment.note.indexed, now_us())


def _heal_cold(segment: ColdSegment) -> None:
    if not segment.file.is_local:
        return  # a remote store that fails now may answer later
    try:
        segment.check_file()
    except StreamCorrupt:
        found = salvage(segment)
        # Without chunks, the footer of the Parquet file is damaged, and the data stays where it is.
        if len(found):
            with locking_tier(segment.path.parent):
                replace_cold(segment, found, now_us())


# ---- logs --------------------------------------------------------------------------------------------


def _heal_log(path: Path, shape: IndexShape, until_here: list[SegmentFile]) -> None:
    heal_log(path, shape, producers_before(until_here))
    found = examine_log(path, shape, everything=True)
    for place in found.damage:
        for entry in _entries_at(found.entries, place.position, place.length):
            _put_hole(path, entry)
    _rebuild_index(path, found.shape)


def _rebuild_index(path: Path, shape: IndexShape) -> None:
    found = examine_log(path, shape, everything=True)
    settled = end_of(found.entries, found.head)
    write_index(path.parent, found.head, found.shape, found.entries, settled)


def _entries_at(entries: Entries, position: int, length: int) -> Entries:
    inside = (entries["position"] >= position) & (entries["position"] < position + length)
    found: Entries = entries[inside]
    return found


def _put_hole(path: Path, entry: Entries) -> None:
    """Keep the damaged bytes in a file of their own, and overwrite them with a hole."""
    position, length = int(entry["position"]), int(entry["length"])
    with open_for_reading(path) as fd:
        damaged = read_at(fd, position, length).to_pybytes()
    write_durably(path.with_name(f"{path.name}.damaged-{position}"), damaged)
    hole = encode_hole(int(entry["first_offset"]), int(entry["count"]), length)
    overwrite(path, position, hole)


# ---- gaps --------------------------------------------------------------------------------------------


def _fill_gaps(directory: Path, shape: IndexShape) -> None:
    """Write a segment of holes for the messages that are missing between two segments."""
    end: int | None = None
    producers: Mapping[str, int] = {}
    for file in segment_files(directory):
        if end is not None and end < file.first_offset:
            _write_holes(directory, end, file.first_offset, shape, producers)
        try:
            segment: Segment = open_sealed(file.path) if file.sealed else HotSegment(file.path)
        except StreamCorrupt:
            end = None
            continue
        end, producers = segment.next_offset, segment.producers()


def _write_holes(
    directory: Path, first: int, end: int, shape: IndexShape, producers: Mapping[str, int]
) -> None:
    holes = b"".join(
        encode_hole(start, min(end - start, _MOST_LOST), CHUNK_HEADER.size)
        for start in range(first, end, _MOST_LOST)
    )
    create_hot_log(directory, first, shape, producers, now_us()).close()
    path = log_path(directory, first)
    overwrite(path, path.stat().st_size, holes)
    _rebuild_index(path, shape)


# ---- salvage -----------------------------------------------------------------------------------------


DAMAGED_SUFFIX: Final = ".damaged"
_log: Final = logging.getLogger(__name__)
_STREAM_AT: Final = 8  # where the Arrow messages of a file begin: behind its magic and padding
_ALPHABET: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")


@dataclass(frozen=True, slots=True)
class SalvagedSegment:
    """The sound chunks of a damaged segment."""

    first_offset: int
    next_offset: int
    chunks: list[Chunk]
    known_producers: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.chunks)

    def chunk(self, i: int) -> Chunk:
        return self.chunks[i]

    def producers(self) -> Mapping[str, int]:
        return self.known_producers


def salvage(segment: SummarizedSegment) -> SalvagedSegment:
    """Return the sound chunks of a segment whose footer is sound."""
    damaged = {at for at, _ in damaged_chunks(segment)}
    chunks: list[Chunk] = [segment.chunk(at) for at in range(len(segment)) if at not in damaged]
    if isinstance(segment, SealedSegment):
        chunks += _reread(segment, damaged)
    return SalvagedSegment(segment.first_offset, segment.next_offset, chunks, segment.producers())


def _reread(segment: SealedSegment, damaged: set[int]) -> Iterator[Any]:
    """Yield damaged chunks that are sound when they are read without Arrow's own footer."""
    for at, batch in enumerate(_read_batches(segment.data)):
        if at in damaged and _is_sound(segment.data, batch, segment.checks[at], segment.checks[-1]):
            yield SalvagedChunk(batch, segment.metadata(at).properties)


def damaged_chunks(segment: SummarizedSegment) -> Iterator[tuple[int, StreamCorrupt]]:
    """Yield the chunks that cannot be read completely, with the damage."""
    for at in range(len(segment)):
        try:
            segment.chunk(at).take(None)
        except StreamCorrupt as damage:
            yield at, damage


def damage_of_pages(segment: SealedSegment) -> StreamCorrupt | None:
    """Return the damage of the facts about pages in the footer, if there is any; it costs no message."""
    try:
        segment.read_pages()
    except StreamCorrupt as damage:
        return damage
    return None


# ---- without a footer --------------------------------------------------------------------------------


def salvage_unreadable(
    files: Sequence[SegmentFile], at: int, options: StreamOptions
) -> SalvagedSegment | None:
    """Return the sound chunks of a sealed file whose footer is damaged; None when no chunk can be proved sound."""
    if files[at].cold or at + 1 == len(files):
        return None  # a cold segment is useless without its manifest; the end of the last segment is unknown
    data = map_file(files[at].path)
    batches = list(_read_batches(data))
    restriction = Restriction(options.restrict_same_values)
    found = [
        [chunk for batch in sound for chunk in _split_chunks(batch, restriction)]
        for sound in (_sound_batches(data, batches, *c) for c in _find_checks(data, batches))
    ]
    if not found:
        return None
    end, producers = files[at + 1].first_offset, _producers_at_end(files, at)
    # Names in the footer may look like the table, too; no chunk agrees with them.
    return SalvagedSegment(files[at].first_offset, end, max(found, key=len), producers)


def _sound_batches(
    data: pa.Buffer, batches: list[pa.RecordBatch], checks: npt.NDArray[Any], whole: int
) -> Iterator[pa.RecordBatch]:
    """Yield the batches that have the checksums of this table."""
    all_sound = _are_all_sound(data, batches, checks, whole)
    for batch, check in zip(batches, checks, strict=False):
        if all_sound or _is_sound(data, batch, check, checks[-1]):
            yield batch


def _producers_at_end(files: Sequence[SegmentFile], at: int) -> Mapping[str, int]:
    """Return the publishing ids from the header of the next log, or else from the segment before."""
    following = files[at + 1]
    if not following.sealed:
        return read_log_head(following.path).producers
    with suppress(StreamCorrupt, FileNotFoundError):
        if at:
            return open_sealed(files[at - 1].path).producers()
    return {}


def _read_batches(data: pa.Buffer) -> Iterator[pa.RecordBatch]:
    """Yield the record batches in the order of the file, up to the first that cannot be read."""
    try:
        yield from pa.ipc.open_stream(pa.BufferReader(data.slice(_STREAM_AT)))
    except (pa.ArrowException, OSError, ValueError):
        return


def _find_checks(
    data: pa.Buffer, batches: list[pa.RecordBatch]
) -> Iterator[tuple[npt.NDArray[Any], int]]:
    """Yield what may be the table of checksums in a damaged footer, with the CRC of the whole footer.

    The table is a base64 text of a known length, of which a few bytes may be damaged.
    """
    if not batches:
        return
    dtype = checks_dtype(batches[0].num_columns)
    length = -(-((len(batches) + 1) * dtype.itemsize + 4) // 3) * 4
    content = data.to_pybytes()
    at = len(content)
    while (at := content.rfind(length.to_bytes(4, "little"), 0, at)) >= 0:
        text = content[at + 4 : at + 4 + length]
        wrong = sum(byte not in _ALPHABET for byte in text)
        if len(text) == length and wrong <= length // 100 + 1:
            yield from _decode_checks(text, dtype)


def _decode_checks(text: bytes, dtype: np.dtype[Any]) -> Iterator[tuple[npt.NDArray[Any], int]]:
    readable = bytes(byte if byte in _ALPHABET else ord("A") for byte in text)
    try:
        raw = base64.b64decode(readable)
    except binascii.Error:
        return
    checks = np.frombuffer(raw, dtype, (len(raw) - 4) // dtype.itemsize)
    yield checks, int.from_bytes(raw[-4:], "little")


def _are_all_sound(
    data: pa.Buffer, batches: list[pa.RecordBatch], checks: npt.NDArray[Any], whole: int
) -> bool:
    """Tell whether the table alone is damaged: with the checksums that the chunks have now, the footer has its CRC."""
    try:
        known = pa.ipc.open_file(pa.BufferReader(data)).metadata or {}
        note, summary = known[SEGMENT_KEY], known[SUMMARY_KEY]
    except (pa.ArrowException, OSError, KeyError):
        return False
    counted = checks.copy()
    for at, batch in enumerate(batches):
        counted["metadata"][at] = max(_metadata_crc(data, checks[at]), 0)
        counted["columns"][at] = [column_crc(array) for array in batch.columns]
    counted["columns"][-1] = [dictionary_crc(array) for array in batches[0].columns]
    return footer_crc(counted, batches[0].schema, note, summary) == whole


def _is_sound(data: pa.Buffer, batch: pa.RecordBatch, check: Any, dictionaries: Any) -> bool:
    """Tell whether a batch has the checksums of its message header, its columns and their dictionaries."""
    return _metadata_crc(data, check) == check["metadata"] and all(
        column_crc(array) == check["columns"][i]
        and dictionary_crc(array) == dictionaries["columns"][i]
        for i, array in enumerate(batch.columns)
    )


def _metadata_crc(data: pa.Buffer, check: Any) -> int:
    position = int(check["position"])  # which may be damaged itself
    return metadata_crc(data, position) if 0 <= position < data.size else -1


@dataclass(frozen=True, slots=True)
class SalvagedChunk:
    """A chunk that was read without the summary of its segment."""

    batch: pa.RecordBatch
    properties: Mapping[str, Any]

    @property
    def num_rows(self) -> int:
        return int(self.batch.num_rows)

    def metadata(self) -> ChunkMetadata:
        offsets = self.batch.column("offset").to_numpy()
        low, high = int(offsets.min()), int(offsets.max())
        return ChunkMetadata(low, high, self.num_rows, 0, 0, 0, 0, 0, self.properties)

    def take(self, rows: None = None, columns: None = None) -> pa.RecordBatch:
        return self.batch


def _split_chunks(batch: pa.RecordBatch, restriction: Restriction) -> Iterator[Any]:
    """Split a batch into chunks of rows with equal restricted values."""
    codes = restriction.codes(BatchColumns(batch))
    at = batch.schema.get_field_index(OVERFLOW)
    if at >= 0 and restriction:
        rows = read_overflow(batch.column(at))
        codes += np.array([restriction.code(row) for row in rows], np.uint64)
    for code in np.unique(codes).tolist():
        rows_of_code = pa.array(np.flatnonzero(codes == code))
        yield SalvagedChunk(batch.take(rows_of_code), restriction.properties(int(code)))


# ---- replacing a damaged segment ---------------------------------------------------------------------


def replace_sealed(
    path: Path, found: SalvagedSegment, indexed: tuple[str, ...], created_us: int
) -> None:
    """Replace a damaged sealed file by its salvaged chunks, and keep the damaged one. Needs the writer's lock."""
    _log.warning(
        "%s: %s; the damaged file is kept as %s",
        path,
        _count_salvaged(found),
        path.name + DAMAGED_SUFFIX,
    )
    kept = path.with_name(path.name + DAMAGED_SUFFIX)
    kept.unlink(missing_ok=True)
    os.link(path, kept)
    seal(found, path.parent, indexed, created_us)


def replace_cold(segment: ColdSegment, found: SalvagedSegment, created_us: int) -> None:
    """Replace a damaged cold segment by a sealed one of its salvaged chunks, and keep its files. Needs both locks."""
    _log.warning("%s: %s; its damaged files are kept", segment.path, _count_salvaged(found))
    seal(found, segment.path.parent, segment.note.indexed, created_us)
    data = segment.file.at(segment.file.path + DAMAGED_SUFFIX)
    # Out of the folder where compaction deletes files without a manifest.
    if "://" not in segment.known.file:
        data = segment.file.at(str(segment.path.parent / Path(data.path).name))
    os.replace(segment.path, segment.path.with_name(segment.path.name + DAMAGED_SUFFIX))
    sync_directory(segment.path.parent)
    segment.file.move(data)


def _count_salvaged(found: SalvagedSegment) -> str:
    rows = sum(chunk.num_rows for chunk in found.chunks)
    return f"{rows:,} of {found.next_offset - found.first_offset:,} messages are salvaged"
