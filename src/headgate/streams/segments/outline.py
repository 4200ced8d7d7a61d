"""The outline of a segment: what is known of a full log, a sealed or a cold segment as a whole.

Outlines decide which segments a filter need not open. They say less than the facts about single chunks, and are small: for
each field the bounds and, where they are few, all values; for an indexed field with more values a Bloom filter.

    | OUTLINE | fields, JSON | Bloom filters |

    {"complete": true, "fields": {"h.region": {"string": [100, "DE", "US"], "values": ["DE", "US"]}, …}}

A field that a complete outline does not list is in no message; of an incomplete one nothing is known about it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from headgate.checksum import crc32
from headgate.columns import field_key
from headgate.filters import KINDS, DistinctSets, Facts, Field, Kind
from headgate.message import Scalar
from headgate.streams.format import OUTLINE, OUTLINE_CHECKED, TIERS, segment_name
from headgate.streams.segments.bloom import (
    BloomShape,
    ColumnOf,
    build,
    distinct_values,
    hash_values,
)
from headgate.streams.segments.hot_chunk import HotChunk
from headgate.streams.segments.hot_segment import HotSegment
from headgate.streams.segments.segment import FILTER_VALUE, Chunk, Segment
from headgate.streams.segments.summarized import SummarizedChunk, SummarizedSegment

MOST_FIELDS: Final = 64  # besides the indexed ones
MOST_VALUES: Final = 64
MOST_LETTERS: Final = 1024  # of all values of a field together
BLOOM_BYTES: Final = 4096  # at most; always a power of two, so that many filters have one shape
BLOOM_HASHES: Final = 7
_FEWEST_BYTES: Final = 16
_BITS: Final = 9.6  # for each value: 1 % false positives with seven hashes
_MOST_HASHED: Final = BLOOM_BYTES * 8 // 6  # values; one probe in 13 is then a false positive


class FieldOutline(NamedTuple):
    """What is known of one field in a whole segment."""

    ranges: Mapping[Kind, tuple[int, Any, Any]]  # messages with this kind, lowest and highest value
    covered: bool = True  # False: nothing is known
    opaque: int = 0  # messages with a value that no filter can compare
    values: list[Scalar] | None = None  # all of them; None when they are not known
    bloom: bytes | None = None


NOTHING: Final = FieldOutline({})  # a field that no message has
UNKNOWN: Final = FieldOutline({}, covered=False)


@dataclass(frozen=True, slots=True)
class Outline:
    """The outline of a segment whose file has this length and was modified then."""

    tier: int  # a position in TIERS
    first_offset: int
    next_offset: int
    file_bytes: int
    modified_ns: int
    rows: int
    chunks: int
    nbytes: int  # of all chunks
    text: bytes  # the fields, as JSON
    blooms: bytes

    @property
    def name(self) -> str:
        """The name of the segment's file."""
        return segment_name(self.tier, self.first_offset, self.next_offset)

    def is_of(self, path: Path) -> bool:
        """Whether the file is the one that was outlined."""
        try:
            found = os.stat(path)
        except OSError:
            return False
        return (found.st_size, found.st_mtime_ns) == (self.file_bytes, self.modified_ns)

    def describe(self, fields: Collection[Field]) -> list[FieldOutline]:
        """Return what is known of each of these fields."""
        known = json.loads(self.text)
        missing = NOTHING if known["complete"] else UNKNOWN
        return [
            missing if found is None else self._decode(found)
            for found in (known["fields"].get(field_key(field)) for field in fields)
        ]

    def _decode(self, known: Mapping[str, Any]) -> FieldOutline:
        start, end = known.get("bloom", (0, 0))
        return FieldOutline(
            {kind: tuple(known[kind]) for kind in KINDS if kind in known},
            known.get("covered", True),
            known.get("opaque", 0),
            known.get("values"),
            self.blooms[start:end] if end else None,
        )


# ---- making one --------------------------------------------------------------------------------------


def outline_of(path: Path, segment: Segment, *, read_columns: bool = True) -> Outline:
    """Outline a segment that no longer changes. Without `read_columns` there are no Bloom filters: no chunk is opened.

    Raises StreamCorrupt when a column cannot be read.
    """
    found = os.stat(path)
    facts, indexed = segment.facts(), _indexed_fields(segment)
    fields = {field: describe_field(facts, field) for field in _listed(segment, facts, indexed)}
    for field in indexed if read_columns else ():
        known = fields[field]
        if known.values is None and known != NOTHING:
            fields[field] = known._replace(bloom=_bloom_of(segment, facts, field))
    kept = _select(fields, indexed)
    blooms = bytearray()
    described = {field_key(field): _encode(known, blooms) for field, known in kept.items()}
    complete = isinstance(segment, SummarizedSegment) and len(kept) == len(fields)
    text = json.dumps({"complete": complete, "fields": described}, separators=(",", ":"))
    return Outline(
        TIERS.index(path.suffix),
        segment.first_offset,
        segment.next_offset,
        found.st_size,
        found.st_mtime_ns,
        int(facts.rows.sum()),
        len(segment),
        int(segment.lengths().sum()),
        text.encode(),
        bytes(blooms),
    )


def _indexed_fields(segment: Segment) -> tuple[Field, ...]:
    if isinstance(segment, SummarizedSegment):
        return (FILTER_VALUE, *(Field("header", name) for name in segment.note.indexed))
    assert isinstance(segment, HotSegment)
    return segment.shape.fields


def _listed(segment: Segment, facts: Facts, indexed: Iterable[Field]) -> dict[Field, None]:
    """Return all fields that the segment may have, the indexed ones first."""
    overflowed = segment.note.overflowed if isinstance(segment, SummarizedSegment) else ()
    headers = (Field("header", name) for name in overflowed)
    return dict.fromkeys((*indexed, *facts.fields, *headers))


def _select(
    fields: Mapping[Field, FieldOutline], indexed: Collection[Field]
) -> dict[Field, FieldOutline]:
    """Return the fields to keep: the indexed ones, then those of the system, then headers by name."""
    others = sorted(fields.keys() - set(indexed), key=lambda f: (f.scope != "sys", f.scope, f.name))
    return {field: fields[field] for field in (*indexed, *others[:MOST_FIELDS])}


def describe_field(facts: Facts, field: Field) -> FieldOutline:
    """Describe a field in all chunks together by the facts about each."""
    known = facts.fields.get(field)
    if known is None:
        return UNKNOWN
    ranges, covered = {}, known.covered is None or bool(known.covered.all())
    for kind, found in known.ranges.items():
        present = found.count > 0
        if found.low is None or found.high is None:
            covered = False
        elif present.any():
            low, high = found.low[present].min(), found.high[present].max()
            ranges[kind] = int(found.count.sum()), low, high
    opaque = 0 if known.opaque is None else int(known.opaque.sum())
    return FieldOutline(ranges, covered, opaque, _all_values(known.distinct))


def _all_values(sets: DistinctSets | None) -> list[Scalar] | None:
    """Return all values of a field, if they are few and short."""
    if sets is None or not sets.complete.all():
        return None
    codes = np.unique(sets.codes).tolist()
    values = [sets.values[code] for code in codes[: MOST_VALUES + 1]]
    short = sum(len(str(value)) for value in values) <= MOST_LETTERS
    return values if len(values) <= MOST_VALUES and short else None


def _bloom_of(segment: Segment, facts: Facts, field: Field) -> bytes | None:
    """Build a Bloom filter of all values of a field; return None when there are too many, or some are in the overflow."""
    distinct: list[pa.Array] = []
    columns = _SegmentColumns(segment)
    for i in np.flatnonzero(facts.rows).tolist():
        found = distinct_values(field, columns.of_chunk(i), _MOST_HASHED)
        if found is None:
            return None
        distinct += found
        if sum(map(len, distinct)) > 4 * _MOST_HASHED:
            distinct = _unite(distinct)
            if sum(map(len, distinct)) > _MOST_HASHED:
                return None
    distinct = _unite(distinct)
    count = sum(map(len, distinct))
    if count > _MOST_HASHED:
        return None
    nbytes = max(int(count * _BITS / 8), _FEWEST_BYTES)
    shape = BloomShape(min(1 << (nbytes - 1).bit_length(), BLOOM_BYTES), BLOOM_HASHES)
    return build(shape, hash_values(field, distinct), segment.first_offset).tobytes()


def _unite(arrays: Iterable[pa.Array]) -> list[pa.Array]:
    """Return the distinct values of all arrays, as one array for each type."""
    by_type: dict[pa.DataType, list[pa.Array]] = {}
    for array in arrays:
        by_type.setdefault(array.type, []).append(array)
    return [pa.concat_arrays(of_type).unique() for of_type in by_type.values()]


class _SegmentColumns:
    """The columns of a segment, chunk by chunk, without those whose dictionary came with an earlier chunk.

    All chunks of a sealed segment share their dictionaries.
    """

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        # Arrays by address; an address is not used again while its array is kept here.
        self._seen: dict[int, pa.Array] = {}

    def of_chunk(self, i: int) -> ColumnOf:
        chunk = self._segment.chunk(i)
        return lambda name: self._read(chunk, name)

    def _read(self, chunk: Chunk, name: str) -> pa.Array | None:
        if isinstance(chunk, HotChunk):
            return chunk.column(name)
        assert isinstance(chunk, SummarizedChunk)
        assert isinstance(self._segment, SummarizedSegment)
        array = chunk.column(name) if name in self._segment.names else None
        if not isinstance(array, pa.DictionaryArray):
            return array
        words = array.dictionary
        address = words.buffers()[1].address if len(words) else 0
        if address in self._seen:
            return None
        self._seen[address] = words
        return array


def _encode(known: FieldOutline, blooms: bytearray) -> dict[str, Any]:
    found: dict[str, Any] = {
        kind: [count, *map(_plain, bounds)] for kind, (count, *bounds) in known.ranges.items()
    }
    if not known.covered:
        found["covered"] = False
    if known.opaque:
        found["opaque"] = known.opaque
    if known.values is not None:
        found["values"] = known.values
    if known.bloom is not None:
        found["bloom"] = [len(blooms), len(blooms) + len(known.bloom)]
        blooms += known.bloom
    return found


def _plain(bound: Any) -> Scalar:
    plain: Scalar = bound if isinstance(bound, str) else bound.item()
    return plain


# ---- bytes -------------------------------------------------------------------------------------------


def encode_outline(outline: Outline) -> bytes:
    """Encode an outline as it is stored."""
    numbers = (
        outline.tier, outline.first_offset, outline.next_offset, outline.file_bytes, outline.modified_ns,
        outline.rows, outline.chunks, outline.nbytes,
    )  # fmt: skip
    body = outline.text + outline.blooms
    length = OUTLINE.size + len(body)
    fixed = OUTLINE.pack(length, 0, len(outline.text), *numbers)
    crc = crc32(body, crc32(fixed[OUTLINE_CHECKED:]))
    return OUTLINE.pack(length, crc, len(outline.text), *numbers) + body


def decode_outlines(content: memoryview) -> tuple[list[Outline], int]:
    """Decode outlines up to the first that is cut off or damaged; return them and the length of their bytes."""
    found: list[Outline] = []
    at = 0
    while len(content) - at >= OUTLINE.size:
        length, crc, text_length, *numbers = OUTLINE.unpack_from(content, at)
        end, text_end = at + length, at + OUTLINE.size + text_length
        if not at + OUTLINE.size <= text_end <= end <= len(content):
            break
        if crc32(content[at + OUTLINE_CHECKED : end]) != crc:
            break
        body = bytes(content[at + OUTLINE.size : end])
        found.append(Outline(*(*numbers, body[:text_length], body[text_length:])))
        at = end
    return found, at
