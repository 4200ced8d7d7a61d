"""The manifest of a cold segment: a small file in the stream's directory that says where the data is and what is in it.

    | header 32 | note JSON | Arrow IPC stream: the summary, one row a row group |

It is all that planning needs. The segment exists from the moment this file is renamed into place, and for as long
as it is there.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from headgate.checksum import crc32
from headgate.errors import StreamCorrupt
from headgate.streams.format import CRC, FORMAT_VERSION
from headgate.streams.segments.summarized import SegmentNote

MAGIC: Final = b"HEADGCLD"
# magic, version, note length, summary length, CRC-32 of the header without it, the note and the summary
HEADER: Final = struct.Struct("<8sIIQ4xI")
LENGTH: Final = "length"  # the column of the summary with the compressed bytes of every row group


@dataclass(frozen=True, slots=True)
class ColdNote:
    """What the manifest says besides the summary."""

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
    """The manifest as it lies on disk."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, summary.schema) as writer:
        writer.write_batch(summary)
    said = note.to_json()
    known: bytes = sink.getvalue().to_pybytes()
    fixed = HEADER.pack(MAGIC, FORMAT_VERSION, len(said), len(known), 0)[: -CRC.size]
    return fixed + CRC.pack(_crc(fixed, said, known)) + said + known


def read_manifest(path: Path) -> tuple[ColdNote, pa.RecordBatch]:
    """Note and summary; StreamCorrupt when they are not what was written."""
    content = path.read_bytes()
    if len(content) < HEADER.size or not content.startswith(MAGIC):
        raise StreamCorrupt(str(path), 0, "this is no manifest of a cold segment, or it is cut off")
    _, version, note_length, summary_length, crc = HEADER.unpack_from(content)
    end = HEADER.size + note_length
    said, known = content[HEADER.size : end], content[end : end + summary_length]
    if _crc(content[: HEADER.size - CRC.size], said, known) != crc:
        raise StreamCorrupt(str(path), 0, "the manifest fails its CRC")
    if version != FORMAT_VERSION:
        what = f"a manifest of format {version}, this program reads {FORMAT_VERSION}"
        raise StreamCorrupt(str(path), 8, what)
    return ColdNote.from_json(said), pa.ipc.open_stream(known).read_next_batch()


def read_note(path: Path) -> ColdNote:
    """What the manifest says besides the summary."""
    return read_manifest(path)[0]


def _crc(*parts: bytes) -> int:
    crc = 0
    for part in parts:
        crc = crc32(part, crc)
    return crc
