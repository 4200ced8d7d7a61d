"""Messages -> the columns of a chunk."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.columns.arrays import encoded_text
from headgate.columns.names import MAX_HEADER_COLUMNS, SYSTEM_COLUMNS
from headgate.columns.overflow import cap, narrow
from headgate.columns.shredder import shred, shred_columns, shred_valid
from headgate.columns.transposed import column, in_common
from headgate.message import Message

Arrays: TypeAlias = dict[str, pa.Array]
Shred: TypeAlias = Callable[[Sequence[Message]], pa.RecordBatch]  # with or without validation


def arrays_of(
    messages: Sequence[Message],
    payloads: Sequence[bytes],
    indexed: Collection[str],
    now_us: int,
    shred: Shred = shred,
) -> Arrays:
    """The columns of these messages and their payloads; one without a timestamp was published now."""
    narrowed, rest = narrow(messages, indexed)
    batch = shred(narrowed)
    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    arrays["timestamp"] = stamped(arrays.get("timestamp"), len(messages), now_us)
    arrays["payload"] = payload_array(payloads)
    return cap(in_order(arrays), rest, indexed)


def plain_arrays_of(
    messages: Sequence[Message], payloads: Sequence[bytes], indexed: Collection[str], now_us: int
) -> Arrays:
    """The same for messages, at least one, that have topic, headers and payload, and nothing else to look at."""
    rows = [message.headers for message in messages]
    columns = in_common(rows)
    if columns is None or len(columns) > MAX_HEADER_COLUMNS:
        return arrays_of(messages, payloads, indexed, now_us)
    try:
        headers = shred_columns({name: column(values) for name, values in columns.items()})
    except (TypeError, ValueError, OverflowError):
        # Says what is wrong with which.
        return arrays_of(messages, payloads, indexed, now_us, shred_valid)
    arrays = {
        "timestamp": stamped(None, len(messages), now_us),
        "topic": _topic_array([message.topic for message in messages]),
        "priority": pa.array(np.zeros(len(messages), np.uint8)),
        "payload": payload_array(payloads),
    }
    return cap(arrays | headers, None, indexed)


def _topic_array(topics: list[str]) -> pa.Array:
    if len(set(topics)) > 1:
        return encoded_text(column(topics))
    codes = pa.array(np.zeros(len(topics), np.int8))
    return pa.DictionaryArray.from_arrays(codes, pa.array(topics[:1]))


def in_order(arrays: Arrays) -> Arrays:
    """System columns first, always in the same order."""
    system = {name: arrays[name] for name in SYSTEM_COLUMNS if name in arrays}
    return system | arrays


def stamped(timestamps: pa.Array | None, rows: int, now_us: int) -> pa.Array:
    """The timestamps, `now_us` where there is none."""
    if timestamps is None:
        return pa.array(np.full(rows, now_us))
    return pc.fill_null(timestamps, now_us) if timestamps.null_count else timestamps


def payload_array(payloads: Sequence[bytes]) -> pa.Array:
    """The payloads, one behind the other."""
    return pa.array(payloads, pa.binary())


def row_count(arrays: Arrays) -> int:
    return len(arrays["timestamp"])
