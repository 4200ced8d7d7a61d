"""Adoption: what outsiders put into the inbox becomes part of the stream."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa

from headgate.clock import now_us
from headgate.columns import read_table
from headgate.errors import InvalidMessage, StreamCorrupt
from headgate.streams.write.inbox import DepositFile, deposits, named_files, read_deposit, reject
from headgate.streams.write.staged import StagedFile, remove_staged
from headgate.streams.write.writer import Writer


def adopt(writer: Writer) -> int:
    """Take in what is in the inbox, each producer's deposits in the order of their ids; how many there were."""
    waiting = deposits(writer.directory)
    for deposit in waiting:
        with suppress(FileNotFoundError):  # another thread was faster
            _adopt(writer, deposit)
    return len(waiting)


def _adopt(writer: Writer, deposit: DepositFile) -> None:
    writer.commit_late()  # so that what fails from here on is the deposit's own fault
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
    # Last: as long as a deposit is there, so is what it names.
    remove_staged(writer.directory, staged)


def _append(writer: Writer, deposit: DepositFile, staged_bytes: int) -> None:
    now = now_us()
    batches = read_deposit(deposit)
    columns = (read_table(batch, now) for batch in batches if batch.num_rows)
    mark = (deposit.producer, deposit.publishing_id)
    writer.append_columns(columns, mark, deposit.path.stat().st_size + staged_bytes)
