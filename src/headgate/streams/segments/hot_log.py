"""The hot segment as its writer sees it: chunks at the end of the log, their entries at the end of the index.

`append` puts a chunk's bytes into the log; `commit` writes the entries of all appended chunks to the index, which is when
readers see them. Chunks that were appended and not committed can be rolled back.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
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

_MAX_PARTS: Final = 1024  # of one writev; IOV_MAX


class CommitPosition(NamedTuple):
    """How far a log is committed, so that readers see it."""

    end: int  # of the log
    index_end: int
    next_offset: int


class HotLog:
    """A log and its index, open for appending. Not for two threads at once.

    An exception such as Ctrl-C may come between any two steps; `rollback` makes the files and the positions kept here agree.
    """

    def __init__(
        self, directory: Path, head: LogHead, shape: IndexShape, entries: Entries, settled: int
    ) -> None:
        """Open recovered files: the log ends with the last entry's chunk, and is durable up to `settled`."""
        first = head.first_offset
        self.first_offset, self.shape = first, shape
        self._header_length = len(encode_index_header(shape, first, head.crc, 0))
        self._end, self.next_offset = end_of(entries, head), next_offset_of(entries, head)
        index_end = self._header_length + entries.nbytes
        self._committed = CommitPosition(self._end, index_end, self.next_offset)
        self.producers = dict(head.producers)
        self._appended: list[Entries] = []
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
        return self._end + self._committed.index_end

    @property
    def end(self) -> int:
        """The position of the next chunk in the log."""
        return self._end

    @property
    def committed(self) -> int:
        """Where the last chunk ends that readers see."""
        return self._committed.end

    @property
    def is_empty(self) -> bool:
        return self._committed.index_end == self._header_length and not self._appended

    @property
    def dirty(self) -> bool:
        """Whether there are committed bytes that were not synced."""
        return self._synced < self._committed.end

    def append(self, chunk: EncodedChunk, entry: Entries) -> None:
        """Put the chunk's bytes into the log; readers do not see them yet."""
        _write_parts(self._log, chunk.parts, self._end)
        self._end += chunk.length
        self.next_offset = chunk.head.first_offset + chunk.head.messages
        self._appended.append(entry)

    def commit(self) -> None:
        """Write the entries of the appended chunks: readers see them from now on."""
        if not self._appended:
            return
        at = self._committed.index_end
        first, *more = [entry.tobytes() for entry in self._appended]
        if more:
            # The first entry last: until it is there, readers count none of the others as committed.
            _write_parts(self._index, [b"".join(more)], at + len(first))
        _write_parts(self._index, [first], at)
        self._note_committed()

    def _note_committed(self) -> None:
        index_end = self._committed.index_end + sum(entry.nbytes for entry in self._appended)
        # One assignment, so that an interruption leaves positions that belong together.
        self._committed = CommitPosition(self._end, index_end, self.next_offset)
        self._appended.clear()

    def rollback(self) -> None:
        """Remove the chunks that were appended since the last commit."""
        if self._appended and self._is_first_entry_written():
            return self._note_committed()  # interrupted after readers could see it
        self._appended.clear()
        self._end, index_end, self.next_offset = self._committed
        os.ftruncate(self._log, self._end)
        os.ftruncate(self._index, index_end)
        return None

    def _is_first_entry_written(self) -> bool:
        first = self._appended[0].tobytes()
        return os.pread(self._index, len(first), self._committed.index_end) == first

    def sync_appended(self) -> None:
        """Make the appended chunks durable before they are committed."""
        os.fdatasync(self._log)

    def duplicate(self) -> int:
        """Return a second descriptor of the log, to sync it while others append to it or close it."""
        return os.dup(self._log)

    def settle(self, position: int) -> None:
        """Note in the index that the log is durable up to this position."""
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
    seen: Mapping[str, int] = MappingProxyType({}),
) -> HotLog:
    """Create an empty segment; its log is durable when this returns. `seen`: when each producer published last."""
    header = encode_log_header(first_offset, created_us, producers, seen=seen)
    head = LogHead(first_offset, producers, log_header_crc(header), len(header))
    # The index first: a log without one is complete, an index without its log is nothing.
    write_index(directory, head, shape, np.zeros(0, shape.dtype), settled=len(header))
    replace_file(log_path(directory, first_offset), header)
    return HotLog(directory, head, shape, np.zeros(0, shape.dtype), settled=len(header))


def write_index(
    directory: Path, head: LogHead, shape: IndexShape, entries: Entries, settled: int
) -> None:
    """Replace the index as a whole: readers may have the old one open."""
    content = encode_index_header(shape, head.first_offset, head.crc, settled) + entries.tobytes()
    put_file(index_path(directory, head.first_offset), content)


def _write_parts(fd: int, parts: list[Buffer], position: int) -> None:
    """Write all parts one behind the other from `position` on; a call may write only some of them."""
    left = [memoryview(part) for part in parts if len(part)]
    while left:
        written = os.pwritev(fd, left[:_MAX_PARTS], position)
        position += written
        while left and written >= left[0].nbytes:
            written -= left.pop(0).nbytes
        if left and written:
            left[0] = left[0][written:]
