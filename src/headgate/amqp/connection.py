"""A connection: parses frames in one loop, and writes everything that a turn produced at once.

A publish whose frames are all in the buffer is not parsed further: the loop reads their sizes, and keeps one slice of
bytes. A publish that arrives in pieces is collected by `_content`.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Final, cast

from headgate.amqp.blocking import MOST_ANSWERS, go_on_if_read, limit_answers, receive_during_alarm
from headgate.amqp.channel import Channel
from headgate.amqp.confirms import confirm_published
from headgate.amqp.content import OVERHEAD, PROPERTIES_AT, Content
from headgate.amqp.deliveries import count_off
from headgate.amqp.handshake import FRAME_MIN, AmqpListener, Handshake
from headgate.amqp.methods import (
    BY_KEY,
    CLASSES,
    FRAME,
    FRAME_BODY,
    FRAME_END,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    METHODS,
    decode_arguments,
    method_frame,
)
from headgate.amqp.permissions import Permissions
from headgate.amqp.properties import read_properties
from headgate.amqp.publish import PUBLISH_IDS, ArrivingMessage, Publish, resolve_publish
from headgate.amqp.reply_codes import ConnectionFailed, bad_frame, octets, reply_code, reply_text
from headgate.amqp.tables import Malformed
from headgate.amqp.turns import LITTLE, LOOK_BYTES, SLICE_S, read_on
from headgate.broker import ConnectionRefusal, Login, Refusal, VirtualHost

log: Final = logging.getLogger(__name__)

CLOSING_S: Final = 2.0  # how long a peer may take to answer a close
MAX_ROUTES: Final = 10_000
HIGH_WATER: Final = 1 << 20
WRITE_AT: Final = 262_144

_PUBLISH: Final = METHODS["basic.publish"].key
_ACK: Final = METHODS["basic.ack"].key
_ACK_IDS: Final = (60, 80)
_TAG: Final = struct.Struct(">QB")
_ACK_SIZE: Final = 13  # with class and method
_U64: Final = struct.Struct(">Q")
_BASIC: Final = b"\0\x3c"


class Connection(asyncio.BufferedProtocol):
    """One client."""

    def __init__(self, listener: AmqpListener) -> None:
        self.listener = listener
        self.broker = listener.broker
        self.vhost: VirtualHost  # when it is open, and what its user may do there
        self.permissions: Permissions
        self.login = Login("")
        self.is_waiting = False  # for a login, or for the client to read: received bytes are kept
        self.is_blocked = self.is_told = False  # by an alarm, so that nothing is read; and told so
        self.answered = 0  # bytes since the client has last read all
        self.frame_max = FRAME_MIN  # until that is negotiated, behind the login
        self.channel_max = 2_047
        self.out: list[bytes] = []
        self.is_writable = True
        self.channels: dict[int, Channel] = {}
        self.handshake = Handshake(self)
        self.client_properties: Mapping[str, Any] = {}
        self.received_bytes = self.sent_bytes = 0
        self._rest, self.is_behind = b"", False  # bytes not handled yet; whether with whole frames
        self._method_ids = (0, 0)  # class and method that a close refers to
        self._is_closing = self._is_gone = False
        self._unconfirmed: set[Channel] = set()
        self._routes: dict[bytes, Publish] = {}
        self._routes_of = -1  # the generation of the topology they are of

    # ---- the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=HIGH_WATER)
        self.listener.connections.add(self)

    def connection_lost(self, problem: Exception | None) -> None:
        self._is_gone = True
        self.listener.connections.discard(self)
        self.broker.connections.pop(self.handshake.name, None)
        self._let_go()
        self.broker.flush()

    def pause_writing(self) -> None:
        self.is_writable = False

    def resume_writing(self) -> None:
        self.is_writable = True
        for channel in self.channels.values():
            self.broker.dirty.update(consumer.queue for consumer in channel.consumers.values())
        go_on_if_read(self)
        self.broker.flush()

    # ---- writing

    def send(self, channel: int, name: str, *values: Any) -> None:
        self.write(method_frame(channel, name, *values))

    def write(self, data: bytes) -> None:
        self.out.append(data)
        self.broker.writing.add(self)
        self.answered += len(data)
        if self.answered > MOST_ANSWERS:
            limit_answers(self)

    def wrote(self, size: int) -> None:
        """Count deliveries of this size that were put into `out`."""
        self.broker.writing.add(self)
        self.listener.unwritten += size
        if self.listener.unwritten > WRITE_AT:
            self.listener.unwritten = 0
            self.flush()

    def flush(self) -> None:
        """Write what this turn produced; confirms of stored messages wait for the commit."""
        if self._unconfirmed:
            confirm_published(self, self._unconfirmed)
            self._unconfirmed.clear()
        if self.out:
            data = b"".join(self.out)
            self.out.clear()
            self.sent_bytes += len(data)
            if not self._is_gone:
                self.transport.write(data)

    def confirm(self, channel: Channel) -> None:
        """Have the publishes of a channel confirmed at the end of this turn, or when they are stored."""
        self._unconfirmed.add(channel)
        self.broker.writing.add(self)

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call a function when everything that was done so far is durable."""
        self.broker.after_commit(call)

    # ---- reading

    def get_buffer(self, hint: int) -> memoryview:
        return self.listener.buffer  # of all connections: it is read at once

    def buffer_updated(self, size: int) -> None:
        data = bytes(self.listener.buffer[:size])
        self.received_bytes += size
        if size > LITTLE or self.is_behind:
            self._rest, self.is_behind = self._rest + data, True
        else:
            self.handle(data)
        if self.is_behind and not self.transport.is_closing():
            self.transport.pause_reading()
            self.listener.turns.add(self)

    def handle(self, data: bytes) -> None:
        """Handle what the peer sent earlier and now, as far as a slice of time allows."""
        receive = receive_during_alarm if self.listener.is_blocking else Connection.receive
        receive(self, data)

    def receive(self, data: bytes) -> None:
        """Handle what the peer sent, as far as it is complete and a slice of time allows."""
        data, self.is_behind = self._rest + data, False
        try:
            self.handshake.heard()
            if self.handshake.is_first:
                data = self.handshake.greet(data)
                if self.handshake.is_first:
                    self._rest = data
                    return
            self._rest = self._parse(data)
        except Exception as problem:
            self.fail(problem)
        if not self.is_behind or self.is_waiting or self.listener.is_blocking:
            self.broker.flush()

    def _parse(self, data: bytes) -> bytes:
        position, end = 0, len(data)
        look_at, until = LOOK_BYTES, perf_counter() + SLICE_S
        channels, unpack = self.channels, FRAME.unpack_from
        while end - position >= OVERHEAD:
            if position >= look_at:
                if perf_counter() >= until:
                    self.is_behind = True
                    break
                look_at = position + LOOK_BYTES
            kind, number, size = unpack(data, position)
            behind = position + size + OVERHEAD
            if size > self.frame_max - OVERHEAD:
                text = f"{{frame_too_large,{size},{self.frame_max - OVERHEAD}}}"
                raise ConnectionFailed(501, f"type {kind}, all octets = <<>>: {text}")
            if behind > end:
                break
            if data[behind - 1] != FRAME_END:
                raise ConnectionFailed(
                    501, bad_frame(kind, data[position + 7 : behind - 1], data[behind - 1])
                )
            if kind == FRAME_METHOD:
                key = data[position + 7 : position + 11]
                channel = channels.get(number)
                if (
                    key == _PUBLISH
                    and channel is not None
                    and not channel.is_closing
                    and channel.arriving is None
                ):
                    behind = self._publish(channel, data, position, behind, end)
                elif (
                    key == _ACK
                    and size == _ACK_SIZE
                    and channel is not None
                    and not channel.is_closing
                    and channel.arriving is None
                ):
                    self._ack(channel, data, position)
                else:
                    self._method(number, channel, key, data[position + 11 : behind - 1], size)
                    if self.is_waiting:
                        return data[behind:]
            elif kind in (FRAME_HEADER, FRAME_BODY):
                self._content(kind, number, data[position:behind])
            elif kind == FRAME_HEARTBEAT and number == 0 and size == 0:
                pass
            elif kind == FRAME_HEARTBEAT and size == 0:
                self._method_ids = (0, 0)
                raise ConnectionFailed(505, f"type {kind}, all octets = <<>>")
            else:
                payload = octets(data[position + 7 : behind - 1])
                raise ConnectionFailed(501, f"type {kind}, all octets = {payload}: unknown_frame")
            position = behind
        return data[position:] if position else data

    def _publish(self, channel: Channel, data: bytes, position: int, behind: int, end: int) -> int:
        """Handle a basic.publish, with its content if that has arrived; return the position behind it."""
        route = data[position + 13 : behind - 1]
        vhost = self.vhost
        if self._routes_of != vhost.generation:
            self._routes.clear()
            self._routes_of = vhost.generation
        publish = self._routes.get(route)
        try:
            if publish is None:
                publish = self._find_publish(route)
            # Both frames of the content are here, the body is one frame, and nothing is odd about them.
            if behind + OVERHEAD + 14 < end and data[behind] == FRAME_HEADER:
                _, number, size = FRAME.unpack_from(data, behind)
                head_end = behind + size + OVERHEAD
                if (
                    head_end <= end
                    and 14 <= size <= self.frame_max - OVERHEAD
                    and number == channel.number
                    and data[behind + 7 : behind + 9] == _BASIC
                ):
                    body_size: int = _U64.unpack_from(data, behind + 11)[0]
                    body_end: int = head_end + (body_size + OVERHEAD if body_size else 0)
                    if (
                        body_end <= end
                        and body_size <= self.frame_max - OVERHEAD
                        and data[head_end - 1] == FRAME_END
                        and (
                            not body_size
                            or (
                                data[body_end - 1] == FRAME_END
                                and FRAME.unpack_from(data, head_end)
                                == (FRAME_BODY, number, body_size)
                            )
                        )
                    ):
                        content = Content(
                            publish.suffix,
                            data[behind:body_end],
                            number,
                            head_end - behind,
                            True,
                            read_properties(data[behind + PROPERTIES_AT : head_end - 1]),
                            body_size,
                        )
                        channel.published_message(publish, content)
                        return body_end
        except Refusal as refusal:
            self.refuse(channel, refusal, PUBLISH_IDS)
            return behind
        except (ConnectionFailed, Malformed):
            self._method_ids = PUBLISH_IDS
            raise
        channel.arriving = ArrivingMessage(publish)
        return behind

    def _find_publish(self, route: bytes) -> Publish:
        """Resolve exchange, routing key and flags; later publishes with equal bytes find the result."""
        publish = resolve_publish(route, self.vhost, self.permissions)
        if len(self._routes) > MAX_ROUTES:
            self._routes.clear()
        self._routes[route] = publish
        return publish

    def forget_routes(self) -> None:
        """Forget resolved publishes, because permissions or the topology changed."""
        self._routes_of = -1

    def _ack(self, channel: Channel, data: bytes, position: int) -> None:
        tag, multiple = _TAG.unpack_from(data, position + 11)
        if not multiple and channel.transaction is None:
            sent = channel.unacked.pop(tag, None)
            if sent is not None:
                count_off(channel, sent)
                if not sent.queue.is_deleted:
                    sent.queue.ack(sent.entry)
                if channel.prefetch_all:
                    self.broker.dirty.update(c.queue for c in channel.consumers.values())
                return
        try:
            channel.on_basic_ack(tag, bool(multiple))
        except Refusal as refusal:
            self.refuse(channel, refusal, _ACK_IDS)

    def _content(self, kind: int, number: int, raw: bytes) -> None:
        """Take a content frame of a message that did not arrive in one piece."""
        channel = self.channels.get(number)
        if channel is not None and channel.is_closing:
            return
        if channel is None or channel.arriving is None:
            self._method_ids = (0, 0)
            raise ConnectionFailed(505, "expected method frame, got non method frame instead")
        arriving = channel.arriving
        self._method_ids = PUBLISH_IDS
        try:
            if arriving.add(kind, raw):
                channel.arriving = None
                channel.published_message(arriving.publish, arriving.content(number))
        except Refusal as refusal:
            self.refuse(channel, refusal, PUBLISH_IDS)

    # ---- methods

    def _method(
        self, number: int, channel: Channel | None, key: bytes, data: bytes, size: int
    ) -> None:
        method = BY_KEY.get(key)
        if size < 4:
            raise ConnectionFailed(501, f"type 1, all octets = {octets(key[:size])}: unknown_frame")
        self._method_ids = ids = struct.unpack(">HH", key)
        if method is None:
            code = 540 if ids[0] in CLASSES else 503
            self._method_ids = (0, 0)
            raise ConnectionFailed(code, f"there is no method {ids[0]}.{ids[1]}")
        if self._is_closing:
            if method.name in ("connection.close-ok", "connection.close"):
                self.transport.close()
            return
        try:
            arguments = decode_arguments(method.arguments, data)
        except Malformed as problem:
            raise ConnectionFailed(501, f"cannot decode {octets(data)}") from problem
        if method.class_id == 10:
            if number:
                raise ConnectionFailed(503, "unimplemented method")
            self._connection_method(method.name, arguments)
            return
        self._require_open(method.name)
        if number == 0:
            raise ConnectionFailed(504, "unexpected method in connection state running")
        if method.name == "channel.open":
            self._open_channel(number, channel)
        elif channel is None:
            raise ConnectionFailed(504, "expected 'channel.open'")
        elif channel.is_closing:
            self._close_of_closing(channel, method.name)
        elif channel.arriving is not None:
            self._method_ids = PUBLISH_IDS
            raise ConnectionFailed(
                505, "expected content header for class 60, got non content header frame instead"
            )
        else:
            self._channel_method(channel, method.name, arguments, cast(tuple[int, int], ids))

    def _require_open(self, name: str) -> None:
        if not self.handshake.is_open:
            raise ConnectionFailed(503, f"{name} before the connection is open")

    def _channel_method(
        self, channel: Channel, name: str, arguments: list[Any], ids: tuple[int, int]
    ) -> None:
        handler = getattr(channel, "on_" + name.replace(".", "_").replace("-", "_"), None)
        if handler is None:
            raise ConnectionFailed(503, f"{name} is not for a client to send")
        try:
            handler(*arguments)
        except ConnectionRefusal:
            raise
        except Refusal as refusal:
            self.refuse(channel, refusal, ids)

    def _connection_method(self, name: str, arguments: list[Any]) -> None:
        match name:
            case "connection.close":
                self._let_go()
                self.send(0, "connection.close-ok")
                self._is_closing = True
                self._close_later()  # the peer closes the socket, and may still be writing to it
            case "connection.close-ok":
                self.transport.close()
            case "connection.update-secret":
                self._require_open("connection.update-secret")
                self.handshake.update_secret(arguments[0])
            case _:
                self.handshake.method(name, arguments)

    def _open_channel(self, number: int, channel: Channel | None) -> None:
        if channel is not None and not channel.is_closing:
            raise ConnectionFailed(504, "second 'channel.open' seen")
        if channel is None and len(self.channels) >= self.channel_max:  # whatever its number is
            most, count = self.channel_max, len(self.channels)
            text = f"number of channels opened on a connection ({count}) has reached"
            raise ConnectionFailed(530, f"{text} the negotiated channel_max ({most})")
        self.broker.sessions.open_channel(self.login)
        self.channels[number] = Channel(self, number)
        self.send(number, "channel.open-ok", b"")

    def _close_of_closing(self, channel: Channel, name: str) -> None:
        """Ignore a method on a channel that the broker closed, except the close and its answer."""
        if name == "channel.close":
            self.send(channel.number, "channel.close-ok")
        if name in ("channel.close", "channel.close-ok"):
            self.forget(channel)

    def forget(self, channel: Channel) -> None:
        """Forget a channel that is closed on both sides; its unconfirmed publishes stay unconfirmed."""
        channel.is_closing = True
        self._unconfirmed.discard(channel)
        if self.channels.pop(channel.number, None) is not None:
            self.broker.sessions.close_channels(self.login, 1)

    # ---- closing

    def refuse(self, channel: Channel, refusal: Refusal, ids: tuple[int, int]) -> None:
        """Close a channel because of a mistake."""
        if isinstance(refusal, ConnectionRefusal):
            self._method_ids = ids
            raise refusal
        channel.is_closing = True
        self._unconfirmed.discard(channel)
        channel.arriving = None
        channel.close()
        code = reply_code(refusal)
        self.send(channel.number, "channel.close", code, reply_text(code, refusal), *ids)

    def fail(self, problem: Exception) -> None:
        """Close the connection because of a mistake."""
        code = reply_code(problem)
        if code == 541:
            log.error("a connection is closed by an error of the broker", exc_info=problem)
            problem = ConnectionFailed(541, type(problem).__name__)
        ids = self._method_ids if code != 501 or "decode" in str(problem) else (0, 0)
        self._rest, self.is_behind = b"", False
        self._let_go()
        self.send(0, "connection.close", code, reply_text(code, problem), *ids)
        self.flush()
        self._is_closing = True
        self.is_waiting = self.is_blocked = False
        read_on(self)
        self._close_later()

    def close(self, text: str) -> None:
        """Close the connection because the broker stops, or an operator wants it."""
        self._method_ids = (0, 0)
        self.fail(ConnectionFailed(320, text))

    def forget_method(self) -> None:
        """Let the next close name no method as its cause."""
        self._method_ids = (0, 0)

    def peer_can(self, capability: str) -> bool:
        capabilities = self.client_properties.get("capabilities")
        return isinstance(capabilities, dict) and bool(capabilities.get(capability))

    def _close_later(self) -> None:
        asyncio.get_running_loop().call_later(CLOSING_S, self.transport.close)

    def _let_go(self) -> None:
        """Close all channels, and delete the exclusive queues of the connection."""
        for channel in self.channels.values():
            channel.close()
        self.broker.sessions.close_channels(self.login, len(self.channels))
        self.channels.clear()
        if self.handshake.is_open:
            self.vhost.release(self)
        self.handshake.end()
        self.broker.sessions.leave(self)
