"""A client of AMQP that costs little: publishes are encoded once, deliveries are counted by their bytes."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

from headgate.amqp.methods import FRAME, PREAMBLE, method_frame
from headgate.amqp.properties import content_header, encode_properties
from headgate.amqp.tables import decode_table

HEADERS = {"region": "EMEA", "type": "invoice", "amount": 1250, "vip": True, "tenant": "acme-co"}
BODY = b"x" * 100
WINDOW = 3_000  # publishes that are not confirmed yet, at most
BATCH = 100  # publishes in one write

Place = int | str  # the port of a broker of this machine, or the URL of any


class Client:
    """One connection with one channel."""

    def __init__(self, place: Place) -> None:
        url = f"amqp://guest:guest@127.0.0.1:{place}/" if isinstance(place, int) else place
        at = urlsplit(url)
        self.socket = socket.create_connection((at.hostname or "127.0.0.1", at.port or 5672))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self.socket.makefile("rb")
        self.socket.sendall(PREAMBLE)
        self.server_properties = decode_table(self.read()[1], 6)[0]
        login = f"\0{unquote(at.username or 'guest')}\0{unquote(at.password or 'guest')}".encode()
        self.call(0, "connection.start-ok", {"capabilities": {}}, "PLAIN", login, "en_US")
        self.socket.sendall(method_frame(0, "connection.tune-ok", 2047, 131072, 0))
        self.call(0, "connection.open", unquote(at.path[1:]) or "/", "", False)
        self.call(1, "channel.open", "")

    def read(self) -> tuple[int, bytes]:
        kind, _, size = FRAME.unpack(self._file.read(7))
        return kind, self._file.read(size + 1)[:-1]

    def call(self, channel: int, name: str, *values: Any) -> bytes:
        """Send a method; return the payload of the answer."""
        self.socket.sendall(method_frame(channel, name, *values))
        return self.read()[1]

    def declare(self, queue: str, durable: bool = False, **arguments: Any) -> None:
        self.call(1, "queue.declare", 0, queue, False, durable, False, False, False, arguments)

    def declare_anew(self, queue: str, durable: bool = False, **arguments: Any) -> None:
        """Declare a queue that another run may have left behind."""
        self.delete(queue)
        self.declare(queue, durable, **arguments)

    def delete(self, queue: str) -> None:
        self.call(1, "queue.delete", 0, queue, False, False, False)

    def publish(self, count: int, message: bytes, batch: int = BATCH) -> None:
        """Publish with confirms, and wait for the last."""
        self.publish_buffer(count, message * batch, batch)

    def publish_buffer(self, count: int, buffer: bytes, batch: int) -> None:
        """Publish a buffer with so many messages again and again, with confirms, and wait for the last."""
        self.call(1, "confirm.select", False)
        sent = confirmed = 0
        while sent < count:
            self.socket.sendall(buffer)
            sent += batch
            while sent - confirmed > WINDOW:
                confirmed = self._confirm()
        while confirmed < sent:
            confirmed = self._confirm()

    def _confirm(self) -> int:
        number: int = struct.unpack_from(">Q", self.read()[1], 4)[0]
        return number

    def consume(self, queue: str, count: int, message: bytes, prefetch: int = 2_000) -> None:
        """Consume this many, and acknowledge each by itself."""
        self.call(1, "basic.qos", 0, prefetch, False)
        self.call(1, "basic.consume", 0, queue, "c", False, False, False, False, {})
        publish = len(method_frame(1, "basic.publish", 0, "", queue, False, False))
        deliver = len(method_frame(1, "basic.deliver", "c", 1, False, "", queue))
        size, received, acked = len(message) - publish + deliver, 0, 0
        while received < count * size:
            received += len(self._file.read1(1 << 18))
            done = received // size
            if done - acked >= prefetch // 4 or done == count:
                acks = [
                    _ACK + tag.to_bytes(8, "big") + b"\0\xce" for tag in range(acked + 1, done + 1)
                ]
                self.socket.sendall(b"".join(acks))
                acked = done
        self.call(1, "basic.qos", 0, 0, False)  # the broker has seen the last ack

    def deliveries(self) -> Iterator[bytes]:
        """The bodies of messages, one after another."""
        while True:
            kind, payload = self.read()
            if kind == 3:
                yield payload

    def acknowledge(self, tag: int) -> None:
        """Acknowledge everything up to a delivery."""
        self.socket.sendall(method_frame(1, "basic.ack", tag, True))

    def close(self) -> None:
        self._file.close()
        self.socket.close()


_ACK = FRAME.pack(1, 1, 13) + b"\0\x3c\0\x50"


@contextmanager
def connected(place: Place) -> Iterator[Client]:
    client = Client(place)
    try:
        yield client
    finally:
        client.close()


def encode_publish(
    queue: str,
    exchange: str = "",
    *,
    durable: bool = False,
    headers: Mapping[str, Any] = HEADERS,
    body: bytes = BODY,
) -> bytes:
    """The frames of a publish."""
    properties = {
        "content_type": "application/json",
        "headers": headers,
        "delivery_mode": 2 if durable else 1,
    }
    header = content_header(encode_properties({**properties, "priority": 4}), len(body))
    return b"".join(
        (
            method_frame(1, "basic.publish", 0, exchange, queue, False, False),
            FRAME.pack(2, 1, len(header)),
            header,
            b"\xce",
            FRAME.pack(3, 1, len(body)),
            body,
            b"\xce",
        )
    )


def wait_until_open(port: int) -> float:
    """Wait until a broker listens; return the seconds."""
    began = time.monotonic()
    while True:
        try:
            Client(port).close()
        except OSError:
            time.sleep(0.01)
        else:
            return time.monotonic() - began
