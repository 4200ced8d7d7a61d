"""Confirms that wait until what they confirm is durable."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.amqp.channel import Channel


class AwaitedCommit:
    """A commit that publishes of a channel wait for, up to one of them."""

    __slots__ = ("is_done", "up_to")

    def __init__(self, up_to: int) -> None:
        self.up_to, self.is_done = up_to, False


def await_commit(channel: Channel) -> Callable[[], None]:
    """What to call when everything that the channel has published so far is durable: then it is confirmed."""
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
        channel.connection.write(channel.make_confirms(channel.published if is_last else up_to))

    return confirm
