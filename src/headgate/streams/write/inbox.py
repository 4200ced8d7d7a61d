"""The inbox: how outsiders append to a stream whose lock another process holds.

An outsider writes one complete, fsynced file and renames it into inbox/, under the name of its producer and a
publishing id. The lock holder adopts the files in the order of their ids and remembers the last id of each producer,
so that a file that is put there twice is stored once. A deposit is adopted as a whole or not at all.

    | DEPOSIT | meta JSON: producer, publishing_id | pad | Arrow IPC stream of record batches |

A deposit by reference has no content: its meta lists files in inbox/staged/ (see `staged`) that were complete and durable
before, and go when it is adopted.

    | DEPOSIT | meta JSON: producer, publishing_id, staged: [{name, length, crc}, …] | pad |
"""

from __future__ import annotations

import json
import logging
import os
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote
from uuid import uuid4

import pyarrow as pa

from headgate.checksum import crc32
from headgate.columns import join_batches
from headgate.errors import StreamCorrupt
from headgate.files import UNFINISHED_SUFFIX, map_file, sync_directory
from headgate.streams.format import FORMAT_VERSION, INBOX, padded
from headgate.streams.write.staged import StagedFile, Summing, read_staged, staged_folder

_log = logging.getLogger(__name__)

MAGIC: Final = b"HEADGDEP"
REFERENCE_MAGIC: Final = b"HEADGREF"
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


def deposits(directory: Path, suffix: str = "") -> list[DepositFile]:
    """What waits in the inbox: each producer's files in the order of their ids."""
    found = []
    with suppress(FileNotFoundError):
        for path in (directory / INBOX).iterdir():
            producer, dash, number = path.name.removesuffix(suffix).rpartition("-")
            if dash and len(number) == 20 and number.isdigit() and path.name[0] != ".":
                found.append(DepositFile(unquote(producer), int(number), path))
    return sorted(found)


def abandoned_deposits(directory: Path) -> list[Path]:
    """Files that were begun so long ago that nobody can be at them any more."""
    horizon = time.time() - ABANDONED_SECONDS
    found = []
    for path in (directory / INBOX).glob(f".*{UNFINISHED_SUFFIX}"):
        with suppress(FileNotFoundError):  # it is a deposit by now
            if path.stat().st_mtime < horizon:
                found.append(path)
    return found


def write_deposit(
    directory: Path, producer: str, publishing_id: int, batches: Iterable[pa.RecordBatch]
) -> Path:
    """Put a complete, durable file into the inbox."""
    meta = {"producer": producer, "publishing_id": publishing_id}
    path = deposit_path(directory, producer, publishing_id)
    with _unfinished(directory) as unfinished:
        _write(unfinished, MAGIC, meta, batches)
        os.replace(unfinished, path)
    sync_directory(path.parent)
    return path


def write_reference(
    directory: Path, producer: str, publishing_id: int, files: Sequence[StagedFile]
) -> bool:
    """Put a durable file into the inbox that names staged ones; False when one of that id waits already.

    The one that waits stays: the holder of the lock may be reading what it names.
    """
    meta = {
        "producer": producer,
        "publishing_id": publishing_id,
        "staged": list(map(asdict, files)),
    }
    path = deposit_path(directory, producer, publishing_id)
    with _unfinished(directory) as unfinished:
        _write(unfinished, REFERENCE_MAGIC, meta, ())
        try:
            os.link(unfinished, path)
        except FileExistsError:
            return False
    sync_directory(path.parent)
    return True


@contextmanager
def _unfinished(directory: Path) -> Iterator[Path]:
    """A name in the inbox for what is being written, gone afterwards."""
    inbox = directory / INBOX
    if not inbox.exists():
        inbox.mkdir(exist_ok=True)
        sync_directory(directory)
    unfinished = inbox / f".{uuid4().hex}{UNFINISHED_SUFFIX}"
    try:
        yield unfinished
    finally:
        unfinished.unlink(missing_ok=True)


def _write(
    path: Path, magic: bytes, meta: dict[str, Any], batches: Iterable[pa.RecordBatch]
) -> None:
    text = json.dumps(meta, separators=(",", ":")).encode()
    text += b" " * (padded(DEPOSIT.size + len(text)) - DEPOSIT.size - len(text))
    with path.open("xb") as file:
        file.write(bytes(DEPOSIT.size) + text)
        sink = Summing(file)
        _write_stream(sink, batches)
        fixed = DEPOSIT.pack(magic, FORMAT_VERSION, len(text), sink.length, sink.crc, 0)[
            :-_CRC_BYTES
        ]
        crc = crc32(text, crc32(fixed))
        file.seek(0)
        file.write(fixed + crc.to_bytes(_CRC_BYTES, "little"))
        file.flush()
        os.fsync(file.fileno())


def _write_stream(sink: Summing, batches: Iterable[pa.RecordBatch]) -> None:
    writer = None
    for batch in batches:
        if writer is None:
            writer = pa.ipc.new_stream(sink, batch.schema)
        writer.write_batch(batch)
    if writer is not None:
        writer.close()


def read_deposit(deposit: DepositFile) -> Iterator[pa.RecordBatch]:
    """The record batches of a deposit, checked as a whole before the first is given."""
    data = map_file(deposit.path)
    header = _header(deposit, data)
    content = data.slice(header.end)
    if content.size != header.length or crc32(content) != header.crc:
        problem = "the content of the deposit fails its CRC"
        raise StreamCorrupt(str(deposit.path), header.end, problem)
    if files := _files(header.meta):
        return _read_files(deposit, files)
    return iter(pa.ipc.open_stream(content)) if content.size else iter(())


def named_files(deposit: DepositFile) -> tuple[StagedFile, ...]:
    """The staged files a deposit names; none when it holds its rows itself."""
    return _files(_header(deposit, map_file(deposit.path)).meta)


class _Header(NamedTuple):
    """What stands before the content of a deposit."""

    meta: dict[str, Any]
    end: int
    length: int  # of the content
    crc: int


def _header(deposit: DepositFile, data: pa.Buffer) -> _Header:
    file = str(deposit.path)
    if data.size < DEPOSIT.size:
        raise StreamCorrupt(file, 0, "the deposit is cut off")
    magic, version, meta_length, length, content_crc, crc = DEPOSIT.unpack_from(data)
    if magic not in (MAGIC, REFERENCE_MAGIC) or version != FORMAT_VERSION:
        raise StreamCorrupt(file, 0, f"this is no deposit of format {FORMAT_VERSION}")
    end = DEPOSIT.size + meta_length
    head = memoryview(data)[: DEPOSIT.size - _CRC_BYTES]
    text = memoryview(data)[DEPOSIT.size : end]
    if crc32(text, crc32(head)) != crc:
        raise StreamCorrupt(file, 0, "the header of the deposit fails its CRC")
    return _Header(json.loads(bytes(text)), end, length, content_crc)


def _files(meta: dict[str, Any]) -> tuple[StagedFile, ...]:
    return tuple(StagedFile(**file) for file in meta.get("staged", ()))


def all_named_files(directory: Path) -> set[Path]:
    """Every staged file that a deposit names, also one that was put aside."""
    folder = staged_folder(directory)
    found: set[Path] = set()
    for deposit in deposits(directory) + deposits(directory, REJECTED_SUFFIX):
        with suppress(FileNotFoundError, StreamCorrupt):
            found.update(folder / file.name for file in named_files(deposit))
    return found


def _read_files(deposit: DepositFile, files: Sequence[StagedFile]) -> Iterator[pa.RecordBatch]:
    folder = staged_folder(deposit.path.parent.parent)
    try:
        parts = [read_staged(folder / file.name, file.length, file.crc) for file in files]
    except FileNotFoundError as missing:
        if not deposit.path.exists():  # another thread was faster
            raise
        problem = f"the staged file {missing.filename} is gone"
        raise StreamCorrupt(str(deposit.path), 0, problem) from missing
    return join_batches(chain.from_iterable(parts))


def reject(deposit: DepositFile, problem: Exception) -> None:
    """Put a deposit aside that cannot be adopted, with the reason beside it."""
    _log.warning("%s is not adopted: %s", deposit.path, problem)
    aside = deposit.path.with_name(deposit.path.name + REJECTED_SUFFIX)
    with suppress(OSError):
        aside.with_name(aside.name + ".txt").write_text(f"{problem}\n")
    with suppress(FileNotFoundError):
        deposit.path.rename(aside)
