"""Simulate what a filter would skip if the stream were stored in another way, with the stream's own messages.

Nothing is written: rows are arranged in memory as sealing would arrange them, or cut into chunks as a producer would,
and the same code as in a stream builds the summaries and judges them. A simulation is as good as its segments are typical.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import repeat
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.columns import parse_column_name
from headgate.filters import (
    ChunkNumbers,
    Facts,
    Field,
    FieldFacts,
    Filter,
    Flags,
    ValueProbe,
    ValueRange,
    normalize,
)
from headgate.filters.compile import judge
from headgate.filters.compile.arrow import Mask, compile_mask
from headgate.message import Scalar
from headgate.spark.jobs.segment_table import SegmentTable
from headgate.streams import CHUNK_HEADER, COLUMN
from headgate.streams.read import find_parts
from headgate.streams.segments import (
    FILTER_VALUE,
    Chunk,
    Clustering,
    Hashes,
    IndexShape,
    Numbers,
    PageFacts,
    Segment,
    SegmentColumn,
    SortKey,
    Summary,
    Words,
    bloom,
    cluster,
    hashes_of_chunks,
    room_for,
    sort_key,
    summarize,
    summarize_pages,
)

Starts: TypeAlias = npt.NDArray[np.intp]
Shares: TypeAlias = npt.NDArray[np.float64]  # of chunks

_RANGES: Final = (Field("sys", "timestamp"), Field("sys", "priority"))  # known of every hot chunk


@dataclass(frozen=True, slots=True)
class Tally:
    """For each filter, the chunks it has to read and their size: in bytes, or in messages (`Simulation.matching`)."""

    chunks: int
    size: int
    summary_bytes: int  # the size of Bloom filters or index entries
    chunks_read: tuple[int, ...]
    size_read: tuple[int, ...]

    def skipped(self, filter: int) -> float:
        """The share of the size that this filter skips."""
        return 1 - self.size_read[filter] / self.size if self.size else 0.0

    @property
    def shares(self) -> list[float]:
        """The share of the size that each filter skips."""
        return [self.skipped(i) for i in range(len(self.size_read))]


def add_tallies(one: Tally, other: Tally) -> Tally:
    """Add up the tallies of two parts of a stream."""
    return Tally(
        one.chunks + other.chunks,
        one.size + other.size,
        one.summary_bytes + other.summary_bytes,
        tuple(a + b for a, b in zip(one.chunks_read, other.chunks_read, strict=True)),
        tuple(a + b for a, b in zip(one.size_read, other.size_read, strict=True)),
    )


def _tally(
    facts: Facts,
    lengths: npt.NDArray[np.int64],
    filters: Sequence[Filter],
    summary_bytes: int,
    pages: PageFacts | None = None,
) -> Tally:
    return _tally_of([_shares(f, facts, pages) for f in filters], lengths, summary_bytes)


def _shares(filter: Filter, facts: Facts, pages: PageFacts | None) -> Shares:
    """The share of each chunk that the filter reads."""
    judged = judge(filter, facts)
    shares = judged.some.astype(np.float64)
    undecided = np.flatnonzero(judged.some & ~judged.all)
    if pages is not None and len(undecided):
        for at, parts in find_parts(pages, normalize(filter), facts, undecided).items():
            shares[at] = sum(part.share for part in parts)
    return shares


def _tally_of(
    read: Sequence[Shares | Flags], lengths: npt.NDArray[np.int64], summary_bytes: int
) -> Tally:
    """The tally of the shares of chunks that each filter reads."""
    return Tally(
        len(lengths),
        int(lengths.sum()),
        summary_bytes,
        tuple(int(np.count_nonzero(shares)) for shares in read),
        tuple(int((lengths * shares).sum()) for shares in read),
    )


class Simulation:
    """The rows of one segment, arranged in several ways."""

    def __init__(self, segment: Segment, rows: SegmentTable, chunk_messages: int) -> None:
        self.segment, self.rows = segment, rows
        stored = int(segment.lengths().sum())
        self.row_bytes = max(stored - int(rows.sizes.sum()), 0) / max(len(rows), 1)
        self.cuts = _stored_cuts(segment, rows, chunk_messages)
        self.chunk_messages = chunk_messages
        self._keys: dict[Field, SortKey | None] = {}

    # ---- as stored -----------------------------------------------------------------------------------

    def as_stored(self, filters: Sequence[Filter]) -> Tally:
        """Tally what the filters read of the chunks as they are stored."""
        segment = self.segment
        return _tally(segment.facts(), segment.lengths(), filters, 0, segment.pages)

    def matching(self, filters: Sequence[Filter]) -> Tally:
        """Tally messages instead of chunks: matching messages count as read."""
        hits = [sum(map(_hits, repeat(compile_mask(f)), self._chunks())) for f in filters]
        return Tally(len(self.rows), len(self.rows), 0, tuple(hits), tuple(hits))

    def _chunks(self) -> Iterator[Chunk]:
        chunks = map(self.segment.chunk, range(len(self.segment)))
        return (chunk for chunk in chunks if chunk.num_rows)

    # ---- sealed --------------------------------------------------------------------------------------

    def sealed(self, indexed: Sequence[str], filters: Sequence[Filter]) -> Tally:
        """Tally what the filters would read after sealing, with rows clustered by these headers."""
        fields = [FILTER_VALUE, *(Field("header", name) for name in indexed)]
        keys = [key for field in fields if (key := self._key(field)) is not None]
        clustering = cluster(self.rows.groups, keys, self.rows.sizes)
        summary = summarize(
            self.rows.columns,
            clustering,
            indexed=fields,
            first_offset=self.rows.first_offset,
            properties=[{}] * len(clustering.starts),
        )
        facts = Summary(summary, self.rows.first_offset, ()).facts()
        blooms = [n for n in summary.schema.names if n.startswith("bloom:")]
        kept = sum(summary.column(name).nbytes for name in blooms)
        bounds = summarize_pages(self.rows.columns, clustering, fields)
        pages = None if bounds is None else PageFacts(bounds, facts.rows, self._words)
        return _tally(facts, self._lengths(clustering), filters, kept, pages)

    def _words(self, name: str) -> pa.Array | None:
        column = self.rows.columns[name]
        return column.words if isinstance(column, Words) else None

    def _key(self, field: Field) -> SortKey | None:
        if field not in self._keys:
            views = list(views_of(self.rows.columns, field).values())
            self._keys[field] = sort_key(views, len(self.rows)) if views else None
        return self._keys[field]

    def _lengths(self, clustering: Clustering) -> npt.NDArray[np.int64]:
        sizes = self.rows.sizes[clustering.order] + self.row_bytes
        return np.add.reduceat(sizes, clustering.starts).astype(np.int64)

    # ---- hot -----------------------------------------------------------------------------------------

    def hot(self, shapes: Sequence[IndexShape], filters: Sequence[Filter]) -> list[Tally]:
        """Tally what the filters would read before sealing, in publishing order, for each shape of the Bloom filters."""
        chunks = _publishing_order(len(self.rows), self.cuts)
        hashes = self._hashes(chunks, {field for shape in shapes for field in shape.fields})
        lengths, known = self._lengths(chunks), _ranges(self.rows.columns, chunks)
        tallies = []
        for shape in shapes:
            facts = _hot_facts(chunks, known, _bloom_probe(shape, hashes, chunks.starts))
            tallies.append(
                _tally(facts, lengths, filters, len(chunks.starts) * shape.dtype.itemsize)
            )
        return tallies

    def _hashes(self, chunks: Clustering, fields: set[Field]) -> dict[Field, list[Hashes]]:
        return {field: _hashes_in(field, field, self.rows.columns, chunks) for field in fields}

    def seeded(
        self, header: str, shapes: Sequence[IndexShape], values: Sequence[Scalar]
    ) -> list[Tally]:
        """Tally what equality with each value would read before sealing, with this header as filter value, for each shape."""
        chunks, field = _publishing_order(len(self.rows), self.cuts), Field("header", header)
        hashes = {FILTER_VALUE: _hashes_in(FILTER_VALUE, field, self.rows.columns, chunks)}
        lengths = self._lengths(chunks)
        everything = np.arange(len(chunks.starts))
        tallies = []
        for shape in shapes:
            probe = _bloom_probe(shape, hashes, chunks.starts)
            found = [probe(FILTER_VALUE, value, everything) for value in values]
            read = [np.ones(len(everything), np.bool_) if f is None else f for f in found]
            tallies.append(_tally_of(read, lengths, len(everything) * shape.dtype.itemsize))
        return tallies

    def restricted(self, header: str, filters: Sequence[Filter]) -> Tally:
        """Tally what the filters would read if a new chunk began wherever the header's value changes, in publishing order."""
        field = Field("header", header)
        key = self._key(field)
        assert key is not None, "a header that no message has cannot restrict chunks"
        changes = np.flatnonzero(np.diff(key.ranks)) + 1
        cuts = _split_long(np.union1d(self.cuts, changes), len(self.rows), self.chunk_messages)
        chunks = _publishing_order(len(self.rows), cuts.astype(np.intp))
        columns = {n: c for n, c in self.rows.columns.items() if parse_column_name(n)[0] == field}
        summary = summarize(
            columns, chunks, indexed=(), first_offset=0, properties=[{}] * len(chunks.starts)
        )
        facts = Summary(summary, 0, ()).facts()
        own = Facts(facts.rows, {field: facts.fields[field]})
        per_chunk = CHUNK_HEADER.size + COLUMN.size * (len(self.rows.columns) + 4)
        return _tally(own, self._lengths(chunks), filters, per_chunk * len(chunks.starts))


def _hits(mask: Mask, chunk: Chunk) -> int:
    return int(mask(chunk).sum())


def views_of(columns: Mapping[str, SegmentColumn], field: Field) -> dict[str, SegmentColumn]:
    """Select the columns with comparable values of a field."""
    named = {name: parse_column_name(name) for name in columns}
    return {n: columns[n] for n, (f, view) in named.items() if f == field and view != "opaque"}


# ---- chunks as a producer cuts them ------------------------------------------------------------------


def _stored_cuts(segment: Segment, rows: SegmentTable, chunk_messages: int) -> Starts:
    if segment.sealed:  # its chunks before sealing are not known
        return np.arange(0, max(len(rows), 1), chunk_messages)
    return np.cumsum([0, *rows.chunk_rows[:-1]])


def _split_long(starts: npt.NDArray[np.signedinteger], count: int, most: int) -> Starts:
    """Split chunks that would be too long, and return the starts of all chunks."""
    longer = [
        np.arange(start, end, most)
        for start, end in zip(starts, np.append(starts[1:], count), strict=True)
        if end - start > most
    ]
    return np.union1d(starts, np.concatenate(longer)) if longer else starts


def _publishing_order(count: int, starts: Starts) -> Clustering:
    return Clustering(np.arange(count), starts)


def _ranges(columns: Mapping[str, SegmentColumn], chunks: Clustering) -> dict[Field, FieldFacts]:
    found, rows = {}, chunks.ends - chunks.starts
    for field in _RANGES:
        column = columns.get(field.name)
        if isinstance(column, Numbers):
            values = column.values.astype(np.int64)
            low, high = (f.reduceat(values, chunks.starts) for f in (np.minimum, np.maximum))
            found[field] = FieldFacts({"int": ValueRange(rows, low, high)})
    return found


def _hot_facts(chunks: Clustering, known: Mapping[Field, FieldFacts], probe: ValueProbe) -> Facts:
    return Facts(chunks.ends - chunks.starts, known, probe)


def _hashes_in(
    name: Field, field: Field, columns: Mapping[str, SegmentColumn], chunks: Clustering
) -> list[Hashes]:
    """Hash the distinct values of `field` in each chunk, as values of the field `name`."""
    parts = [hashes_of_chunks(name, c, chunks) for c in views_of(columns, field).values()]
    if not parts:
        return [np.empty((0, 2), np.uint64)] * len(chunks.starts)
    return [np.concatenate(of_chunk) for of_chunk in zip(*parts, strict=True)]


def _bloom_probe(
    shape: IndexShape, hashes: Mapping[Field, Sequence[Hashes]], starts: Starts
) -> ValueProbe:
    """Build the Bloom filters of a hot segment and return their probe; the salt of a chunk is the number of its first row."""
    built = [
        _build_bloom(shape, {f: hashes[f][i] for f in shape.fields}, s)
        for i, s in enumerate(starts)
    ]
    filters, salts = np.stack([bits for bits, _ in built]), bloom.salts(starts.astype(np.int64))

    def probe(field: Field, value: Scalar, chunks: ChunkNumbers) -> Flags | None:
        if field not in shape.fields:
            return None
        covered = np.array([field in built[chunk][1] for chunk in chunks], np.bool_)
        hit = bloom.probe(
            shape.bloom, filters[chunks], salts[chunks], bloom.hash_value(field, value)
        )
        return hit | ~covered

    return probe


def _build_bloom(
    shape: IndexShape, hashes: Mapping[Field, Hashes], start: int
) -> tuple[bloom.Filters, frozenset[Field]]:
    """Build a chunk's Bloom filter. It covers the fields with few values first, while there is room; these are returned too."""
    room, covered = room_for(shape), []
    for field in sorted(hashes, key=lambda field: len(hashes[field])):
        if len(hashes[field]) <= room:
            room -= len(hashes[field])
            covered.append(field)
    parts = [hashes[field] for field in covered]
    joined = reduce(lambda a, b: np.concatenate([a, b]), parts, np.empty((0, 2), np.uint64))
    return bloom.build(shape.bloom, joined, int(start)), frozenset(covered)
