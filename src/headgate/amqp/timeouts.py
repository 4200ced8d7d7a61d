"""Deliveries that are not acknowledged in time: their channel is closed, and they go back to their queues.

Deliveries carry no time. Instead the last delivery tag of each channel is noted from time to time; a delivery that is older than such a
note was sent before it. So a channel is closed at most two intervals later than its time-out says.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from headgate.broker import PreconditionFailed

if TYPE_CHECKING:
    from headgate.amqp.channel import Channel
    from headgate.amqp.deliveries import Unacked
    from headgate.amqp.handshake import AmqpListener

LONGEST_S: Final = 15.0  # the longest time between two checks of all channels
SHORTEST_S: Final = 0.05
CHECKS_PER_TIMEOUT: Final = 8  # within the shortest time-out in use


class AckTimeouts:
    """Checks the channels of a server, often enough for the shortest time-out in use."""

    def __init__(self, listener: AmqpListener) -> None:
        self._listener = listener
        self._timer: asyncio.TimerHandle | None = None
        self._shortest_ms: int | None = None

    def use(self, timeout_ms: int | None) -> None:
        """Note that a time-out is in use."""
        shortest = self._shortest_ms
        if timeout_ms and (shortest is None or timeout_ms < shortest):
            self._shortest_ms = timeout_ms
            self.stop()
            self._look_later(timeout_ms)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look_later(self, shortest_ms: int) -> None:
        seconds = min(max(shortest_ms / 1000 / CHECKS_PER_TIMEOUT, SHORTEST_S), LONGEST_S)
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look, shortest_ms)

    def _look(self, shortest_ms: int) -> None:
        now = time.monotonic()
        default = self._listener.broker.consumer_timeout_ms
        for connection in list(self._listener.connections):
            for channel in list(connection.channels.values()):
                if channel.unacked:
                    timeout = find_overdue(channel, now, default, shortest_ms)
                    if timeout is not None:
                        connection.refuse(
                            channel, PreconditionFailed(_words(channel, timeout)), (0, 0)
                        )
                elif channel.sent_by:
                    channel.sent_by.clear()
        self._listener.broker.flush()
        self._look_later(shortest_ms)


def find_overdue(
    channel: Channel, now: float, default_ms: int | None, shortest_ms: int
) -> int | None:
    """The time-out, in milliseconds, of a delivery of the channel that should have been acknowledged by now."""
    notes = channel.sent_by
    if not notes or notes[-1][1] != channel.delivery_tag:
        notes.append((now, channel.delivery_tag))
    first = next(iter(channel.unacked))
    while notes[0][1] < first:
        notes.popleft()
    at = 0
    for tag, sent in channel.unacked.items():
        while notes[at][1] < tag:
            at += 1
        waited_ms = (now - notes[at][0]) * 1000
        if waited_ms < shortest_ms:
            return None
        timeout = timeout_of(sent, default_ms)
        if timeout and waited_ms >= timeout:
            return timeout
    return None


def timeout_of(sent: Unacked, default_ms: int | None) -> int | None:
    """The time-out of a delivery: of its consumer, else of the queue, else of the broker; 0 or None: none."""
    timeout = sent.queue.definition.consumer_timeout
    if sent.consumer is not None:
        timeout = sent.consumer.timeout_ms
    return default_ms if timeout is None else timeout


def _words(channel: Channel, timeout_ms: int) -> str:
    return (
        f"delivery acknowledgement on channel {channel.number} timed out. Timeout value used: {timeout_ms} ms. "
        "This timeout value can be configured, see consumers doc guide to learn more"
    )
