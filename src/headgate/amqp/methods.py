"""The methods of AMQP 0-9-1: their numbers and arguments, and frames of them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from headgate.amqp.tables import Malformed, decode_table, encode_table, long_text, short_text

FRAME_METHOD: Final = 1
FRAME_HEADER: Final = 2
FRAME_BODY: Final = 3
FRAME_HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE
FRAME: Final = struct.Struct(">BHI")  # type, channel, size of what follows without the end octet
HEARTBEAT: Final = b"\x08\0\0\0\0\0\0\xce"
PREAMBLE: Final = b"AMQP\0\0\x09\x01"


class Method(NamedTuple):
    """A method: its name, its class and number, and a letter for each argument.

    o octet · H short · L long · Q long long · s short text · S long text · T table · b bit
    """

    name: str
    class_id: int
    method_id: int
    arguments: str

    @property
    def key(self) -> bytes:
        return struct.pack(">HH", self.class_id, self.method_id)


_TEXT: Final = """
connection.start 10 10 ooTSS         connection.start-ok 10 11 TsSs
connection.secure 10 20 S            connection.secure-ok 10 21 S
connection.tune 10 30 HLH            connection.tune-ok 10 31 HLH
connection.open 10 40 ssb            connection.open-ok 10 41 s
connection.close 10 50 HsHH          connection.close-ok 10 51 -
connection.blocked 10 60 s           connection.unblocked 10 61 -
connection.update-secret 10 70 Ss    connection.update-secret-ok 10 71 -
channel.open 20 10 s                 channel.open-ok 20 11 S
channel.flow 20 20 b                 channel.flow-ok 20 21 b
channel.close 20 40 HsHH             channel.close-ok 20 41 -
exchange.declare 40 10 HssbbbbbT     exchange.declare-ok 40 11 -
exchange.delete 40 20 Hsbb           exchange.delete-ok 40 21 -
exchange.bind 40 30 HsssbT           exchange.bind-ok 40 31 -
exchange.unbind 40 40 HsssbT         exchange.unbind-ok 40 51 -
queue.declare 50 10 HsbbbbbT         queue.declare-ok 50 11 sLL
queue.bind 50 20 HsssbT              queue.bind-ok 50 21 -
queue.purge 50 30 Hsb                queue.purge-ok 50 31 L
queue.delete 50 40 Hsbbb             queue.delete-ok 50 41 L
queue.unbind 50 50 HsssT             queue.unbind-ok 50 51 -
basic.qos 60 10 LHb                  basic.qos-ok 60 11 -
basic.consume 60 20 HssbbbbT         basic.consume-ok 60 21 s
basic.cancel 60 30 sb                basic.cancel-ok 60 31 s
basic.publish 60 40 Hssbb            basic.return 60 50 Hsss
basic.deliver 60 60 sQbss            basic.get 60 70 Hsb
basic.get-ok 60 71 QbssL             basic.get-empty 60 72 s
basic.ack 60 80 Qb                   basic.reject 60 90 Qb
basic.recover-async 60 100 b         basic.recover 60 110 b
basic.recover-ok 60 111 -            basic.nack 60 120 Qbb
confirm.select 85 10 b               confirm.select-ok 85 11 -
tx.select 90 10 -                    tx.select-ok 90 11 -
tx.commit 90 20 -                    tx.commit-ok 90 21 -
tx.rollback 90 30 -                  tx.rollback-ok 90 31 -
"""


def _methods() -> dict[str, Method]:
    words = _TEXT.split()
    rows = zip(words[::4], words[1::4], words[2::4], words[3::4], strict=True)
    return {n: Method(n, int(c), int(m), a.replace("-", "")) for n, c, m, a in rows}


METHODS: Final = _methods()
BY_KEY: Final = {method.key: method for method in METHODS.values()}
CLASSES: Final = frozenset(method.class_id for method in METHODS.values())

_NUMBERS: Final = {
    letter: struct.Struct(">" + code) for letter, code in zip("oHLQ", "BHIQ", strict=True)
}
_U32: Final = struct.Struct(">I")


def decode_arguments(letters: str, data: bytes) -> list[Any]:
    """The arguments of a method."""
    found: list[Any] = []
    position = bit = bits = 0
    try:
        for letter in letters:
            if letter == "b":
                if bit == 0:
                    bits = data[position]
                    position += 1
                found.append(bool(bits >> bit & 1))
                bit = (bit + 1) % 8
                continue
            bit = 0
            if letter == "s":
                end = position + 1 + data[position]
                found.append(data[position + 1 : end].decode())
                position = end
            elif letter == "T":
                table, position = decode_table(data, position)
                found.append(table)
            elif letter == "S":
                end = position + 4 + _U32.unpack_from(data, position)[0]
                found.append(data[position + 4 : end])
                position = end
            else:
                number = _NUMBERS[letter]
                found.append(number.unpack_from(data, position)[0])
                position += number.size
    except (IndexError, struct.error, UnicodeDecodeError) as problem:
        raise Malformed("a method whose arguments cannot be read") from problem
    if position > len(data):
        raise Malformed("arguments that are longer than their frame")
    return found


def encode_arguments(letters: str, values: Sequence[Any]) -> bytes:
    parts: list[bytes] = []
    bits = count = 0
    for letter, value in zip(letters, values, strict=True):
        if letter == "b":
            bits |= bool(value) << count
            count += 1
            continue
        if count:
            parts.append(bytes((bits,)))
            bits = count = 0
        match letter:
            case "s":
                parts.append(short_text(value))
            case "T":
                parts.append(encode_table(value))
            case "S":
                parts.append(long_text(value))
            case _:
                parts.append(_NUMBERS[letter].pack(value))
    if count:
        parts.append(bytes((bits,)))
    return b"".join(parts)


def method_frame(channel: int, name: str, *values: Any) -> bytes:
    """A frame with one method."""
    method = METHODS[name]
    payload = method.key + encode_arguments(method.arguments, values)
    return FRAME.pack(FRAME_METHOD, channel, len(payload)) + payload + b"\xce"
