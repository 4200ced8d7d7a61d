"""Streams of random messages, some of it hot, some of it sealed, some of it cold."""

from __future__ import annotations

from pathlib import Path
from random import Random

from headgate.columns.decode import Record, decode_records
from headgate.columns.names import MAX_HEADER_COLUMNS
from headgate.message import OPAQUE, Message
from headgate.streams.cold.compaction import compact
from headgate.streams.stream import Stream
from tests import generate


def mixed_stream(path: Path, rng: Random, count: int) -> list[Record]:
    """Create a stream of so many messages in hot, sealed and cold segments; return the messages."""
    options = {
        "chunk_messages": rng.choice((4, 16)),
        "segment_bytes": rng.choice((1 << 13, 1 << 16)),
    }
    indexed = ("a", "region") if rng.random() < 0.5 else ()
    with Stream.create(path, indexed=indexed, fsync="never", **options) as stream:
        while count > 0:
            step = min(count, rng.randint(1, 90))
            publish(stream, generate.messages(rng, step))
            count -= step
            if rng.random() < 0.4:
                stream.seal(all=rng.random() < 0.5)
        if rng.random() < 0.5:
            chill(path, stream.next_offset // 2)
    return everything(path)


def chill(path: Path, before: int) -> None:
    """Make the sealed segments before this offset cold."""
    compact(path, before_offset=before, created_us=0)


def publish(stream: Stream, messages: list[Message]) -> None:
    with stream.producer() as producer:
        for number, message in enumerate(messages):
            producer.publish(message)
            if number % 40 == 0:
                producer.flush()


def everything(path: Path) -> list[Record]:
    """All messages of a stream with their offsets."""
    with Stream.open(path) as stream:
        return [record for batch in stream.scan() for record in decode_records(batch)]


def very_wide(count: int) -> list[Message]:
    """Messages with more headers than a chunk has columns."""
    kinds = ("text", 7, 2.5, False, OPAQUE)
    return [
        Message(
            b"x",
            headers={f"n{i}": kinds[(i + at) % 5] for i in range(at, at + MAX_HEADER_COLUMNS + 9)},
        )
        for at in range(count)
    ]
