"""The codec of the broker for AMQP: messages and tables to and from the bytes of the store, messages to and from streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.amqp.content import Content, make_content
from headgate.amqp.stream_codec import from_stream, to_stream
from headgate.amqp.tables import decode_table, encode_table
from headgate.broker import BrokerMessage
from headgate.message import Message


class AmqpCodec:
    """Encodes and decodes messages and arguments of AMQP."""

    def decode(self, head: bytes, body: bytes) -> Content:
        size = int.from_bytes(head[:2], "big")
        return make_content(head[2 : 2 + size], head[2 + size :], body)

    def encode_table(self, table: Mapping[str, Any]) -> bytes:
        return encode_table(table)

    def decode_table(self, data: bytes) -> dict[str, Any]:
        return decode_table(data)[0]

    def to_stream(self, message: BrokerMessage) -> Message:
        assert isinstance(message, Content)
        return to_stream(message)

    def from_stream(self, offset: int, message: Message) -> Content:
        return from_stream(offset, message)
