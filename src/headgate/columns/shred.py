"""Messages -> columns, so that a filter reads only what it asks about. `columns.names` says how they are named.

Every header becomes up to four typed columns, one for each kind of value it holds somewhere in the batch, and a fifth
that marks where it holds something no filter can compare.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.columns.arrays import (
    ABSENT,
    ARRAY_OF,
    OPTIONAL_FIELDS,
    Column,
    MessageColumns,
    byte_array,
    encoded_text_array,
    int_array,
    opaque_array,
    plain_text_array,
    select_type,
    spread,
    text_array,
    transpose,
    transpose_headers,
)
from headgate.columns.names import SYSTEM_COLUMNS, typed_name
from headgate.columns.overflow import HeaderChoice, cap_columns
from headgate.columns.validate import validate_transposed
from headgate.filters import KIND_OF, Scope, View
from headgate.message import HeaderValue, Message, validate

Arrays: TypeAlias = dict[str, pa.Array]  # columns by name
# Raises the error of the first invalid message.
BatchCheck: TypeAlias = Callable[[MessageColumns, Sequence[Message]], None]

_COMPARABLE: Final = frozenset(KIND_OF)
_OPTIONAL_FIELDS: Final[dict[str, Callable[[Column], pa.Array]]] = {
    "timestamp": int_array,
    "id": plain_text_array,  # ids do not repeat: a dictionary would only cost
    "filter_value": text_array,
    "key": text_array,
}


def shred_messages(messages: Sequence[Message]) -> pa.RecordBatch:
    """Turn messages into columns, without payloads. Refuses only what no column could hold."""
    return _shred(transpose(messages), messages)


def shred_valid(messages: Sequence[Message]) -> pa.RecordBatch:
    """Validate messages and turn them into columns, without payloads, in one pass over the messages."""
    columns = transpose(messages)
    validate_transposed(columns, messages)
    return _shred(columns, messages)


def shred_headers(
    rows: Sequence[Mapping[str, HeaderValue]],
    scope: Scope = "header",
    only: Collection[str] | None = None,
) -> Arrays:
    """Turn the headers (or properties) of many messages into typed columns."""
    return _shred_columns(transpose_headers(rows, only), scope)


def _shred_columns(columns: Mapping[str, Column], scope: Scope) -> Arrays:
    return {
        typed_name(scope, view, name): array
        for name, column in columns.items()
        for view, array in _typed_arrays(column).items()
    }


def _shred(columns: MessageColumns, messages: Sequence[Message]) -> pa.RecordBatch:
    arrays = _shred_arrays(columns, messages)
    return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


def _shred_arrays(columns: MessageColumns, messages: Sequence[Message]) -> Arrays:
    try:
        return {
            **_system_arrays(columns),
            **_shred_columns(columns.headers, "header"),
            **_shred_columns(columns.properties, "property"),
        }
    except (TypeError, ValueError, OverflowError):
        for message in messages:
            validate(message)  # names the message, the field and the remedy
        raise


def _system_arrays(columns: MessageColumns) -> Arrays:
    arrays = {
        "topic": _topic_array(columns.topic),
        "priority": byte_array(columns.priority.values),
    }
    for name, make_array in _OPTIONAL_FIELDS.items():
        column: Column = getattr(columns, name)
        if not column.types <= ABSENT:
            arrays[name] = make_array(column)
    return arrays


def _topic_array(column: Column) -> pa.DictionaryArray:
    if column.types != {str} or len(set(column.values)) > 1:
        return encoded_text_array(column)
    codes = pa.array(np.zeros(column.messages, np.int8))
    return pa.DictionaryArray.from_arrays(codes, pa.array(column.values[:1]))


def _typed_arrays(column: Column) -> dict[View, pa.Array]:
    """Make one array for each kind of value that occurs, and the opaque marks if something else does."""
    views: dict[View, pa.Array] = {
        kind: spread(ARRAY_OF[kind](select_type(column, type_)), column)
        for type_, kind in KIND_OF.items()
        if type_ in column.types
    }
    if not column.types <= _COMPARABLE | ABSENT:
        views["opaque"] = opaque_array(column)
    return views


# ---- the columns of a chunk --------------------------------------------------------------------------


def shred_chunk(
    messages: Sequence[Message],
    payloads: Sequence[bytes],
    indexed: Collection[str],
    now_us: int,
    check: BatchCheck | None = None,
    used: Collection[str] = OPTIONAL_FIELDS,
) -> Arrays:
    """Make the columns of a chunk; a message without a timestamp gets `now_us`.

    `used`: which of the optional fields some message may have; the others are not read.
    """
    choice = HeaderChoice(indexed)
    columns = transpose(messages, used, choice.choose if check is None else None)
    if check is not None:
        check(columns, messages)
    headers = choice.narrow(columns.headers)
    arrays = _shred_arrays(columns._replace(headers=headers), messages)
    arrays["timestamp"] = fill_timestamps(arrays.get("timestamp"), len(messages), now_us)
    arrays["payload"] = pa.array(payloads, pa.binary())
    return cap_columns(order_columns(arrays), choice.rest, indexed)


def order_columns(arrays: Arrays) -> Arrays:
    """Put the system columns first, in the order of a file."""
    system = {name: arrays[name] for name in SYSTEM_COLUMNS if name in arrays}
    return system | arrays


def fill_timestamps(timestamps: pa.Array | None, rows: int, now_us: int) -> pa.Array:
    """Return the timestamps, `now_us` where there is none."""
    if timestamps is None:
        return pa.array(np.full(rows, now_us))
    return pc.fill_null(timestamps, now_us) if timestamps.null_count else timestamps


def count_rows(arrays: Arrays) -> int:
    """Count the messages of a chunk's columns."""
    return len(arrays["timestamp"])
