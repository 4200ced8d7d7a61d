"""How an entry of a queue is written as a record of the store.

6 digits    length of everything in front of the body (see headgate.store)
u16         how often the message came back
i64         when it expires, in milliseconds since 1970; 0: never
...         the message but its body, in the form of its protocol
...         the body; empty where it is shared
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, TypeAlias

from headgate.broker.message import BrokerMessage, QueueEntry
from headgate.store import PREFIX_DIGITS, StoredHead, StoredRow

Decode: TypeAlias = Callable[[bytes, bytes], BrokerMessage]

_STATE: Final = struct.Struct(">Hq")
_HEAD: Final = PREFIX_DIGITS + _STATE.size


def make_record(entry: QueueEntry, head: bytes, body: bytes) -> bytes:
    """The record of an entry whose message has these parts."""
    state = _STATE.pack(entry.deliveries, entry.expires or 0)
    return b"".join((b"%06d" % (_HEAD + len(head)), state, head, body))


def read_message(head: StoredHead, decode: Decode) -> BrokerMessage:
    """The message of a row whose body was not read."""
    return decode(head.prefix[_HEAD:], b"")


def read_entry(row: StoredRow, lane: int, decode: Decode) -> QueueEntry:
    """The entry that a row holds."""
    record = row.record
    end = int(record[:PREFIX_DIGITS])
    deliveries, expires = _STATE.unpack_from(record, PREFIX_DIGITS)
    message = decode(record[_HEAD:end], record[end:] if row.body is None else row.body)
    entry = QueueEntry(row.position, message, lane, expires or None)
    entry.deliveries, entry.stored, entry.body_id = deliveries, True, row.body_id
    return entry
