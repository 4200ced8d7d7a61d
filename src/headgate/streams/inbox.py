"""The inbox: how outsiders append to a stream whose lock another process holds.

An outsider writes one complete, fsynced file and renames it into inbox/, under the name of its producer and a
publishing id. The lock holder adopts the files in the order of their ids and remembers the last id of each producer,
so that a file that is put there twice is stored once. A deposit is adopted as a whole or not at all.

    | DEPOSIT | meta JSON: producer, publishing_id | pad | Arrow IPC stream of record batches |
"""

from __future__ import annotations

import json
import logging
import os
import struct
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import quote, unquote
from uuid import uuid4

import pyarrow as pa

from headgate.errors import StreamCorrupt
from headgate.streams.files import UNFINISHED_SUFFIX, map_file, sync_directory
from headgate.streams.layout import FORMAT_VERSION, INBOX, padded

_log = logging.getLogger(__name__)

MAGIC: Final = b"HEADGDEP"
# magic, version, meta length, length of the Arrow stream, CRC-32 of the Arrow stream, CRC-32 of this without it and of the meta
DEPOSIT: Final = struct.Struct("<8sIIQII")
_CRC_BYTES: Final = 4
ABANDONED_SECONDS: Final = 24 * 3600
REJECTED_SUFFIX: Final = ".rejected"


@dataclass(frozen=True, slots=True, order=True)
class DepositFile:
    """A file in the inbox, by what its name says."""

    producer: str
    publishing_id: int
    path: Path


def deposit_path(directory: Path, producer: str, publishing_id: int) -> Path:
    return directory / INBOX / f"{quote(producer, safe='')}-{publishing_id:020d}"


def deposits(directory: Path) -> list[DepositFile]:
    """What waits in the inbox: each producer's files in the order of their ids."""
    found = []
    with suppress(FileNotFoundError):
        for path in (directory / INBOX).iterdir():
            producer, dash, number = path.name.rpartition("-")
            if dash and len(number) == 20 and number.isdigit() and not path.name.startswith("."):
                found.append(DepositFile(unquote(producer), int(number), path))
    return sorted(found)


def abandoned_deposits(directory: Path) -> list[Path]:
    """Files that were begun so long ago that nobody can be at them any more."""
    horizon = time.time() - ABANDONED_SECONDS
    begun = (directory / INBOX).glob(f".*{UNFINISHED_SUFFIX}")
    return [path for path in begun if path.stat().st_mtime < horizon]


def write_deposit(
    directory: Path, producer: str, publishing_id: int, batches: Iterable[pa.RecordBatch]
) -> Path:
    """Put a complete, durable file into the inbox."""
    inbox = directory / INBOX
    inbox.mkdir(exist_ok=True)
    unfinished = inbox / f".{uuid4().hex}{UNFINISHED_SUFFIX}"
    try:
        _write(unfinished, {"producer": producer, "publishing_id": publishing_id}, batches)
        path = deposit_path(directory, producer, publishing_id)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    sync_directory(inbox)
    return path


def _write(path: Path, meta: dict[str, object], batches: Iterable[pa.RecordBatch]) -> None:
    text = json.dumps(meta, separators=(",", ":")).encode()
    text += b" " * (padded(DEPOSIT.size + len(text)) - DEPOSIT.size - len(text))
    with path.open("xb") as file:
        file.write(bytes(DEPOSIT.size) + text)
        sink = _Summing(file)
        _write_stream(sink, batches)
        fixed = DEPOSIT.pack(MAGIC, FORMAT_VERSION, len(text), sink.length, sink.crc, 0)[
            :-_CRC_BYTES
        ]
        crc = zlib.crc32(text, zlib.crc32(fixed))
        file.seek(0)
        file.write(fixed + crc.to_bytes(_CRC_BYTES, "little"))
        file.flush()
        os.fsync(file.fileno())


def _write_stream(sink: _Summing, batches: Iterable[pa.RecordBatch]) -> None:
    writer = None
    for batch in batches:
        if writer is None:
            writer = pa.ipc.new_stream(sink, batch.schema)
        writer.write_batch(batch)
    if writer is not None:
        writer.close()


class _Summing:
    """A file that counts and sums what is written to it."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.length, self.crc = file, 0, 0

    def write(self, content: bytes) -> int:
        self.length += len(content)
        self.crc = zlib.crc32(content, self.crc)
        return int(self._file.write(content))

    def flush(self) -> None:
        self._file.flush()


def read_deposit(deposit: DepositFile) -> Iterator[pa.RecordBatch]:
    """The record batches of a deposit, checked as a whole before the first is given."""
    file = str(deposit.path)
    data = map_file(deposit.path)
    if data.size < DEPOSIT.size:
        raise StreamCorrupt(file, 0, "the deposit is cut off")
    magic, version, meta_length, length, stream_crc, crc = DEPOSIT.unpack_from(data)
    if magic != MAGIC or version != FORMAT_VERSION:
        raise StreamCorrupt(file, 0, f"this is no deposit of format {FORMAT_VERSION}")
    start = DEPOSIT.size + meta_length
    head = memoryview(data)[: DEPOSIT.size - _CRC_BYTES]
    if zlib.crc32(memoryview(data)[DEPOSIT.size : start], zlib.crc32(head)) != crc:
        raise StreamCorrupt(file, 0, "the header of the deposit fails its CRC")
    content = data.slice(start)
    if content.size != length or zlib.crc32(content) != stream_crc:
        raise StreamCorrupt(file, start, "the content of the deposit fails its CRC")
    return iter(pa.ipc.open_stream(content)) if length else iter(())


def reject(deposit: DepositFile, problem: Exception) -> None:
    """Put a deposit aside that cannot be adopted, with the reason beside it."""
    _log.warning("%s is not adopted: %s", deposit.path, problem)
    aside = deposit.path.with_name(deposit.path.name + REJECTED_SUFFIX)
    with suppress(OSError):
        aside.with_name(aside.name + ".txt").write_text(f"{problem}\n")
    with suppress(FileNotFoundError):
        deposit.path.rename(aside)
