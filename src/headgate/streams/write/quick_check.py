"""A quick look at a message: enough to know that most are valid, so that `validate` is asked about few.

A False only says: look closer. `Producer.publish` has the part of it that every message passes.
"""

from __future__ import annotations

from typing import Any, Final

from headgate.message import INT64_MAX, INT64_MIN, MAX_PRIORITY, Message
from headgate.streams.write.batching import MAX_MESSAGE_BYTES

ZERO: Final = 0  # compared by identity: False is another object
SURELY_SHORT: Final = 63  # code points; four bytes each make 252


def is_surely_valid(message: Message, good_names: set[str]) -> bool:
    """Whether it is valid, whatever it has."""
    return (
        type(message.payload) is bytes
        and len(message.payload) <= MAX_MESSAGE_BYTES
        and _short_text(message.topic)
        and type(message.priority) is int
        and 0 <= message.priority <= MAX_PRIORITY
        and (message.timestamp is None or is_int64(message.timestamp))
        and (message.id is None or _short_text(message.id))
        and (message.filter_value is None or _short_text(message.filter_value))
        and (message.key is None or _short_text(message.key))
        and not message.properties
        and _good_headers(message.headers, good_names)
    )


def _good_headers(headers: Any, good_names: set[str]) -> bool:
    for name, value in headers.items():
        if name not in good_names:
            return False
        kind = type(value)
        if kind is str:
            if not value.isprintable():
                return False
        elif kind is int:
            if not is_int64(value):
                return False
        elif kind is not bool and (kind is not float or value - value != 0):
            return False
    return True


def _short_text(value: object) -> bool:
    return type(value) is str and len(value) <= SURELY_SHORT and value.isprintable()


def is_int64(value: object) -> bool:
    """Whether it is an integer, and none too large."""
    return type(value) is int and INT64_MIN <= value <= INT64_MAX
