"""The limits of a queue. Messages for which a consumer has room are delivered first, and do not count."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.broker.message import BrokerMessage
    from headgate.broker.queue import ClassicQueue


def is_over_limits(queue: ClassicQueue, message: BrokerMessage | None = None) -> bool:
    """Whether a queue holds more than it may, or would with this message."""
    count, size = (0, 0) if message is None else (1, message.body_size)
    most, most_bytes = queue.definition.max_length, queue.definition.max_bytes
    return (most is not None and len(queue) + count > most) or (
        most_bytes is not None and queue.ready_bytes + size > most_bytes
    )


def has_space(queue: ClassicQueue, message: BrokerMessage) -> bool:
    """Whether a queue takes a message; one that refuses it may make a dead letter of it."""
    overflow = queue.definition.overflow
    if overflow == "drop-head" or not is_over_limits(queue, message):
        return True
    deliver_first(queue)
    if not is_over_limits(queue, message):
        return True
    if overflow == "reject-publish-dlx":
        queue.vhost.dead_letter(queue, message, "maxlen")
    return False


def deliver_first(queue: ClassicQueue) -> None:
    """Deliver to consumers that have room, unless a delivery is under way."""
    if queue.consumers and not queue.is_draining:
        queue.drain()


def drop_paged_out(queue: ClassicQueue) -> None:
    """Where there are limits, delete what an earlier run of the broker only paged out, so that it does not count."""
    if queue.definition.max_length is None and queue.definition.max_bytes is None:
        return
    for lane in queue.lanes:
        lane.drop_paged_out()
        if lane.closed:
            queue.vhost.broker.touched.add(lane)
