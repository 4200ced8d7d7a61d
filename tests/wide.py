"""Messages of 200 headers and more, and the batches they may come in: most of their headers have no column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from headgate.columns.overflow import cap_columns
from headgate.columns.shred import shred_messages
from headgate.message import Message
from headgate.spark.pipeline.router import combine

# In every message and first by name: what a test asks about is what overflows.
PADDING = {f"!{number:03}": number for number in range(200)}


def widen(messages: Sequence[Message]) -> list[Message]:
    """The messages with 200 more headers each."""
    return [replace(m, headers={**m.headers, **PADDING}) for m in messages]


def overflowing_batch(messages: Sequence[Message]) -> pa.RecordBatch:
    """The columns a stream would store, payloads left out: 128 of headers, the others in `overflow`."""
    batch = shred_messages(messages)
    arrays = cap_columns(dict(zip(batch.schema.names, batch.columns, strict=True)), None, ())
    return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


def all_overflowing(messages: Sequence[Message]) -> pa.RecordBatch:
    return overflowing_batch(widen(messages))


def half_overflowing(messages: Sequence[Message]) -> pa.RecordBatch:
    """The first half has its headers in columns, the other in the overflow."""
    middle = len(messages) // 2
    return combine([shred_messages(messages[:middle]), all_overflowing(messages[middle:])])


LAYOUTS: dict[str, Callable[[Sequence[Message]], pa.RecordBatch]] = {
    "columns": shred_messages,
    "overflow": all_overflowing,
    "both": half_overflowing,
}
