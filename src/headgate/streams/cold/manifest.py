"""The manifest of a cold segment: a small file in the stream's directory that names the Parquet file and summarizes it.

    | header 32 | note JSON | Arrow IPC stream: the summary, one row a row group |

Planning reads nothing else. The segment exists from the moment this file is renamed into place until it is renamed
away:

    add      Parquet file complete → its final name → manifest renamed into place → the files it covers are removed
    delete   manifest renamed to `….cold.dropped` → Parquet file deleted → that name removed

A crash after any arrow loses no message and shows none twice. The next holder of the writer's lock removes covered
files and finishes deletions; the next compaction deletes Parquet files without a manifest.
"""

from __future__ import annotations

import json
import logging
import os
import struct
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from headgate.checksum import crc32
from headgate.errors import StreamCorrupt, StreamError
from headgate.files import remove_files, sync_directory
from headgate.streams.cold.location import cold_file
from headgate.streams.format import (
    COLD_SUFFIX,
    CRC,
    FORMAT_VERSION,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEALED_SUFFIX,
    ColdRanges,
    cold_bounds,
)
from headgate.streams.segments.summarized import SegmentNote
from headgate.streams.write.lock import hold_lock

MAGIC: Final = b"HEADGCLD"
# magic, version, note length, summary length, CRC-32 of the header before this field, of the note and of the summary
HEADER: Final = struct.Struct("<8sIIQ4xI")
LENGTH: Final = "length"  # the column of the summary with the compressed bytes of every row group


@dataclass(frozen=True, slots=True)
class ColdNote:
    """The JSON part of a manifest."""

    segment: SegmentNote
    file: str  # relative to the stream's directory, or a URI
    nbytes: int
    crc: int  # of the whole Parquet file
    footer_crc: int  # of its end alone: footer, length, magic
    columns: tuple[str, ...]  # as streams name them
    dictionaries: tuple[str, ...]  # those in which values repeat

    def to_json(self) -> bytes:
        known: dict[str, Any] = {name: getattr(self, name) for name in _PLAIN}
        return json.dumps(
            {**known, "segment": json.loads(self.segment.to_json())}, ensure_ascii=False
        ).encode()

    @classmethod
    def from_json(cls, text: bytes) -> ColdNote:
        known = json.loads(text)
        lists = {name: tuple(known[name]) for name in ("columns", "dictionaries")}
        segment = SegmentNote.from_json(json.dumps(known["segment"]).encode())
        return cls(**{**known, **lists, "segment": segment})


_PLAIN: Final = ("file", "nbytes", "crc", "footer_crc", "columns", "dictionaries")


def encode_manifest(note: ColdNote, summary: pa.RecordBatch) -> bytes:
    """Encode a manifest as it is stored."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, summary.schema) as writer:
        writer.write_batch(summary)
    note_json = note.to_json()
    summary_bytes: bytes = sink.getvalue().to_pybytes()
    fixed = HEADER.pack(MAGIC, FORMAT_VERSION, len(note_json), len(summary_bytes), 0)[: -CRC.size]
    return fixed + CRC.pack(_crc(fixed, note_json, summary_bytes)) + note_json + summary_bytes


def read_manifest(path: Path) -> tuple[ColdNote, pa.RecordBatch]:
    """Read note and summary; StreamCorrupt when they fail their CRC."""
    content = path.read_bytes()
    if len(content) < HEADER.size or not content.startswith(MAGIC):
        raise StreamCorrupt(str(path), 0, "not a manifest of a cold segment, or truncated")
    _, version, note_length, summary_length, crc = HEADER.unpack_from(content)
    end = HEADER.size + note_length
    note_json, summary = content[HEADER.size : end], content[end : end + summary_length]
    if _crc(content[: HEADER.size - CRC.size], note_json, summary) != crc:
        raise StreamCorrupt(str(path), 0, "the manifest fails its CRC")
    if version != FORMAT_VERSION:
        what = f"a manifest of format {version}, this program reads {FORMAT_VERSION}"
        raise StreamCorrupt(str(path), 8, what)
    return ColdNote.from_json(note_json), pa.ipc.open_stream(summary).read_next_batch()


def read_note(path: Path) -> ColdNote:
    """Read the note of a manifest, without its summary."""
    return read_manifest(path)[0]


def _crc(*parts: bytes) -> int:
    crc = 0
    for part in parts:
        crc = crc32(part, crc)
    return crc


# ---- the files of the cold tier ----------------------------------------------------------------------

TIER_LOCK: Final = "cold.lock"
COMPACTION_LOCK: Final = "compaction.lock"
DROPPED: Final = ".dropped"

_log = logging.getLogger(__name__)


def locking_tier(directory: Path) -> AbstractContextManager[None]:
    """Return a context that holds the lock of the cold tier, which is taken briefly to add or delete a segment."""
    return hold_lock(directory / TIER_LOCK)


def list_manifests(directory: Path) -> list[Path]:
    """List the manifests of all cold segments, oldest first."""
    named = (directory / name for name in os.listdir(directory) if name.endswith(COLD_SUFFIX))
    return sorted(path for path in named if cold_bounds(path) is not None)


def list_covered_files(directory: Path) -> list[Path]:
    """List hot and sealed files whose messages are in the cold tier: no reader needs them."""
    manifests = list_manifests(directory)
    if not manifests:
        return []
    covered = ColdRanges(manifests)
    return [
        directory / name for name in sorted(os.listdir(directory)) if _is_covered(name, covered)
    ]


def _is_covered(name: str, covered: ColdRanges) -> bool:
    stem, suffix = os.path.splitext(name)
    segment = suffix in (SEALED_SUFFIX, LOG_SUFFIX, INDEX_SUFFIX) and stem.isdigit()
    return segment and int(stem) in covered


def remove_covered_files(directory: Path) -> list[Path]:
    """Remove the files that the cold tier covers, and return them. Needs the writer's lock."""
    covered = list_covered_files(directory)
    if covered:
        remove_files(*covered)
    return covered


def tidy(directory: Path) -> list[Path]:
    """Finish interrupted additions and deletions; return the removed files. Needs the writer's lock."""
    covered = remove_covered_files(directory)
    dropped = [directory / name for name in os.listdir(directory) if name.endswith(DROPPED)]
    if dropped:
        with locking_tier(directory):
            for path in dropped:
                _finish_delete(path)
    return covered


def delete_cold(manifest: Path) -> None:
    """Take a cold segment out of the stream, then delete its data. Needs the writer's lock."""
    dropped = manifest.with_name(manifest.name + DROPPED)
    os.replace(manifest, dropped)
    sync_directory(manifest.parent)
    _finish_delete(dropped)


def _finish_delete(dropped: Path) -> None:
    try:
        cold_file(dropped.parent, read_note(dropped).file).delete()
    except (OSError, StreamError) as problem:
        # The messages are out of the stream; the next lock holder asks an unreachable store again.
        _log.warning("%s: cannot delete the data now, trying again later: %s", dropped, problem)
        if not isinstance(problem, StreamCorrupt):
            return
    remove_files(dropped)


def delete_all_cold(directory: Path) -> None:
    """Delete all cold segments of a stream that is about to be deleted."""
    for manifest in list_manifests(directory):
        delete_cold(manifest)


def cold_segment_bytes(manifest: Path) -> int:
    """Return the size of a cold segment: its manifest and its Parquet file."""
    return manifest.stat().st_size + read_note(manifest).nbytes
