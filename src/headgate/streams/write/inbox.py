"""The inbox: how processes without the writer lock append to a stream.

Such a process writes a complete, fsynced file, a *deposit*, and renames it into inbox/ under the name of its producer and a
publishing id. The lock holder adopts the deposits in the order of their ids and remembers the last id of each producer,
so that a deposit that is made twice is stored once. A deposit is adopted as a whole or not at all.

    | DEPOSIT | meta JSON: producer, publishing_id | pad | Arrow IPC stream of record batches |

A deposit by reference has no content: its meta lists files in inbox/staged/ (see `staged`) that were complete and durable
before, and are removed when it is adopted.

    | DEPOSIT | meta JSON: producer, publishing_id, staged: [{name, length, crc}, …] | pad |
"""

from __future__ import annotations

import json
import logging
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, unquote
from uuid import uuid4

import pyarrow as pa

from headgate.checksum import crc32
from headgate.clock import now_us, seconds_since_change
from headgate.columns import join_batches, read_table
from headgate.errors import InvalidMessage, StreamCorrupt
from headgate.files import UNFINISHED_SUFFIX, map_file, sync_directory
from headgate.streams.format import FORMAT_VERSION, INBOX, padded
from headgate.streams.write.staged import (
    ChecksumFile,
    StagedFile,
    read_staged,
    remove_staged,
    staged_folder,
)

if TYPE_CHECKING:
    # Not at run time: it imports recovery, which cleans the inbox.
    from headgate.streams.write.writer import Writer

_log = logging.getLogger(__name__)

MAGIC: Final = b"HEADGDEP"
REFERENCE_MAGIC: Final = b"HEADGREF"
# magic, version, meta length, length and CRC-32 of the Arrow stream, CRC-32 of the header before this field and of the meta
DEPOSIT: Final = struct.Struct("<8sIIQII")
_CRC_BYTES: Final = 4
ABANDONED_SECONDS: Final = 24 * 3600
REJECTED_SUFFIX: Final = ".rejected"


@dataclass(frozen=True, slots=True, order=True)
class DepositFile:
    """A deposit in the inbox: its name holds the producer and the publishing id."""

    producer: str
    publishing_id: int
    path: Path


def deposit_path(directory: Path, producer: str, publishing_id: int) -> Path:
    return directory / INBOX / f"{quote(producer, safe='')}-{publishing_id:020d}"


def deposits(directory: Path, suffix: str = "") -> list[DepositFile]:
    """List the deposits in the inbox, those of each producer in the order of their ids."""
    found = []
    with suppress(FileNotFoundError):
        for path in (directory / INBOX).iterdir():
            producer, dash, number = path.name.removesuffix(suffix).rpartition("-")
            if dash and len(number) == 20 and number.isdigit() and path.name[0] != ".":
                found.append(DepositFile(unquote(producer), int(number), path))
    return sorted(found)


def is_deposit(name: str) -> bool:
    """Whether a file in the inbox with this name may be a deposit, and is not unfinished."""
    return not name.startswith(".")


def abandoned_deposits(directory: Path) -> list[Path]:
    """List unfinished files that are so old that their writer must be dead."""
    found = []
    for path in (directory / INBOX).glob(f".*{UNFINISHED_SUFFIX}"):
        with suppress(FileNotFoundError):  # it is a deposit by now
            if seconds_since_change(path) > ABANDONED_SECONDS:
                found.append(path)
    return found


def write_deposit(
    directory: Path, producer: str, publishing_id: int, batches: Iterable[pa.RecordBatch]
) -> Path:
    """Put a complete, durable deposit into the inbox."""
    meta = {"producer": producer, "publishing_id": publishing_id}
    path = deposit_path(directory, producer, publishing_id)
    with _new_unfinished_file(directory) as unfinished:
        _write(unfinished, MAGIC, meta, batches)
        os.replace(unfinished, path)
    sync_directory(path.parent)
    return path


def write_reference(
    directory: Path, producer: str, publishing_id: int, files: Sequence[StagedFile]
) -> bool:
    """Put a durable deposit into the inbox that names staged files; False when the id has a deposit already.

    That deposit stays: the holder of the lock may be reading the files it names.
    """
    meta = {
        "producer": producer,
        "publishing_id": publishing_id,
        "staged": list(map(asdict, files)),
    }
    path = deposit_path(directory, producer, publishing_id)
    with _new_unfinished_file(directory) as unfinished:
        _write(unfinished, REFERENCE_MAGIC, meta, ())
        try:
            os.link(unfinished, path)
        except FileExistsError:
            return False
    sync_directory(path.parent)
    return True


@contextmanager
def _new_unfinished_file(directory: Path) -> Iterator[Path]:
    """Yield the path of a new file in the inbox that readers ignore; remove it afterwards."""
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
        sink = ChecksumFile(file)
        _write_stream(sink, batches)
        fixed = DEPOSIT.pack(magic, FORMAT_VERSION, len(text), sink.length, sink.crc, 0)[
            :-_CRC_BYTES
        ]
        crc = crc32(text, crc32(fixed))
        file.seek(0)
        file.write(fixed + crc.to_bytes(_CRC_BYTES, "little"))
        file.flush()
        os.fsync(file.fileno())


def _write_stream(sink: ChecksumFile, batches: Iterable[pa.RecordBatch]) -> None:
    writer = None
    for batch in batches:
        if writer is None:
            writer = pa.ipc.new_stream(sink, batch.schema)
        writer.write_batch(batch)
    if writer is not None:
        writer.close()


def read_deposit(deposit: DepositFile) -> Iterator[pa.RecordBatch]:
    """Check a deposit as a whole, and return its record batches."""
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
    """Return the staged files that a deposit names; none when it holds its rows itself."""
    return _files(_header(deposit, map_file(deposit.path)).meta)


class _Header(NamedTuple):
    """The header of a deposit, and where its content begins."""

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
    """List every staged file that a deposit names, also a rejected one."""
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
        if not deposit.path.exists():  # another thread has adopted it
            raise
        problem = f"the staged file {missing.filename} is gone"
        raise StreamCorrupt(str(deposit.path), 0, problem) from missing
    return join_batches(chain.from_iterable(parts))


def reject(deposit: DepositFile, problem: Exception) -> None:
    """Rename a deposit that cannot be adopted, and write the reason to a file beside it."""
    _log.warning("deposit %s cannot be adopted and is rejected: %s", deposit.path, problem)
    aside = deposit.path.with_name(deposit.path.name + REJECTED_SUFFIX)
    with suppress(OSError):
        aside.with_name(aside.name + ".txt").write_text(f"{problem}\n")
    with suppress(FileNotFoundError):
        deposit.path.rename(aside)


# ---- adopting ---------------------------------------------------------------------------------------


def adopt(writer: Writer) -> int:
    """Append the deposits in the inbox, those of each producer in the order of their ids; return their number."""
    waiting = deposits(writer.directory)
    for deposit in waiting:
        with suppress(FileNotFoundError):  # another thread has adopted it
            _adopt(writer, deposit)
    return len(waiting)


def _adopt(writer: Writer, deposit: DepositFile) -> None:
    writer.commit_in_background()  # so that an error from here on is the deposit's own
    staged: tuple[StagedFile, ...] = ()
    with suppress(StreamCorrupt):
        staged = named_files(deposit)
    if deposit.publishing_id > writer.producers.last(deposit.producer):
        try:
            _append(writer, deposit, sum(file.length for file in staged))
        except (StreamCorrupt, InvalidMessage, pa.ArrowException) as problem:
            reject(deposit, problem)
            return
    deposit.path.unlink(missing_ok=True)
    # Last: as long as a deposit exists, so do the files it names.
    remove_staged(writer.directory, staged)


def _append(writer: Writer, deposit: DepositFile, staged_bytes: int) -> None:
    now = now_us()
    batches = read_deposit(deposit)
    columns = (read_table(batch, now) for batch in batches if batch.num_rows)
    mark = (deposit.producer, deposit.publishing_id)
    writer.append_columns(columns, mark, deposit.path.stat().st_size + staged_bytes)
