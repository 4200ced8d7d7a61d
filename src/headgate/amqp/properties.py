"""The properties of a message, as they are in its content header."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import Any, Final

from headgate.amqp.tables import Malformed, decode_table, encode_table, short_text

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
MAX_EXPIRATION_MS: Final = 4_294_967_295
REPLY_TO: Final = "amq.rabbitmq.reply-to"
CACHED: Final = 2_048  # how many different properties are remembered

_HEADER: Final = struct.Struct(">HHQH")  # class, weight, size of the body, flags
_U64: Final = struct.Struct(">Q")
_BASIC: Final = 60


class Properties:
    """Properties, decoded. Messages with equal bytes share one."""

    __slots__ = (
        "expiration",
        "expiration_ms",
        "is_special",
        "persistent",
        "priority",
        "raw",
        "values",
    )

    def __init__(self, raw: bytes, values: dict[str, Any]) -> None:
        self.raw, self.values = raw, values
        self.persistent = values.get("delivery_mode") == PERSISTENT
        self.priority: int = values.get("priority", 0)
        self.expiration: str | None = values.get("expiration")
        self.expiration_ms = _milliseconds(self.expiration)  # None also where it is no valid time
        headers = values.get("headers") or {}
        # Whether the broker must look at more than where the message goes and how long it lives.
        self.is_special = (
            values.get("reply_to") == REPLY_TO
            or "user_id" in values
            or "CC" in headers
            or "BCC" in headers
            or self.expiration is not None
        )

    @property
    def headers(self) -> dict[str, Any]:
        return self.values.get("headers") or {}


def _milliseconds(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdigit()) or int(text) > MAX_EXPIRATION_MS:
        return None
    return int(text)


_cache: dict[bytes, Properties] = {}


def read_properties(raw: bytes) -> Properties:
    """The properties in the flags and values of a content header."""
    found = _cache.get(raw)
    if found is None:
        found = Properties(raw, decode_properties(raw))
        if len(_cache) >= CACHED:
            _cache.clear()
        _cache[raw] = found
    return found


def decode_properties(raw: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    try:
        flags, position = raw[0] << 8 | raw[1], 2
        for number, (name, letter) in enumerate(PROPERTIES):
            if not flags >> (15 - number) & 1:
                continue
            match letter:
                case "s":
                    end = position + 1 + raw[position]
                    found[name] = raw[position + 1 : end].decode()
                    position = end
                case "T":
                    found[name], position = decode_table(raw, position)
                case "o":
                    found[name] = raw[position]
                    position += 1
                case _:
                    found[name] = _U64.unpack_from(raw, position)[0]
                    position += 8
    except (IndexError, struct.error, UnicodeDecodeError) as problem:
        raise Malformed(f"properties that cannot be read: {problem}") from problem
    if position > len(raw):
        raise Malformed("properties that are longer than their frame")
    return found


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
    digits = re.match(r"[+-]?\d+", text)
    if digits is None:
        problem = "no_integer"
    elif digits[0] != text:
        problem = f'{{leftover_string,"{text[digits.end() :]}"}}'
    elif int(text) < 0:
        problem = f"{{value_negative,{text}}}"
    else:
        problem = f"{{value_too_large,{text}}}"
    return f"invalid expiration '{text}': {problem}"
