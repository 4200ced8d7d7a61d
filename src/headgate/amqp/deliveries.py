"""Deliveries that a client has not acknowledged, and the message that it was sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from headgate.amqp.content import Content
from headgate.broker import BrokerQueue, PreconditionFailed, QueueEntry

if TYPE_CHECKING:
    from headgate.amqp.channel import Channel
    from headgate.amqp.consumer import ChannelConsumer


class Unacked(NamedTuple):
    """An entry that was sent and not acknowledged; the consumer is None after a basic.get."""

    entry: QueueEntry
    consumer: ChannelConsumer | None
    queue: BrokerQueue


def sent_content(entry: QueueEntry, queue: BrokerQueue) -> Content:
    """The message of an entry as a consumer gets it; from a quorum queue, with the header `x-delivery-count`."""
    content = entry.message
    assert isinstance(content, Content)
    if entry.deliveries and queue.definition.type == "quorum":
        return content.with_headers({"x-delivery-count": entry.deliveries})
    return content


def count_off(channel: Channel, sent: Unacked) -> None:
    """Subtract a settled delivery from the count of its consumer or, after basic.get, of its channel."""
    if sent.consumer is not None:
        sent.consumer.unacked -= 1
    else:
        channel.got -= 1


def settled(
    unacked: Mapping[int, Unacked], tag: int, multiple: bool
) -> Sequence[tuple[int, Unacked]]:
    """The deliveries that an ack, nack or reject with this tag settles."""
    if tag == 0 and multiple:
        return list(unacked.items())
    if tag not in unacked:
        raise PreconditionFailed(f"unknown delivery tag {tag}")
    if not multiple:
        return ((tag, unacked[tag]),)
    # Requeued entries get new tags, so the tags are in order.
    return list(takewhile(lambda sent: sent[0] <= tag, unacked.items()))
