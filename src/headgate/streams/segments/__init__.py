"""Segments: the hot log that is written, the sealed file it becomes, and their summaries."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.streams.segments.bloom import BloomShape as BloomShape
    from headgate.streams.segments.bloom import Hashes as Hashes
    from headgate.streams.segments.bloom import hash_numbers as hash_numbers
    from headgate.streams.segments.bloom import hash_texts as hash_texts
    from headgate.streams.segments.clustering import Clustering as Clustering
    from headgate.streams.segments.clustering import Key as Key
    from headgate.streams.segments.clustering import cluster as cluster
    from headgate.streams.segments.clustering import key_of as key_of
    from headgate.streams.segments.hot_index import FILTER_VALUE as FILTER_VALUE
    from headgate.streams.segments.hot_index import IndexShape as IndexShape
    from headgate.streams.segments.hot_index import room_for as room_for
    from headgate.streams.segments.segment import Chunk as Chunk
    from headgate.streams.segments.segment import Segment as Segment
    from headgate.streams.segments.summary import Summary as Summary
    from headgate.streams.segments.summary_build import hashes_of_chunks as hashes_of_chunks
    from headgate.streams.segments.summary_build import summarize as summarize
    from headgate.streams.segments.whole import Numbers as Numbers
    from headgate.streams.segments.whole import Scattered as Scattered
    from headgate.streams.segments.whole import Whole as Whole
    from headgate.streams.segments.whole import Words as Words
    from headgate.streams.segments.whole import whole_column as whole_column
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "bloom": ["BloomShape", "Hashes", "hash_numbers", "hash_texts"],
            "clustering": ["Clustering", "Key", "cluster", "key_of"],
            "hot_index": ["FILTER_VALUE", "IndexShape", "room_for"],
            "segment": ["Chunk", "Segment"],
            "summary": ["Summary"],
            "summary_build": ["hashes_of_chunks", "summarize"],
            "whole": ["Numbers", "Scattered", "Whole", "Words", "whole_column"],
        },
    )
