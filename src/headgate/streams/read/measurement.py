"""What a filter would cost on a stream as it is: measured chunk by chunk, without handing out a message."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.clock import now_us
from headgate.filters import FilterLike
from headgate.filters.compile.arrow import compile_mask
from headgate.streams.read.catalog import SegmentCatalog
from headgate.streams.read.plan import ScanStats, survivors
from headgate.streams.read.query import make_query
from headgate.streams.stream import Stream


@dataclass(frozen=True, slots=True)
class Measurement:
    """`hits` are the chunks that were looked into and held a match; the others were false positives."""

    stats: ScanStats
    hits: int

    @property
    def false_positives(self) -> int:
        return self.stats.chunks_some - self.hits

    @property
    def chunks(self) -> int:
        return self.stats.chunks_none + self.stats.chunks_all + self.stats.chunks_some


def measure(stream: Stream, filter: FilterLike) -> Measurement:
    """The verdicts on every chunk of the stream, and the truth about those that had to be opened."""
    query = make_query(filter).at(now_us())
    mask, stats, hits = compile_mask(query.filter), ScanStats(), 0
    catalog = SegmentCatalog(stream.path)
    position = catalog.first_offset()
    while (segment := catalog.covering(position)) is not None:
        position = segment.next_offset
        for survivor in survivors(segment, query.filter, (), 0, position, stats):
            chunk = segment.chunk(survivor.at)
            stats.bytes_read += chunk.nbytes
            if survivor.all:
                stats.chunks_all += 1
                stats.rows_matched += chunk.num_rows
                continue
            stats.chunks_some += 1
            stats.rows_examined += chunk.num_rows
            found = int(mask(chunk).sum())
            stats.rows_matched += found
            hits += found > 0
    return Measurement(stats, hits)
