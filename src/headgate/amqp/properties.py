"""The properties of a message, as they are in its content header."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

from headgate.amqp.tables import Malformed, decode_table, encode_table, short_text
from headgate.message import Message

# In the order of their flags, from the highest bit down: s short text, T table, o octet, Q long long.
PROPERTIES: Final = (
    ("content_type", "s"),
    ("content_encoding", "s"),
    ("headers", "T"),
    ("delivery_mode", "o"),
    ("priority", "o"),
    ("correlation_id", "s"),
    ("reply_to", "s"),
    ("expiration", "s"),
    ("message_id", "s"),
    ("timestamp", "Q"),
    ("type", "s"),
    ("user_id", "s"),
    ("app_id", "s"),
    ("cluster_id", "s"),
)
PERSISTENT: Final = 2
MAX_EXPIRATION_MS: Final = 315_360_000_000  # ten years
REPLY_TO: Final = "amq.rabbitmq.reply-to"
NO_HEADERS: Final = b"\0\0\0\0"
MOST_CACHED: Final = 2_048  # how many different properties are remembered

_HEADER: Final = struct.Struct(">HHQH")  # class, weight, size of the body, flags
_MILLISECONDS: Final = re.compile(r"[+-]?[0-9]+")  # -0 is one, too
_U64: Final = struct.Struct(">Q")
_SIZES: Final = {"o": 1, "Q": 8}
_BASIC: Final = 60


class Properties:
    """Properties, decoded. Messages with equal bytes share one."""

    __slots__ = (
        "expiration",
        "expiration_ms",
        "headers",
        "is_common",
        "is_special",
        "persistent",
        "priority",
        "raw",
        "seen",
        "values",
    )

    def __init__(self, raw: bytes, values: dict[str, Any]) -> None:
        self.raw, self.values = raw, values
        self.is_common = False  # whether a second message had them
        # The last message made for filters, and its topic.
        self.seen: tuple[str, Message] | None = None
        self.persistent = values.get("delivery_mode") == PERSISTENT
        self.priority: int = values.get("priority", 0)
        self.expiration: str | None = values.get("expiration")
        self.expiration_ms = _milliseconds(self.expiration)  # None also where it is no valid time
        self.headers: dict[str, Any] = values.get("headers") or {}
        # Whether the broker must check more than the route and the expiration.
        self.is_special = (
            values.get("reply_to") == REPLY_TO
            or "user_id" in values
            or "CC" in self.headers
            or "BCC" in self.headers
            or self.expiration is not None
        )


def _milliseconds(text: str | None) -> int | None:
    if (
        text is None
        or _MILLISECONDS.fullmatch(text) is None
        or not 0 <= int(text) <= MAX_EXPIRATION_MS
    ):
        return None
    return int(text)


_cache: dict[bytes, Properties] = {}


def read_properties(raw: bytes) -> Properties:
    """The properties in the flags and values of a content header."""
    found = _cache.get(raw)
    if found is None:
        found = Properties(raw, decode_properties(raw))
        if len(_cache) >= MOST_CACHED:
            _cache.clear()
        _cache[raw] = found
    else:
        found.is_common = True
    return found


def decode_properties(raw: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, letter, start, end in property_spans(raw):
        match letter:
            case "s":
                found[name] = _decode_text(raw[start + 1 : end])
            case "T":
                found[name] = decode_table(raw, start)[0]
            case "o":
                found[name] = raw[start]
            case _:
                found[name] = _U64.unpack_from(raw, start)[0]
    return found


def property_spans(raw: bytes) -> Iterator[tuple[str, str, int, int]]:
    """The properties that are there: name, letter of the type, where the value begins and ends."""
    try:
        flags, position = raw[0] << 8 | raw[1], 2
        for number, (name, letter) in enumerate(PROPERTIES):
            if flags >> (15 - number) & 1:
                end = position + _SIZES.get(letter, 0)
                if letter == "s":
                    end = position + 1 + raw[position]
                elif letter == "T":
                    end = position + 4 + int.from_bytes(raw[position : position + 4], "big")
                if end > len(raw):
                    raise Malformed("properties that are longer than their frame")
                yield name, letter, position, end
                position = end
    except IndexError as problem:
        raise Malformed(f"properties that cannot be read: {problem}") from problem


def change_properties(raw: bytes, changed: Mapping[str, bytes | None]) -> bytes:
    """Properties with other bytes as the values of some, None removes one; the others keep their bytes."""
    values: dict[str, bytes | None] = {
        name: raw[start:end] for name, _, start, end in property_spans(raw)
    }
    values.update(changed)
    flags, parts = 0, []
    for number, (name, _) in enumerate(PROPERTIES):
        value = values.get(name)
        if value is not None:
            flags |= 1 << (15 - number)
            parts.append(value)
    return flags.to_bytes(2, "big") + b"".join(parts)


def raw_headers(raw: bytes) -> bytes:
    """The bytes of the table of headers; an empty table where there is none."""
    for name, _, start, end in property_spans(raw):
        if name == "headers":
            return raw[start:end]
    return NO_HEADERS


def _decode_text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as problem:
        raise Malformed(f"properties that cannot be read: {problem}") from problem


def encode_properties(values: Mapping[str, Any]) -> bytes:
    """Flags and values."""
    flags = 0
    parts: list[bytes] = []
    for number, (name, letter) in enumerate(PROPERTIES):
        value = values.get(name)
        if value is None:
            continue
        flags |= 1 << (15 - number)
        match letter:
            case "s":
                parts.append(short_text(value))
            case "T":
                parts.append(encode_table(value))
            case "o":
                parts.append(bytes((value,)))
            case _:
                parts.append(_U64.pack(value))
    return flags.to_bytes(2, "big") + b"".join(parts)


def content_header(raw: bytes, body_size: int) -> bytes:
    """The payload of a content header frame with these properties."""
    return _HEADER.pack(_BASIC, 0, body_size, 0)[:12] + raw


def expiration_problem(text: str) -> str:
    """What is wrong with an expiration, in RabbitMQ's words."""
    digits = re.match(r"[+-]?\d+", text, re.ASCII)
    if digits is None:
        problem = "no_integer"
    elif digits[0] != text:
        problem = f'{{leftover_string,"{text[digits.end() :]}"}}'
    elif int(text) < 0:
        problem = f"{{value_negative,{text}}}"
    else:
        problem = f"{{value_too_large,{text}}}"
    return f"invalid expiration '{text}': {problem}"
