"""The values of AMQP headers and arguments, and when two of them are equal.

Matching in the headers exchange is typed: `1`, `1.0`, `"1"` and `true` are four different values, while the
width of an integer does not matter; arrays and tables are compared by value. Each value has a key, and two
values are equal exactly when their keys are. Text and integers are their own keys.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, TypeAlias

from headgate.message import Message, project_headers

Arguments: TypeAlias = tuple[Any, ...]  # name, key, name, key, … sorted by name

PLAIN: Final = (str, int)  # types whose values are their own keys

_TRUE: Final = ("bool", True)
_FALSE: Final = ("bool", False)
_VOID: Final = ("void",)
_OPAQUE: Final = ("opaque",)


class Void:
    """AMQP's void: the header is present and has no value. In a message, None means that it is absent."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "VOID"

    def __reduce__(self) -> str:
        return "VOID"


VOID: Final = Void()


def key_of(value: Any) -> Hashable:
    """The key by which a value is compared."""
    match value:
        case bool():
            return _TRUE if value else _FALSE
        case str():
            return str(value)
        case int():
            return int(value)
        case float():
            return ("float", float(value))
        case None | Void():
            return _VOID
        case list() | tuple():
            return ("array", tuple(map(key_of, value)))
        case Mapping():
            return ("table", arguments_key(value))
        case bytes() | bytearray() | memoryview():
            return ("bytes", bytes(value))
        case Decimal():
            return ("decimal", str(value))
        case datetime():
            return _timestamp_key(value)
        case _:
            return _OPAQUE


def compared_key(key: Hashable) -> Hashable:
    """The key that a header must have, from the key of an argument of a binding.

    RabbitMQ counts the seconds of a timestamp in a binding and its milliseconds in a message, both as integers: a
    timestamp equals no timestamp.
    """
    match key:
        case ("timestamp", int(seconds)):
            return seconds
    return key


def _timestamp_key(value: datetime) -> Hashable:
    try:
        return ("timestamp", int(value.timestamp()))
    except (ValueError, OverflowError):  # local times at either end of the calendar
        return _OPAQUE


def holds_opaque(key: Any) -> bool:
    """Whether the key is of a value that AMQP cannot express, or contains one."""
    return type(key) is tuple and (key == _OPAQUE or any(map(holds_opaque, key)))


def value_of(key: Any) -> Any:
    """A value that has this key: the one that was bound, up to the width of an integer."""
    if not isinstance(key, tuple):
        return key
    match key:
        case ("void" | "opaque",):
            return None
        case ("array", items):
            return list(map(value_of, items))
        case ("table", items):
            return arguments_of(items)
        case ("decimal", text):
            return Decimal(text)
        case ("timestamp", seconds):
            return datetime.fromtimestamp(seconds, UTC)
        case _:
            return key[1]


def arguments_key(
    arguments: Mapping[str, Any], key: Callable[[Any], Hashable] = key_of
) -> Arguments:
    """A table as one flat tuple, sorted by name, so that equal tables have equal tuples."""
    flat: list[Any] = []
    for pair in sorted(arguments.items()):
        if type(pair[1]) not in PLAIN:
            pair = pair[0], key(pair[1])
        flat += pair
    return tuple(flat)


def arguments_of(key: Arguments) -> dict[str, Any]:
    """The table of a flat tuple."""
    return {str(name): value_of(value) for name, value in zip(key[::2], key[1::2], strict=True)}


class Envelope:
    """A routing key and AMQP headers of any kind; becomes a `Message` only if a filter asks for one.

    `make` makes that message, where filters ask for more than these two; its headers are those of `project_headers`.
    """

    __slots__ = ("_make", "_message", "headers", "topic")

    def __init__(
        self,
        topic: str,
        headers: Mapping[str, Any] | None = None,
        make: Callable[[], Message] | None = None,
    ) -> None:
        self.topic = topic
        self.headers = _without_none(headers or {})
        self._make = make
        self._message: Message | None = None

    @property
    def message(self) -> Message:
        """The message as filters see it: its scalar headers, and that the others exist."""
        if self._message is None:
            self._message = (
                self._make()
                if self._make
                else Message(b"", self.topic, project_headers(self.headers))
            )
        return self._message


def _without_none(headers: Mapping[str, Any]) -> Mapping[str, Any]:
    if None not in headers.values():
        return headers
    return {name: VOID if value is None else value for name, value in headers.items()}
