"""What the footer of a sealed segment says besides Arrow's own: what it is, what is in it, and its checksums.

    headgate.segment   JSON: what the segment is
    headgate.summary   base64 of an Arrow stream: what is known of every chunk, see `summarize`
    headgate.checks    base64 of a table: where every chunk lies, and the CRCs of all its columns

Base64, because other languages read the values of a footer as text.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.checksum import crc32
from headgate.streams.format import FORMAT_VERSION
from headgate.streams.segments.summary import Summary

SEGMENT_KEY: Final = b"headgate.segment"
SUMMARY_KEY: Final = b"headgate.summary"
CHECKS_KEY: Final = b"headgate.checks"
_MESSAGE_PREFIX: Final = 8  # Arrow's continuation mark and the length of the metadata behind it


@dataclass(frozen=True, slots=True)
class SegmentNote:
    """What `headgate.segment` says."""

    first_offset: int
    next_offset: int
    indexed: tuple[str, ...]
    producers: Mapping[str, int]  # the last publishing id of each, as of the end of the segment
    overflowed: tuple[str, ...]  # headers that are in the overflow of some message
    in_order: bool  # rows stand in the order of their offsets
    created: int  # microseconds UTC
    format: int = FORMAT_VERSION

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, text: bytes) -> SegmentNote:
        known = json.loads(text)
        if known["format"] != FORMAT_VERSION:
            raise ValueError(
                f"a segment of format {known['format']}, this program reads {FORMAT_VERSION}"
            )
        lists = {name: tuple(known[name]) for name in ("indexed", "overflowed")}
        return cls(**{**known, **lists})


# ---- checksums ---------------------------------------------------------------------------------------


def checks_dtype(columns: int) -> np.dtype[Any]:
    """One row of `headgate.checks`; a last one holds the CRCs of the dictionaries."""
    return np.dtype(
        [
            ("position", "<i8"),
            ("length", "<i8"),
            ("metadata", "<u4"),
            ("columns", "<u4", (columns,)),
        ]
    )


def encode_checks(
    checks: npt.NDArray[Any], schema: pa.Schema, note: bytes, summary: bytes
) -> bytes:
    """The table and, behind it, one CRC over all that the footer says."""
    whole = footer_crc(checks, schema, note, summary)
    return base64.b64encode(checks.tobytes() + whole.to_bytes(4, "little"))


def footer_crc(checks: npt.NDArray[Any], schema: pa.Schema, note: bytes, summary: bytes) -> int:
    """Over all that the footer says."""
    whole = 0
    for part in (_described(schema), note, summary, checks.tobytes()):
        whole = crc32(part, whole)
    return whole


def _described(schema: pa.Schema) -> bytes:
    """Names and types of the columns, in words that no version of Arrow changes."""
    kinds = [
        f"codes {field.type.index_type}" if pa.types.is_dictionary(field.type) else str(field.type)
        for field in schema
    ]
    return "\n".join(map("{} {}".format, schema.names, kinds)).encode()


def compute_checks(
    data: pa.Buffer, reader: pa.RecordBatchFileReader, ends: Sequence[tuple[int, int]]
) -> npt.NDArray[Any]:
    """The checksums of a file whose chunks lie at these (position, length)."""
    columns = len(reader.schema)
    checks = np.zeros(len(ends) + 1, checks_dtype(columns))
    for i, (position, length) in enumerate(ends):
        batch = reader.get_batch(i)
        crcs = [column_crc(array) for array in batch.columns]
        checks[i] = (position, length, metadata_crc(data, position), crcs)
    if ends:
        checks[-1]["columns"] = [dictionary_crc(array) for array in reader.get_batch(0).columns]
    return checks


def metadata_crc(data: pa.Buffer, position: int) -> int:
    """Of what says how to read a chunk: its length, its null counts, where its buffers are."""
    prefix = data.slice(position, _MESSAGE_PREFIX).to_pybytes()
    length = _MESSAGE_PREFIX + int.from_bytes(prefix[4:], "little")
    return crc32(data.slice(position, min(length, data.size - position)))


def column_crc(array: pa.Array) -> int:
    """Over the buffers of one chunk's column; a dictionary is checked on its own."""
    crc = 0
    for buffer in (array.indices if isinstance(array, pa.DictionaryArray) else array).buffers():
        if buffer is not None:
            crc = crc32(buffer, crc)
    return crc


def dictionary_crc(array: pa.Array) -> int:
    return column_crc(array.dictionary) if isinstance(array, pa.DictionaryArray) else 0


def read_footer(
    known: Mapping[bytes, bytes], schema: pa.Schema
) -> tuple[SegmentNote, Summary, npt.NDArray[Any]]:
    """Note, summary and checks; ValueError when they are not what was written."""
    note, summary = known[SEGMENT_KEY], known[SUMMARY_KEY]
    raw = base64.b64decode(known[CHECKS_KEY])
    checks = np.frombuffer(raw[:-4], checks_dtype(len(schema)))
    if encode_checks(checks, schema, note, summary) != known[CHECKS_KEY]:
        raise ValueError("it fails its CRC")
    segment = SegmentNote.from_json(note)
    table = pa.ipc.open_stream(base64.b64decode(summary)).read_next_batch()
    return segment, Summary(table, segment.first_offset, segment.overflowed), checks
