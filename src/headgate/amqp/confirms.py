"""Publisher confirms: sent at the end of a turn or, for stored messages, when `store.committer` has written their commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from headgate.amqp.methods import method_frame

if TYPE_CHECKING:
    from headgate.amqp.channel import Channel
    from headgate.amqp.connection import Connection


class AwaitedCommit:
    """A commit for which the publishes of a channel wait, up to the number `up_to`."""

    __slots__ = ("is_done", "up_to")

    def __init__(self, up_to: int) -> None:
        self.up_to, self.is_done = up_to, False


def confirm_published(connection: Connection, channels: Iterable[Channel]) -> None:
    """Confirm what channels published in this turn, or have it confirmed by the commit that stores it."""
    for channel in channels:
        if channel.waits_for_store or connection.broker.published_streams:
            channel.waits_for_store = False
            connection.after_commit(await_commit(channel))
        elif not channel.commits:
            connection.out.append(make_confirms(channel, channel.published))


def await_commit(channel: Channel) -> Callable[[], None]:
    """Return the function that confirms all publishes so far, to be called when they are durable."""
    commit = AwaitedCommit(channel.published)
    channel.commits.append(commit)

    def confirm() -> None:
        commit.is_done = True
        # What was published later may be durable earlier: all are confirmed in order.
        up_to = 0
        while channel.commits and channel.commits[0].is_done:
            up_to = channel.commits.popleft().up_to
        if channel.is_closing or not up_to:
            return
        # Publishes that needed no store waited for those that do.
        is_last = not channel.commits and not channel.waits_for_store
        channel.connection.write(make_confirms(channel, channel.published if is_last else up_to))

    return confirm


def make_confirms(channel: Channel, up_to: int) -> bytes:
    """The frames that ack or nack all unconfirmed publishes up to a number."""
    parts: list[bytes] = []
    for number in [number for number in channel.refused if number <= up_to]:
        _ack_up_to(channel, number - 1, parts)
        parts.append(method_frame(channel.number, "basic.nack", number, False, False))
        channel.confirmed = number
    channel.refused = [number for number in channel.refused if number > up_to]
    _ack_up_to(channel, up_to, parts)
    return b"".join(parts)


def _ack_up_to(channel: Channel, number: int, parts: list[bytes]) -> None:
    if number > channel.confirmed:
        count = number - channel.confirmed
        channel.traffic.confirm += count
        channel.vhost.confirms += count
        parts.append(method_frame(channel.number, "basic.ack", number, count > 1))
        channel.confirmed = number
