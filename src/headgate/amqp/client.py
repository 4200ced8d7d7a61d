"""A client of any AMQP 0-9-1 broker, for the shovel and for pipelines: one connection, one channel, confirmed publishes.

Messages pass as bytes: the properties of a delivery are published unchanged. `publish` returns a future that is done when the
broker confirms; a message that no queue took fails it.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from headgate.amqp.content import content_frames, make_content
from headgate.amqp.methods import (
    BY_KEY,
    FRAME,
    FRAME_BODY,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    HEARTBEAT,
    PREAMBLE,
    decode_arguments,
    method_frame,
)
from headgate.amqp.properties import content_header
from headgate.amqp.tables import short_text
from headgate.errors import BrokerUnreachable, HeadgateError, PeerClosed
from headgate.message import Message

CHANNEL: Final = 1
PORTS: Final = {"amqp": 5672, "amqps": 5671}
TIMEOUT_S: Final = 15.0
HEARTBEAT_S: Final = 30
HEADER_BYTES: Final = 12  # of a content header, in front of the properties
MAX_FRAME: Final = 131_072  # bytes; also for a peer that would send larger ones
MAX_BODY: Final = 1 << 29  # bytes of a message, as RabbitMQ
PRODUCT: Final = {
    "product": "Headgate",
    "capabilities": {
        "basic.nack": True,
        "consumer_cancel_notify": True,
        "publisher_confirms": True,
        "authentication_failure_close": True,
        "connection.blocked": True,
    },
}


class BrokerAddress(NamedTuple):
    """The parts of `amqp://user:password@host:port/vhost`; its text leaves the password out."""

    is_secure: bool
    host: str
    port: int
    user: str
    password: str
    vhost: str

    def __str__(self) -> str:
        scheme = "amqps" if self.is_secure else "amqp"
        return f"{scheme}://{self.user}@{self.host}:{self.port}/{self.vhost.lstrip('/')}"


class _Pending(NamedTuple):
    """A publish that is not confirmed."""

    confirmed: asyncio.Future[None]
    message: tuple[str, str, bytes, bytes]  # exchange, routing key, properties, body


class Delivered(NamedTuple):
    """A message that the broker delivered."""

    tag: int
    redelivered: bool
    exchange: str
    routing_key: str
    properties: bytes
    body: bytes

    def message(self) -> Message:
        """The message as filters see it, without its body."""
        route = short_text(self.exchange) + short_text(self.routing_key)
        return make_content(route, self.properties, b"").envelope().message


def parse_address(url: str) -> BrokerAddress:
    """Parse a URL; by default user and password are guest, the vhost is / and the port that of the scheme."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in PORTS or not parts.hostname:
        scheme = url.partition("://")[0] if "://" in url else "nothing"
        raise HeadgateError(
            "a broker's address is amqp://user:password@host:port/vhost, or amqps://… with TLS; "
            f"this one begins with {scheme}://"
        )
    return BrokerAddress(
        parts.scheme == "amqps",
        parts.hostname,
        port or PORTS[parts.scheme],
        unquote(parts.username or "guest"),
        unquote(parts.password or "guest"),
        unquote(parts.path[1:]) or "/",
    )


class AmqpClient:
    """An open connection; `async with await AmqpClient.connect(url) as client:` closes it."""

    def __init__(
        self,
        address: BrokerAddress,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.address = address
        self.server_properties: dict[str, Any] = {}
        self._reader, self._writer = reader, writer
        self._frame_max = MAX_FRAME
        self._heard_at = time.monotonic()
        self._replies: deque[tuple[str, asyncio.Future[list[Any]]]] = deque()
        self._pending: dict[int, _Pending] = {}  # in the order of their numbers
        self._published = 0
        self._returned: dict[int, str] = {}  # why, by the number of the publish
        self._deliveries: asyncio.Queue[Delivered | None] = asyncio.Queue()
        self._problem: Exception | None = None
        self._content: tuple[str, list[Any]] | None = None
        self._properties, self._body, self._missing = b"", bytearray(), 0
        self._tasks: list[asyncio.Task[None]] = []

    # ---- opening and closing

    @classmethod
    async def connect(
        cls, url: str, *, context: ssl.SSLContext | None = None, timeout: float = TIMEOUT_S
    ) -> AmqpClient:
        """Connect, log in, open a channel, and turn confirms on."""
        address = parse_address(url)
        if address.is_secure and context is None:
            context = ssl.create_default_context()
        try:
            async with asyncio.timeout(timeout):
                streams = await asyncio.open_connection(address.host, address.port, ssl=context)
                client = cls(address, *streams)
                try:
                    await client._open()
                except BaseException:
                    client._writer.close()
                    raise
        except (OSError, asyncio.IncompleteReadError, UnicodeError) as problem:
            raise BrokerUnreachable(str(address), str(problem)) from problem
        return client

    async def _open(self) -> None:
        address = self.address
        self._writer.write(PREAMBLE)
        _, _, self.server_properties, _, _ = await self._expect("connection.start")
        response = f"\0{address.user}\0{address.password}".encode()
        self._send(0, "connection.start-ok", PRODUCT, "PLAIN", response, "en_US")
        channel_max, frame_max, _ = await self._expect("connection.tune")
        self._frame_max = min(frame_max or MAX_FRAME, MAX_FRAME)
        self._send(0, "connection.tune-ok", channel_max, self._frame_max, HEARTBEAT_S)
        self._send(0, "connection.open", address.vhost, "", False)
        await self._expect("connection.open-ok")
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._beat())]
        await self.call("channel.open", "")
        await self.call("confirm.select", False)

    async def __aenter__(self) -> AmqpClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; one that is closed already stays so."""
        if self._problem is None:
            with suppress(HeadgateError, OSError, TimeoutError):
                async with asyncio.timeout(TIMEOUT_S):
                    await self._request(0, "connection.close", 200, "bye", 0, 0)
        self._fail(PeerClosed(320, "closed by this side"))
        for task in self._tasks:
            task.cancel()
        self._writer.transport.abort()  # nothing is left to be written that the peer would read
        with suppress(OSError):
            await self._writer.wait_closed()

    # ---- verbs

    async def call(self, name: str, *values: Any) -> list[Any]:
        """Send a method on the channel, and return the arguments of its reply."""
        return await self._request(CHANNEL, name, *values)

    async def consume(
        self, queue: str, *, prefetch: int, arguments: Mapping[str, Any] | None = None
    ) -> AsyncIterator[Delivered]:
        """Deliveries of a queue until the connection or the consumer ends."""
        await self.call("basic.qos", 0, prefetch, False)
        await self.call("basic.consume", 0, queue, "", False, False, False, False, arguments or {})
        while True:
            delivered = await self._deliveries.get()
            if delivered is None:
                assert self._problem is not None
                raise self._problem
            yield delivered

    def waiting_deliveries(self) -> int:
        """How many messages have arrived and were not taken from `consume` yet."""
        return self._deliveries.qsize()

    def ack(self, tag: int) -> None:
        """Acknowledge one delivery."""
        self._send(CHANNEL, "basic.ack", tag, False)

    def publish(
        self, exchange: str, routing_key: str, properties: bytes, body: bytes
    ) -> asyncio.Future[None]:
        """Publish a message; the future is done when the broker has it, and fails when no queue took it."""
        self._check_open()
        self._published += 1
        confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        message = exchange, routing_key, properties, body
        self._pending[self._published] = _Pending(confirmed, message)
        header = content_header(properties, len(body))
        self._writer.write(
            method_frame(CHANNEL, "basic.publish", 0, exchange, routing_key, True, False)
            + content_frames(CHANNEL, header, body, self._frame_max)
        )
        return confirmed

    async def drain(self) -> None:
        """Wait until the peer has taken most of what was written."""
        await self._writer.drain()

    # ---- sending

    def _send(self, channel: int, name: str, *values: Any) -> None:
        self._check_open()
        self._writer.write(method_frame(channel, name, *values))

    async def _request(self, channel: int, name: str, *values: Any) -> list[Any]:
        self._send(channel, name, *values)
        reply: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._replies.append((f"{name}-ok", reply))
        return await reply

    def _check_open(self) -> None:
        if self._problem is not None:
            raise self._problem

    async def _beat(self) -> None:
        """Send heartbeats, and fail when the peer has been silent for too long."""
        while self._problem is None:
            await asyncio.sleep(HEARTBEAT_S / 2)
            self._writer.write(HEARTBEAT)
            silence = time.monotonic() - self._heard_at
            if silence > 2 * HEARTBEAT_S:
                self._fail(BrokerUnreachable(str(self.address), f"silent for {silence:.0f} s"))
                self._writer.transport.abort()

    # ---- receiving

    async def _frame(self) -> tuple[int, bytes]:
        kind, _, size = FRAME.unpack(await self._reader.readexactly(FRAME.size))
        if size > self._frame_max:
            raise PeerClosed(501, f"the peer sent a frame of {size} bytes")
        payload = await self._reader.readexactly(size + 1)
        self._heard_at = time.monotonic()
        return kind, payload[:-1]

    async def _expect(self, name: str) -> list[Any]:
        """Read the next method of the handshake, which must be this one."""
        kind, payload = await self._frame()
        while kind == FRAME_HEARTBEAT:
            kind, payload = await self._frame()
        sent, values = _read_method(payload)
        if sent == "connection.close":
            raise PeerClosed(values[0], values[1])
        if sent != name:
            raise PeerClosed(503, f"the peer sent {sent} instead of {name}")
        return values

    async def _read(self) -> None:
        try:
            while True:
                kind, payload = await self._frame()
                if kind == FRAME_METHOD:
                    self._on_method(*_read_method(payload))
                elif kind == FRAME_HEADER:
                    self._properties = payload[HEADER_BYTES:]
                    self._body = bytearray()
                    self._missing = int.from_bytes(payload[4:12], "big")
                    if self._missing > MAX_BODY:
                        raise PeerClosed(501, f"the peer sent a message of {self._missing} bytes")
                    self._on_content()
                elif kind == FRAME_BODY:
                    self._body += payload
                    self._missing -= len(payload)
                    self._on_content()
        except (OSError, asyncio.IncompleteReadError) as problem:
            self._fail(BrokerUnreachable(str(self.address), str(problem)))
        except HeadgateError as problem:
            self._fail(problem)

    def _on_method(self, name: str, values: list[Any]) -> None:
        match name:
            case "basic.deliver" | "basic.return":
                self._content = name, values
            case "basic.ack":
                self._confirm(values[0], values[1], None)
            case "basic.nack":
                self._confirm(values[0], values[1], "a queue refused it, because it is full")
            case "channel.close" | "connection.close":
                raise PeerClosed(values[0], values[1])
            case "basic.cancel":
                raise PeerClosed(404, "the queue was deleted")
            case "connection.blocked" | "connection.unblocked" | "channel.flow":
                pass  # confirms come later: that is all that it means here
            case _ if self._replies and self._replies[0][0] == name:
                reply = self._replies.popleft()[1]
                if not reply.done():
                    reply.set_result(values)
            case _:
                raise PeerClosed(503, f"the peer sent {name}, which was not asked for")

    def _on_content(self) -> None:
        if self._missing > 0 or self._content is None:
            return
        name, values = self._content
        self._content = None
        if name == "basic.return":
            self._on_return(values)
            return
        _, tag, redelivered, exchange, key = values
        message = Delivered(tag, redelivered, exchange, key, self._properties, bytes(self._body))
        self._deliveries.put_nowait(message)

    def _on_return(self, values: list[Any]) -> None:
        """Note which publish came back: its confirm follows, perhaps as one of several."""
        _, text, exchange, key = values
        message = exchange, key, self._properties, bytes(self._body)
        for number, pending in self._pending.items():
            if pending.message == message and number not in self._returned:
                self._returned[number] = f"{text} (exchange {exchange!r}, routing key {key!r})"
                return

    def _confirm(self, tag: int, multiple: bool, refusal: str | None) -> None:
        numbers = [number for number in self._pending if number <= tag] if multiple else [tag]
        for number in numbers:
            pending = self._pending.pop(number, None)
            problem = refusal or self._returned.pop(number, None)
            if pending is None or pending.confirmed.done():
                continue
            if problem is None:
                pending.confirmed.set_result(None)
            else:
                error = HeadgateError(f"a message was not taken: {problem}")
                pending.confirmed.set_exception(error)

    def _fail(self, problem: Exception) -> None:
        """Fail every reply, publish and delivery that is waited for."""
        if self._problem is not None:
            return
        self._problem = problem
        waiting: list[asyncio.Future[Any]] = [reply for _, reply in self._replies]
        waiting += [pending.confirmed for pending in self._pending.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(problem)
                future.exception()  # it is no fault of the program if nothing waits for it
        self._deliveries.put_nowait(None)


def _read_method(payload: bytes) -> tuple[str, list[Any]]:
    """The name and the arguments of a method that a peer sent."""
    try:
        method = BY_KEY[payload[:4]]
        return method.name, decode_arguments(method.arguments, payload[4:])
    except (KeyError, ValueError, IndexError, struct.error) as problem:
        raise PeerClosed(501, f"the peer sent an invalid method: {problem}") from problem
