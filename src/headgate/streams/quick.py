"""A quick look at a message: enough to know that most are valid, so that `validate` is asked about few.

Called once a message, so everything here is counted in nanoseconds. A False only says: look closer.
"""

from __future__ import annotations

from typing import Any, Final

from headgate.message import INT64_MAX, INT64_MIN, MAX_PRIORITY, Message
from headgate.streams.batching import MAX_MESSAGE_BYTES

ZERO: Final = 0  # compared by identity: False is another object
SURELY_SHORT: Final = 63  # code points; four bytes each make 252


def is_plain(message: Message, good_names: set[str], good_topics: set[str]) -> bool:
    """Whether it is valid and has nothing but topic, headers and payload."""
    return (
        message.topic in good_topics
        and message.priority is ZERO
        and message.timestamp is None
        and message.id is None
        and message.filter_value is None
        and message.key is None
        and not message.properties
        and type(message.payload) is bytes
        and len(message.payload) <= MAX_MESSAGE_BYTES
        and _good_headers(message.headers, good_names)
    )


def is_surely_valid(message: Message, good_names: set[str]) -> bool:
    """Whether it is valid, whatever it has."""
    return (
        type(message.payload) is bytes
        and len(message.payload) <= MAX_MESSAGE_BYTES
        and _short_text(message.topic)
        and type(message.priority) is int
        and 0 <= message.priority <= MAX_PRIORITY
        and (message.timestamp is None or _is_int64(message.timestamp))
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
            if not INT64_MIN <= value <= INT64_MAX:
                return False
        elif kind is not bool and (kind is not float or value - value != 0):
            return False
    return True


def _short_text(value: object) -> bool:
    return type(value) is str and len(value) <= SURELY_SHORT and value.isprintable()


def _is_int64(value: object) -> bool:
    return type(value) is int and INT64_MIN <= value <= INT64_MAX
