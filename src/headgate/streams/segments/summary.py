"""The summary of a segment: what is known of every chunk, built when it is sealed, and asked by every filter.

    rows                 the number of messages
    count:C              rows with a value in column C (rows that are marked, for an opaque column)
    min:C  max:C         the bounds of the values; long text is cut, downwards in min and upwards in max
    set:C                all values, where they are few
    bloom:F              a Bloom filter over the values of an indexed field that has no sets
    properties           JSON of the values that restrict_same_values made equal in the chunk

A column that no message of the segment fills is not listed, which is a fact as well: a filter on it matches nothing.
Facts about a field are built when a filter first asks for them, so that the cost of planning grows with the fields of the
filter, not with the headers of the segment.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.columns import column_name, field_key, parse_column_name
from headgate.filters import (
    KINDS,
    SYS_KINDS,
    ChunkNumbers,
    Counts,
    DistinctSets,
    Facts,
    Field,
    FieldFacts,
    Flags,
    Kind,
    ValueRange,
)
from headgate.message import Scalar
from headgate.streams.segments.bloom import (
    BloomShape,
    build,
    hash_numbers,
    hash_texts,
    hash_value,
    probe,
    salts,
)
from headgate.streams.segments.clustering import Clustering
from headgate.streams.segments.segment_rows import (
    Numbers,
    RangesColumn,
    SegmentColumn,
    Words,
)

MAX_SET: Final = 64  # values of one chunk
MAX_SETS: Final = 256  # distinct values of a column in all chunks: a filter tries every one of them
MAX_BOUND: Final = 64  # code points of a bound
LAST: Final = "\U0010ffff"
BLOOM_BYTES: Final = range(16, (16 << 10) + 1)  # the largest gives 16,384 ids 8 bits each
BLOOM_HASHES: Final = 7
BITS_PER_VALUE: Final = 9.6  # 1 % false positives with seven hashes


class Summary(Mapping[Field, FieldFacts]):
    """Facts about every field in every chunk, for the verdict. A field that is not listed is in no message."""

    def __init__(
        self, batch: pa.RecordBatch, first_offset: int, overflowed: Collection[str]
    ) -> None:
        self.batch = batch
        self.rows: Counts = self.numbers("rows")
        self._first_offset = first_offset
        self._overflowed = frozenset(overflowed)
        self._known: dict[Field, FieldFacts] = {}

    def facts(self) -> Facts:
        return Facts(self.rows, self, self.probe)

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """Return a column of the summary as an array."""
        found: npt.NDArray[Any] = self.batch.column(name).to_numpy(zero_copy_only=False)
        return found

    # ---- as a mapping --------------------------------------------------------------------------------

    def __getitem__(self, field: Field) -> FieldFacts:
        if field not in self._known:
            self._known[field] = self._facts_of(field)
        return self._known[field]

    def __contains__(self, field: object) -> bool:
        return isinstance(field, Field)

    def __iter__(self) -> Iterator[Field]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)

    @cached_property
    def _listed(self) -> list[Field]:
        named = [name[6:] for name in self.batch.schema.names if name.startswith("count:")]
        return list({field: None for name in named if (field := parse_column_name(name)[0])})

    def _facts_of(self, field: Field) -> FieldFacts:
        kinds: tuple[Kind, ...] = (SYS_KINDS[field.name],) if field.scope == "sys" else KINDS
        ranges = {
            kind: self._range(column_name(field, kind))
            for kind in kinds
            if self._has("count", column_name(field, kind))
        }
        marked = column_name(field, "opaque") if field.scope != "sys" else ""
        return FieldFacts(
            ranges,
            covered=self._find_covered_chunks(field),
            opaque=self.numbers(f"count:{marked}") if self._has("count", marked) else None,
            distinct=self._distinct(field, ranges),
        )

    def _has(self, fact: str, column: str) -> bool:
        return bool(self.batch.schema.get_field_index(f"{fact}:{column}") >= 0)

    def _range(self, column: str) -> ValueRange:
        low, high = self.numbers(f"min:{column}"), self.numbers(f"max:{column}")
        if low.dtype == np.uint8:
            low, high = low.astype(np.int64), high.astype(np.int64)
        return ValueRange(self.numbers(f"count:{column}"), low, high)

    def _find_covered_chunks(self, field: Field) -> Flags | None:
        if field.scope != "header" or field.name not in self._overflowed:
            return None
        whole: Flags = self.numbers("count:overflow") == 0
        return whole

    # ---- sets ----------------------------------------------------------------------------------------

    def _distinct(self, field: Field, ranges: Mapping[Kind, ValueRange]) -> DistinctSets | None:
        names = {kind: column_name(field, kind) for kind in ranges}
        if not any(self._has("set", name) for name in names.values()):
            return None
        if len(names) == 1:
            return self._sets(*names.values())
        return DistinctSets.of(self._joined_sets(names, ranges))

    def _sets(self, column: str) -> DistinctSets:
        lists = self.batch.column(f"set:{column}")
        return DistinctSets(
            lists.values.dictionary.to_pylist(),
            lists.values.indices.to_numpy().astype(np.intp),
            lists.offsets.to_numpy().astype(np.intp),
            lists.is_valid().to_numpy(zero_copy_only=False),
        )

    def _joined_sets(
        self, names: Mapping[Kind, str], ranges: Mapping[Kind, ValueRange]
    ) -> Iterator[list[Scalar] | None]:
        """Join the sets of all kinds of each chunk; None where a kind that occurs has no set."""
        columns = {
            kind: self.batch.column(f"set:{name}").to_pylist() if self._has("set", name) else None
            for kind, name in names.items()
        }
        for chunk in range(len(self.rows)):
            held = [kind for kind in names if ranges[kind].count[chunk]]
            sets = [found[chunk] if (found := columns[kind]) else None for kind in held]
            known = [values for values in sets if values is not None]
            yield list(chain.from_iterable(known)) if len(known) == len(sets) else None

    # ---- Bloom filters -------------------------------------------------------------------------------

    def probe(self, field: Field, value: Scalar, chunks: ChunkNumbers) -> Flags | None:
        """Return for each chunk whether it may hold the value; None when the field has no Bloom filters."""
        name = f"bloom:{field_key(field)}"
        if self.batch.schema.get_field_index(name) < 0:
            return None
        column = self.batch.column(name)
        shape = BloomShape(column.type.byte_width, BLOOM_HASHES)
        filters = np.frombuffer(column.buffers()[1], np.uint8).reshape(-1, shape.nbytes)
        chunk_salts = salts(self._first_offset + chunks.astype(np.int64))
        found = probe(shape, filters[chunks], chunk_salts, hash_value(field, value))
        covered = self[field].covered
        return found if covered is None else found | ~covered[chunks]


# ---- summarizing the chunks of a segment ------------------------------------------------------------


def summarize(
    columns: Mapping[str, SegmentColumn],
    clustering: Clustering,
    *,
    indexed: Sequence[Field],
    first_offset: int,
    properties: Sequence[Mapping[str, Scalar]],
    bloom_bytes: range = BLOOM_BYTES,
) -> pa.RecordBatch:
    """Summarize the chunks into which the clustering cuts these columns."""
    rows = clustering.ends - clustering.starts
    arrays: dict[str, pa.Array] = {"rows": pa.array(rows)}
    for name, column in columns.items():
        if name != "payload":
            arrays.update(_facts_of_column(name, column, clustering))
    for field in indexed:
        arrays.update(_bloom(field, columns, arrays, clustering, first_offset, bloom_bytes))
    if any(properties):
        arrays["properties"] = pa.array([json.dumps(dict(p)) for p in properties])
    return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


def _facts_of_column(
    name: str, column: SegmentColumn, clustering: Clustering
) -> dict[str, pa.Array]:
    if name == "overflow":
        return {f"count:{name}": count_rows(column.valid, clustering)}
    match column:
        case Numbers():
            facts = bound_numbers(name, column, clustering)
            return facts | _set_of_numbers(name, column, clustering)
        case Words():
            return _facts_of_words(name, column, clustering)
        case RangesColumn():
            return bound_text(name, column, clustering)


def count_rows(flags: Flags | None, clustering: Clustering) -> pa.Array:
    """Count the flagged rows of each chunk; None flags all."""
    if flags is None:
        return pa.array(clustering.ends - clustering.starts)
    return pa.array(np.add.reduceat(flags[clustering.order], clustering.starts, dtype=np.int64))


# ---- bounds ------------------------------------------------------------------------------------------


def bound_numbers(name: str, column: Numbers, clustering: Clustering) -> dict[str, pa.Array]:
    """Return the counts and bounds of each chunk."""
    valid, values = column.valid, column.values
    if parse_column_name(name)[1] == "opaque":
        marked = values if valid is None else values & valid
        return {f"count:{name}": count_rows(marked, clustering)}
    if values.dtype == np.bool_:
        values = values.view(np.uint8)
    low, high = _bounds(values, valid, clustering)
    return {
        f"count:{name}": count_rows(valid, clustering),
        f"min:{name}": pa.array(low).cast(column.type),
        f"max:{name}": pa.array(high).cast(column.type),
    }


def _bounds(
    values: npt.NDArray[Any], valid: Flags | None, clustering: Clustering
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the lowest and the highest valid value of each chunk; without any, the extremes of the type swapped."""
    found, starts = values[clustering.order], clustering.starts
    if valid is None:
        return np.minimum.reduceat(found, starts), np.maximum.reduceat(found, starts)
    here, (lowest, highest) = valid[clustering.order], _extremes(values.dtype)
    low = np.minimum.reduceat(np.where(here, found, highest), starts)
    return low, np.maximum.reduceat(np.where(here, found, lowest), starts)


def _extremes(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    if dtype.kind == "f":
        return dtype.type(-np.inf), dtype.type(np.inf)
    limits = np.iinfo(dtype)
    return dtype.type(limits.min), dtype.type(limits.max)


def bound_codes(column: Words, clustering: Clustering) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the lowest and the highest code of each chunk; any code where it has no word, which is never read."""
    low, high = _bounds(column.codes, column.valid, clustering)
    last = len(column.words) - 1
    return np.clip(low, 0, last), np.clip(high, 0, last)


def _facts_of_words(name: str, column: Words, clustering: Clustering) -> dict[str, pa.Array]:
    low, high = bound_codes(column, clustering)
    facts = {f"count:{name}": count_rows(column.valid, clustering)}
    facts |= _text_bounds(
        name,
        column.words.take(pa.array(low)).to_pylist(),
        column.words.take(pa.array(high)).to_pylist(),
    )
    if len(column.words) <= MAX_SETS:
        pairs = _pairs(column.codes, column.valid, len(column.words), clustering)
        facts[f"set:{name}"] = _sets(pairs, len(column.words), clustering, column.words)
    return facts


def bound_text(name: str, column: RangesColumn, clustering: Clustering) -> dict[str, pa.Array]:
    """Return the counts and bounds of each chunk; long bounds are cut."""
    bounds = [
        pc.min_max(column.take(clustering.order[start:end])).as_py()
        for start, end in zip(clustering.starts, clustering.ends, strict=True)
    ]
    lows, highs = [b["min"] or "" for b in bounds], [b["max"] or "" for b in bounds]
    return {
        f"count:{name}": count_rows(column.valid, clustering),
        **_text_bounds(name, lows, highs),
    }


def _text_bounds(name: str, lows: list[str], highs: list[str]) -> dict[str, pa.Array]:
    return {
        f"min:{name}": pa.array([low[:MAX_BOUND] for low in lows], pa.string()),
        f"max:{name}": pa.array(list(map(_cut_upwards, highs)), pa.string()),
    }


def _cut_upwards(text: str) -> str:
    """Return a short text that is not below this one."""
    if len(text) <= MAX_BOUND or text[MAX_BOUND] == LAST:
        return text
    return text[:MAX_BOUND] + LAST


# ---- sets and Bloom filters --------------------------------------------------------------------------


def _pairs(
    ranks: npt.NDArray[Any], valid: Flags | None, size: int, clustering: Clustering
) -> npt.NDArray[np.int64]:
    """Return every distinct (chunk, rank) as chunk * size + rank, ascending."""
    found = clustering.chunk_of_row() * size + ranks[clustering.order]
    if valid is not None:
        found = found[valid[clustering.order]]
    possible = len(clustering.starts) * size
    if possible > 1 << 24:
        return np.unique(found)
    seen = np.zeros(possible, np.bool_)
    seen[found] = True
    return np.flatnonzero(seen)


def _set_of_numbers(name: str, column: Numbers, clustering: Clustering) -> dict[str, pa.Array]:
    """Return the sets of integers that are close together: versions, states, counts."""
    if column.values.dtype.kind not in "iu" or name in ("offset", "timestamp"):
        return {}
    present = column.values if column.valid is None else column.values[column.valid]
    if not len(present):
        return {}
    low, span = int(present.min()), int(present.max()) - int(present.min()) + 1
    if span > MAX_SETS:
        return {}
    ranks = column.values.astype(np.int64) - low
    pairs = _pairs(ranks, column.valid, span, clustering)
    values = pa.array(low + np.arange(span))
    return {f"set:{name}": _sets(pairs, span, clustering, values)}


def _sets(
    pairs: npt.NDArray[np.int64], size: int, clustering: Clustering, values: pa.Array
) -> pa.Array:
    """Return one list for each chunk, null where it would be long, with the values as one dictionary."""
    chunks, codes = np.divmod(pairs, size)
    counts = np.bincount(chunks, minlength=len(clustering.starts))
    kept = counts <= MAX_SET
    codes = codes[kept[chunks]]
    starts = np.concatenate(([0], np.cumsum(np.where(kept, counts, 0))))
    coded = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), values)
    return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), coded, mask=pa.array(~kept))


def _bloom(
    field: Field,
    columns: Mapping[str, SegmentColumn],
    facts: Mapping[str, pa.Array],
    clustering: Clustering,
    first_offset: int,
    nbytes: range,
) -> Iterator[tuple[str, pa.Array]]:
    """Build the Bloom filters of a field, unless all its sets are known."""
    views = [
        (column, facts.get(f"set:{name}"))
        for name, column in columns.items()
        if parse_column_name(name)[0] == field and parse_column_name(name)[1] != "opaque"
    ]
    if all(found is not None and not found.null_count for _, found in views):
        return
    hashed = [hashes_of_chunks(field, column, clustering) for column, _ in views]
    per_chunk = [np.concatenate(parts) for parts in zip(*hashed, strict=True)]
    shape = bloom_shape(max(map(len, per_chunk)), nbytes)
    filters = [
        build(shape, hashes, first_offset + i).tobytes() for i, hashes in enumerate(per_chunk)
    ]
    yield f"bloom:{field_key(field)}", pa.array(filters, pa.binary(shape.nbytes))


def bloom_shape(values: int, nbytes: range = BLOOM_BYTES) -> BloomShape:
    """Return a shape with 1 % false positives, within the limits of its size."""
    needed = int(values * BITS_PER_VALUE / 8) + 1
    return BloomShape(min(max(needed, nbytes.start), nbytes.stop - 1), BLOOM_HASHES)


def hashes_of_chunks(
    field: Field, column: SegmentColumn, clustering: Clustering
) -> list[npt.NDArray[np.uint64]]:
    """Hash the distinct values of each chunk."""
    ranks, hashes = _distinct_hashes(field, column)
    pairs = _pairs(ranks, column.valid, len(hashes), clustering)
    chunks, found = np.divmod(pairs, len(hashes))
    ends = np.searchsorted(chunks, np.arange(len(clustering.starts)) + 1)
    return np.split(hashes[found], ends[:-1])


def _distinct_hashes(
    field: Field, column: SegmentColumn
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    """Return for each row the position of its value among the distinct ones, and their hashes."""
    match column:
        case Words(codes=codes, words=words):
            return codes.astype(np.int64), hash_texts(field, words.to_pylist())
        case Numbers(values=values):
            distinct, found = np.unique(values, return_inverse=True)
            return found.astype(np.int64), hash_numbers(field, distinct)
        case RangesColumn():
            coded = column.take(np.arange(len(column.begins))).dictionary_encode()
            found = coded.indices.fill_null(0).to_numpy().astype(np.int64)
            return found, hash_texts(field, coded.dictionary.to_pylist())
