"""Field tables of AMQP 0-9-1, with the types that RabbitMQ gives them.

S text   b B s u I i l L integers of 1, 2, 4 and 8 bytes   f d floats   t boolean   V void
T timestamp in seconds   D decimal   F table   A array   x bytes
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

MAX_DEPTH: Final = 32


class Malformed(ValueError):
    """Bytes that are not what AMQP says they are."""


_NUMBERS: Final = {
    ord(letter): struct.Struct(">" + code)
    for letter, code in zip("bBsuIilLfd", "bBhHiIqqfd", strict=True)
}
_U32: Final = struct.Struct(">I")
_I64: Final = struct.Struct(">q")
_DECIMAL: Final = struct.Struct(">Bi")
_FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)


def decode_table(data: bytes, position: int = 0, depth: int = 0) -> tuple[dict[str, Any], int]:
    """The table at a position, and the position behind it."""
    try:
        return _table(data, position, depth)
    except (IndexError, struct.error, UnicodeDecodeError, OverflowError) as problem:
        raise Malformed(f"a table that cannot be read: {problem}") from problem


def _table(data: bytes, position: int, depth: int) -> tuple[dict[str, Any], int]:
    if depth > MAX_DEPTH:
        raise Malformed(f"tables more than {MAX_DEPTH} deep")
    end = position + 4 + _U32.unpack_from(data, position)[0]
    position += 4
    if end > len(data):
        raise Malformed("a table that is longer than what holds it")
    found: dict[str, Any] = {}
    while position < end:
        start = position + 1
        position = start + data[position]
        name = data[start:position].decode()
        found[name], position = _value(data, position, depth)
    if position != end:
        raise Malformed("a table whose last value is longer than it")
    return found, position


def _value(data: bytes, position: int, depth: int) -> tuple[Any, int]:
    kind = data[position]
    position += 1
    number = _NUMBERS.get(kind)
    if number is not None:
        return number.unpack_from(data, position)[0], position + number.size
    match chr(kind):
        case "S":
            raw, position = _block(data, position)
            try:
                return raw.decode(), position
            except UnicodeDecodeError:
                return raw, position
        case "t":
            return data[position] != 0, position + 1
        case "V":
            return None, position
        case "F":
            return _table(data, position, depth + 1)
        case "A":
            return _array(data, position, depth + 1)
        case "T":
            return _moment(_I64.unpack_from(data, position)[0]), position + 8
        case "x":
            raw, position = _block(data, position)
            return bytearray(raw), position
        case "D":
            scale, digits = _DECIMAL.unpack_from(data, position)
            return Decimal(digits).scaleb(-scale), position + 5
        case _:
            raise Malformed(f"a field of unknown type {kind}")


def _block(data: bytes, position: int) -> tuple[bytes, int]:
    end = position + 4 + _U32.unpack_from(data, position)[0]
    if end > len(data):
        raise Malformed("a text that is longer than what holds it")
    return data[position + 4 : end], end


def _array(data: bytes, position: int, depth: int) -> tuple[list[Any], int]:
    if depth > MAX_DEPTH:
        raise Malformed(f"arrays more than {MAX_DEPTH} deep")
    end = position + 4 + _U32.unpack_from(data, position)[0]
    position += 4
    if end > len(data):
        raise Malformed("an array that is longer than what holds it")
    found: list[Any] = []
    while position < end:
        value, position = _value(data, position, depth)
        found.append(value)
    if position != end:
        raise Malformed("an array whose last value is longer than it")
    return found, position


def _moment(seconds: int) -> datetime | int:
    """A time; a number where it is beyond the calendar."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return seconds


def field_spans(data: bytes) -> dict[str, tuple[int, int]]:
    """Where each field of a table, its name included, begins and ends."""
    found: dict[str, tuple[int, int]] = {}
    position, end = 4, 4 + _U32.unpack_from(data)[0]
    while position < end:
        value_at = position + 1 + data[position]
        name = data[position + 1 : value_at].decode()
        behind = _value(data, value_at, 0)[1]
        found[name] = position, behind
        position = behind
    return found


def change_table(data: bytes, changed: Mapping[str, Any], removed: Collection[str] = ()) -> bytes:
    """A table with some fields set or removed; the others keep their bytes, and with them their types."""
    kept = [
        data[start:end]
        for name, (start, end) in field_spans(data).items()
        if name not in changed and name not in removed
    ]
    added = [short_text(name) + encode_value(value) for name, value in changed.items()]
    fields = b"".join(kept + added)
    return _U32.pack(len(fields)) + fields


def encode_table(table: Mapping[str, Any]) -> bytes:
    """A table as bytes, with its length in front."""
    fields = b"".join([short_text(name) + encode_value(value) for name, value in table.items()])
    return _U32.pack(len(fields)) + fields


def encode_value(value: Any) -> bytes:
    """A value with its type in front."""
    match value:
        case bool():
            return b"t\1" if value else b"t\0"
        case str():
            return b"S" + long_text(value.encode())
        case int():
            if -(2**31) <= value < 2**31:
                return b"I" + value.to_bytes(4, "big", signed=True)
            return b"l" + value.to_bytes(8, "big", signed=True)
        case float():
            return b"d" + struct.pack(">d", value)
        case None:
            return b"V"
        case bytearray():
            return b"x" + long_text(bytes(value))
        case bytes():
            return b"S" + long_text(value)
        case Mapping():
            return b"F" + encode_table(value)
        case datetime():
            return b"T" + _I64.pack((value - _FIRST) // _SECOND)
        case Decimal():
            return _encode_decimal(value)
        case Sequence():
            items = b"".join(map(encode_value, value))
            return b"A" + long_text(items)
        case _:
            raise TypeError(f"AMQP has no field for {type(value).__name__} {value!r}")


def _encode_decimal(value: Decimal) -> bytes:
    exponent = value.as_tuple().exponent
    scale = max(0, -exponent) if isinstance(exponent, int) else 0
    return b"D" + _DECIMAL.pack(scale, int(value.scaleb(scale)))


def short_text(text: str) -> bytes:
    """A text of at most 255 bytes, with its length in one."""
    raw = text.encode()
    if len(raw) > 255:
        raise Malformed(f"a text of {len(raw)} bytes where AMQP allows 255: {text[:40]}…")
    return bytes((len(raw),)) + raw


def long_text(raw: bytes) -> bytes:
    return _U32.pack(len(raw)) + raw
