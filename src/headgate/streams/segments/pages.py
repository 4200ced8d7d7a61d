"""Pages: every 512 rows of a sealed chunk, with bounds of the columns it is clustered by and a CRC of each column.

A chunk is clustered, so that equal values are in few of its pages: a filter on an indexed header reads those alone.
The footer of a sealed file has them as `headgate.pages`, a text with a version in its first character:

    "1" | base64: length of the facts u32 | facts, an Arrow stream | checks | CRC-32 |

The facts are columns with one row a page: `count:C`, `min:C` and `max:C` as in the summary, where the bounds of a
dictionary column are codes. The checks are a table with the length of every page and the CRCs of its columns. Pages
only help to read less: without them a chunk is read whole.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.checksum import crc32
from headgate.columns import column_name, parse_column_name
from headgate.filters import (
    KINDS,
    SYS_KINDS,
    ChunkNumbers,
    Counts,
    Facts,
    Field,
    FieldFacts,
    ValueRange,
)
from headgate.streams.segments.clustering import Clustering
from headgate.streams.segments.segment_rows import Numbers, RangesColumn, SegmentColumn, Words
from headgate.streams.segments.summary import bound_codes, bound_numbers, bound_text, count_rows

PAGE_ROWS: Final = 512  # a multiple of 8, so that a page begins with a byte of every bitmap
PAGES_KEY: Final = b"headgate.pages"
VERSION: Final = b"1"

PageChecks: TypeAlias = npt.NDArray[Any]  # of `page_checks_dtype`


def first_pages(rows: Counts) -> npt.NDArray[np.intp]:
    """Return the page with which each chunk begins, then the number of all pages."""
    return np.concatenate(([0], np.cumsum(-(-rows // PAGE_ROWS)))).astype(np.intp)


# ---- facts about pages -------------------------------------------------------------------------------


def summarize_pages(
    columns: Mapping[str, SegmentColumn], clustering: Clustering, indexed: Collection[Field]
) -> pa.RecordBatch | None:
    """Return the bounds of the indexed columns in each page; None where pages cannot help."""
    rows = clustering.ends - clustering.starts
    if not len(rows) or rows.max() <= PAGE_ROWS:
        return None
    pages = Clustering(clustering.order, _page_starts(clustering))
    arrays: dict[str, pa.Array] = {}
    for name, column in columns.items():
        if parse_column_name(name)[0] in indexed:
            arrays |= _bound_column(name, column, pages)
    return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays)) if arrays else None


def _page_starts(clustering: Clustering) -> npt.NDArray[np.intp]:
    ends = zip(clustering.starts, clustering.ends, strict=True)
    return np.concatenate([np.arange(start, end, PAGE_ROWS) for start, end in ends])


def _bound_column(name: str, column: SegmentColumn, pages: Clustering) -> dict[str, pa.Array]:
    match column:
        case Numbers():
            return bound_numbers(name, column, pages)
        case Words():
            low, high = bound_codes(column, pages)
            return {
                f"count:{name}": count_rows(column.valid, pages),
                f"min:{name}": pa.array(low, column.type.index_type),
                f"max:{name}": pa.array(high, column.type.index_type),
            }
        case RangesColumn():
            return bound_text(name, column, pages)


class PageFacts:
    """What is known of every page of a segment."""

    def __init__(
        self, bounds: pa.RecordBatch, chunk_rows: Counts, words: Callable[[str], pa.Array | None]
    ) -> None:
        """`words` returns the dictionary of a column, None if it has none."""
        self.first = first_pages(chunk_rows)
        self._owners = np.repeat(np.arange(len(chunk_rows)), np.diff(self.first))
        before = (np.arange(len(self._owners)) - self.first[self._owners]) * PAGE_ROWS
        self._rows = np.minimum(chunk_rows[self._owners] - before, PAGE_ROWS)
        self._bounds, self._words = bounds, words
        self._ranges: dict[str, ValueRange] = {}
        named = [name[6:] for name in bounds.schema.names if name.startswith("count:")]
        self.columns = frozenset(named)
        self.fields = frozenset(field for name in named if (field := parse_column_name(name)[0]))

    def facts_of(self, chunks: ChunkNumbers, fields: Collection[Field], known: Facts) -> Facts:
        """Return the facts about all pages of these chunks, one after the other; `known` are the facts about all chunks."""
        asked = np.zeros(len(known), np.bool_)
        asked[chunks] = True
        pages = np.flatnonzero(asked[self._owners])
        return Facts(
            self._rows[pages], {field: self._facts_of(field, pages, known) for field in fields}
        )

    def _facts_of(self, field: Field, pages: ChunkNumbers, known: Facts) -> FieldFacts:
        kinds = (SYS_KINDS[field.name],) if field.scope == "sys" else KINDS
        names = {kind: column_name(field, kind) for kind in kinds}
        marked = column_name(field, "opaque") if field.scope != "sys" else ""
        covered = known.fields[field].covered
        return FieldFacts(
            {k: self._range(name, pages) for k, name in names.items() if name in self.columns},
            covered=None if covered is None else covered[self._owners[pages]],
            opaque=self._numbers("count", marked)[pages] if marked in self.columns else None,
        )

    def _range(self, column: str, pages: ChunkNumbers) -> ValueRange:
        if column not in self._ranges:
            facts = (self._numbers(fact, column) for fact in ("count", "min", "max"))
            self._ranges[column] = ValueRange(*facts)
        found, words = self._ranges[column].at(pages), self._words(column)
        if words is None:
            return found
        codes = pa.array(np.concatenate((found.low, found.high)))  # type: ignore[arg-type]
        texts = words.take(codes).to_numpy(zero_copy_only=False)
        return ValueRange(found.count, texts[: len(pages)], texts[len(pages) :])

    def _numbers(self, fact: str, column: str) -> npt.NDArray[Any]:
        array = self._bounds.column(f"{fact}:{column}")
        found: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
        return found


# ---- checksums ---------------------------------------------------------------------------------------


def page_checks_dtype(columns: int) -> np.dtype[Any]:
    """Return the type of a row of the checks: the bytes of a page in all columns, and the CRC of each column."""
    return np.dtype([("length", "<u4"), ("columns", "<u4", (columns,))])


def compute_page_checks(reader: pa.RecordBatchFileReader) -> PageChecks:
    """Compute the checks of all pages of a file."""
    found = []
    for i in range(reader.num_record_batches):
        batch = reader.get_batch(i)
        pages = range(-(-batch.num_rows // PAGE_ROWS))
        checks = np.zeros(len(pages), page_checks_dtype(batch.num_columns))
        for at, array in enumerate(batch.columns):
            lengths, crcs = zip(*_lengths_and_crcs(array, pages), strict=True)
            checks["length"] += np.array(lengths, np.uint32)
            checks["columns"][:, at] = crcs
        found.append(checks)
    return np.concatenate(found)


def page_crcs(array: pa.Array, pages: range) -> list[int]:
    """Compute, for one column of a chunk, the CRC of each of these pages."""
    return [crc for _, crc in _lengths_and_crcs(array, pages)]


def _lengths_and_crcs(array: pa.Array, pages: range) -> Iterator[tuple[int, int]]:
    """Yield the length and the CRC of each page: its validity, numbers or codes, or else ends and data.

    A dictionary does not belong to them.
    """
    values = array.indices if isinstance(array, pa.DictionaryArray) else array
    validity, numbers, *texts = (buffer and memoryview(buffer) for buffer in values.buffers())
    bits, rows = 32 if texts else values.type.bit_width, len(array)
    for page in pages:
        start, end = page * PAGE_ROWS, min((page + 1) * PAGE_ROWS, rows)
        behind = end + 1 if texts else end
        parts = [numbers[start * bits // 8 : -(-behind * bits // 8)]]
        if texts and texts[0]:
            ends = parts[0].cast("i")
            parts.append(texts[0][ends[0] : ends[-1]])
        if validity:
            parts.insert(0, validity[start // 8 : -(-end // 8)])
        crc = 0
        for part in parts:
            crc = crc32(part, crc)
        yield sum(map(len, parts)), crc


# ---- the value of the footer -------------------------------------------------------------------------


def encode_pages(bounds: pa.RecordBatch, checks: PageChecks) -> bytes:
    """Encode the facts and checks of all pages; the length does not depend on the checks."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, bounds.schema) as writer:
        writer.write_batch(bounds)
    facts = sink.getvalue().to_pybytes()
    raw = len(facts).to_bytes(4, "little") + facts + checks.tobytes()
    return VERSION + base64.b64encode(raw + crc32(raw).to_bytes(4, "little"))


def decode_pages(
    text: bytes, chunk_rows: Counts, columns: int
) -> tuple[pa.RecordBatch, PageChecks] | None:
    """Return the facts and checks; None for a version this program does not know.

    Raises ValueError when they are damaged, or belong to a file with other chunks.
    """
    if text[:1] != VERSION:
        return None
    raw = base64.b64decode(text[1:])
    if crc32(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
        raise ValueError("they fail their CRC")
    end = 4 + int.from_bytes(raw[:4], "little")
    bounds = pa.ipc.open_stream(raw[4:end]).read_next_batch()
    checks = np.frombuffer(raw[end:-4], page_checks_dtype(columns))
    if not bounds.num_rows == len(checks) == first_pages(chunk_rows)[-1]:
        raise ValueError("they do not belong to these chunks")
    return bounds, checks
