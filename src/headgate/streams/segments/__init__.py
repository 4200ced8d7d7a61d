"""Segments: the hot log that is written, the sealed file it becomes, and their summaries."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.streams.segments.bloom import BloomShape as BloomShape
    from headgate.streams.segments.bloom import Hashes as Hashes
    from headgate.streams.segments.bloom import hash_numbers as hash_numbers
    from headgate.streams.segments.bloom import hash_texts as hash_texts
    from headgate.streams.segments.clustering import Clustering as Clustering
    from headgate.streams.segments.clustering import SortKey as SortKey
    from headgate.streams.segments.clustering import cluster as cluster
    from headgate.streams.segments.clustering import sort_key as sort_key
    from headgate.streams.segments.hot_index import IndexShape as IndexShape
    from headgate.streams.segments.hot_index import room_for as room_for
    from headgate.streams.segments.pages import PageFacts as PageFacts
    from headgate.streams.segments.pages import summarize_pages as summarize_pages
    from headgate.streams.segments.sealed import SealedSegment as SealedSegment
    from headgate.streams.segments.segment import FILTER_VALUE as FILTER_VALUE
    from headgate.streams.segments.segment import Chunk as Chunk
    from headgate.streams.segments.segment import Segment as Segment
    from headgate.streams.segments.segment_rows import Numbers as Numbers
    from headgate.streams.segments.segment_rows import RangesColumn as RangesColumn
    from headgate.streams.segments.segment_rows import SegmentColumn as SegmentColumn
    from headgate.streams.segments.segment_rows import Words as Words
    from headgate.streams.segments.segment_rows import join_column as join_column
    from headgate.streams.segments.summary import Summary as Summary
    from headgate.streams.segments.summary import hashes_of_chunks as hashes_of_chunks
    from headgate.streams.segments.summary import summarize as summarize
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "bloom": ["BloomShape", "Hashes", "hash_numbers", "hash_texts"],
            "clustering": ["Clustering", "SortKey", "cluster", "sort_key"],
            "hot_index": ["IndexShape", "room_for"],
            "pages": ["PageFacts", "summarize_pages"],
            "sealed": ["SealedSegment"],
            "segment": ["FILTER_VALUE", "Chunk", "Segment"],
            "summary": ["Summary", "hashes_of_chunks", "summarize"],
            "segment_rows": ["Numbers", "RangesColumn", "SegmentColumn", "Words", "join_column"],
        },
    )
