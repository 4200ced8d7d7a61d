"""Consumers of a channel: how much they may be sent, and the frames of their deliveries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from headgate.amqp.content import Content
from headgate.amqp.deliveries import Unacked, sent_content
from headgate.amqp.methods import FRAME, FRAME_METHOD
from headgate.broker import BrokerConsumer, BrokerQueue, PreconditionFailed, QueueEntry, type_name

if TYPE_CHECKING:
    from headgate.amqp.channel import Channel

NO_LIMIT: Final = 1_000
_DELIVER: Final = b"\0\x3c\0\x3c"


class ChannelConsumer(BrokerConsumer):
    """A consumer that basic.consume started."""

    def __init__(
        self,
        channel: Channel,
        tag: str,
        queue: BrokerQueue,
        *,
        no_ack: bool,
        exclusive: bool,
        arguments: Mapping[str, Any],
    ) -> None:
        _check_arguments(queue, arguments)
        priority = arguments.get("x-priority", 0)
        super().__init__(
            tag,
            queue,
            no_ack=no_ack,
            exclusive=exclusive,
            priority=priority,
            prefetch=channel.prefetch,
            shares_prefetch=channel.prefetch_all > 0,
            arguments=arguments,
        )
        self.channel = channel
        self.timeout_ms = _timeout(queue, arguments.get("x-consumer-timeout"))
        channel.connection.listener.timeouts.use(self.timeout_ms)
        self.filter_text = arguments.get("x-filter")
        self._heads = _Heads(channel.number, tag)

    def room(self) -> int:
        channel = self.channel
        connection = channel.connection
        if not connection.is_writable:
            return 0
        if self.no_ack:
            return NO_LIMIT
        room = self.prefetch - self.unacked if self.prefetch else NO_LIMIT
        if channel.prefetch_all:
            room = min(room, channel.prefetch_all - len(channel.unacked) + channel.got)
        return room

    def deliver(self, entries: Sequence[QueueEntry]) -> None:
        channel = self.channel
        connection = channel.connection
        queue = self.queue
        number, frame_max = channel.number, connection.frame_max
        tag, heads, out = channel.delivery_tag, self._heads, connection.out
        unacked = None if self.no_ack else channel.unacked
        counts = queue.definition.type == "quorum"
        size = 0
        for entry in entries:
            content = entry.message
            if counts and entry.deliveries:
                content = sent_content(entry, queue)
            tag += 1
            route, raw = content.route, content.raw  # type: ignore[attr-defined]
            out += (
                heads[len(route)],
                tag.to_bytes(8, "big"),
                b"\1" if entry.redelivered else b"\0",
                route,
                b"\xce",
                raw
                if content.channel == number and content.is_single and len(raw) <= frame_max  # type: ignore[attr-defined]
                else content.frames(number, frame_max),  # type: ignore[attr-defined]
            )
            if unacked is not None:
                unacked[tag] = Unacked(entry, self, queue)
            size += len(raw)
        channel.delivery_tag = tag
        if unacked is not None:
            self.unacked += len(entries)
            channel.traffic.deliver += len(entries)
        else:
            channel.traffic.deliver_no_ack += len(entries)
        connection.wrote(size)

    def notify_cancel(self) -> None:
        self.channel.notify_cancel(self)


class ReplyConsumer:
    """The consumer of direct replies to one channel; they pass through no queue."""

    def __init__(self, channel: Channel, tag: str, name: str) -> None:
        self.channel, self.tag, self.name = channel, tag, name
        self._heads = _Heads(channel.number, tag)

    def deliver(self, entries: Sequence[QueueEntry]) -> None:
        channel = self.channel
        connection = channel.connection
        for entry in entries:
            content = entry.message
            assert isinstance(content, Content)
            channel.delivery_tag += 1
            connection.out += (
                self._heads[len(content.route)],
                channel.delivery_tag.to_bytes(8, "big"),
                b"\0",
                content.route,
                b"\xce",
                content.frames(channel.number, connection.frame_max),
            )
            connection.wrote(len(content.raw))


class _Heads(dict[int, bytes]):
    """The first bytes of a basic.deliver, by the length of exchange and routing key."""

    def __init__(self, channel: int, tag: str) -> None:
        self._channel = channel
        raw = tag.encode()
        self._method = _DELIVER + bytes((len(raw),)) + raw

    def __missing__(self, size: int) -> bytes:
        frame = FRAME.pack(FRAME_METHOD, self._channel, len(self._method) + 9 + size)
        head = self[size] = frame + self._method
        return head


_FOR_STREAMS: Final = ("x-stream-offset", "x-stream-filter", "x-stream-match-unfiltered")
_NOT_FOR_STREAMS: Final = ("x-priority",)


def _check_arguments(queue: BrokerQueue, arguments: Mapping[str, Any]) -> None:
    kind = queue.definition.type
    where = f"for queue '{queue.name}' in vhost '{queue.vhost.name}'"
    for name in _NOT_FOR_STREAMS if kind == "stream" else _FOR_STREAMS:
        if name in arguments:
            raise PreconditionFailed(
                f"invalid arg '{name}' {where} of queue type rabbit_{kind}_queue"
            )
    priority = arguments.get("x-priority", 0)
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise PreconditionFailed(
            f"invalid arg 'x-priority' {where}: \"expected integer, got {type_name(priority)}\""
        )
    browse = arguments.get("x-browse", False)
    if not isinstance(browse, bool):
        raise PreconditionFailed(f"invalid arg 'x-browse' for consumer: {browse!r} is no boolean")
    if browse and kind == "stream":
        raise PreconditionFailed(
            f"invalid arg 'x-browse': a consumer of stream '{queue.name}' takes nothing in any case"
        )


def _timeout(queue: BrokerQueue, value: Any) -> int | None:
    """How many milliseconds the consumer may take to acknowledge, if it or its queue says so."""
    if value is None:
        return queue.definition.consumer_timeout
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise PreconditionFailed(f"invalid arg 'x-consumer-timeout' for consumer: {value!r}")
    return value
