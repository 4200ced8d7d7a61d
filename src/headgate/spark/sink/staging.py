"""Staging: executors write rows to files nobody reads yet; the driver decides later what becomes of them."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

from headgate.clock import now_us
from headgate.columns import read_table
from headgate.errors import StagingError
from headgate.streams.write import STAGED_SUFFIX, write_staged


@dataclass(frozen=True, slots=True)
class Staged:
    """A staged file: for which of a sink's destinations it is, where, and what it holds."""

    destination: int
    file: str
    rows: int
    nbytes: int
    crc: int = 0


def stage(folder: str, batches: Iterable[pa.RecordBatch], destination: int = 0) -> Staged | None:
    """Write batches of stream columns to one durable file in `folder`; None, and no file, when there is no row.

    The columns may differ from batch to batch, and small batches are put together. They must be valid: those of a scan
    are, others become so with `valid_columns`.
    """
    path = Path(folder) / f"{uuid4().hex}{STAGED_SUFFIX}"
    try:
        written = write_staged(path, map(_without_offset, batches))
    except FileNotFoundError as missing:
        raise StagingError(
            f"{folder} was made by the driver and is not to be seen on {socket.gethostname()}; let both see the same "
            "file system there, or write to a destination that both see"
        ) from missing
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    if written is None:
        return None
    return Staged(destination, str(path), written.rows, written.length, written.crc)


def valid_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch under the rules for messages; InvalidMessage names the column and what is wrong with it."""
    return pa.record_batch(read_table(batch, now_us()))


def _without_offset(batch: pa.RecordBatch) -> pa.RecordBatch:
    at = batch.schema.get_field_index("offset")
    return batch if at < 0 else batch.remove_column(at)
