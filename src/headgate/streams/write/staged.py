"""Staged files: rows that processes without the writer lock write into inbox/staged/ before a deposit names them.

A task of a job that may be retried does not know yet whether its rows will count. It writes them here, and one small
deposit decides later which of the files are appended. A staged file holds one or more Arrow IPC streams, one behind the
other: where the columns change, a new one begins. Each job has a folder of its own, so that it can remove its orphans
without asking the others.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import pyarrow as pa

from headgate.checksum import crc32
from headgate.clock import seconds_since_change
from headgate.columns import join_batches
from headgate.errors import StreamCorrupt
from headgate.files import map_file, sync_directory
from headgate.streams.format import INBOX

STAGED: Final = "staged"
STAGED_SUFFIX: Final = ".arrow"


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A staged file as a deposit names it: its path below the folder of staged files, and its expected content."""

    name: str
    length: int
    crc: int

    def __post_init__(self) -> None:
        if Path(self.name).is_absolute() or ".." in Path(self.name).parts:
            raise StreamCorrupt(self.name, 0, "the name of a staged file leads out of its folder")


def staged_folder(directory: Path) -> Path:
    """Return the folder of a stream's staged files."""
    return directory / INBOX / STAGED


class ChecksumFile:
    """A file that counts the bytes written to it, with their CRC-32."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.length, self.crc = file, 0, 0

    def write(self, content: bytes) -> int:
        self.length += len(content)
        self.crc = crc32(content, self.crc)
        return int(self._file.write(content))

    def flush(self) -> None:
        self._file.flush()


@dataclass(frozen=True, slots=True)
class StagedContent:
    """The size and checksum of a staged file."""

    rows: int
    length: int
    crc: int


def write_staged(path: Path, batches: Iterable[pa.RecordBatch]) -> StagedContent | None:
    """Write the rows durably, joining small batches; without rows write no file and return None."""
    ready = join_batches(batches)
    first = next(ready, None)
    if first is None:
        return None
    with path.open("xb") as file:
        sink = ChecksumFile(file)
        rows = _write_streams(sink, first, ready)
        file.flush()
        os.fsync(file.fileno())
    sync_directory(path.parent)
    return StagedContent(rows, sink.length, sink.crc)


def _write_streams(
    sink: ChecksumFile, first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]
) -> int:
    writer = pa.ipc.new_stream(sink, first.schema)
    writer.write_batch(first)
    rows, schema = first.num_rows, first.schema
    for batch in rest:
        if batch.schema != schema:
            writer.close()
            writer, schema = pa.ipc.new_stream(sink, batch.schema), batch.schema
        writer.write_batch(batch)
        rows += batch.num_rows
    writer.close()
    return int(rows)


def read_staged(path: Path, length: int, crc: int) -> Iterator[pa.RecordBatch]:
    """Check a staged file as a whole, and return its record batches."""
    data = map_file(path)
    if data.size != length or crc32(data) != crc:
        raise StreamCorrupt(
            str(path), 0, "the staged file has another length or CRC than the deposit says"
        )
    return _batches(data)


def _batches(data: pa.Buffer) -> Iterator[pa.RecordBatch]:
    source = pa.BufferReader(data)
    while source.tell() < data.size:
        yield from pa.ipc.open_stream(source)


def remove_staged(directory: Path, files: Iterable[StagedFile]) -> None:
    """Delete staged files after their deposit was adopted."""
    for file in files:
        (staged_folder(directory) / file.name).unlink(missing_ok=True)


def orphans(
    folder: Path, named: Collection[Path], *, horizon_s: float, suffix: str = STAGED_SUFFIX
) -> list[Path]:
    """List the files of a folder that no deposit names and that were not changed for `horizon_s` seconds."""
    found = []
    for path in folder.glob(f"*{suffix}"):
        with suppress(FileNotFoundError):
            if path not in named and seconds_since_change(path) >= horizon_s:
                found.append(path)
    return found
