"""Staged files: executors write rows to files that no reader sees; the driver commits or deletes them later."""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa

from headgate.clock import now_us, seconds_since_change
from headgate.columns import read_table
from headgate.errors import StagingError
from headgate.streams.write import STAGED_SUFFIX, orphans, write_staged

# Files of other owners are deleted after this time: a batch may take long.
ABANDONED_SECONDS: Final = 24 * 3600


@dataclass(frozen=True, slots=True)
class StagedPart:
    """A staged file: the number of its destination, its path, its size, and the folder of the place it goes to."""

    destination: int
    file: str
    rows: int
    nbytes: int
    crc: int = 0
    folder: str = ""


def stage(
    folder: str, batches: Iterable[pa.RecordBatch], destination: int = 0
) -> StagedPart | None:
    """Write batches of stream columns to one durable file in `folder`; None, and no file, when there is no row.

    The columns may differ from batch to batch, and small batches are joined. They must be valid: those of a scan are,
    others become valid with `valid_columns`.
    """
    path = Path(folder) / f"{uuid4().hex}{STAGED_SUFFIX}"
    try:
        written = write_staged(path, map(_drop_offset, batches))
    except FileNotFoundError as missing:
        raise StagingError(
            f"{folder} was created by the driver and does not exist on {socket.gethostname()}; mount one file system "
            "there on both, or write to a destination that both can reach"
        ) from missing
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    if written is None:
        return None
    return StagedPart(destination, str(path), written.rows, written.length, written.crc)


def valid_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Check and convert the batch by the rules for messages; InvalidMessage names the column and the problem."""
    return pa.record_batch(read_table(batch, now_us()))


def _drop_offset(batch: pa.RecordBatch) -> pa.RecordBatch:
    at = batch.schema.get_field_index("offset")
    return batch if at < 0 else batch.remove_column(at)


# ---- folders -----------------------------------------------------------------------------------------


def make_folder(folder: str) -> None:
    """Create the folder and its parents."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise StagingError(
            f"{folder} cannot be created: {problem}; make sure it can be written to"
        ) from problem


def missing_file(file: str) -> StagingError:
    """The error for a file that an executor staged and the driver does not find."""
    return StagingError(
        f"{file} was staged by an executor and does not exist on the driver; mount one file system there on both"
    )


def delete_files(staged: Iterable[StagedPart], keep: Collection[Path] = ()) -> None:
    """Delete staged files, except those to keep."""
    for each in staged:
        if Path(each.file) not in keep:
            Path(each.file).unlink(missing_ok=True)


def delete_orphans(folder: str, keep: Collection[Path], suffix: str) -> None:
    """Delete all files in the owner's folder, and abandoned files of other owners beside it, except those to keep."""
    own = Path(folder)
    for path in orphans(own, keep, horizon_s=0, suffix=suffix):
        path.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        for other in own.parent.iterdir():
            if other != own and other.is_dir():
                _delete_abandoned(other, keep, suffix)


def _delete_abandoned(folder: Path, keep: Collection[Path], suffix: str) -> None:
    for path in orphans(folder, keep, horizon_s=ABANDONED_SECONDS, suffix=suffix):
        path.unlink(missing_ok=True)
    if seconds_since_change(folder) > ABANDONED_SECONDS:
        delete_folder(str(folder))


def delete_folder(folder: str) -> None:
    """Delete the folder if it is empty."""
    with suppress(OSError):
        Path(folder).rmdir()
