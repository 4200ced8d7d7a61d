"""The hot segment as its writer sees it: chunks at the end of the log, their entries at the end of the index.

`append` puts a chunk's bytes into the log; `publish` makes all appended chunks known through the index, which
is when readers see them. What was appended and not published can be taken back.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from headgate.files import put_file, replace_file
from headgate.streams.format import index_path, log_path
from headgate.streams.segments.hot_chunk import EncodedChunk
from headgate.streams.segments.hot_framing import Buffer
from headgate.streams.segments.hot_index import (
    Entries,
    IndexShape,
    encode_index_header,
    encode_settled,
    end_of,
    next_offset_of,
    settled_at,
)
from headgate.streams.segments.hot_walk import LogHead, encode_log_header, log_header_crc

_MOST_PARTS: Final = 1024  # of one writev; IOV_MAX


class Published(NamedTuple):
    """How far readers see a log."""

    end: int  # of the log
    index_end: int
    next_offset: int


class HotLog:
    """A log and its index, open for appending. Not for two threads at once.

    An exception may come between any two steps, Ctrl-C for one; after `take_back` files and figures agree again.
    """

    def __init__(
        self, directory: Path, head: LogHead, shape: IndexShape, entries: Entries, settled: int
    ) -> None:
        """Open the files as recovery left them: the log ends with the last entry's chunk, and is safe up to `settled`."""
        first = head.first_offset
        self.first_offset, self.shape = first, shape
        self._header_length = len(encode_index_header(shape, first, head.crc, 0))
        self._end, self.next_offset = end_of(entries, head), next_offset_of(entries, head)
        index_end = self._header_length + entries.nbytes
        self._published = Published(self._end, index_end, self.next_offset)
        self.producers = dict(head.producers)
        self._staged: list[Entries] = []
        self._synced = min(settled, self._end)
        self._log = os.open(log_path(directory, first), os.O_WRONLY | os.O_CLOEXEC)
        try:
            self._index = os.open(index_path(directory, first), os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            os.close(self._log)
            raise

    @property
    def size(self) -> int:
        """Bytes of log and index."""
        return self._end + self._published.index_end

    @property
    def end(self) -> int:
        """Where the next chunk goes."""
        return self._end

    @property
    def published(self) -> int:
        """Where the last chunk ends that readers see."""
        return self._published.end

    @property
    def is_empty(self) -> bool:
        return self._published.index_end == self._header_length and not self._staged

    @property
    def dirty(self) -> bool:
        """Whether there are published bytes that were not synced."""
        return self._synced < self._published.end

    def append(self, chunk: EncodedChunk, entry: Entries) -> None:
        """Put the chunk's bytes into the log; nobody sees them yet."""
        _write_parts(self._log, chunk.parts, self._end)
        self._end += chunk.length
        self.next_offset = chunk.head.first_offset + chunk.head.messages
        self._staged.append(entry)

    def publish(self) -> None:
        """Let readers see what was appended."""
        if not self._staged:
            return
        at = self._published.index_end
        first, *more = [entry.tobytes() for entry in self._staged]
        if more:
            # The first entry last: until it is there, readers take none of the others for committed.
            _write_parts(self._index, [b"".join(more)], at + len(first))
        _write_parts(self._index, [first], at)
        self._note_published()

    def _note_published(self) -> None:
        index_end = self._published.index_end + sum(entry.nbytes for entry in self._staged)
        # In one step: whatever comes between two, the figures belong together.
        self._published = Published(self._end, index_end, self.next_offset)
        self._staged.clear()

    def take_back(self) -> None:
        """Forget what was appended since the last publish; the files are as they were then."""
        if self._staged and self._is_first_entry_written():
            return self._note_published()  # it was interrupted when readers could see it already
        self._staged.clear()
        self._end, index_end, self.next_offset = self._published
        os.ftruncate(self._log, self._end)
        os.ftruncate(self._index, index_end)
        return None

    def _is_first_entry_written(self) -> bool:
        first = self._staged[0].tobytes()
        return os.pread(self._index, len(first), self._published.index_end) == first

    def sync_appended(self) -> None:
        """Make what was appended durable before it is published."""
        os.fdatasync(self._log)

    def duplicate(self) -> int:
        """The log's file once more, to sync it while it is appended to, or even closed."""
        return os.dup(self._log)

    def settle(self, position: int) -> None:
        """Note that the log is safe up to there."""
        if position > self._synced:
            os.pwrite(self._index, encode_settled(position), settled_at(self._header_length))
            self._synced = position

    def close(self) -> None:
        for fd in (self._log, self._index):
            if fd >= 0:
                os.close(fd)
        self._log = self._index = -1


def create_hot_log(
    directory: Path,
    first_offset: int,
    shape: IndexShape,
    producers: Mapping[str, int],
    created_us: int,
) -> HotLog:
    """A new, empty segment; its log is durable when this returns."""
    header = encode_log_header(first_offset, created_us, producers)
    head = LogHead(first_offset, producers, log_header_crc(header), len(header))
    # The index first: a log without one is complete, an index without its log is nothing.
    write_index(directory, head, shape, np.zeros(0, shape.dtype), settled=len(header))
    replace_file(log_path(directory, first_offset), header)
    return HotLog(directory, head, shape, np.zeros(0, shape.dtype), settled=len(header))


def write_index(
    directory: Path, head: LogHead, shape: IndexShape, entries: Entries, settled: int
) -> None:
    """Put a whole index in place, or none: readers may have the old one mapped."""
    content = encode_index_header(shape, head.first_offset, head.crc, settled) + entries.tobytes()
    put_file(index_path(directory, head.first_offset), content)


def _write_parts(fd: int, parts: list[Buffer], position: int) -> None:
    """Write every byte at its place, however many calls it takes."""
    left = [memoryview(part) for part in parts if len(part)]
    while left:
        written = os.pwritev(fd, left[:_MOST_PARTS], position)
        position += written
        while left and written >= left[0].nbytes:
            written -= left.pop(0).nbytes
        if left and written:
            left[0] = left[0][written:]
