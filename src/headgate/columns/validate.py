"""Validate a whole batch column by column.

`message.validate` is the definition. Most batches are valid, and the check by columns only has to recognize those;
when it does not, every message is validated on its own, which raises the exact error of the first one at fault, or
none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from types import NoneType
from typing import Any, Final

import numpy as np

from headgate.columns.arrays import ABSENT, Column, MessageColumns, transpose
from headgate.errors import InvalidMessage
from headgate.message import (
    MAX_NAME_BYTES,
    OPAQUE,
    PROPERTY_NAMES,
    Message,
    Opaque,
    check_header_name,
    validate,
)

_BYTES: Final = frozenset({bytes, bytearray, memoryview})
_VALUES: Final = frozenset({str, int, float, bool, Opaque, NoneType})


def validate_batch(messages: Sequence[Message]) -> None:
    """Refuse a batch in which `validate` refuses a message, with the error of the first."""
    validate_transposed(transpose(messages), messages)


def validate_transposed(columns: MessageColumns, messages: Sequence[Message]) -> None:
    """Refuse a batch as `validate_batch` does; `columns` are the transposed messages."""
    payload_types = {type(message.payload) for message in messages}
    if not (payload_types <= _BYTES and _is_valid(columns)):
        for message in messages:
            validate(message)


def _is_valid(columns: MessageColumns) -> bool:
    return (
        columns.topic.types <= {str}
        and all(map(_is_short_text, (columns.topic, columns.id, columns.filter_value, columns.key)))
        and columns.priority.types <= {int}
        and _are_bytes(columns.priority.values)
        and columns.timestamp.types <= {int, NoneType}
        and all(map(_is_storable, (columns.timestamp, *columns.headers.values())))
        and all(map(_is_valid_name, columns.headers))
        and columns.properties.keys() <= PROPERTY_NAMES
        and all(map(_is_storable, columns.properties.values()))
    )


def _is_valid_name(name: object) -> bool:
    try:
        check_header_name(name)
    except InvalidMessage:
        return False
    return True


def _is_short_text(column: Column) -> bool:
    """Tell whether all values are texts of at most 255 bytes, or None."""
    if column.types <= ABSENT:
        return True
    if not column.types <= {str, NoneType}:
        return False
    texts = _of_type(column, str)
    return _are_short(texts) and _are_storable(texts)


def _are_short(texts: list[str]) -> bool:
    longest = max(map(len, texts))
    if longest * 4 <= MAX_NAME_BYTES:  # four bytes a code point at most
        return True
    return max(len(text.encode("utf-8", "surrogatepass")) for text in texts) <= MAX_NAME_BYTES


def _is_storable(column: Column) -> bool:
    types = column.types
    return (
        types <= _VALUES
        and (str not in types or _are_storable(_of_type(column, str)))
        and (int not in types or _are_int64(_of_type(column, int)))
        and (float not in types or all(map(math.isfinite, _of_type(column, float))))
        and (Opaque not in types or all(v is OPAQUE for v in _of_type(column, Opaque)))
    )


def _are_storable(texts: Iterable[str]) -> bool:
    joined = "".join(texts)
    if "\0" in joined:
        return False
    try:
        joined.encode()  # fails on lone surrogates
    except UnicodeEncodeError:
        return False
    return True


def _are_int64(values: list[int]) -> bool:
    try:
        np.fromiter(values, np.int64, len(values))
    except OverflowError:
        return False
    return True


def _are_bytes(values: list[int]) -> bool:
    try:
        bytes(values)
    except ValueError:
        return False
    return True


def _of_type(column: Column, type_: type) -> list[Any]:
    if len(column.types) == 1:
        return column.values
    return [value for value in column.values if type(value) is type_]
