"""Which columns the messages of a stream have, from the newest back, read from the heads of chunks and from footers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headgate.columns import OVERFLOW
from headgate.errors import StreamCorrupt
from headgate.streams.read.catalog import SegmentCatalog
from headgate.streams.segments.hot_chunk import HotChunk
from headgate.streams.segments.hot_segment import HotSegment
from headgate.streams.segments.segment import Segment
from headgate.streams.segments.summarized import SummarizedSegment


class HeldColumns(NamedTuple):
    """The columns of a run of messages, and the headers without a column that some of them have."""

    first_offset: int
    next_offset: int
    columns: frozenset[str]
    overflowed: frozenset[str]


def held_columns(directory: Path) -> Iterator[HeldColumns]:
    """Yield the columns of each sealed segment and of each hot chunk, the newest first; it ends at damage."""
    catalog = SegmentCatalog(directory)
    for file in reversed(catalog.files):
        try:
            yield from _columns_of(catalog.open(file))
        except (FileNotFoundError, StreamCorrupt):  # sealed, dropped or damaged meanwhile
            return


def _columns_of(segment: Segment) -> Iterator[HeldColumns]:
    if isinstance(segment, SummarizedSegment):
        overflowed = frozenset(segment.note.overflowed)
        yield HeldColumns(
            segment.first_offset, segment.next_offset, frozenset(segment.names), overflowed
        )
    elif isinstance(segment, HotSegment):
        for i in reversed(range(len(segment))):
            chunk = segment.chunk(i)
            end = chunk.first_offset + chunk.head.messages
            yield HeldColumns(
                chunk.first_offset, end, frozenset(chunk.names), _overflowed_headers(chunk)
            )


def _overflowed_headers(chunk: HotChunk) -> frozenset[str]:
    if OVERFLOW not in chunk.names:
        return frozenset()
    return frozenset(name for row in chunk.overflowing() for name in row)
