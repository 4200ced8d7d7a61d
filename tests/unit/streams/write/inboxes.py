"""A stream's inbox from outside: adopt what is in it, and read what became of it."""

from contextlib import closing
from pathlib import Path

from headgate.streams import Stream, load_options
from headgate.streams.write.inbox import adopt
from headgate.streams.write.writer import Writer


def adopt_deposits(path: Path) -> int:
    """Adopt the deposits of a stream as a writer does; return their number."""
    with closing(Writer(path, load_options(path), "test")) as writer:
        return adopt(writer)


def payloads(path: Path) -> list[bytes]:
    """Return the payloads of all messages of a stream."""
    with Stream.open(path) as stream:
        return [message.payload for message in stream.consume()]
