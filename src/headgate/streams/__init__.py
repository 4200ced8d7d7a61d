"""Streams: append-only logs of Arrow columns, in which filters skip chunks and segments without a match."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.streams.aio import AsyncStream as AsyncStream
    from headgate.streams.format import CHUNK_HEADER as CHUNK_HEADER
    from headgate.streams.format import COLUMN as COLUMN
    from headgate.streams.format import OPTIONS_FILE as OPTIONS_FILE
    from headgate.streams.format import SUPER_FILE as SUPER_FILE
    from headgate.streams.format import segment_files as segment_files
    from headgate.streams.options import DEFAULT_INDEXED_BYTES as DEFAULT_INDEXED_BYTES
    from headgate.streams.options import DEFAULT_SEED_BYTES as DEFAULT_SEED_BYTES
    from headgate.streams.options import Fsync as Fsync
    from headgate.streams.options import StreamOptionFields as StreamOptionFields
    from headgate.streams.options import StreamOptions as StreamOptions
    from headgate.streams.options import load_options as load_options
    from headgate.streams.read.async_consumer import AsyncStreamConsumer as AsyncStreamConsumer
    from headgate.streams.read.consumer import StreamConsumer as StreamConsumer
    from headgate.streams.read.consumer import watch_streams as watch_streams
    from headgate.streams.read.cursors import Cursors as Cursors
    from headgate.streams.read.plan import ScanStats as ScanStats
    from headgate.streams.read.scan import Scan as Scan
    from headgate.streams.stream import Stream as Stream
    from headgate.streams.superstream import SuperStream as SuperStream
    from headgate.streams.write.async_producer import AsyncProducer as AsyncProducer
    from headgate.streams.write.batching import MAX_MESSAGE_BYTES as MAX_MESSAGE_BYTES
    from headgate.streams.write.producer import Producer as Producer
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "aio": ["AsyncStream"],
            "read.async_consumer": ["AsyncStreamConsumer"],
            "write.async_producer": ["AsyncProducer"],
            "format": ["CHUNK_HEADER", "COLUMN", "OPTIONS_FILE", "SUPER_FILE", "segment_files"],
            "options": [
                "DEFAULT_INDEXED_BYTES",
                "DEFAULT_SEED_BYTES",
                "Fsync",
                "StreamOptionFields",
                "StreamOptions",
                "load_options",
            ],
            "read.consumer": ["StreamConsumer", "watch_streams"],
            "read.cursors": ["Cursors"],
            "read.plan": ["ScanStats"],
            "read.scan": ["Scan"],
            "stream": ["Stream"],
            "superstream": ["SuperStream"],
            "write.batching": ["MAX_MESSAGE_BYTES"],
            "write.producer": ["Producer"],
        },
    )
